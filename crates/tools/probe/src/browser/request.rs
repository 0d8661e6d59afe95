//! HTTP request over a connection secured by [`handshake`](super::handshake).

use std::cell::RefCell;
use std::future::pending;

use brisk_http_client::{Http2, Response};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex, split};

use super::handshake::{Secured, named, record};
use crate::Settings;
use crate::connection::{self, Protocol};

/// Buffer between HTTP and TLS.
const ROOM: usize = 64 << 10;
/// Maximum bytes of a sent record.
const SENT: usize = 8 << 10;

/// Alert at the regular end of a connection.
const CLOSE_NOTIFY: u8 = 0;

/// Result of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BrowserOutcome {
    pub(super) status: u16,
    /// ALPN name; `http/1.1` without ALPN.
    pub(super) protocol: String,
    /// Size and algorithm of the certificate message, if it was compressed.
    pub(super) compression: Option<(usize, &'static str)>,
}

/// Requests [`Settings::url`] and reads the response to its end.
pub(super) async fn ask(
    settings: &Settings,
    secured: Secured,
    read: &mut (impl AsyncRead + Unpin),
    write: &mut (impl AsyncWrite + Unpin),
) -> Result<BrowserOutcome, String> {
    let Secured { said, mut opener, mut sealer } = secured;
    let (near, far) = duplex(ROOM);
    let (mut from, mut to) = split(far);
    let up = async {
        let mut buffer = [0; SENT];
        loop {
            let length = from.read(&mut buffer).await.map_err(|error| error.to_string())?;
            if length == 0 {
                // An end of the requests must not end `select!`: the response may still be on its way.
                return pending().await;
            }
            let bytes = sealer.seal(23, &buffer[..length]).ok_or("a record cannot be sealed")?;
            write.write_all(&bytes).await.map_err(|error| format!("the connection breaks: {error}"))?;
        }
    };
    // Both futures run in this task, so a cell without a lock is enough.
    let refusal = RefCell::new(None);
    let down = async {
        // The end, however it comes, is the reader's business.
        while let Ok((header, payload)) = record(read).await {
            match opener.open(header, &payload) {
                Some((23, content)) => to.write_all(&content).await.map_err(|error| error.to_string())?,
                // Tickets, and new keys, which the opener follows.
                Some((22, _)) => {}
                Some((21, alert)) => {
                    refusal.replace(refused(&alert));
                    break;
                }
                Some(_) => break,
                None => return Err("a record of the server cannot be opened".to_owned()),
            }
        }
        // `exchange` reads the rest of the buffer and then the end. A return here would end `select!` and
        // lose the rest. The shutdown fails only if `exchange` has dropped its side.
        let _ = to.shutdown().await;
        pending().await
    };
    let protocol = Protocol::of(said.protocol.as_deref());
    let answer = tokio::select! {
        // What came before an alert is read first, and may be the whole answer.
        done = exchange(settings, protocol, near) => {
            done.map_err(|error| refusal.take().unwrap_or(error))?
        }
        failed = up => return failed,
        failed = down => return failed,
    };
    let protocol = said.protocol.unwrap_or_else(|| "http/1.1".to_owned());
    Ok(BrowserOutcome { status: answer.status, protocol, compression: said.compression })
}

/// Text of an alert that ends the connection; `None` for `close_notify`.
fn refused(alert: &[u8]) -> Option<String> {
    (alert.get(1) != Some(&CLOSE_NOTIFY)).then(|| named(alert))
}

async fn exchange(
    settings: &Settings,
    protocol: Protocol,
    mut stream: DuplexStream,
) -> Result<Response, String> {
    let mut response = Response::default();
    let mut http2 = (protocol == Protocol::Http2).then(Http2::new);
    let request = connection::request(&settings.url, &settings.agent, http2.as_mut());
    connection::exchange(&mut stream, http2.as_mut(), Some(&request), &mut response).await?;
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::browser::handshake::ServerFlight;
    use brisk_handshake_view::open::{Opener, Sealer};
    use brisk_wire::registry::CipherSuite;

    /// Result with a server that sends these records after its handshake.
    async fn asked(records: &[(u8, &[u8])]) -> Result<BrowserOutcome, String> {
        let (suite, secret) = (CipherSuite::TLS_AES_128_GCM_SHA256, [7; 32]);
        let mut server = Sealer::new(suite, &secret).expect("keys");
        let sealed = records.iter().map(|(kind, content)| server.seal(*kind, content).expect("a record"));
        let bytes: Vec<u8> = sealed.flatten().collect();
        let secured = Secured {
            said: ServerFlight::default(),
            opener: Opener::new(suite, [&secret[..]].into_iter()),
            sealer: Sealer::new(suite, &secret).expect("keys"),
        };
        let settings = Settings::new("https://a.test/".parse().expect("a URL"));
        ask(&settings, secured, &mut &bytes[..], &mut tokio::io::sink()).await
    }

    #[tokio::test]
    async fn an_alert_in_place_of_an_answer_is_named() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
        let got = asked(&[(23, answer), (21, &[1, 0])]).await.expect("an answer");
        assert_eq!((got.status, got.protocol.as_str()), (200, "http/1.1"));
        assert_eq!(asked(&[(21, &[2, 116])]).await, Err("alert certificate_required".to_owned()));
        assert_eq!(
            asked(&[(23, &answer[..30]), (21, &[2, 80])]).await,
            Err("alert internal_error".to_owned())
        );
        let ended = asked(&[(21, &[1, 0])]).await.expect_err("no answer");
        assert!(ended.contains("without an answer"), "{ended}");
    }
}

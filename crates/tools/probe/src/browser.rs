//! Checks whether a client like Chrome gets the best that the server supports, with a `ClientHello` of Chrome's bytes.
//!
//! TLS libraries write no hello with reserved values (RFC 8701) in these places, so the hello, the rest of the TLS 1.3
//! handshake and the request over it are implemented here. Trust and sessions come from the report of the probe's
//! regular connection.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod handshake;
mod hello;
mod request;

use brisk_handshake_view::Chain;
use brisk_handshake_view::records::{is_warning, server_hellos, split};
use brisk_wire::registry::{NamedGroup, ProtocolVersion};
use brisk_wire::server_flight::alert_text;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use hello::Hello;
use request::BrowserOutcome;

use crate::prober::Prober;
use crate::report::Report;
use crate::{ProbeError, Settings, block_on};

/// Maximum bytes read from the server before its `ServerHello` is complete.
const ANSWER: usize = 64 * 1024;

/// A property of the connection that matters to browsers.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Name of the property.
    pub name: &'static str,
    /// Observed value.
    pub gets: String,
    /// Whether `gets` is the right value.
    pub is_right: bool,
    /// Expected value, with the reason.
    pub should: &'static str,
}

/// Results for a client like Chrome.
#[derive(Clone, Debug, Serialize)]
pub struct Browser {
    /// Size of the hello in bytes.
    pub hello_bytes: usize,
    /// Checked properties.
    pub checks: Vec<Check>,
    /// Differences between the probe and Chrome.
    pub differences: &'static [&'static str],
}

const DIFFERENCES: &[&str] = &[
    "the extensions have one order; Chrome's is another for each connection",
    "trust and sessions are those of the probe's own connection; TLS 1.2, or a retry, ends at the server's hello",
    "no encrypted hello (ECH) is sent, only the extension that looks like one",
    "QUIC is not tried",
];

/// The server's reaction to the hello.
#[derive(Debug, PartialEq, Eq)]
enum HelloOutcome {
    Hello { version: ProtocolVersion, group: Option<NamedGroup>, is_retry: bool },
    Failed(String),
}

/// Result of the rest of the connection, or the reason for its end.
type RestOfConnection = Result<BrowserOutcome, String>;

/// Sends the hello to the server of `report`, completes the connection and checks both.
pub fn browser(settings: &Settings, report: &Report) -> Result<Browser, ProbeError> {
    let hello = hello::chrome(&settings.url)?;
    let prober = Prober::new(settings)?;
    // What both get is compared, so both ask the same server.
    let address = report.address.as_ref().and_then(|address| address.parse().ok());
    let (outcome, rest) = block_on(async {
        let deadline = Instant::now() + settings.timeout;
        let mut tcp = prober.dial(address).await?;
        let mut answer = Vec::new();
        let work = ask(&mut tcp, &hello.bytes, &mut answer);
        // Both halves share one deadline, so that a slow hello leaves less time for the rest and the sum
        // keeps to the timeout of the settings.
        let outcome =
            timeout_at(deadline, work).await.unwrap_or_else(|_| HelloOutcome::Failed("no answer".to_owned()));
        if !outcome.goes_on() {
            return Ok((outcome, None));
        }
        let work = rest(settings, &hello, tcp, &answer);
        let rest = timeout_at(deadline, work).await.unwrap_or_else(|_| Err("out of time".to_owned()));
        Ok::<_, ProbeError>((outcome, Some(rest)))
    })??;
    let checks = checks(&outcome, rest.as_ref(), report);
    Ok(Browser { hello_bytes: hello.bytes.len(), checks, differences: DIFFERENCES })
}

impl HelloOutcome {
    /// Whether the handshake can be completed here: TLS 1.3 without a `HelloRetryRequest`.
    fn goes_on(&self) -> bool {
        // A retry would need a second hello with another key share, and TLS 1.2 another handshake;
        // `DIFFERENCES` names both limits.
        matches!(self, Self::Hello { version: ProtocolVersion::TLS1_3, is_retry: false, .. })
    }
}

/// Sends the hello and reads the server's reaction.
async fn ask(tcp: &mut TcpStream, hello: &[u8], answer: &mut Vec<u8>) -> HelloOutcome {
    // No early return: a server that refuses may close before it has read the whole hello, and the alert in
    // the receive buffer is a better reason than a broken pipe.
    let written = tcp.write_all(hello).await;
    loop {
        // Each call parses from the first byte; `ANSWER` bounds the cost against a server that sends warnings
        // forever.
        if let Some(outcome) = judge(answer) {
            return outcome;
        }
        match tcp.read_buf(answer).await {
            Ok(0) => return HelloOutcome::Failed("the server closes the connection".to_owned()),
            Ok(_) if answer.len() > ANSWER => return HelloOutcome::Failed("no server hello".to_owned()),
            Ok(_) => {}
            Err(error) => {
                let reason = written.as_ref().err().unwrap_or(&error);
                return HelloOutcome::Failed(format!("the connection breaks: {reason}"));
            }
        }
    }
}

/// Completes the handshake and sends a request. `answer` begins with the server's hello.
async fn rest(settings: &Settings, hello: &Hello, mut tcp: TcpStream, answer: &[u8]) -> RestOfConnection {
    let (read, mut write) = tcp.split();
    let mut read = answer.chain(read);
    let secured = handshake::complete(&mut read, &mut write, hello.message(), &hello.secrets).await?;
    request::ask(settings, secured, &mut read, &mut write).await
}

/// Interprets the bytes of a server; `None` if more bytes are needed.
fn judge(answer: &[u8]) -> Option<HelloOutcome> {
    if let Some(hello) = server_hellos(answer).into_iter().next() {
        return Some(HelloOutcome::Hello {
            version: hello.version,
            group: hello.group,
            is_retry: hello.is_retry,
        });
    }
    let (mut header, mut payload, mut rest) = split(answer)?;
    while header[0] == 21 && is_warning(payload) {
        (header, payload, rest) = split(rest)?;
    }
    match (header[0], payload) {
        (21, [_, description, ..]) => Some(HelloOutcome::Failed(alert_text(*description))),
        (22, _) => None,
        _ => Some(HelloOutcome::Failed("not TLS".to_owned())),
    }
}

fn checks(outcome: &HelloOutcome, rest: Option<&RestOfConnection>, report: &Report) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut add = |name, gets: String, is_right, should| checks.push(Check { name, gets, is_right, should });
    match outcome {
        HelloOutcome::Failed(reason) => {
            add("hello", reason.clone(), false, "accepted: reserved values are to be ignored (RFC 8701)");
        }
        HelloOutcome::Hello { version, group, is_retry } => {
            add(
                "hello",
                "accepted".to_owned(),
                true,
                "accepted: reserved values are to be ignored (RFC 8701)",
            );
            add("version", version.to_string(), *version == ProtocolVersion::TLS1_3, "TLS 1.3");
            let name = group.map_or_else(|| "none".to_owned(), |group| group.to_string());
            let is_right = *group == Some(NamedGroup::X25519MLKEM768) && !is_retry;
            add("group", name, is_right, "X25519MLKEM768, which resists quantum computers");
            let retry = if *is_retry { "HelloRetryRequest" } else { "none" };
            add("retry", retry.to_owned(), !is_retry, "none: it costs a round trip");
        }
    }
    match rest {
        Some(Err(reason)) => add("handshake", reason.clone(), false, "completed, and the request answered"),
        Some(Ok(got)) => {
            add("handshake", "completed".to_owned(), true, "completed");
            let status = report.answer.as_ref().map(|answer| answer.status);
            // Without a response on the regular connection there is nothing to differ from.
            let is_same = status.is_none_or(|status| status == got.status);
            let text = format!("{} over {}", got.status, got.protocol);
            add("answer", text, is_same, "that of other clients");
        }
        None => {}
    }
    if let Some(tls) = &report.tls {
        // The protocol of this connection has precedence: the regular one may have offered HTTP/1.1 only.
        let own = rest.and_then(|rest| rest.as_ref().ok()).map(|got| Some(got.protocol.clone()));
        let protocol = own.unwrap_or_else(|| tls.protocol.clone());
        let is_right = protocol.as_deref() == Some("h2");
        add("ALPN", protocol.unwrap_or_else(|| "none".to_owned()), is_right, "h2");
        if let Some(chain) = &tls.chain {
            add("certificate", tls.trust(), tls.is_trusted == Some(true), "trusted");
            let (gets, is_right) = compression(rest, chain);
            add("compressed chain", gets, is_right, "brotli (RFC 8879)");
        }
        add(
            "session",
            if tls.gives_session { "can be resumed" } else { "none" }.to_owned(),
            tls.gives_session,
            "one at least, or each connection is a full handshake",
        );
        if let Some(flight) = tls.flight_bytes {
            let is_right = flight <= tls.window_bytes;
            add("first flight", format!("{flight} B"), is_right, "not longer than ten segments");
        }
    }
    checks
}

/// Compression of the chain, and whether it is the right one. If this connection did not get to the chain, the probe's
/// regular connection decides, which offers more algorithms than Chrome.
fn compression(rest: Option<&RestOfConnection>, chain: &Chain) -> (String, bool) {
    let compressed = match rest {
        Some(Ok(got)) => got.compression,
        _ => chain.compressed.as_ref().map(|(bytes, name)| (*bytes, name.as_str())),
    };
    compressed
        .map_or(("no".to_owned(), false), |(bytes, name)| (format!("{name}, {bytes} B"), name == "brotli"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::report::Resolved;
    use crate::resolve::HttpsAnswer;
    use crate::trace::Trace;

    #[test]
    fn a_compressed_chain_is_that_of_the_connection_that_is_judged() {
        let got = |compression| Ok(BrowserOutcome { status: 200, protocol: "h2".to_owned(), compression });
        let chain = |compressed: Option<(usize, &str)>| Chain {
            compressed: compressed.map(|(bytes, name)| (bytes, name.to_owned())),
            ..Chain::default()
        };
        let brotli = got(Some((500, "brotli")));
        assert_eq!(compression(Some(&brotli), &chain(None)), ("brotli, 500 B".to_owned(), true));
        assert_eq!(compression(Some(&got(Some((9, "zlib")))), &chain(None)), ("zlib, 9 B".to_owned(), false));
        assert_eq!(compression(Some(&got(None)), &chain(Some((9, "brotli")))), ("no".to_owned(), false));
        let failed = Err("out of time".to_owned());
        assert_eq!(compression(Some(&failed), &chain(Some((9, "zlib")))), ("zlib, 9 B".to_owned(), false));
        assert_eq!(compression(None, &chain(Some((9, "brotli")))), ("brotli, 9 B".to_owned(), true));
    }

    #[test]
    fn the_server_of_the_report_is_asked() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut buffer = [0; 4096];
            assert!(stream.read(&mut buffer).expect("a hello") > 0);
            stream.write_all(&[21, 3, 3, 0, 2, 2, 40]).expect("sent");
            // The hello is longer than one segment may be: what is not read would reset the connection.
            while stream.read(&mut buffer).is_ok_and(|read| read > 0) {}
        });
        let url = format!("https://a.test:{}/", address.port()).parse().expect("a URL");
        let mut settings = Settings::new(url);
        // Nothing listens there.
        settings.connect = Some([127, 0, 0, 2].into());
        let trace = Trace { address: Some(address), ..Trace::default() };
        let resolved =
            Resolved { addresses: Vec::new(), took: std::time::Duration::ZERO, https: HttpsAnswer::NotAsked };
        let report = Report::of(&settings, resolved, &trace, None);
        let found = browser(&settings, &report).expect("a server");
        assert_eq!(found.checks[0].gets, "alert handshake_failure");
        server.join().expect("a server that ends");
    }

    #[test]
    fn a_warning_before_the_hello_is_no_refusal() {
        let warning = [21, 3, 3, 0, 2, 1, 112];
        assert_eq!(judge(&warning), None);
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0xc0, 0x2f, 0]);
        let mut answer = warning.to_vec();
        answer.extend([22, 3, 3, 0, body.len() as u8 + 4, 2, 0, 0, body.len() as u8]);
        answer.extend(body);
        let Some(HelloOutcome::Hello { version, .. }) = judge(&answer) else { panic!("no hello") };
        assert_eq!(version, ProtocolVersion::TLS1_2);
        let refused = judge(&[21, 3, 3, 0, 2, 2, 40]);
        assert_eq!(refused, Some(HelloOutcome::Failed("alert handshake_failure".to_owned())));
    }
}

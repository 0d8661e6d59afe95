//! A request over a connection that was secured here.

use std::future::pending;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex, split};

use super::handshake::{Secured, record};
use crate::answer::Answer;
use crate::connection::Protocol;
use crate::http2::Http2;
use crate::trace::Milestones;
use crate::{ProbeError, Settings, http1};

/// Bytes that wait between both halves, and of a record that is sent.
const ROOM: usize = 64 << 10;
const SENT: usize = 8 << 10;

/// What a client like Chrome got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Got {
    pub(super) status: u16,
    /// As ALPN names it; `http/1.1` without.
    pub(super) protocol: String,
    /// The certificate came compressed.
    pub(super) is_compressed: bool,
}

/// Asks for the URL, and reads the answer to its end.
pub(super) async fn ask(
    settings: &Settings,
    secured: Secured,
    read: &mut (impl AsyncRead + Unpin),
    write: &mut (impl AsyncWrite + Unpin),
) -> Result<Got, String> {
    let Secured { said, mut opener, mut sealer } = secured;
    let (near, far) = duplex(ROOM);
    let (mut from, mut to) = split(far);
    let up = async {
        let mut buffer = [0; SENT];
        loop {
            let length = from.read(&mut buffer).await.map_err(|error| error.to_string())?;
            if length == 0 {
                return pending().await;
            }
            let bytes = sealer.seal(23, &buffer[..length]).ok_or("a record cannot be sealed")?;
            write.write_all(&bytes).await.map_err(|error| format!("the connection breaks: {error}"))?;
        }
    };
    let down = async {
        // The end, however it comes, is the reader's business.
        while let Ok((header, payload)) = record(read).await {
            match opener.open(header, &payload) {
                Some((23, content)) => to.write_all(&content).await.map_err(|error| error.to_string())?,
                // Tickets, and new keys, which the opener follows.
                Some((22, _)) => {}
                Some(_) => break,
                None => return Err("a record of the server cannot be opened".to_owned()),
            }
        }
        let _ = to.shutdown().await;
        pending().await
    };
    let protocol = Protocol::of(said.protocol.as_deref());
    let answer = tokio::select! {
        done = exchange(settings, protocol, near) => done.map_err(|error| error.to_string())?,
        failed = up => return failed,
        failed = down => return failed,
    };
    let protocol = said.protocol.unwrap_or_else(|| "http/1.1".to_owned());
    Ok(Got { status: answer.status, protocol, is_compressed: said.compression.is_some() })
}

async fn exchange(
    settings: &Settings,
    protocol: Protocol,
    mut stream: DuplexStream,
) -> Result<Answer, ProbeError> {
    let Settings { url, agent, .. } = settings;
    let (mut milestones, mut answer) = (Milestones::default(), Answer::default());
    let mut http2 = (protocol == Protocol::Http2).then(Http2::new);
    let bytes = match &mut http2 {
        Some(http2) => http2.request(url, agent),
        None => http1::request(url, agent),
    };
    let written = stream.write_all(&bytes).await;
    written.map_err(|error| ProbeError::Answer(format!("the request cannot be sent: {error}")))?;
    match &mut http2 {
        Some(http2) => http2.answer(&mut stream, &mut milestones, &mut answer).await?,
        None => http1::answer(&mut stream, &mut milestones, &mut answer).await?,
    }
    Ok(answer)
}

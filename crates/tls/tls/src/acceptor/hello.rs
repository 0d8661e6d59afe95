//! The [`ClientHello`] of a TCP connection, before anyone decides about the connection, and refusals by alert.

use std::time::Instant;

use brisk_net::Lingering;
use brisk_telemetry::{HandshakeOutcome, Milestone};
use brisk_wire::client_hello::{ClientHello, HelloError, Progress};
use rustls::AlertDescription;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Trace;
use crate::refusal::Refusal;

/// A `ClientHello` with the bytes that it was read from.
#[derive(Debug)]
pub struct ReadHello {
    /// The fields.
    pub hello: Box<ClientHello>,
    /// All bytes received so far: the records of the `ClientHello`, and bytes behind them.
    pub incoming: Vec<u8>,
    /// Time at which the `ClientHello` was complete.
    pub started: Instant,
}

/// The alert record sent before rustls has a connection: level fatal (2), then the description of RFC 8446 section 6.
pub(super) fn alert(description: AlertDescription) -> [u8; 7] {
    [21, 3, 3, 0, 2, 2, description.into()]
}

/// Response to [`HandshakeOutcome::PlainHttp`] on the TLS port.
const PLAIN_HTTP_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
Content-Length: 70\r\nConnection: close\r\n\r\nThis port speaks HTTPS, not plain HTTP. Use https:// in the address.\r\n";

/// Reads the `ClientHello` of a connection of which `received` has been read already. It takes at most `limit` bytes; the caller
/// limits the time. The client gets the reason for a refusal.
///
/// # Errors
///
/// [`Refusal`] if the client closes the connection, or if its bytes are no `ClientHello` within the limit.
pub async fn read_hello(
    io: &mut TcpStream,
    received: Vec<u8>,
    limit: usize,
    trace: &mut Trace<'_>,
) -> Result<ReadHello, Refusal> {
    let mut incoming = received;
    loop {
        match ClientHello::read(&incoming, limit) {
            Ok(Progress::Complete(hello)) => {
                trace.timeline.mark(Milestone::ClientHello);
                return Ok(ReadHello { hello, incoming, started: Instant::now() });
            }
            Ok(Progress::Incomplete) => {}
            Err(error) => return Err(refuse_hello(io, error, trace).await),
        }
        // Room for a post-quantum hello; more would be held for every client that sends nothing.
        incoming.reserve(2048);
        match io.read_buf(&mut incoming).await {
            Ok(0) => return Err(Refusal::new(HandshakeOutcome::ClientClosed)),
            Ok(len) => *trace.received += len as u64,
            Err(error) => return Err(lost(&error)),
        }
    }
}

/// Refuses a server name with the alert `unrecognized_name`.
pub async fn refuse_name(io: &mut TcpStream, trace: &mut Trace<'_>) -> Refusal {
    send_last(io, &alert(AlertDescription::UnrecognisedName), trace).await;
    Refusal::new(HandshakeOutcome::UnknownName)
}

async fn refuse_hello(io: &mut TcpStream, error: HelloError, trace: &mut Trace<'_>) -> Refusal {
    let decode_error = alert(AlertDescription::DecodeError);
    let (outcome, answer): (_, &[u8]) = match error {
        HelloError::PlainHttp => (HandshakeOutcome::PlainHttp, PLAIN_HTTP_ANSWER),
        // Nothing: the client uses another protocol, and would not understand an alert.
        HelloError::NotTls => (HandshakeOutcome::NotTls, &[]),
        HelloError::TooLarge { .. } => (HandshakeOutcome::TooLarge, &decode_error),
        _ => (HandshakeOutcome::Malformed, &decode_error),
    };
    send_last(io, answer, trace).await;
    Refusal::because(outcome, &error)
}

/// Sends the last bytes of a connection and [lingers](brisk_net::linger) until the client has read them: closing with unread
/// data would reset the connection.
pub(super) async fn send_last(io: &mut TcpStream, bytes: &[u8], trace: &mut Trace<'_>) {
    // The connection is refused in any case; a failure to send the reason changes nothing.
    if bytes.is_empty() || io.write_all(bytes).await.is_err() {
        return;
    }
    *trace.sent += bytes.len() as u64;
    // Closed at once, the socket would send RST for unread input, and the client could lose the alert.
    if io.shutdown().await.is_ok() {
        // Boxed: its buffer would otherwise be half of the size of the handshake's future.
        Box::pin(brisk_net::linger(io, Lingering::BRIEF)).await;
    }
}

pub(super) fn lost(error: &std::io::Error) -> Refusal {
    Refusal::because(HandshakeOutcome::ClientClosed, error)
}

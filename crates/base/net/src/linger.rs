//! [`linger`], a lingering close that lets the client receive the last response.

use std::io;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// Determines whether the connection ends with a reset when it is dropped. Errors are ignored, since they concern a connection that
/// is closed.
pub fn end_by_reset(stream: &TcpStream, is_reset: bool) {
    let _ = set_socket_linger(stream, is_reset.then_some(Duration::ZERO));
}

/// Limits of the data that a client may send after its request was refused.
#[derive(Clone, Copy, Debug)]
pub struct Lingering {
    /// Maximum pause between data.
    pub pause: Duration,
    /// Maximum total time.
    pub time: Duration,
    /// Maximum total bytes.
    pub bytes: usize,
}

impl Lingering {
    /// Limits after an error, such as a TLS alert.
    pub const BRIEF: Self =
        Self { pause: Duration::from_secs(2), time: Duration::from_secs(2), bytes: 256 << 10 };

    /// Limits after a response. The client may be in the middle of an upload, and read the response only after it has
    /// sent more than the buffers and the path hold.
    pub const UPLOAD: Self =
        Self { pause: Duration::from_secs(2), time: Duration::from_secs(10), bytes: 32 << 20 };
}

/// Bytes discarded by one [`drop_piece`].
const PIECE: usize = 16 << 10;

/// Reads and discards data until the client closes, within `limits`.
///
/// Call it after shutting down the sending side: a socket closed with unread data is reset, and the client may then
/// lose the response that was just sent (RFC 9112 section 9.6).
pub async fn linger(stream: &mut TcpStream, limits: Lingering) {
    let until = Instant::now() + limits.time;
    let mut left = limits.bytes;
    // Beyond the limits the connection is reset, as without lingering.
    while left > 0 {
        let pause = limits.pause.min(until.saturating_duration_since(Instant::now()));
        let Ok(Ok(())) = timeout(pause, stream.readable()).await else { return };
        match drop_piece(stream) {
            Ok(0) => return,
            Ok(length) => left = left.saturating_sub(length),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// Uses uninitialised memory outside of the future, whose size it would otherwise increase.
fn drop_piece(stream: &TcpStream) -> io::Result<usize> {
    stream.try_read_buf(&mut Vec::with_capacity(PIECE))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn the_answer_survives_unread_data() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let server = async {
            let (mut socket, _) = listener.accept().await.expect("accept");
            socket.write_all(b"go away").await.expect("answer");
            socket.shutdown().await.expect("shutdown");
            linger(&mut socket, Lingering::BRIEF).await;
        };
        let client = async {
            let mut socket = TcpStream::connect(address).await.expect("connect");
            socket.write_all(&[0; 4096]).await.expect("unwanted data");
            let mut answer = Vec::new();
            socket.read_to_end(&mut answer).await.expect("no reset");
            answer
        };
        let ((), answer) = tokio::join!(server, client);
        assert_eq!(answer, b"go away");
    }
}

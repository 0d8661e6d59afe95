//! Closing without losing the last words.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// Limits of the data that a client may still send after its request was refused.
#[derive(Clone, Copy, Debug)]
pub struct Lingering {
    /// The longest pause.
    pub pause: Duration,
    /// In all.
    pub time: Duration,
    /// Bytes in all.
    pub bytes: usize,
}

impl Lingering {
    /// After an error.
    pub const BRIEF: Self =
        Self { pause: Duration::from_secs(2), time: Duration::from_secs(2), bytes: 256 << 10 };

    /// After a response. The client may be in the middle of an upload and read the response only after it has sent more
    /// than buffers and the path hold.
    pub const UPLOAD: Self =
        Self { pause: Duration::from_secs(2), time: Duration::from_secs(10), bytes: 32 << 20 };
}

/// Dropped at a time.
const PIECE: usize = 16 << 10;

/// Reads and drops what still comes until the client closes, within `limits`.
///
/// Call it after shutting down our side: a socket closed with unread data is reset, and the client may then lose the
/// answer that was just sent (RFC 9112 section 9.6).
pub async fn linger(stream: &mut TcpStream, limits: Lingering) {
    let until = Instant::now() + limits.time;
    let mut left = limits.bytes;
    // Past the limits the connection is reset, as it would have been without us.
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

/// Into room that is not zeroed, and not within the future, which would keep it.
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

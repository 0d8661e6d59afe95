//! Closing without losing the last words.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The most time and bytes that a client gets to take notice.
const TIME: Duration = Duration::from_secs(2);
const BYTES: usize = 256 * 1024;

/// Reads and drops what still comes, until the client closes, at most two seconds and 256 KiB.
///
/// Call it after shutting down our side: a socket closed with unread data is reset, and the client may then lose the
/// answer that was just sent (RFC 9112 section 9.6).
pub async fn linger(stream: &mut TcpStream) {
    let mut buffer = [0; 1024];
    let drop_all = async {
        let mut total = 0;
        while total < BYTES {
            match stream.read(&mut buffer).await {
                Ok(len) if len > 0 => total += len,
                _ => break,
            }
        }
    };
    // Past the time the connection is reset, as it would have been without us.
    let _elapsed = timeout(TIME, drop_all).await;
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
            linger(&mut socket).await;
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

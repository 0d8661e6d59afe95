//! The transport of a connection: TLS, or TCP only.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use brisk_tls_client::ClientStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The byte stream of a connection.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all connections are of the large one")]
pub(crate) enum Transport {
    /// TLS records.
    Tls(ClientStream),
    /// Plain TCP.
    Plain(Plain),
}

/// TCP without TLS, with its bytes counted.
#[derive(Debug)]
pub(crate) struct Plain {
    tcp: TcpStream,
    received: u64,
    sent: u64,
}

impl Transport {
    /// A connection without TLS.
    pub(crate) fn plain(tcp: TcpStream) -> Self {
        Self::Plain(Plain { tcp, received: 0, sent: 0 })
    }

    /// Bytes received and sent over the socket.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        match self {
            Self::Tls(stream) => stream.bytes(),
            Self::Plain(plain) => (plain.received, plain.sent),
        }
    }

    /// The TCP connection, for its `TCP_INFO`.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Tls(stream) => stream.tcp(),
            Self::Plain(plain) => &plain.tcp,
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Plain(plain) => {
                // A read appends to the buffer, so only the difference is new.
                let before = buffer.filled().len();
                ready!(Pin::new(&mut plain.tcp).poll_read(cx, buffer))?;
                plain.received += (buffer.filled().len() - before) as u64;
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, piece: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, piece),
            Self::Plain(plain) => {
                let len = ready!(Pin::new(&mut plain.tcp).poll_write(cx, piece))?;
                plain.sent += len as u64;
                Poll::Ready(Ok(len))
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Self::Plain(plain) => Pin::new(&mut plain.tcp).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Plain(plain) => Pin::new(&mut plain.tcp).poll_shutdown(cx),
        }
    }
}

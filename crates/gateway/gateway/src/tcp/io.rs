//! [`ClientIo`], the transport of a client whose bytes are forwarded.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use brisk_net::UnsentLimit;
use brisk_tls::Stream;
use brisk_upstream::stream::ClientTransport;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The transport of a client: TCP, or TLS that brisk terminates.
pub(crate) enum ClientIo {
    Plain(PlainIo),
    Tls(Box<Stream>),
}

/// TCP, with a limit of the data that the kernel buffers for the client.
pub(crate) struct PlainIo {
    tcp: TcpStream,
    unsent: UnsentLimit,
    sent: u64,
}

impl ClientIo {
    pub(crate) fn plain(tcp: TcpStream) -> Self {
        Self::Plain(PlainIo { tcp, unsent: UnsentLimit::default(), sent: 0 })
    }

    /// Bytes received and sent over the socket, if they differ from those that are forwarded.
    pub(crate) fn bytes(&self) -> Option<(u64, u64)> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => Some(stream.bytes()),
        }
    }
}

impl ClientTransport for ClientIo {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(plain) => &plain.tcp,
            Self::Tls(stream) => stream.tcp(),
        }
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(plain) => Pin::new(&mut plain.tcp).poll_read(context, buffer),
            Self::Tls(stream) => stream.poll_read(context, |data| {
                let data = &data[..data.len().min(buffer.remaining())];
                buffer.put_slice(data);
                data.len()
            }),
        }
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(plain) => {
                let written = Pin::new(&mut plain.tcp).poll_write(context, bytes);
                match &written {
                    Poll::Ready(Ok(length)) => plain.sent += *length as u64,
                    Poll::Pending => plain.unsent.refused(&plain.tcp, plain.sent),
                    Poll::Ready(Err(_)) => {}
                }
                written
            }
            Self::Tls(stream) => match stream.poll_write(context, &[IoSlice::new(bytes)]) {
                // TLS takes no more plaintext before its records have left: they are sent first, and the
                // data is offered once more.
                Poll::Pending => {
                    ready!(stream.poll_drain(context))?;
                    stream.poll_write(context, &[IoSlice::new(bytes)])
                }
                written @ Poll::Ready(_) => written,
            },
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => stream.poll_drain(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(plain) => Pin::new(&mut plain.tcp).poll_shutdown(context),
            Self::Tls(stream) => stream.poll_close(context),
        }
    }
}

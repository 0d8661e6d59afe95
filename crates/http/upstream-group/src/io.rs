//! The transport to an upstream server: TCP, a Unix socket, or TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use brisk_net::{DialLimits, dial, unix};
use brisk_tls::connector::{ClientStream, Connector};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::settings::{ServerAddress, ServerUrl};

/// The I/O type of hyper. The adapter costs nothing and leaves `unsafe` code for uninitialised buffers to hyper-util.
pub(crate) type HyperIo = TokioIo<UpstreamIo>;

/// A transport to an upstream server.
#[derive(Debug)]
pub enum UpstreamIo {
    /// TCP.
    Plain(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
    /// TLS over TCP.
    Tls(Box<ClientStream>),
}

/// Reason why no transport to a server was opened.
#[derive(Debug, Error)]
pub enum DialError {
    /// Connecting failed, including TLS.
    #[error("{0}")]
    Failed(#[source] io::Error),
    /// Connecting took longer than `timeouts.connect`.
    #[error("cannot connect in time")]
    Timeout,
}

/// Address of a server, and the identity that it must prove.
#[derive(Debug)]
pub(crate) struct Dialer {
    pub(crate) url: ServerUrl,
    /// For `https` only: the connector, and the server name that is sent (SNI) and verified.
    pub(crate) tls: Option<(Connector, String)>,
    /// Limits on connecting. The timeout includes the TLS handshake.
    pub(crate) limits: DialLimits,
}

impl Dialer {
    /// Connects, including TLS, within the timeout of [`Self::limits`]. `header` precedes all other bytes, TLS included.
    pub(crate) async fn connect(&self, header: &[u8]) -> Result<UpstreamIo, DialError> {
        // One limit for all steps: separate ones would add up to more than `timeouts.connect`.
        let connected = timeout(self.limits.connect, self.connect_unlimited(header)).await;
        match connected {
            Ok(Ok(io)) => Ok(io),
            // The kernel and the dial have timeouts of their own; the client gets 504 for each of them.
            Ok(Err(error)) if error.kind() == io::ErrorKind::TimedOut => Err(DialError::Timeout),
            Ok(Err(error)) => Err(DialError::Failed(error)),
            Err(_) => Err(DialError::Timeout),
        }
    }

    async fn connect_unlimited(&self, header: &[u8]) -> io::Result<UpstreamIo> {
        let mut tcp = match self.url.address() {
            ServerAddress::Tcp(target) => dial::connect(target, self.limits).await?,
            ServerAddress::Unix(target) => {
                let mut unix = unix::connect(target, self.limits.connect).await?;
                unix.write_all(header).await?;
                return Ok(UpstreamIo::Unix(unix));
            }
            // Connections are opened to the addresses of a service, never to its name.
            ServerAddress::Service(name) => {
                return Err(io::Error::new(io::ErrorKind::NotFound, format!("{name} is not resolved")));
            }
        };
        tcp.write_all(header).await?;
        let Some((connector, name)) = &self.tls else {
            return Ok(UpstreamIo::Plain(tcp));
        };
        let refused =
            |error: io::Error| io::Error::new(error.kind(), format!("no TLS with {}: {error}", self.url));
        let tls = connector.connect(tcp, name).await.map_err(refused)?;
        // Boxed, since the state of TLS would determine the size of every transport, also without TLS.
        Ok(UpstreamIo::Tls(Box::new(tls)))
    }
}

impl UpstreamIo {
    /// Whether the TLS handshake resumed a session; `None` without TLS.
    pub fn is_resumed(&self) -> Option<bool> {
        match self {
            Self::Plain(_) | Self::Unix(_) => None,
            Self::Tls(stream) => Some(stream.is_resumed()),
        }
    }

    /// Whether the server has closed the idle connection or sent bytes without a request, as far as the kernel has reported it.
    /// These bytes are lost.
    pub fn has_unasked(&mut self) -> bool {
        let mut byte = [0];
        // No poll: a poll registers a task, which would be replaced by that of the request at once.
        let read = match self {
            Self::Plain(stream) => stream.try_read(&mut byte),
            Self::Unix(stream) => stream.try_read(&mut byte),
            // Records without data, such as tickets, are permitted.
            Self::Tls(stream) => {
                let context = &mut Context::from_waker(Waker::noop());
                return Pin::new(stream).poll_read(context, &mut ReadBuf::new(&mut byte)).is_ready();
            }
        };
        !read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Acknowledges received data now, by `TCP_QUICKACK`. A server with Nagle's algorithm that writes the head of a response
    /// and its body separately sends the body only after that; the kernel would wait for up to 40 ms. Without effect for
    /// [`Self::Unix`].
    pub fn acknowledge(&self) {
        match self {
            Self::Plain(stream) => brisk_net::acknowledge(stream),
            Self::Unix(_) => {}
            Self::Tls(stream) => brisk_net::acknowledge(stream.tcp()),
        }
    }
}

impl AsyncRead for UpstreamIo {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for UpstreamIo {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

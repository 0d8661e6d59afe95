//! Addresses of key servers, and connections to them: TLS over the network, or a socket to a local key process.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream as Socket;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use brisk_net::Target;
use brisk_net::dial::{self, DialLimits};
use brisk_tls::connector::{ClientStream, Connector};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

use super::settings::RemoteSettings;
use crate::ALPN;

/// Address of a key server.
#[derive(Clone, Debug)]
pub enum KeyServerAddress {
    /// On the network: TLS with certificates on both sides.
    Network(Target),
    /// A local process, over a socket that only it and this process have.
    Local(Arc<dyn KeyProcessConnector>),
}

/// Creates sockets to a local key process.
pub trait KeyProcessConnector: fmt::Debug + Send + Sync + 'static {
    /// Returns one end of a new socket pair, whose other end is passed to the process. Must not block.
    fn open(&self) -> io::Result<Socket>;
}

impl PartialEq for KeyServerAddress {
    /// Compares processes by the identity of their [`KeyProcessConnector`].
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Network(own), Self::Network(other)) => own == other,
            // Addresses without vtables: the compiler may emit several vtables for one type.
            (Self::Local(own), Self::Local(other)) => std::ptr::addr_eq(Arc::as_ptr(own), Arc::as_ptr(other)),
            _ => false,
        }
    }
}

impl Eq for KeyServerAddress {}

impl fmt::Display for KeyServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(target) => target.fmt(f),
            Self::Local(_) => f.write_str("key process"),
        }
    }
}

/// A connection to a key server.
pub(super) enum Stream {
    Network(Box<ClientStream>),
    Local(UnixStream),
}

impl KeyServerAddress {
    /// Connects. `connector` must be present if any server is on the network.
    pub(super) async fn connect(
        &self,
        settings: &RemoteSettings,
        connector: Option<&Connector>,
        limits: DialLimits,
    ) -> io::Result<Stream> {
        let (target, connector) = match (self, connector) {
            (Self::Local(passage), _) => {
                let socket = passage.open()?;
                socket.set_nonblocking(true)?;
                return Ok(Stream::Local(UnixStream::from_std(socket)?));
            }
            (Self::Network(target), Some(connector)) => (target, connector),
            (Self::Network(_), None) => return Err(io::Error::other("no certificates for key servers")),
        };
        let tcp = dial::connect(target, limits).await?;
        let name = settings.server_name.clone().unwrap_or_else(|| host(&target.to_string()));
        let stream = connector.connect(tcp, &name).await?;
        // rustls accepts a server that selects no protocol: any TLS service with a certificate of the same
        // authority.
        if stream.protocol() != Some(ALPN.as_bytes()) {
            let reason = format!("the server does not support {ALPN}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Ok(Stream::Network(Box::new(stream)))
    }
}

/// Removes the port from `host:port`.
fn host(target: &str) -> String {
    target.rsplit_once(':').map_or(target, |(host, _)| host).to_owned()
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Network(stream) => Pin::new(&mut **stream).poll_read(context, buffer),
            Self::Local(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Network(stream) => Pin::new(&mut **stream).poll_write(context, bytes),
            Self::Local(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Network(stream) => Pin::new(&mut **stream).poll_flush(context),
            Self::Local(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Network(stream) => Pin::new(&mut **stream).poll_shutdown(context),
            Self::Local(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

//! TLS 1.2 and 1.3 for internal listeners that operators use: one certificate, HTTP/1.1, and optional client
//! certificates.
//!
//! Not for clients of a gateway: it ignores server names, resumes no sessions, and reads its key from a file.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use brisk_tls_base::file_roots;
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::TlsError;
use crate::connector::Identity;

/// Settings of an [`InternalAcceptor`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InternalSettings {
    /// The certificate and its key.
    pub identity: Identity,
    /// PEM file with the authorities of client certificates. If it is set, clients without a certificate are refused;
    /// with `None`, none is requested.
    pub clients: Option<PathBuf>,
}

/// Performs handshakes as a server. Cheap to clone.
#[derive(Clone)]
pub struct InternalAcceptor(TlsAcceptor);

/// An encrypted connection, from [`InternalAcceptor::accept`].
#[derive(Debug)]
pub struct InternalStream(TlsStream<TcpStream>);

impl InternalAcceptor {
    /// Reads certificates and the key. Blocks on files, so it must not be called in a worker.
    pub fn new(settings: &InternalSettings) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13, &TLS12])?;
        let builder = match &settings.clients {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(file_roots(file)?), provider)
                        .build()
                        .map_err(|error| TlsError::Connector(format!("authorities of clients: {error}")))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_cert_resolver(settings.identity.read("server certificate")?);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // No resumption, so that every connection proves again that the client has a valid certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Performs the handshake over `tcp`. Has no time limit of its own. An `Err` is one of the socket or of [`rustls`].
    pub async fn accept(&self, tcp: TcpStream) -> io::Result<InternalStream> {
        self.0.accept(tcp).await.map(InternalStream)
    }
}

impl fmt::Debug for InternalAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InternalAcceptor").finish_non_exhaustive()
    }
}

impl AsyncRead for InternalStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(context, buffer)
    }
}

impl AsyncWrite for InternalStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(context)
    }
}

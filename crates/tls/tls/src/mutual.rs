//! TLS 1.3 between programs of one operator: both sides present a certificate, and agree on one protocol by ALPN.
//!
//! Not for clients of a gateway: it ignores server names, resumes no sessions, and reads its key from a file.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use brisk_tls_base::file_roots;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::TlsError;
use crate::connector::Identity;

/// Settings of a [`MutualAcceptor`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutualSettings {
    /// The certificate and its key.
    pub identity: Identity,
    /// PEM file with the authorities of client certificates.
    pub clients: PathBuf,
    /// The only protocol of ALPN (RFC 7301). A client that does not offer it is refused.
    pub protocol: &'static str,
}

/// Performs handshakes as a server. Cheap to clone.
#[derive(Clone)]
pub struct MutualAcceptor {
    inner: TlsAcceptor,
    clients: Arc<RootCertStore>,
}

/// An encrypted connection to a verified client, from [`MutualAcceptor::accept`].
#[derive(Debug)]
pub struct MutualStream {
    inner: TlsStream<TcpStream>,
}

impl MutualAcceptor {
    /// Reads certificates and the key. Blocks on files, so it must not be called in a worker.
    pub fn new(settings: &MutualSettings) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let roots = Arc::new(file_roots(&settings.clients)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| TlsError::Connector(format!("authorities of clients: {error}")))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(settings.identity.read("server certificate")?);
        config.alpn_protocols = vec![settings.protocol.as_bytes().to_vec()];
        // No resumption, so that every connection proves again that the client has a valid certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        // With resumption, the certificate of a client would not be verified again.
        config.send_tls13_tickets = 0;
        Ok(Self { inner: TlsAcceptor::from(Arc::new(config)), clients: roots })
    }

    /// Whether both acceptors verify clients with the same authorities, by content: [`MutualSettings::clients`] may differ.
    pub fn has_authorities_of(&self, other: &Self) -> bool {
        self.clients.roots == other.clients.roots
    }

    /// Performs the handshake over `tcp`. Has no time limit of its own. A client that cannot be verified, or does not
    /// offer the protocol, is an error.
    pub async fn accept(&self, tcp: TcpStream) -> io::Result<MutualStream> {
        let inner = self.inner.accept(tcp).await?;
        // rustls accepts a client without ALPN.
        if inner.get_ref().1.alpn_protocol().is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the client offers no protocol by ALPN"));
        }
        Ok(MutualStream { inner })
    }
}

impl fmt::Debug for MutualAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutualAcceptor").finish_non_exhaustive()
    }
}

impl MutualStream {
    /// The client's own certificate.
    pub fn client(&self) -> &CertificateDer<'static> {
        let certificates = self.inner.get_ref().1.peer_certificates();
        certificates.and_then(<[_]>::first).expect("the verifier asks for a certificate")
    }
}

impl AsyncRead for MutualStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(context, buffer)
    }
}

impl AsyncWrite for MutualStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use brisk_testkit::ca::{Leaf, TestCa};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::connector::{Connector, ConnectorSettings, Versions};

    const PROTOCOL: &str = "brisk-test/1";

    fn identity(leaf: &Leaf) -> Identity {
        Identity { chain: leaf.chain.clone(), key: leaf.key.clone() }
    }

    #[test]
    fn another_authority_of_clients_is_noticed() {
        let (one, other) = (TestCa::new(), TestCa::new());
        let server = one.server(&["keys.test"]).issue();
        let acceptor = |ca: &TestCa| {
            let settings =
                MutualSettings { identity: identity(&server), clients: ca.root_file(), protocol: PROTOCOL };
            MutualAcceptor::new(&settings).expect("an acceptor")
        };
        assert!(acceptor(&one).has_authorities_of(&acceptor(&one)));
        assert!(!acceptor(&one).has_authorities_of(&acceptor(&other)));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_said_to_be_the_servers_own() {
        let ca = TestCa::new();
        let mut identity = identity(&ca.server(&["keys.test"]).issue());
        identity.key = "/nowhere.key".into();
        let settings = MutualSettings { identity, clients: ca.root_file(), protocol: PROTOCOL };
        let error = MutualAcceptor::new(&settings).expect_err("no key").to_string();
        assert!(error.contains("server certificate: cannot read /nowhere.key"), "{error}");
    }

    /// The result of a handshake between an acceptor and a client with `settings`, as seen by the server.
    async fn handshake(ca: &TestCa, settings: ConnectorSettings) -> io::Result<Vec<u8>> {
        let server = ca.server(&["keys.test"]).issue();
        let acceptor = MutualAcceptor::new(&MutualSettings {
            identity: identity(&server),
            clients: ca.root_file(),
            protocol: PROTOCOL,
        });
        let acceptor = acceptor.expect("an acceptor");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let tcp = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
        let connector = Connector::new(&ConnectorSettings { authorities: Some(ca.root_file()), ..settings });
        let connector = connector.expect("a connector");
        let client = tokio::spawn(async move {
            let mut stream = connector.connect(tcp, "keys.test").await?;
            stream.write_all(b"hello").await?;
            let mut echoed = Vec::new();
            stream.read_to_end(&mut echoed).await?;
            Ok::<_, io::Error>(echoed)
        });
        let (tcp, _) = listener.accept().await.expect("a connection");
        let mut stream = acceptor.accept(tcp).await?;
        let mut hello = [0; 5];
        stream.read_exact(&mut hello).await?;
        stream.write_all(&hello).await?;
        stream.shutdown().await?;
        assert_eq!(client.await.expect("no panic")?, b"hello");
        Ok(stream.client().to_vec())
    }

    #[tokio::test]
    async fn a_client_of_the_authority_is_known_by_its_certificate() {
        let ca = TestCa::new();
        let leaf = ca.client("gateway").issue();
        let settings = ConnectorSettings {
            identity: Some(identity(&leaf)),
            protocols: vec![PROTOCOL],
            ..ConnectorSettings::default()
        };
        let shown = handshake(&ca, settings.clone()).await.expect("a handshake");
        assert_eq!(brisk_certs::subject(&shown.into()).as_deref(), Some("CN=gateway"));
        let settings = ConnectorSettings { versions: Versions::Tls13, ..settings };
        handshake(&ca, settings).await.expect("a handshake");
    }

    #[tokio::test]
    async fn another_client_is_refused() {
        let (ca, other) = (TestCa::new(), TestCa::new());
        let own = identity(&ca.client("gateway").issue());
        let strange = identity(&other.client("gateway").issue());
        let expired = identity(&ca.client("gateway").expired().issue());
        let server = identity(&ca.server(&["gateway"]).issue());
        for (identity, protocols) in [
            (None, vec![PROTOCOL]),
            (Some(strange), vec![PROTOCOL]),
            (Some(expired), vec![PROTOCOL]),
            (Some(server), vec![PROTOCOL]),
            (Some(own.clone()), vec![]),
            (Some(own), vec!["h2"]),
        ] {
            let settings = ConnectorSettings { identity, protocols, ..ConnectorSettings::default() };
            handshake(&ca, settings.clone()).await.expect_err(&format!("{settings:?}"));
        }
    }
}

//! [`Connector`], TLS connections to upstreams. Servers are verified unless [`ConnectorSettings::accepts_any_server`] says
//! otherwise.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use brisk_certs::Chain;
use brisk_secrets::PrivateKeyDocument;
use brisk_tls_base::{file_roots, system_roots};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, HandshakeKind, InconsistentKeys, SignatureScheme,
    SupportedProtocolVersion,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::TlsError;

/// Number of server names whose sessions [`Connector::with_own_sessions`] keeps.
const SESSIONS: usize = 1;

/// Settings of a [`Connector`], for connections on which brisk is the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectorSettings {
    /// PEM file with the trusted authorities. Default: `None`, the authorities of the system.
    pub authorities: Option<PathBuf>,
    /// Client certificate for servers that request one. Default: `None`.
    pub identity: Option<Identity>,
    /// Protocols offered by ALPN (RFC 7301), the preferred one first. A server that chooses none is accepted. Default: no ALPN.
    pub protocols: Vec<&'static str>,
    /// The versions of TLS that are offered. Default: [`Versions::All`].
    pub versions: Versions,
    /// Whether the end of the TCP connection without `close_notify` is the end of the data instead of an error. An attacker in the
    /// network can then truncate data without detection, unless the protocol states its length (RFC 8446 section 6.1).
    /// Default: no.
    pub allows_missing_close_notify: bool,
    /// Whether servers are accepted without verification, so that [`Self::authorities`] has no effect: an attacker in the network
    /// can take the place of the server. Default: no.
    pub accepts_any_server: bool,
}

/// Versions of TLS that a client offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// TLS 1.2 and 1.3.
    #[default]
    All,
    /// TLS 1.3 only.
    Tls13,
}

/// A client certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// PEM file: the certificate, and its intermediates in any order.
    pub chain: PathBuf,
    /// PEM file with the key: PKCS#8, PKCS#1 or SEC 1. Its operations run on the thread of the handshake.
    pub key: PathBuf,
}

/// Performs handshakes as a client. Cheap to clone; sessions are resumed if the server permits it.
#[derive(Clone)]
pub struct Connector {
    inner: TlsConnector,
    allows_missing_close_notify: bool,
}

/// An encrypted connection to a server, from [`Connector::connect`].
#[derive(Debug)]
pub struct ClientStream {
    inner: TlsStream<TcpStream>,
    allows_missing_close_notify: bool,
}

impl Connector {
    /// Reads the authorities and the [`Identity`]. Blocks on files, so it must not be called in a worker.
    pub fn new(settings: &ConnectorSettings) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let schemes = provider.signature_verification_algorithms.supported_schemes();
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(settings.versions.offered())?;
        let builder = match &settings.authorities {
            _ if settings.accepts_any_server => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer(schemes)))
            }
            Some(path) => builder.with_root_certificates(file_roots(path)?),
            None => builder.with_root_certificates(system_roots()?),
        };
        let mut config = match &settings.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => builder.with_client_cert_resolver(identity.read("client certificate")?),
        };
        config.alpn_protocols = settings.protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let allows_missing_close_notify = settings.allows_missing_close_notify;
        Ok(Self { inner: TlsConnector::from(Arc::new(config)), allows_missing_close_notify })
    }

    /// A connector with the same settings that keeps sessions of its own. Servers with the same name do not accept the
    /// tickets of one another, unless they share keys, and a ticket of TLS 1.3 is used once.
    #[must_use]
    pub fn with_own_sessions(&self) -> Self {
        let mut config = ClientConfig::clone(self.inner.config());
        // A clone of the configuration shares its sessions.
        config.resumption = Resumption::in_memory_sessions(SESSIONS);
        Self { inner: TlsConnector::from(Arc::new(config)), ..*self }
    }

    /// Performs the handshake over `tcp` and verifies that the server is `name`, a host name or an IP address, unless all servers
    /// are accepted.
    ///
    /// Has no time limit of its own. A server that cannot be verified is an error of kind
    /// [`InvalidData`](io::ErrorKind::InvalidData) with the reason.
    pub async fn connect(&self, tcp: TcpStream, name: &str) -> io::Result<ClientStream> {
        // `ServerName` takes an IPv6 address without brackets.
        let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        let name = ServerName::try_from(bare.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let inner = self.inner.connect(name, tcp).await?;
        Ok(ClientStream { inner, allows_missing_close_notify: self.allows_missing_close_notify })
    }
}

/// Accepts all servers ([`ConnectorSettings::accepts_any_server`]). Has the schemes that are offered.
#[derive(Debug)]
struct AnyServer(Vec<SignatureScheme>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    // Signatures are not verified either: an attacker signs with the key of any other certificate. Old devices
    // have certificates of X.509 version 1, whose keys rustls does not read.
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

impl Versions {
    fn offered(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            Self::All => rustls::ALL_VERSIONS,
            Self::Tls13 => TLS13_ALONE,
        }
    }
}

static TLS13_ALONE: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

impl Identity {
    /// Reads `chain` and `key`. `whose` begins the message if a file cannot be read or the key is malformed.
    pub(crate) fn read(&self, whose: &str) -> Result<Arc<SingleCertAndKey>, TlsError> {
        let wrong = |path: &Path, reason: &dyn fmt::Display| {
            TlsError::Connector(format!("{whose}: cannot read {}: {reason}", path.display()))
        };
        let pem = std::fs::read(&self.chain).map_err(|error| wrong(&self.chain, &error))?;
        let chain =
            Chain::from_pem(&pem, &self.chain).map_err(|error| TlsError::Connector(error.to_string()))?;
        let pem = brisk_secrets::read(&self.key).map_err(|error| wrong(&self.key, &error))?;
        let key = PrivateKeyDocument::from_pem(&pem).map_err(|error| match brisk_keys::pem_fault(&pem) {
            Some(fault) => wrong(&self.key, &fault),
            None => wrong(&self.key, &error),
        })?;
        // rustls would take the DER and drop it unwiped. A key in the form of AWS-LC is wiped when dropped.
        let key = any_supported_type(&key.der()).map_err(|error| wrong(&self.key, &error))?;
        let own = CertifiedKey::new(chain.certificates().cloned().collect(), key);
        match own.keys_match() {
            // Unknown: the key does not reveal its public half. A wrong key then fails in the handshake.
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Arc::new(SingleCertAndKey::from(own)))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Connector").finish_non_exhaustive()
    }
}

impl ClientStream {
    /// The protocol that the server chose by ALPN, if any.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.inner.get_ref().1.alpn_protocol()
    }

    /// Whether the handshake resumed a session ([`HandshakeKind::Resumed`]).
    pub fn is_resumed(&self) -> bool {
        self.inner.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// The connection below TLS.
    pub fn tcp(&self) -> &TcpStream {
        self.inner.get_ref().0
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.inner).poll_read(context, buffer) {
            Poll::Ready(Err(error))
                if this.allows_missing_close_notify && error.kind() == io::ErrorKind::UnexpectedEof =>
            {
                Poll::Ready(Ok(()))
            }
            polled => polled,
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
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
    use std::io::Write;

    use brisk_testkit::ca::TestCa;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn settings(pem: &[u8]) -> (tempfile::NamedTempFile, ConnectorSettings) {
        let mut file = tempfile::NamedTempFile::new().expect("temporary file");
        file.write_all(pem).expect("write");
        let authorities = Some(file.path().to_owned());
        (file, ConnectorSettings { authorities, protocols: vec!["http/1.1"], ..Default::default() })
    }

    #[test]
    fn a_file_without_certificates_is_refused_by_name() {
        let (file, settings) = settings(b"no certificate here\n");
        let error = Connector::new(&settings).expect_err("refused").to_string();
        assert!(error.contains(&file.path().display().to_string()), "{error}");
        assert!(error.contains("no certificate"), "{error}");
    }

    #[test]
    fn a_missing_file_is_refused_by_name() {
        let missing = PathBuf::from("/nonexistent/ca.pem");
        let settings = ConnectorSettings { authorities: Some(missing), ..Default::default() };
        let error = Connector::new(&settings).expect_err("refused").to_string();
        assert!(error.contains("/nonexistent/ca.pem"), "{error}");
    }

    /// A server that echoes data over TLS, with a certificate for `name`.
    async fn echo(ca: &TestCa, name: &str) -> TcpStream {
        let leaf = ca.server(&[name]).issue();
        let chain = CertificateDer::pem_file_iter(&leaf.chain).expect("chain");
        let chain = chain.collect::<Result<Vec<_>, _>>().expect("chain");
        let key = PrivateKeyDer::from_pem_file(&leaf.key).expect("key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("certificate");
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        tokio::spawn(async move {
            let (tcp, _) = listener.accept().await.expect("accept");
            if let Ok(stream) = acceptor.accept(tcp).await {
                let (mut reader, mut writer) = tokio::io::split(stream);
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
            }
        });
        TcpStream::connect(address).await.expect("connect")
    }

    fn trusting(ca: &TestCa) -> Connector {
        let authorities = Some(ca.root_file());
        Connector::new(&ConnectorSettings { authorities, protocols: vec!["http/1.1"], ..Default::default() })
            .expect("a connector")
    }

    #[tokio::test]
    async fn a_server_of_the_own_authority_is_believed() {
        for name in ["app.internal", "127.0.0.1"] {
            let ca = TestCa::new();
            let tcp = echo(&ca, name).await;
            let mut stream = trusting(&ca).connect(tcp, name).await.expect("handshake");
            assert_eq!(stream.protocol(), Some(&b"http/1.1"[..]));
            stream.write_all(b"hello").await.expect("write");
            let mut echoed = [0; 5];
            stream.read_exact(&mut echoed).await.expect("read");
            assert_eq!(&echoed, b"hello");
        }
    }

    #[tokio::test]
    async fn a_server_of_another_name_or_authority_is_not_believed() {
        let (ca, other) = (TestCa::new(), TestCa::new());
        let tcp = echo(&ca, "app.internal").await;
        let error = trusting(&ca).connect(tcp, "other.internal").await.expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let tcp = echo(&other, "app.internal").await;
        let error = trusting(&ca).connect(tcp, "app.internal").await.expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn without_verification_all_servers_are_accepted() {
        for versions in [Versions::All, Versions::Tls13] {
            let settings = ConnectorSettings { versions, accepts_any_server: true, ..Default::default() };
            let connector = Connector::new(&settings).expect("a connector");
            let tcp = echo(&TestCa::new(), "app.internal").await;
            let mut stream = connector.connect(tcp, "other.internal").await.expect("a handshake");
            stream.write_all(b"hello").await.expect("write");
            let mut echoed = [0; 5];
            stream.read_exact(&mut echoed).await.expect("read");
            assert_eq!(&echoed, b"hello");
        }
    }
}

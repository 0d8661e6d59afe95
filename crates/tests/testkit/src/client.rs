//! A TLS client for tests that curl and openssl cannot perform: selected sequences of handshakes, arbitrary bytes,
//! X25519MLKEM768 and compressed certificates.

use std::fmt;
use std::io::{self, Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::compress::{CertDecompressor, DecompressionFailed};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateCompressionAlgorithm, ClientConfig, ClientConnection, NamedGroup, RootCertStore, StreamOwned,
    compress,
};

use crate::ca::Leaf;
use crate::early::{FirstFlight, FirstSessions};
use crate::http1::Message;
use crate::process::TIMEOUT;
use crate::uninterrupted::Uninterrupted;

/// A client that trusts one CA. Its handshakes resume one another's sessions.
#[derive(Debug, Clone)]
#[must_use = "nothing happens before `connect`"]
pub struct TlsClient {
    config: ClientConfig,
    roots: RootCertStore,
    name: String,
    decompressed: Arc<AtomicUsize>,
}

impl TlsClient {
    /// Trusts the certificates in this file, sends the server name `name`, no ALPN, and the groups of browsers.
    pub fn new(root: &Path, name: &str) -> Self {
        let groups =
            [NamedGroup::X25519MLKEM768, NamedGroup::X25519, NamedGroup::secp256r1, NamedGroup::secp384r1];
        Self::with_groups(root, name, &groups)
    }

    /// Offers these groups, with a key share for the first.
    pub fn with_groups(root: &Path, name: &str, groups: &[NamedGroup]) -> Self {
        let known =
            |group: &NamedGroup| aws_lc_rs::ALL_KX_GROUPS.iter().find(|own| own.name() == *group).copied();
        let kx_groups = groups.iter().filter_map(known).collect();
        let provider = CryptoProvider { kx_groups, ..aws_lc_rs::default_provider() };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(root).expect("a PEM file") {
            roots.add(certificate.expect("a certificate")).expect("a root");
        }
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .expect("versions that the provider has")
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        Self { config, roots, name: name.to_owned(), decompressed: Arc::default() }
    }

    /// Offers these application protocols.
    pub fn alpn(mut self, protocols: &[&str]) -> Self {
        self.config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        self
    }

    /// Offers TLS 1.2 only.
    pub fn tls12(mut self) -> Self {
        let provider = Arc::clone(self.config.crypto_provider());
        let fresh = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS12])
            .expect("a version that the provider has")
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        // A new configuration, because rustls fixes the versions of an existing one. All settings that other methods
        // make are moved to it, so that the order of the calls has no effect.
        let former = mem::replace(&mut self.config, fresh);
        self.config.alpn_protocols = former.alpn_protocols;
        self.config.resumption = former.resumption;
        self.config.client_auth_cert_resolver = former.client_auth_cert_resolver;
        self.config.cert_decompressors = former.cert_decompressors;
        self
    }

    /// Presents this certificate to servers that request one.
    pub fn identity(mut self, leaf: &Leaf) -> Self {
        let chain = CertificateDer::pem_file_iter(&leaf.chain).expect("a PEM file");
        let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
        let key = PrivateKeyDer::from_pem_file(&leaf.key).expect("a private key");
        let identity = CertifiedKey::from_der(chain, key, self.config.crypto_provider());
        let identity = SingleCertAndKey::from(identity.expect("a certificate and its key"));
        self.config.client_auth_cert_resolver = Arc::new(identity);
        self
    }

    /// Keeps the sessions of its first connection instead of the latest: TLS 1.3 sessions for one use each, a TLS 1.2
    /// session for any number of uses.
    pub fn keeping_first_sessions(mut self) -> Self {
        self.config.resumption = FirstSessions::resumption();
        self
    }

    /// Accepts only certificates compressed by `zlib` or `brotli`.
    pub fn certificate_compression(mut self, algorithm: &str) -> Self {
        let inner = match algorithm {
            "zlib" => compress::ZLIB_DECOMPRESSOR,
            "brotli" => compress::BROTLI_DECOMPRESSOR,
            _ => panic!("{algorithm} is not compiled in"),
        };
        let counted = Counted { inner, count: Arc::clone(&self.decompressed) };
        // Leaked once per test, because rustls requires a static reference.
        self.config.cert_decompressors = vec![Box::leak(Box::new(counted))];
        self
    }

    /// Number of compressed certificates received.
    pub fn decompressed(&self) -> usize {
        self.decompressed.load(Ordering::Relaxed)
    }

    /// The configuration, for connections of another library.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::new(self.config.clone())
    }

    /// A handshake that the test drives itself.
    pub fn start(&self) -> ClientConnection {
        let name = ServerName::try_from(self.name.clone()).expect("a host name");
        ClientConnection::new(Arc::new(self.config.clone()), name).expect("a client configuration")
    }

    /// Connects and completes the handshake.
    pub fn connect(&self, address: SocketAddr) -> io::Result<TlsStream> {
        self.over(TcpStream::connect(address)?)
    }

    /// Completes the handshake over `tcp`.
    pub fn over(&self, tcp: TcpStream) -> io::Result<TlsStream> {
        // Otherwise short writes in sequence wait for the acknowledgement of the first, which may be delayed.
        tcp.set_nodelay(true)?;
        // A silent server fails the test instead of blocking it.
        tcp.set_read_timeout(Some(TIMEOUT))?;
        tcp.set_write_timeout(Some(TIMEOUT))?;
        let name = ServerName::try_from(self.name.clone()).expect("a host name");
        let tls = ClientConnection::new(Arc::new(self.config.clone()), name).map_err(io::Error::other)?;
        TlsStream::complete(tls, tcp)
    }

    /// A handshake with the latest session and this early data, not sent yet. Fails the test if there is no session
    /// that permits early data; the session is used up.
    #[track_caller]
    pub fn first_flight(&self, early: &[u8]) -> FirstFlight {
        let mut config = self.config.clone();
        config.enable_early_data = true;
        FirstFlight::new(&config, &self.name, early).expect("a session that takes early data")
    }

    /// The first bytes of a handshake: a flight with the `ClientHello`.
    pub fn hello(&self) -> Vec<u8> {
        let mut tls = self.start();
        let mut hello = Vec::new();
        tls.write_tls(&mut hello).expect("a vector takes everything");
        hello
    }
}

/// A connection after its handshake.
pub struct TlsStream(StreamOwned<ClientConnection, Uninterrupted<TcpStream>>);

impl TlsStream {
    pub(crate) fn complete(tls: ClientConnection, tcp: TcpStream) -> io::Result<Self> {
        let mut stream = StreamOwned::new(tls, Uninterrupted(tcp));
        // The last flight has to be sent too, or the server's handshake would remain incomplete.
        while stream.conn.is_handshaking() || stream.conn.wants_write() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self(stream))
    }

    /// Sends `request` unchanged and reads one response.
    #[track_caller]
    pub fn request(&mut self, request: &str) -> Message {
        self.write_all(request.as_bytes()).expect("a server that reads");
        self.response()
    }

    /// Reads one response.
    #[track_caller]
    pub fn response(&mut self) -> Message {
        Message::read_response(self).expect("a response")
    }

    /// GET request for `path` at `host` on this connection.
    #[track_caller]
    pub fn get(&mut self, host: &str, path: &str) -> Message {
        self.request(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }

    /// The connection state of rustls.
    pub fn tls(&self) -> &ClientConnection {
        &self.0.conn
    }

    /// The TCP socket.
    pub fn tcp(&self) -> &TcpStream {
        &self.0.sock.0
    }

    /// Sends `close_notify` and keeps reading.
    pub fn close_write(&mut self) {
        self.0.conn.send_close_notify();
        self.0.flush().expect("a server that reads");
    }
}

impl Read for TlsStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsStream").field(&self.0.sock).finish()
    }
}

#[derive(Debug)]
struct Counted {
    inner: &'static dyn CertDecompressor,
    count: Arc<AtomicUsize>,
}

impl CertDecompressor for Counted {
    fn decompress(&self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressionFailed> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.inner.decompress(input, output)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        self.inner.algorithm()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ca::TestCa;

    /// A call used to drop the settings of the calls before it.
    #[test]
    fn the_order_of_settings_has_no_effect() {
        let ca = TestCa::new();
        let leaf = ca.client("alice").issue();
        let set: [&dyn Fn(TlsClient) -> TlsClient; 5] = [
            &|client: TlsClient| client.alpn(&["h2"]),
            &TlsClient::tls12,
            &|client: TlsClient| client.identity(&leaf),
            &TlsClient::keeping_first_sessions,
            &|client: TlsClient| client.certificate_compression("zlib"),
        ];
        for first in 0..set.len() {
            let order = (0..set.len()).map(|place| (first + place) % set.len());
            for order in [order.clone().collect::<Vec<_>>(), order.rev().collect()] {
                let client = TlsClient::new(&ca.root_file(), "a.test");
                let client = order.iter().fold(client, |client, place| set[*place](client));
                let config = &client.config;
                assert_eq!(config.alpn_protocols, [b"h2"], "{order:?}");
                assert!(config.client_auth_cert_resolver.has_certs(), "{order:?}");
                assert!(format!("{:?}", config.resumption).contains("FirstSessions"), "{order:?}");
                assert_eq!(config.cert_decompressors.len(), 1, "{order:?}");
                // RFC 8446 section 4.2.1: `supported_versions`, 43, with TLS 1.2 alone.
                let versions = [0, 43, 0, 3, 2, 3, 3];
                assert!(client.hello().windows(versions.len()).any(|part| part == versions), "{order:?}");
            }
        }
    }
}

//! Fixtures for the tests of this crate: an acceptor with a certificate of its own CA, and clients that trust it.

mod flights;
mod sessions;

pub(crate) use flights::Flights;
pub(crate) use sessions::{Forgetful, ScriptedStore};

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, ready};
use std::time::{Duration, SystemTime};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use brisk_certs::{Certificate, Served, load};
use brisk_keys::{
    Completion, KeyError, KeyOperation, Keystore, LocalEngine, PendingOperation, Performer, PrivateKeyEngine,
};
use brisk_session::{KeySource, RotationSettings, TicketKeyring};
use brisk_telemetry::Timeline;
use brisk_testkit::ca::{LeafKey, TestCa};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, ConnectionTrafficSecrets, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{
    Accepted, Acceptor, ClientCertificates, Demands, HostSettings, Refusal, Resources, Stream, TlsSettings,
};

/// Name in the certificate of a [`Stage`].
pub(crate) const HOST: &str = "example.test";

/// An acceptor, and the settings of its clients.
pub(crate) struct Stage {
    pub(crate) acceptor: Acceptor,
    ca: TestCa,
    roots: RootCertStore,
    host: HostSettings,
    resources: Resources,
}

impl Stage {
    /// A stage with an engine that performs operations in line.
    pub(crate) fn new() -> Self {
        Self::with(TlsSettings::default(), |engine| engine)
    }

    /// A stage with the engine returned by `wrap`, which gets one that performs operations in line.
    pub(crate) fn with(
        settings: TlsSettings,
        wrap: impl FnOnce(Arc<dyn PrivateKeyEngine>) -> Arc<dyn PrivateKeyEngine>,
    ) -> Self {
        let ca = TestCa::new();
        let leaf = ca.server(&[HOST]).issue();
        let mut keystore = Keystore::new();
        let loaded = load(&leaf.chain, &leaf.key, &mut keystore, SystemTime::now()).expect("a certificate");
        let engine = LocalEngine::new(Arc::new(keystore));
        let host = host(loaded.certificate);
        host.publish(&wrap(Arc::new(engine)));
        let resources = Resources::of_process(SystemTime::now());
        let acceptor = Acceptor::new(settings, std::slice::from_ref(&host), &resources);
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_file_iter(ca.root_file()).expect("a file") {
            roots.add(root.expect("a certificate")).expect("a root");
        }
        let acceptor = acceptor.expect("settings that fit");
        Self { acceptor, ca, roots, host, resources }
    }

    /// A stage that accepts `size` bytes of early data, with sessions in a scripted store.
    pub(crate) fn with_early_data(size: u32) -> (Self, Arc<ScriptedStore>) {
        let mut stage = Self::new();
        let store = Arc::new(ScriptedStore::default());
        stage.resources.sessions = Arc::clone(&store) as _;
        stage.reload(TlsSettings::default(), |host| host.early_data = size);
        (stage, store)
    }

    /// Reloads with other settings: the same sessions and keys, but a changed host.
    pub(crate) fn reload(&mut self, settings: TlsSettings, change: impl FnOnce(&mut HostSettings)) {
        change(&mut self.host);
        let acceptor = Acceptor::new(settings, std::slice::from_ref(&self.host), &self.resources);
        self.acceptor = acceptor.expect("settings that fit");
    }

    /// Publishes a renewed certificate with a new key, and an engine that knows this key only; the acceptor stays.
    pub(crate) fn renew(&self) {
        self.renew_with(LeafKey::EcdsaP256);
    }

    /// Like [`renew`](Self::renew), with a key of this kind.
    pub(crate) fn renew_with(&self, key: LeafKey) {
        let leaf = self.ca.server(&[HOST]).key(key).issue();
        let mut keystore = Keystore::new();
        let loaded = load(&leaf.chain, &leaf.key, &mut keystore, SystemTime::now()).expect("a certificate");
        let engine = Arc::new(LocalEngine::new(Arc::new(keystore)));
        self.host.slot.publish(vec![Served::new(Arc::new(loaded.certificate), engine)]);
    }

    /// Writes another certificate, with its key, to `file`.
    pub(crate) fn put(&self, file: &Path) {
        let leaf = self.ca.server(&[HOST]).issue();
        std::fs::write(file, leaf.chain_pem.clone() + &leaf.key_pem).expect("a file");
    }

    /// Removes all certificates; the acceptor stays.
    pub(crate) fn withdraw(&self) {
        self.host.slot.publish(Vec::new());
    }

    /// Reloads with required client certificates of an authority that was not configured before.
    pub(crate) fn require_client_certificates(&mut self, settings: TlsSettings) {
        self.reload(settings, |host| host.demands = demands(true));
    }

    /// Reloads with optional client certificates of an authority that was not configured before.
    pub(crate) fn ask_for_client_certificates(&mut self, settings: TlsSettings) {
        self.reload(settings, |host| host.demands = demands(false));
    }

    /// Replaces the ticket keys without keeping the old ones.
    pub(crate) fn forget_ticket_keys(&mut self) {
        let keys = KeySource::Generated(RotationSettings::default());
        self.resources.keyring = Arc::new(TicketKeyring::new(keys, SystemTime::now()));
        self.reload(TlsSettings::default(), |_| {});
    }

    /// A client of this version only; its handshakes resume one another's sessions.
    pub(crate) fn client(&self, version: &'static SupportedProtocolVersion) -> ClientConfig {
        let mut config = ClientConfig::builder_with_protocol_versions(&[version])
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.enable_secret_extraction = true;
        config
    }

    /// A client of TLS 1.3 with other cryptography.
    pub(crate) fn client_with(&self, provider: CryptoProvider) -> ClientConfig {
        self.client_of(provider, &rustls::version::TLS13)
    }

    /// A client of this version only, with other cryptography.
    pub(crate) fn client_of(
        &self,
        provider: CryptoProvider,
        version: &'static SupportedProtocolVersion,
    ) -> ClientConfig {
        ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[version])
            .expect("suites of this version")
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth()
    }

    /// The server's side of a handshake.
    pub(crate) async fn accept(&self, tcp: TcpStream) -> Result<Accepted, Refusal> {
        self.acceptor.accept(tcp, Vec::new(), &mut Timeline::start()).await
    }

    /// A complete handshake.
    pub(crate) async fn connect(&self, client: &Arc<ClientConfig>) -> (TlsStream<TcpStream>, Accepted) {
        let (near, far) = tcp().await;
        let server = async {
            let mut accepted = self.accept(far).await.expect("a client that keeps the protocol");
            // In TLS 1.2 the server sends the last message.
            drain(&mut accepted.stream).await.expect("sent");
            accepted
        };
        let (client, accepted) = soon(async { tokio::join!(handshake(client, near), server) }).await;
        (client.expect("a server that keeps the protocol"), accepted)
    }
}

fn demands(required: bool) -> Demands {
    let root = CertificateDer::from_pem_slice(TestCa::new().root_pem().as_bytes()).expect("a root");
    Demands::new(ClientCertificates { required, roots: vec![root], revocation: None, keep: false })
}

fn host(certificate: Certificate) -> HostSettings {
    HostSettings { certificates: vec![Arc::new(certificate)], ..HostSettings::new([HOST]) }
}

/// Two ends of a connection: the client's and the server's.
pub(crate) async fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    (near.expect("connect"), far.expect("accept").0)
}

/// The client's side of a handshake.
pub(crate) async fn handshake(
    client: &Arc<ClientConfig>,
    tcp: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(HOST).expect("a host name");
    TlsConnector::from(Arc::clone(client)).connect(name, tcp).await
}

/// The client's next data; empty at its end.
pub(crate) async fn read(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    poll_fn(|cx| {
        stream.poll_read(cx, |plaintext| {
            data.extend_from_slice(plaintext);
            plaintext.len()
        })
    })
    .await?;
    Ok(data)
}

/// Writes all of `plaintext`, sending no more than necessary.
pub(crate) async fn write(stream: &mut Stream, mut plaintext: &[u8]) -> io::Result<()> {
    while !plaintext.is_empty() {
        let len = poll_fn(|cx| match stream.poll_write(cx, &[IoSlice::new(plaintext)]) {
            Poll::Pending => {
                ready!(stream.poll_drain(cx))?;
                stream.poll_write(cx, &[IoSlice::new(plaintext)])
            }
            written @ Poll::Ready(_) => written,
        })
        .await?;
        plaintext = &plaintext[len..];
    }
    Ok(())
}

/// Sends the written data.
pub(crate) async fn drain(stream: &mut Stream) -> io::Result<()> {
    poll_fn(|cx| stream.poll_drain(cx)).await
}

/// Closes the server's side.
pub(crate) async fn close(stream: &mut Stream) -> io::Result<()> {
    poll_fn(|cx| stream.poll_close(cx)).await
}

/// An engine that completes operations when the test calls [`answer`](Self::answer).
#[derive(Debug)]
pub(crate) struct LateEngine {
    inner: Arc<dyn PrivateKeyEngine>,
    waiting: Mutex<Vec<(KeyOperation, Completion)>>,
}

impl LateEngine {
    pub(crate) fn new(inner: Arc<dyn PrivateKeyEngine>) -> Arc<Self> {
        Arc::new(Self { inner, waiting: Mutex::default() })
    }

    /// Removes and returns the waiting operations.
    pub(crate) fn take(&self) -> Vec<(KeyOperation, Completion)> {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Number of waiting operations.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Completes all waiting operations.
    pub(crate) fn answer(&self) {
        for (operation, completion) in self.take() {
            let result = self.inner.submit(operation).try_take();
            completion.complete(result.expect("an engine that works in line"), Performer::AWS_LC);
        }
    }
}

impl PrivateKeyEngine for LateEngine {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        let (pending, completion) = PendingOperation::with_completion(operation.deadline);
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push((operation, completion));
        pending
    }
}

/// An engine that fails all operations.
#[derive(Debug)]
pub(crate) struct BrokenEngine;

impl PrivateKeyEngine for BrokenEngine {
    fn submit(&self, _operation: KeyOperation) -> PendingOperation {
        PendingOperation::refused(KeyError::Failed("out of order"))
    }
}

/// Seals TLS 1.3 records that violate the protocol.
pub(crate) struct Forger {
    sequence: u64,
    key: LessSafeKey,
    iv: [u8; 12],
}

impl Forger {
    /// Takes over a client that negotiated AES-128-GCM.
    pub(crate) fn new(client: TlsStream<TcpStream>) -> (TcpStream, Self) {
        let (tcp, tls) = client.into_inner();
        let (sequence, secrets) = tls.dangerous_extract_secrets().expect("secrets").tx;
        let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else { panic!("another suite") };
        (tcp, Self::with_keys(sequence, key.as_ref(), iv.as_ref()))
    }

    fn with_keys(sequence: u64, key: &[u8], iv: &[u8]) -> Self {
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key).expect("a key"));
        Self { sequence, key, iv: iv.try_into().expect("12 bytes") }
    }

    /// A record of this content type.
    pub(crate) fn record(&mut self, content: u8, payload: &[u8]) -> Vec<u8> {
        self.padded(content, payload, 0)
    }

    /// A record with `padding` zeros (RFC 8446 section 5.4).
    pub(crate) fn padded(&mut self, content: u8, payload: &[u8], padding: usize) -> Vec<u8> {
        let mut sealed = payload.to_vec();
        sealed.push(content);
        sealed.resize(sealed.len() + padding, 0);
        let [high, low] = u16::try_from(sealed.len() + 16).expect("a length").to_be_bytes();
        let header = [23, 3, 3, high, low];
        let mut nonce = self.iv;
        for (byte, sequence) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= sequence;
        }
        self.sequence += 1;
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut sealed).expect("sealed");
        [&header[..], &sealed].concat()
    }
}

/// Fails a test that would hang.
pub(crate) async fn soon<F: Future>(work: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), work).await.expect("in time")
}

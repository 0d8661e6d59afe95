//! The gateway's acceptor as a server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brisk_certs::load;
use brisk_keys::{Keystore, LocalEngine, PrivateKeyEngine};
use brisk_telemetry::Timeline;
use brisk_testkit::ca::TestCa;
use brisk_tls::{
    Accepted, Acceptor, ClientCertificates, Demands, HostSettings, Refusal, Resources, TlsSettings,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::net::{TcpListener, TcpStream};

/// The name in the certificate of a [`Stage`].
pub(super) const HOST: &str = "example.test";

/// An acceptor with a certificate of its own authority.
pub(super) struct Stage {
    acceptor: Acceptor,
    ca: TestCa,
}

impl Stage {
    pub(super) fn new() -> Self {
        Self::with(Demands::default())
    }

    /// A stage that requires client certificates of an authority from which no client has one.
    pub(super) fn requiring_client_certificates() -> Self {
        let root = CertificateDer::from_pem_slice(TestCa::new().root_pem().as_bytes()).expect("a root");
        let clients = ClientCertificates { required: true, roots: vec![root], revocation: None, keep: false };
        Self::with(Demands::new(clients))
    }

    fn with(demands: Demands) -> Self {
        let ca = TestCa::new();
        let leaf = ca.server(&[HOST]).issue();
        let mut keystore = Keystore::new();
        let loaded = load(&leaf.chain, &leaf.key, &mut keystore, SystemTime::now()).expect("a certificate");
        let engine: Arc<dyn PrivateKeyEngine> = Arc::new(LocalEngine::new(Arc::new(keystore)));
        let certificates = vec![Arc::new(loaded.certificate)];
        let host = HostSettings { certificates, demands, ..HostSettings::new([HOST]) };
        host.publish(&engine);
        let resources = Resources::of_process(SystemTime::now());
        let acceptor = Acceptor::new(TlsSettings::default(), &[host], &resources);
        Self { acceptor: acceptor.expect("settings that fit"), ca }
    }

    /// The file with the authority of the server's certificate.
    pub(super) fn authority(&self) -> PathBuf {
        self.ca.root_file()
    }

    /// The server's side of a handshake.
    pub(super) async fn accept(&self, tcp: TcpStream) -> Result<Accepted, Refusal> {
        self.acceptor.accept(tcp, Vec::new(), &mut Timeline::start()).await
    }
}

/// Two ends of a TCP connection: the client's and the server's.
pub(super) async fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    (near.expect("connect"), far.expect("accept").0)
}

/// Fails a test that would hang.
pub(super) async fn soon<F: Future>(work: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), work).await.expect("in time")
}

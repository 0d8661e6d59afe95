//! Resumption after a restart, with servers of OpenSSL. A restart is another client with the same folder.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{SslAcceptor, SslConnector, SslMethod, SslOptions, SslStream, SslVersion};
use openssl::x509::extension::SubjectAlternativeName;
use openssl::x509::{X509, X509NameBuilder};
use sealed_sessions::{Client, EarlyData, SessionStore};

const HOST: &str = "a.test";
const REQUEST: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

struct Server {
    address: SocketAddr,
    certificate: X509,
}

impl Server {
    /// Answers one request of each connection; `early` is the limit of early data.
    fn start(version: SslVersion, early: u32) -> Self {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
        let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
        let certificate = certificate(&key);
        let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
        builder.set_max_proto_version(Some(version)).unwrap();
        builder.set_private_key(&key).unwrap();
        builder.set_certificate(&certificate).unwrap();
        builder.clear_options(SslOptions::NO_TICKET);
        builder.set_session_id_context(b"test").unwrap();
        builder.set_max_early_data(early).unwrap();
        let acceptor = builder.build();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let ssl = openssl::ssl::Ssl::new(acceptor.context()).unwrap();
                let mut stream = SslStream::new(ssl, stream.unwrap()).unwrap();
                answer(&mut stream, early > 0);
            }
        });
        Self { address, certificate }
    }

    fn client(&self, folder: &Path) -> Client {
        let mut builder = SslConnector::builder(SslMethod::tls_client()).unwrap();
        builder.cert_store_mut().add_cert(self.certificate.clone()).unwrap();
        Client::new(builder, SessionStore::open(folder).unwrap()).unwrap()
    }

    /// Sends a request with `client`; whether the session was resumed, the outcome of early data, and the response.
    fn ask(&self, client: &Client, early: bool) -> (bool, EarlyData, String) {
        let stream = TcpStream::connect(self.address).unwrap();
        let port = self.address.port();
        let mut connection = if early {
            client.connect_with_early_data(HOST, port, stream, REQUEST).unwrap()
        } else {
            let mut connection = client.connect(HOST, port, stream).unwrap();
            connection.stream.write_all(REQUEST).unwrap();
            connection
        };
        let mut response = String::new();
        let _ = connection.stream.read_to_string(&mut response);
        (connection.is_resumed, connection.early_data, response)
    }
}

fn answer(stream: &mut SslStream<TcpStream>, takes_early: bool) {
    let mut request = vec![0; 1000];
    let mut length = 0;
    if takes_early {
        while let Ok(read @ 1..) = stream.read_early_data(&mut request[length..]) {
            length += read;
        }
    }
    if stream.accept().is_err() {
        return;
    }
    let kind = if length > 0 { "early" } else { "late" };
    if length == 0 && stream.ssl_read(&mut request).is_err() {
        return;
    }
    let _ = stream.write_all(kind.as_bytes());
    let _ = stream.shutdown();
}

fn certificate(key: &PKey<Private>) -> X509 {
    let mut name = X509NameBuilder::new().unwrap();
    name.append_entry_by_text("CN", HOST).unwrap();
    let name = name.build();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder.set_subject_name(&name).unwrap();
    builder.set_issuer_name(&name).unwrap();
    builder.set_pubkey(key).unwrap();
    builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
    builder.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
    let names = SubjectAlternativeName::new().dns(HOST).build(&builder.x509v3_context(None, None)).unwrap();
    builder.append_extension(names).unwrap();
    builder.sign(key, MessageDigest::sha256()).unwrap();
    builder.build()
}

fn sessions(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "session")).collect()
}

#[test]
fn both_versions_resume_after_a_restart() {
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(version, 0);
        for expected in [false, true, true] {
            let (is_resumed, early, response) = server.ask(&server.client(folder.path()), true);
            assert_eq!(
                (is_resumed, early, response.as_str()),
                (expected, EarlyData::NotSent, "late"),
                "{version:?}"
            );
        }
    }
}

#[test]
fn early_data_is_sent_if_the_request_permits_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(SslVersion::TLS1_3, 16_384);
    let ask = |early| server.ask(&server.client(folder.path()), early);
    assert_eq!(ask(true), (false, EarlyData::NotSent, "late".into()));
    assert_eq!(ask(false), (true, EarlyData::NotSent, "late".into()));
    assert_eq!(ask(true), (true, EarlyData::Accepted, "early".into()));
    let old = server.client(folder.path()).early_data_age(Duration::ZERO);
    assert_eq!(server.ask(&old, true), (true, EarlyData::NotSent, "late".into()));
}

#[test]
fn a_modified_or_copied_session_leads_to_a_full_handshake() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(SslVersion::TLS1_3, 16_384);
    server.ask(&server.client(folder.path()), true);
    for file in sessions(folder.path()) {
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&file, bytes).unwrap();
    }
    assert_eq!(server.ask(&server.client(folder.path()), true), (false, EarlyData::NotSent, "late".into()));
    let copies = tempfile::tempdir().unwrap();
    for file in fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap()) {
        fs::copy(file.path(), copies.path().join(file.file_name())).unwrap();
    }
    assert_eq!(server.ask(&server.client(copies.path()), true), (false, EarlyData::NotSent, "late".into()));
    assert_eq!(server.ask(&server.client(folder.path()), true), (true, EarlyData::Accepted, "early".into()));
}

#[test]
fn refused_early_data_is_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(SslVersion::TLS1_3, 16_384);
    server.ask(&server.client(folder.path()), true);
    // Another server with the same address in the store, which cannot open the ticket.
    let other = Server::start(SslVersion::TLS1_3, 16_384);
    let mut builder = SslConnector::builder(SslMethod::tls_client()).unwrap();
    builder.cert_store_mut().add_cert(other.certificate.clone()).unwrap();
    let client = Client::new(builder, SessionStore::open(folder.path()).unwrap()).unwrap();
    let stream = TcpStream::connect(other.address).unwrap();
    let mut connection =
        client.connect_with_early_data(HOST, server.address.port(), stream, REQUEST).unwrap();
    assert_eq!((connection.is_resumed, connection.early_data), (false, EarlyData::Rejected));
    let mut response = String::new();
    let _ = connection.stream.read_to_string(&mut response);
    assert_eq!(response, "late");
}

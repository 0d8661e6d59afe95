//! Key servers that return wrong signatures: no client receives one, and another key server signs.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use brisk_keyless::frame::VERSION;
use brisk_keyless::{ALPN, Hello, Request, Response};
use brisk_keys::KeyAlgorithm;
use brisk_testkit::process::wait_until;
use bytes::{Bytes, BytesMut};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::keyless::{Fleet, is_ready};

/// A key server whose signatures all are wrong.
struct WrongServer {
    address: SocketAddr,
    signatures: Arc<AtomicUsize>,
}

impl WrongServer {
    fn start(fleet: &Fleet) -> Self {
        let chain = CertificateDer::pem_file_iter(&fleet.server.chain).expect("a file");
        let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
        let key = PrivateKeyDer::from_pem_slice(fleet.server.key_pem.as_bytes()).expect("a key");
        let mut tls =
            ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).expect("a key");
        tls.alpn_protocols = vec![ALPN.into()];
        let tls = Arc::new(tls);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (address, signatures) = (listener.local_addr().expect("an address"), Arc::default());
        let count = Arc::clone(&signatures);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (tls, count) = (Arc::clone(&tls), Arc::clone(&count));
                thread::spawn(move || serve(stream?, tls, &count));
            }
        });
        Self { address, signatures }
    }

    fn signatures(&self) -> usize {
        self.signatures.load(Ordering::Relaxed)
    }
}

fn serve(stream: TcpStream, tls: Arc<ServerConfig>, count: &AtomicUsize) -> io::Result<()> {
    let tls = ServerConnection::new(tls).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(tls, stream);
    let (mut incoming, mut bytes) = (BytesMut::new(), [0; 4096]);
    loop {
        let length = stream.read(&mut bytes)?;
        if length == 0 {
            return Ok(());
        }
        incoming.extend_from_slice(&bytes[..length]);
        let mut outgoing = BytesMut::new();
        while let Some(request) = Request::read(&mut incoming).map_err(io::Error::other)? {
            let response = match request {
                Request::Hello(_) => Response::Hello(Hello { version: VERSION, operations: 100, keys: 10 }),
                Request::Key { number, .. } => Response::Key { number, state: Ok(KeyAlgorithm::EcdsaP256) },
                Request::Sign { operation, .. } => {
                    count.fetch_add(1, Ordering::Relaxed);
                    Response::Result { operation, result: Bytes::from_static(&[0x30; 70]) }
                }
                Request::Ping { number, bytes } => Response::Pong { number, bytes },
                _ => continue,
            };
            response.write(&mut outgoing);
        }
        stream.write_all(&outgoing)?;
    }
}

#[test]
fn the_other_key_server_signs_when_one_returns_wrong_signatures_and_the_log_names_that_one() {
    let fleet = Fleet::new();
    let (right, wrong) = (fleet.server(), WrongServer::start(&fleet));
    let gateway = fleet.gateway(&[right.keys(), wrong.address], "");
    let label = format!("server=\"{}\"", wrong.address);
    wait_until("a connection to each", || {
        (gateway.metrics().sum("brisk_keyserver_connections", &[&label]) > 0.5 && is_ready(&gateway))
            .then_some(())
    });
    let started = Instant::now();
    for number in 0..1000 {
        fleet.full(&gateway).unwrap_or_else(|error| panic!("handshake {number}: {error}"));
        // A handshake takes seconds on a busy machine.
        if started.elapsed() > Duration::from_mins(1) {
            break;
        }
    }
    assert!(wrong.signatures() > 0, "the wrong server was asked");
    let counted = gateway.metrics().sum("brisk_keyserver_operations_total", &[&label, "outcome=\"wrong\""]);
    // The connection ends at the first wrong one of several.
    assert!(counted > 0.5 && counted <= wrong.signatures() as f64, "{counted} of {}", wrong.signatures());
    let log = gateway.log_with("a signature that the certificate's public key does not verify");
    assert!(log.contains(&wrong.address.to_string()), "{log}");
}

#[test]
fn no_wrong_signature_reaches_a_client_if_all_key_servers_return_them() {
    let fleet = Fleet::new();
    let wrong = WrongServer::start(&fleet);
    let gateway = fleet.gateway(&[wrong.address], "");
    let error = fleet.full(&gateway).expect_err("there is no right signature").to_string();
    assert!(error.contains("alert"), "the handshake ends with an alert of the gateway: {error}");
    gateway.log_with("a signature that the certificate's public key does not verify");
    wait_until("a gateway that is not ready", || {
        let ready = gateway.ask_admin("/readyz");
        (ready.status() != 200 && ready.text().contains("does not verify")).then_some(())
    });
}

//! A TLS 1.3 client that returns its flights, to be sent in parts, twice, or damaged.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use rustls::{ClientConfig, ClientConnection, KeyLog};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Forger, HOST};

/// A client with its end of a connection. Data is sent by [`send`](Self::send) only.
pub(crate) struct Flights {
    pub(crate) tls: ClientConnection,
    pub(crate) tcp: TcpStream,
    secrets: Arc<Secrets>,
}

impl Flights {
    /// A client that announces early data if its session permits it.
    pub(crate) fn new(config: &Arc<ClientConfig>, tcp: TcpStream) -> Self {
        let secrets = Arc::new(Secrets::default());
        let mut config = ClientConfig::clone(config);
        config.enable_early_data = true;
        config.key_log = Arc::clone(&secrets) as _;
        let name = ServerName::try_from(HOST).expect("a host name");
        let tls = ClientConnection::new(Arc::new(config), name).expect("a connection");
        Self { tls, tcp, secrets }
    }

    /// Adds early data to the first flight.
    pub(crate) fn early(&mut self, data: &[u8]) {
        let mut early = self.tls.early_data().expect("a session for early data");
        early.write_all(data).expect("fewer bytes than the server allows");
    }

    /// The bytes that the client would send now.
    pub(crate) fn flight(&mut self) -> Vec<u8> {
        let mut flight = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut flight).expect("into memory");
        }
        flight
    }

    /// Sends these bytes.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.tcp.write_all(bytes).await.expect("a server that reads");
    }

    /// Reads until `done`; false if the server ends the connection before.
    pub(crate) async fn receive_until(&mut self, mut done: impl FnMut(&ClientConnection) -> bool) -> bool {
        let mut piece = vec![0; 4096];
        loop {
            if done(&self.tls) {
                return true;
            }
            let len = self.tcp.read(&mut piece).await.unwrap_or(0);
            if len == 0 {
                return false;
            }
            let mut bytes = &piece[..len];
            while !bytes.is_empty() {
                self.tls.read_tls(&mut bytes).expect("from memory");
                self.tls.process_new_packets().expect("a server that keeps the protocol");
            }
        }
    }

    /// Reads the server's flight; the client's last one is ready then. Sends another hello if the server requests one.
    pub(crate) async fn hear(&mut self) {
        while self.tls.is_handshaking() {
            let heard = self.receive_until(|tls| !tls.is_handshaking() || tls.wants_write()).await;
            assert!(heard, "no flight");
            if self.tls.is_handshaking() {
                let hello = self.flight();
                self.send(&hello).await;
            }
        }
    }

    /// Reads application data of the server and compares it with `expected`.
    pub(crate) async fn read(&mut self, expected: &[u8]) {
        let mut received = Vec::new();
        while received.len() < expected.len() {
            let mut piece = vec![0; expected.len() - received.len()];
            if let Ok(len) = self.tls.reader().read(&mut piece) {
                received.extend_from_slice(&piece[..len]);
                continue;
            }
            let mut first = true;
            let more = self.receive_until(|_| !std::mem::replace(&mut first, false)).await;
            assert!(more, "the server ended");
        }
        assert_eq!(received, expected);
    }

    /// The next alert.
    pub(crate) async fn alert(&mut self) -> String {
        let mut bytes = Vec::new();
        // Excess data from the client may reset the connection after the alert.
        let _ = self.tcp.read_to_end(&mut bytes).await;
        let _ = self.tcp.shutdown().await;
        let mut bytes = &bytes[..];
        while !bytes.is_empty() {
            self.tls.read_tls(&mut bytes).expect("from memory");
            if let Err(error) = self.tls.process_new_packets() {
                return error.to_string();
            }
        }
        "no alert".to_owned()
    }

    /// Seals records with the keys of the client's `Finished`.
    pub(crate) fn forger(&self) -> Forger {
        let secrets = self.secrets.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, secret) =
            secrets.iter().find(|(label, _)| label == "CLIENT_HANDSHAKE_TRAFFIC_SECRET").expect("a secret");
        Forger::with_keys(0, &expand(secret, "key", 16), &expand(secret, "iv", 12))
    }
}

/// HKDF-Expand-Label (RFC 8446 section 7.1) without context.
fn expand(secret: &[u8], label: &str, len: usize) -> Vec<u8> {
    struct Len(usize);
    impl KeyType for Len {
        fn len(&self) -> usize {
            self.0
        }
    }
    let label = format!("tls13 {label}");
    let [_, length] = u16::try_from(len).expect("short").to_be_bytes();
    let info = [0, length, u8::try_from(label.len()).expect("short")];
    let mut out = vec![0; len];
    Prk::new_less_safe(HKDF_SHA256, secret)
        .expand(&[&info, label.as_bytes(), &[0]], Len(len))
        .and_then(|okm| okm.fill(&mut out))
        .expect("short");
    out
}

#[derive(Debug, Default)]
struct Secrets(Mutex<Vec<(String, Vec<u8>)>>);

impl KeyLog for Secrets {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        let mut secrets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        secrets.push((label.to_owned(), secret.to_vec()));
    }
}

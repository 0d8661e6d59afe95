//! Key server and hostile clients: responses to unknown clients, and to requests without permission.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime};

use brisk_keyless::frame::VERSION;
use brisk_keyless::{ALPN, ErrorCode, Hello, Request, Response, Scheme};
use brisk_keys::{KeyAlgorithm, KeyId};
use brisk_testkit::brisk::Brisk;
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::client::{TlsClient, TlsStream};
use brisk_testkit::process::wait_until;
use bytes::{Bytes, BytesMut};

use crate::keyless::Fleet;

/// A client of the protocol.
pub(crate) struct Client {
    stream: TlsStream,
    incoming: BytesMut,
}

impl Client {
    fn connect(fleet: &Fleet, server: &Brisk, leaf: &Leaf) -> Self {
        let client = TlsClient::new(&fleet.ca.root_file(), "localhost").alpn(&[ALPN]).identity(leaf);
        Self { stream: client.connect(server.keys()).expect("a handshake"), incoming: BytesMut::new() }
    }

    /// One that has said hello.
    pub(crate) fn greeted(fleet: &Fleet, server: &Brisk) -> Self {
        Self::greeted_as(fleet, server, &fleet.client)
    }

    fn greeted_as(fleet: &Fleet, server: &Brisk, leaf: &Leaf) -> Self {
        let mut client = Self::connect(fleet, server, leaf);
        client.send(&[Request::Hello(Hello { version: VERSION, operations: 100, keys: 10 })]);
        let Some(Response::Hello(hello)) = client.answer() else { panic!("no hello") };
        assert_eq!((hello.version, hello.operations, hello.keys), (VERSION, 100, 10));
        client
    }

    pub(crate) fn send(&mut self, requests: &[Request]) {
        let mut bytes = BytesMut::new();
        for request in requests {
            request.write(&mut bytes);
        }
        self.stream.write_all(&bytes).expect("a server that reads");
    }

    /// The next answer; `None` at the end of the connection.
    pub(crate) fn answer(&mut self) -> Option<Response> {
        loop {
            if let Some(answer) = Response::read(&mut self.incoming).expect("frames") {
                return Some(answer);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(length) => self.incoming.extend_from_slice(&bytes[..length]),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return None,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) fn code(&mut self) -> Option<ErrorCode> {
        match self.answer()? {
            Response::Error { code, .. } => Some(code),
            other => panic!("{other:?} is no error"),
        }
    }
}

pub(crate) fn key_of(leaf: &Leaf) -> KeyId {
    let mut keystore = brisk_keys::Keystore::new();
    keystore.add_pem(leaf.key_pem.as_bytes()).expect("a key")
}

fn tls13() -> Bytes {
    [&[b' '; 64][..], b"TLS 1.3, server CertificateVerify\0", &[7; 32]].concat().into()
}

fn sign(operation: u32, key: u32, scheme: Scheme, message: Bytes) -> Request {
    Request::Sign { operation, key, scheme, remaining: Duration::from_secs(10), message }
}

fn decrypt(operation: u32, key: u32) -> Request {
    let ciphertext = Bytes::from_static(&[7; 256]);
    Request::Decrypt { operation, key, remaining: Duration::from_secs(10), ciphertext }
}

const ECDSA: Scheme = Scheme::ECDSA_SECP256R1_SHA256;

#[test]
fn strangers_are_refused_before_anything_is_asked() {
    let fleet = Fleet::new();
    let server = fleet.server();
    let other = TestCa::new();
    let refused = |client: TlsClient| {
        // The server looks at the certificate after the client has completed its handshake.
        let ended = client.connect(server.keys()).and_then(|mut stream| {
            stream.write_all(&[1, 0, 0, 6, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1])?;
            stream.read(&mut [0; 16])
        });
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    };
    let client = || TlsClient::new(&fleet.ca.root_file(), "localhost").alpn(&[ALPN]);
    refused(client());
    refused(client().identity(&other.client("gateway").issue()));
    refused(client().identity(&fleet.ca.client("gateway").expired().issue()));
    refused(client().identity(&fleet.client).alpn(&["h2"]));
    refused(client().identity(&fleet.client).tls12());
    wait_until("refused handshakes", || {
        let closed = server.metrics().sum("brisk_keyserver_closed_total", &["reason=\"handshake\""]);
        (closed > 4.5).then_some(())
    });
    server.log_with("handshake refused");
    // Of the right authority, and not in the configuration.
    let mut unknown = Client::connect(&fleet, &server, &fleet.ca.client("stranger").issue());
    assert_eq!((unknown.code(), unknown.answer()), (Some(ErrorCode::UnknownClient), None));
    let log = server.log_with("unknown-client");
    assert!(log.contains("stranger"), "{log}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one fleet for all cases")]
fn a_client_gets_nothing_but_what_its_policy_allows() {
    let fleet = Fleet::new();
    let tables = "[client.gateway]\nkeys = [\"ecdsa.key\"]\noperations = [\"tls1.3\"]\nrate = \"3/h\"\n";
    let server = fleet.server_on(0, "", tables);
    let mut client = Client::greeted(&fleet, &server);
    let (own, other) = (key_of(&fleet.ecdsa), key_of(&fleet.rsa));
    let names = [own, other, KeyId([9; 32])];
    let numbered: Vec<_> = (0..).zip(names).map(|(number, key)| Request::Key { number, key }).collect();
    client.send(&numbered);
    let states: Vec<_> = (0..3)
        .map(|_| match client.answer() {
            Some(Response::Key { state, .. }) => state.map(KeyAlgorithm::label),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(states, [Ok("ecdsa-p256"), Err(ErrorCode::KeyNotAllowed), Err(ErrorCode::KeyNotAllowed)]);
    let tls12: Bytes = [&[0; 64][..], &[3, 0, 29, 32], &[7; 32]].concat().into();
    let client_side: Bytes =
        [&[b' '; 64][..], b"TLS 1.3, client CertificateVerify\0", &[7; 32]].concat().into();
    for (request, expected) in [
        (sign(1, 0, ECDSA, Bytes::from_static(&[7; 32])), ErrorCode::Shape),
        (sign(2, 0, ECDSA, tls12), ErrorCode::OperationNotAllowed),
        (sign(3, 0, ECDSA, client_side), ErrorCode::OperationNotAllowed),
        (sign(4, 0, Scheme::ED25519, tls13()), ErrorCode::Scheme),
        (sign(5, 1, Scheme::RSA_PSS_RSAE_SHA256, tls13()), ErrorCode::KeyNotAllowed),
        (sign(6, 7, ECDSA, tls13()), ErrorCode::UnknownKey),
        (decrypt(7, 0), ErrorCode::OperationNotAllowed),
    ] {
        client.send(&[request]);
        assert_eq!(client.code(), Some(expected));
        server.log_with(expected.name());
    }
    for _ in 0..3 {
        client.send(&[sign(8, 0, ECDSA, tls13())]);
        assert!(matches!(client.answer(), Some(Response::Result { operation: 8, .. })));
    }
    client.send(&[sign(9, 0, ECDSA, tls13())]);
    assert_eq!(client.code(), Some(ErrorCode::Rate));
    for code in ["shape", "scheme", "rate", "key-not-allowed", "operation-not-allowed", "unknown-key"] {
        let label = format!("reason=\"{code}\"");
        assert!(server.metrics().sum("brisk_keyserver_refusals_total", &[&label]) > 0.5, "{code}");
    }
    // What the clients of an honest gateway can cause does not end its connection, and fills no log.
    for number in 10..200 {
        client.send(&[sign(number, 1, Scheme::RSA_PSS_RSAE_SHA256, tls13())]);
        assert_eq!(client.code(), Some(ErrorCode::KeyNotAllowed));
    }
    let lines = server.log_with("key-not-allowed").matches("code=key-not-allowed").count();
    assert!(lines < 30, "{lines} lines");
    // Who goes on with what no gateway asks for is cut off.
    for number in 10..200 {
        let mut bytes = BytesMut::new();
        sign(number, 0, ECDSA, Bytes::from_static(b"digest")).write(&mut bytes);
        if client.stream.write_all(&bytes).is_err() {
            break;
        }
    }
    let mut last = None;
    while let Some(answer) = client.answer() {
        last = Some(answer);
    }
    assert!(
        matches!(last, Some(Response::Error { operation: 0, code: ErrorCode::Protocol, .. })),
        "{last:?}"
    );
}

#[test]
fn what_is_no_protocol_ends_the_connection_with_the_reason() {
    let fleet = Fleet::new();
    let server = fleet.server();
    let hello = || Request::Hello(Hello { version: 1, operations: 1, keys: 1 });
    let ends = |bytes: &[u8], reason: &str| {
        let mut client = Client::greeted(&fleet, &server);
        client.stream.write_all(bytes).expect("a server that reads");
        let Some(Response::Error { operation: 0, code: ErrorCode::Protocol, text }) = client.answer() else {
            panic!("no error for {reason}")
        };
        assert!(text.contains(reason), "{text}");
        assert_eq!(client.answer(), None);
    };
    ends(&[3, 0, 0xff, 0xff, 0, 0, 0, 1], "at most 2048 are allowed");
    ends(&[9, 0, 0, 0, 0, 0, 0, 1], "unknown type 0x09");
    ends(&[5, 7, 0, 0, 0, 0, 0, 1], "second byte");
    ends(&[2, 0, 0, 1, 0, 0, 0, 1, 5], "malformed body");
    let frame = |request: Request| {
        let mut bytes = BytesMut::new();
        request.write(&mut bytes);
        bytes
    };
    ends(&frame(hello()), "a second HELLO");
    ends(&frame(Request::Key { number: 10, key: KeyId([1; 32]) }), "exceeds the limit");
    ends(&frame(sign(0, 0, ECDSA, tls13())), "is 0 or in use");
    let mut client = Client::connect(&fleet, &server, &fleet.client);
    client.send(&[Request::Ping { number: 1, bytes: Bytes::new() }]);
    assert_eq!((client.code(), client.answer()), (Some(ErrorCode::Protocol), None));
}

#[test]
fn half_a_frame_is_waited_for_and_no_longer_than_its_limit() {
    let fleet = Fleet::new();
    let server = fleet.server();
    let mut client = Client::greeted(&fleet, &server);
    client.send(&[Request::Ping { number: 5, bytes: Bytes::from_static(b"alive") }]);
    assert!(matches!(client.answer(), Some(Response::Pong { number: 5, .. })));
    let started = Instant::now();
    client.stream.write_all(&[3, 0, 0, 200, 0, 0, 0, 1, 9, 9]).expect("a server that reads");
    assert_eq!(client.answer(), None);
    assert!(started.elapsed() > Duration::from_secs(8), "{:?}", started.elapsed());
    let stalled = server.metrics().sum("brisk_keyserver_closed_total", &["reason=\"stalled\""]);
    assert!((stalled - 1.0).abs() < 0.5);
    server.log_with("did not complete a frame");
}

#[test]
fn a_million_operations_whose_answers_are_not_read_cost_a_bounded_amount_of_memory() {
    let fleet = Fleet::new();
    let server = fleet.server();
    let mut client = Client::greeted(&fleet, &server);
    let key = key_of(&fleet.ecdsa);
    client.send(&[Request::Key { number: 0, key }]);
    let before = server.process().resident_bytes();
    let tcp = client.stream.tcp().try_clone().expect("a socket");
    tcp.set_write_timeout(Some(Duration::from_secs(15))).expect("a socket");
    let mut batch = BytesMut::new();
    let mut sent = 0_u32;
    let stopped = loop {
        batch.clear();
        for _ in 0..100 {
            sent += 1;
            sign(sent, 0, ECDSA, tls13()).write(&mut batch);
        }
        if client.stream.write_all(&batch).is_err() {
            break true;
        }
        if sent >= 1_000_000 {
            break false;
        }
    };
    assert!(stopped, "the server took {sent} operations without their answers being read");
    let grown = server.process().resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes more after {sent} operations");
    // Others are served meanwhile, and the client that does not read is closed.
    let mut other = Client::greeted(&fleet, &server);
    other.send(&[Request::Key { number: 0, key }, sign(1, 0, ECDSA, tls13())]);
    assert!(matches!(other.answer(), Some(Response::Key { .. })));
    assert!(matches!(other.answer(), Some(Response::Result { operation: 1, .. })));
    server.log_with("does not read its responses");
}

#[test]
fn silent_strangers_take_no_place_from_gateways() {
    let fleet = Fleet::new();
    let server = fleet.server_on(0, "server.max_connections = 4\n", "");
    let mut client = Client::greeted(&fleet, &server);
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(server.keys()).expect("a connection")).collect();
    wait_until("strangers that gave way", || {
        let metrics = server.metrics();
        let closed = |reason| metrics.sum("brisk_keyserver_closed_total", &[reason]);
        // All but three, for which there is a place. Those that find none in time are refused.
        (closed("reason=\"evicted\"") + closed("reason=\"limit\"") > 16.5).then_some(())
    });
    server.log_with("evicted in favour");
    client.send(&[Request::Ping { number: 1, bytes: Bytes::new() }]);
    assert!(matches!(client.answer(), Some(Response::Pong { number: 1, .. })));
    let mut other = Client::greeted(&fleet, &server);
    other.send(&[Request::Ping { number: 2, bytes: Bytes::new() }]);
    assert!(matches!(other.answer(), Some(Response::Pong { number: 2, .. })));
    drop(silent);
}

#[test]
fn open_connections_end_with_their_authority_and_with_their_certificate() {
    let fleet = Fleet::new();
    let server = fleet.server();
    let now = SystemTime::now();
    // Long enough for the first steps on a busy machine that stands still for some seconds.
    let end = now + Duration::from_secs(40);
    let leaf = fleet.ca.client("gateway").valid(now - Duration::from_hours(1), end).issue();
    let (mut short, mut long) =
        (Client::greeted_as(&fleet, &server, &leaf), Client::greeted(&fleet, &server));
    let ping = || Request::Ping { number: 1, bytes: Bytes::new() };
    let is_served = |client: &mut Client| {
        client.send(&[ping()]);
        matches!(client.answer(), Some(Response::Pong { .. }))
    };
    assert!(is_served(&mut short) && is_served(&mut long));
    let left = end.duration_since(SystemTime::now()).unwrap_or_default();
    std::thread::sleep(left + Duration::from_millis(1100));
    short.send(&[ping()]);
    assert_eq!((short.code(), short.answer()), (Some(ErrorCode::UnknownClient), None));
    server.log_with("has expired");
    assert!(is_served(&mut long));
    std::fs::write(fleet.ca.root_file(), TestCa::new().root_pem()).expect("a file");
    server.log_with("reloaded: ");
    long.send(&[ping()]);
    assert_eq!((long.code(), long.answer()), (Some(ErrorCode::UnknownClient), None));
}

//! Servers of bytes, each with one fault that no installed program has any more, and servers that mean ill.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use aws_lc_rs::rsa::{Pkcs1PrivateDecryptingKey, PrivateDecryptingKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use brisk_certs::ocsp::CertId;
use brisk_testkit::ca::{LeafKey, TestCa};
use brisk_testkit::ca_site::response;
use brisk_wire::client_hello::{ClientHello, Progress};
use brisk_wire::offer::{handshake, record};

use super::*;

mod judging;
mod padding;
mod plain;

/// What a server of bytes does, beside letting clients agree on a version and a suite with RSA encryption.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
struct Manners {
    versions: Vec<ProtocolVersion>,
    suites: Vec<u16>,
    sslv2: bool,
    compresses: bool,
    heartbleed: bool,
    takes_early_ccs: bool,
    oracle: bool,
    lacks_renegotiation_info: bool,
}

/// Its certificate and key.
struct Identity {
    chain: Vec<Vec<u8>>,
    key: Vec<u8>,
}

/// A server of bytes; it ends with its value.
struct Server {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
}

impl Server {
    fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let ends = Arc::new(AtomicBool::new(false));
        let (serve, end) = (Arc::new(serve), Arc::clone(&ends));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(stream));
            }
        });
        Self { address, ends }
    }

    fn with(manners: Manners, identity: &Arc<Identity>) -> Self {
        let identity = Arc::clone(identity);
        Self::start(move |stream| {
            // A client that is gone is no failure of the test.
            let _ = answer(stream, &manners, &identity);
        })
    }

    fn settings(&self) -> AuditSettings {
        AuditSettings {
            host: "a.test".to_owned(),
            port: self.address.port(),
            path: "/".to_owned(),
            address: Some(self.address),
            authorities: Vec::new(),
            dns: None,
            plain_port: None,
            watch: None,
            limits: Limits { rate: 2000, ..Limits::default() },
        }
    }

    fn audit(&self) -> Audit {
        run(&self.settings(), &mut |_| {}).expect("an audit")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn identity(ca: &TestCa) -> Arc<Identity> {
    let leaf = ca.server(&["a.test"]).key(LeafKey::Rsa2048).issue();
    Arc::new(Identity {
        chain: certificates_of(&leaf.chain_pem),
        key: certificates_of(&leaf.key_pem).remove(0),
    })
}

/// The blocks of a PEM text, DER.
fn certificates_of(pem: &str) -> Vec<Vec<u8>> {
    let blocks = pem.split("-----BEGIN").skip(1);
    let inner = blocks.filter_map(|block| block.split("-----").nth(1));
    inner.map(|text| STANDARD.decode(text.split_whitespace().collect::<String>()).expect("base64")).collect()
}

fn alert(stream: &mut TcpStream, version: ProtocolVersion, description: u8) -> Option<()> {
    stream.write_all(&record(21, version, &[2, description])).ok()
}

fn answer(mut stream: TcpStream, manners: &Manners, identity: &Identity) -> Option<()> {
    let mut bytes = Vec::new();
    let hello = loop {
        let mut buffer = [0; 4096];
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
        if bytes[0] == 0x80 {
            let body = [&[0, 4, 0, 1, 0, 2, 0, 1, 0, 3, 0, 16][1..], &[7; 20]].concat();
            let answer = [&[0x80, body.len() as u8][..], &body].concat();
            return if manners.sslv2 { stream.write_all(&answer).ok() } else { None };
        }
        match ClientHello::read(&bytes, 1 << 14).ok()? {
            Progress::Complete(hello) => break hello,
            Progress::Incomplete => {}
        }
    };
    let version = manners.versions.iter().copied().find(|version| hello.offers_version(*version));
    let Some(version) = version else { return alert(&mut stream, ProtocolVersion::TLS1_0, 70) };
    let suite = hello.suites.iter().find(|suite| manners.suites.contains(&suite.0));
    let Some(suite) = suite else { return alert(&mut stream, version, 40) };
    let deflates = manners.compresses && bytes.windows(3).any(|window| window == [2, 1, 0]);
    let mut body = version.0.to_be_bytes().to_vec();
    body.extend([7; 32]);
    body.push(0);
    body.extend(suite.0.to_be_bytes());
    body.push(u8::from(deflates));
    let mut extensions = Vec::new();
    if !manners.lacks_renegotiation_info && version > ProtocolVersion::SSL3_0 {
        extensions.extend([0xff, 1, 0, 1, 0]);
    }
    if manners.heartbleed && version > ProtocolVersion::SSL3_0 {
        extensions.extend([0, 15, 0, 1, 1]);
    }
    if !extensions.is_empty() {
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
    }
    let mut flight = handshake(2, &body);
    let entries: Vec<u8> =
        identity.chain.iter().flat_map(|der| [&length24(der), &der[..]].concat()).collect();
    flight.extend(handshake(11, &[&length24(&entries), &entries[..]].concat()));
    flight.extend(handshake(14, &[]));
    stream.write_all(&record(22, version, &flight)).ok()?;
    react(&mut stream, version, manners, identity)
}

fn length24(bytes: &[u8]) -> [u8; 3] {
    let [_, a, b, c] = (bytes.len() as u32).to_be_bytes();
    [a, b, c]
}

/// What comes after the server's flight: a heartbeat, an early `change_cipher_spec`, or a premaster secret.
fn react(
    stream: &mut TcpStream,
    version: ProtocolVersion,
    manners: &Manners,
    identity: &Identity,
) -> Option<()> {
    let mut header = [0; 5];
    stream.read_exact(&mut header).ok()?;
    let mut payload = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
    stream.read_exact(&mut payload).ok()?;
    match header[0] {
        24 if manners.heartbleed => {
            // The test fails if the probe asks for more than it sent: memory of the server.
            let asked = usize::from(u16::from_be_bytes([payload[1], payload[2]]));
            let echoed = payload.get(3..3 + asked)?;
            let answer = [&[2, payload[1], payload[2]][..], echoed, &[9; 16]].concat();
            stream.write_all(&record(24, version, &answer)).ok()
        }
        20 => alert(stream, version, if manners.takes_early_ccs { 20 } else { 10 }),
        22 if manners.oracle => {
            let key = PrivateDecryptingKey::from_pkcs8(&identity.key).expect("a key");
            let key = Pkcs1PrivateDecryptingKey::new(key).expect("a key of 2048 bits");
            let mut secret = vec![0; key.min_output_size()];
            let opened = key.decrypt(&payload[6..], &mut secret).is_ok_and(|secret| secret.len() == 48);
            alert(stream, version, if opened { 20 } else { 51 })
        }
        _ => alert(stream, version, 20),
    }
}

const AES: u16 = 0x002f;

fn right() -> Manners {
    Manners { versions: vec![ProtocolVersion::TLS1_2], suites: vec![AES], ..Manners::default() }
}

fn ids(audit: &Audit) -> Vec<&'static str> {
    audit.findings.iter().map(|finding| finding.kind.id).collect()
}

#[test]
fn each_fault_of_old_servers_is_found_and_no_other() {
    let ca = TestCa::new();
    let identity = identity(&ca);
    let usual = Server::with(right(), &identity).audit();
    let usual_ids = ids(&usual);
    let old =
        |version, suites: &[u16]| Manners { versions: vec![version], suites: suites.to_vec(), ..right() };
    let cases: Vec<(&str, Manners)> = vec![
        ("protocol-sslv2", Manners { sslv2: true, ..right() }),
        (
            "protocol-sslv3",
            Manners { versions: vec![ProtocolVersion::TLS1_2, ProtocolVersion::SSL3_0], ..right() },
        ),
        ("suite-rc4", Manners { suites: vec![AES, 0x0005], ..right() }),
        ("suite-short-blocks", Manners { suites: vec![AES, 0x000a], ..right() }),
        ("suite-export", Manners { suites: vec![AES, 0x0003], ..right() }),
        ("suite-null", Manners { suites: vec![AES, 0x0002], ..right() }),
        ("suite-anonymous", Manners { suites: vec![AES, 0x0034], ..right() }),
        ("protocol-tls10", old(ProtocolVersion::TLS1_0, &[AES])),
        ("protocol-tls11", old(ProtocolVersion::TLS1_1, &[AES])),
        ("compression", Manners { compresses: true, ..right() }),
        ("heartbleed", Manners { heartbleed: true, ..right() }),
        ("ccs-injection", Manners { takes_early_ccs: true, ..right() }),
        ("robot", Manners { oracle: true, ..right() }),
        ("renegotiation-insecure", Manners { lacks_renegotiation_info: true, ..right() }),
    ];
    // What comes along with old versions and suites.
    let companions = ["suite-rc4", "suite-cbc-tls10", "fallback-accepted", "suite-client-order"];
    for (id, manners) in cases {
        let audit = Server::with(manners, &identity).audit();
        let found = ids(&audit);
        assert!(found.contains(&id), "{id}: {found:?}");
        let more: Vec<_> = found
            .iter()
            .filter(|other| **other != id && !usual_ids.contains(other) && !companions.contains(other))
            .collect();
        assert!(more.is_empty(), "{id}: {more:?} as well");
    }
    let expected = [
        "suite-no-forward-secrecy",
        "suite-no-aead",
        "certificate-untrusted",
        "protocol-no-tls13",
        "certificate-no-ecdsa",
    ];
    assert!(expected.iter().all(|id| usual_ids.contains(id)), "{usual_ids:?}");
    assert_eq!(usual_ids.len(), expected.len(), "{usual_ids:?}");
    assert_eq!(usual.grade.letter, Letter::T);
    assert_eq!(usual.grade.if_trusted, Letter::B);
}

/// How an audit of a server ends, and that it ends in time.
fn ends(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> String {
    let server = Server::start(serve);
    let mut settings = server.settings();
    settings.limits.step = Duration::from_millis(300);
    settings.limits.whole = Duration::from_secs(3);
    let begun = Instant::now();
    let error = run(&settings, &mut |_| {}).expect_err("a hostile server").to_string();
    assert!(begun.elapsed() < Duration::from_secs(30), "{error}");
    assert!(!error.contains('\n'), "{error}");
    error
}

fn read_some(stream: &mut TcpStream) {
    let mut buffer = [0; 4096];
    let _ = stream.read(&mut buffer);
}

#[test]
fn hostile_servers_end_in_one_line() {
    let silent = ends(|mut stream| {
        read_some(&mut stream);
        thread::sleep(Duration::from_secs(5));
    });
    assert!(silent.contains("does not answer") || silent.contains("did not end within"), "{silent}");
    let plain = ends(|mut stream| {
        read_some(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    assert!(plain.contains("not TLS"), "{plain}");
    let huge = ends(|mut stream| {
        read_some(&mut stream);
        let _ = stream.write_all(&record(22, ProtocolVersion::TLS1_2, &[2, 0xff, 0xff, 0xff]));
        let _ = stream.write_all(&[0; 16]);
        thread::sleep(Duration::from_secs(1));
    });
    assert!(huge.contains("handshake message of 16777215 bytes, longer than"), "{huge}");
    let endless = ends(|mut stream| {
        read_some(&mut stream);
        let message = record(22, ProtocolVersion::TLS1_2, &handshake(0, &[0; 1000]));
        while stream.write_all(&message).is_ok() {}
    });
    assert!(endless.contains("longer than 524288"), "{endless}");
    let dripping = ends(|mut stream| {
        read_some(&mut stream);
        for byte in record(22, ProtocolVersion::TLS1_2, &[2; 100]) {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    });
    assert!(dripping.contains("does not answer") || dripping.contains("did not end within"), "{dripping}");
}

#[test]
fn an_audit_has_no_more_connections_than_its_limit() {
    let ca = TestCa::new();
    let server = Server::with(right(), &identity(&ca));
    let mut settings = server.settings();
    settings.limits.connections = 10;
    let error = run(&settings, &mut |_| {}).expect_err("too few connections");
    assert!(error.to_string().contains("has used its 10 connections"), "{error}");
}

#[test]
fn outputs_quote_what_a_server_says_and_stay_well_formed() {
    let ca = TestCa::new();
    let audit = Server::with(right(), &identity(&ca)).audit();
    let mut evil = audit.clone();
    evil.findings[0].evidence = "<script>\"'&\u{1}\u{1b}[31m|".to_owned();
    let junit = output::junit(&evil);
    assert!(!junit.contains("<script>") && !junit.contains('\u{1}') && junit.ends_with("</testsuite>\n"));
    assert!(!output::html(&evil).contains("<script>"));
    let text = output::text(&evil, 100);
    assert!(!text.contains('\u{1b}'), "{text}");
    let narrow = output::text(&evil, 60);
    assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
    let sarif: serde_json::Value = serde_json::from_str(&output::sarif(&evil, "1")).expect("JSON");
    assert_eq!(sarif["runs"][0]["results"].as_array().map(Vec::len), Some(evil.findings.len()));
    let place = &sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"];
    assert_eq!(place["uri"], format!("a.test/{}", evil.port()));
    let json: serde_json::Value = serde_json::from_str(&output::json(&evil)).expect("JSON");
    assert_eq!(json["findings"][0]["id"], evil.findings[0].kind.id);
    assert_eq!(json["grade"]["letter"], "T");
}

#[test]
fn a_staple_is_verified_as_clients_verify_it() {
    let ca = TestCa::new();
    let (leaf, other) = (ca.server(&["a.test"]).must_staple().issue(), ca.server(&["a.test"]).issue());
    let chain = certificates_of(&leaf.chain_pem);
    let judges = AuthoritySets::new(&[ca.root_file()]).expect("authorities");
    let question = |chain: &[Vec<u8>]| CertId::new(&chain[0], &chain[1]).expect("a question");
    let good = response(&ca, &[&leaf], &[], None, &question(&chain).request());
    let others = certificates_of(&other.chain_pem);
    let of_another = response(&ca, &[&other], &[], None, &question(&others).request());
    let now = SystemTime::now();
    let later = now + Duration::from_mins(10);
    for (staple, at, is_wrong, says) in [
        (Some(good.clone()), now, false, "good until"),
        (Some(good), later, true, "it expired on"),
        (Some(of_another), now, true, "it is not about this certificate"),
        (None, now, false, "none"),
    ] {
        let shown = SentChain { chain: chain.clone(), staple, ..SentChain::default() };
        let judged = certificate::judge(&shown, "a.test", &judges, at).expect("a certificate");
        assert!(
            judged.staple_is_wrong == is_wrong && judged.staple.contains(says),
            "{says}: {}",
            judged.staple
        );
        assert!(judged.must_staple && judged.is_stapled == shown.staple.is_some());
    }
}

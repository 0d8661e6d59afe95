//! Alerts to clients that have nothing in common with brisk, and the choice among key shares.

use std::io::{Read, Write};
use std::net::TcpStream;

use brisk_behaviour::openssl::ask;
use brisk_behaviour::site::{NAME, NAMES, Site, setup};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::process::TIMEOUT;

const TLS_1_1: u16 = 0x0302;
const TLS_1_2: u16 = 0x0303;
const TLS_1_3: u16 = 0x0304;

const P256: u16 = 0x0017;
const P384: u16 = 0x0018;
const P521: u16 = 0x0019;
const X25519: u16 = 0x001d;

const HANDSHAKE_FAILURE: u8 = 40;
const PROTOCOL_VERSION: u8 = 70;
const MISSING_EXTENSION: u8 = 109;

/// The base point of P-256, which is as good a public key as any.
const P256_SHARE: &str = "046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296\
                          4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5";

/// SHA-256 of `HelloRetryRequest` begins so (RFC 8446 section 4.1.3).
const RETRY: [u8; 4] = [0xcf, 0x21, 0xad, 0x74];

/// A hello; what is `None` or empty has no extension.
#[derive(Clone, Copy)]
struct Hello<'a> {
    version: u16,
    versions: &'a [u16],
    suites: &'a [u16],
    groups: &'a [u16],
    shares: Option<&'a [u16]>,
    schemes: &'a [u16],
}

impl Hello<'_> {
    /// Of TLS 1.3 as it should be.
    const MODERN: Hello<'static> = Hello {
        version: TLS_1_2,
        versions: &[TLS_1_3, TLS_1_2],
        suites: &[0x1301, 0xc02b],
        groups: &[P256],
        shares: Some(&[P256]),
        schemes: &[0x0403, 0x0804],
    };

    fn wire(&self) -> Vec<u8> {
        let mut extensions = Vec::new();
        let mut extension = |kind: u16, data: Vec<u8>| {
            extensions.extend([&kind.to_be_bytes()[..], &sized(&data)].concat());
        };
        if !self.versions.is_empty() {
            let list = list(self.versions);
            extension(43, [&[list.len() as u8][..], &list].concat());
        }
        if !self.groups.is_empty() {
            extension(10, sized(&list(self.groups)));
        }
        if !self.schemes.is_empty() {
            extension(13, sized(&list(self.schemes)));
        }
        if let Some(shares) = self.shares {
            let entry = |group: &u16| [&group.to_be_bytes()[..], &sized(&share(*group))].concat();
            extension(51, sized(&shares.iter().flat_map(entry).collect::<Vec<_>>()));
        }
        let head = [&self.version.to_be_bytes()[..], &[7; 32], &[0]].concat();
        let body = [head, sized(&list(self.suites)), vec![1, 0], sized(&extensions)].concat();
        let message = [&[1, 0][..], &sized(&body)].concat();
        [&[22, 3, 1][..], &sized(&message)].concat()
    }
}

fn list(code_points: &[u16]) -> Vec<u8> {
    code_points.iter().flat_map(|point| point.to_be_bytes()).collect()
}

fn sized(data: &[u8]) -> Vec<u8> {
    [&(data.len() as u16).to_be_bytes()[..], data].concat()
}

fn share(group: u16) -> Vec<u8> {
    match group {
        P256 => {
            let digits =
                P256_SHARE.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
            digits.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
        }
        _ => vec![9; 32],
    }
}

/// The content of the first record that comes back, its type first.
fn answer(site: &Site, hello: &Hello<'_>) -> Vec<u8> {
    let mut stream = TcpStream::connect(site.brisk.https()).expect("a listener");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream.write_all(&hello.wire()).expect("a server that reads");
    let mut header = [0; 5];
    stream.read_exact(&mut header).expect("a record");
    let mut content = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
    stream.read_exact(&mut content).expect("a whole record");
    content.insert(0, header[0]);
    content
}

#[test]
fn a_client_with_nothing_in_common_learns_what_it_lacks() {
    let site = Site::new();
    let modern = Hello::MODERN;
    let old = Hello { versions: &[], shares: None, ..modern };
    for (name, hello, alert) in [
        ("no suite of TLS 1.3", Hello { suites: &[0x1304, 0xc02b], ..modern }, HANDSHAKE_FAILURE),
        ("no suite of TLS 1.2", Hello { suites: &[0x002f], ..old }, HANDSHAKE_FAILURE),
        ("no suite for the key", Hello { suites: &[0xc02f], ..old }, HANDSHAKE_FAILURE),
        ("no scheme", Hello { schemes: &[0x0203], ..modern }, HANDSHAKE_FAILURE),
        ("no scheme for the key", Hello { schemes: &[0x0804], ..modern }, HANDSHAKE_FAILURE),
        ("no group", Hello { groups: &[P521], shares: Some(&[]), ..modern }, HANDSHAKE_FAILURE),
        ("TLS 1.1", Hello { version: TLS_1_1, ..old }, PROTOCOL_VERSION),
        ("TLS 1.1 as it was", Hello { version: TLS_1_1, groups: &[], schemes: &[], ..old }, PROTOCOL_VERSION),
        ("TLS 1.1 in the extension", Hello { versions: &[TLS_1_1], ..modern }, PROTOCOL_VERSION),
        ("no key share", Hello { shares: None, ..modern }, MISSING_EXTENSION),
        ("no groups", Hello { groups: &[], ..modern }, MISSING_EXTENSION),
        ("no schemes", Hello { schemes: &[], ..modern }, MISSING_EXTENSION),
    ] {
        assert_eq!(answer(&site, &hello), [21, 2, alert], "{name}");
    }
    let new = Site::custom("tls.min_version = \"1.3\"\n", "", |setup| setup);
    assert_eq!(answer(&new, &old), [21, 2, PROTOCOL_VERSION]);
}

/// Whether a `ServerHello` asks for another hello, and the group of its key share.
fn group(content: &[u8]) -> (bool, u16) {
    assert_eq!(content[..2], [22, 2], "no ServerHello: {content:?}");
    let retries = content[7..11] == RETRY;
    let session_id = usize::from(content[39]);
    let mut extensions = &content[40 + session_id + 2 + 1 + 2..];
    loop {
        let [a, b, high, low, ref rest @ ..] = *extensions else { panic!("no key share: {content:?}") };
        if (a, b) == (0, 51) {
            return (retries, u16::from_be_bytes([rest[0], rest[1]]));
        }
        extensions = &rest[usize::from(u16::from_be_bytes([high, low]))..];
    }
}

#[test]
fn a_key_share_that_came_spares_a_second_hello() {
    let site = Site::new();
    for (groups, shares, expected) in [
        (&[P384, P256][..], &[P256][..], (false, P256)),
        (&[P256, X25519], &[P256, X25519], (false, X25519)),
        (&[P256, X25519], &[P256], (false, P256)),
        (&[P521, P384, X25519], &[P521], (true, X25519)),
        (&[P384], &[], (true, P384)),
    ] {
        let hello = Hello { groups, shares: Some(shares), ..Hello::MODERN };
        assert_eq!(group(&answer(&site, &hello)), expected, "{groups:04x?}, {shares:04x?}");
    }
}

#[test]
fn a_client_learns_what_is_wrong_with_its_certificate() {
    let (ca, strangers) = (TestCa::new(), TestCa::new());
    let clients = "client_certificates = { mode = \"required\", ca = \"clients.pem\" }\n";
    let config = base("") + &host(&NAMES, &[&ca.server(&NAMES).issue()]) + clients;
    let brisk = setup().config(&config).file("clients.pem", ca.root_pem()).start();
    let stranger = strangers.client("mallory").issue();
    let (chain, key) = (stranger.chain.display().to_string(), stranger.key.display().to_string());
    let none: &[&str] = &[];
    let foreign: &[&str] = &["-cert", &chain, "-key", &key];
    for (version, options, alert) in
        [("-tls1_2", none, 40), ("-tls1_3", none, 116), ("-tls1_2", foreign, 48), ("-tls1_3", foreign, 48)]
    {
        let output = ask(&ca, &brisk, &[&["-servername", NAME, version], options].concat());
        let expected = format!("SSL alert number {alert}");
        assert!(output.text().contains(&expected), "{version} {options:?}: {}", output.text());
    }
}

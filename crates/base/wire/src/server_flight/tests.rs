//! Flights in pieces, and messages that lie.

use super::*;
use crate::offer::{extension, handshake, record};
use crate::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};
use crate::suites;

fn hello() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0xc0, 0x2f, 0, 0, 5, 0xff, 1, 0, 1, 0]);
    body
}

fn flight() -> Vec<u8> {
    let mut messages = handshake(2, &hello());
    messages.extend(handshake(11, &[0, 0, 5, 0, 0, 2, 1, 2]));
    messages.extend(handshake(14, &[]));
    let mut bytes = record(22, ProtocolVersion::TLS1_2, &messages);
    bytes.extend(record(21, ProtocolVersion::TLS1_2, &[2, 40]));
    bytes
}

fn parts(bytes: &[u8], piece: usize) -> Result<Vec<Part>, FlightError> {
    let mut flight = Flight::new(1 << 16);
    let mut parts = Vec::new();
    for piece in bytes.chunks(piece) {
        flight.push(piece);
        while let Some(part) = flight.next()? {
            parts.push(part);
        }
    }
    Ok(parts)
}

#[test]
fn a_flight_is_the_same_in_any_pieces() {
    let bytes = flight();
    let whole = parts(&bytes, bytes.len()).expect("a right flight");
    assert_eq!(whole.len(), 4);
    assert_eq!(whole[0], Part::Handshake(2, hello()));
    assert_eq!(whole[3], Part::Alert(Some((2, 40))));
    for piece in 1..bytes.len() {
        assert_eq!(parts(&bytes, piece).as_ref(), Ok(&whole), "{piece}");
    }
}

#[test]
fn what_is_no_tls_is_refused_at_once() {
    assert_eq!(parts(b"HTTP/1.1 400 Bad Request", 1), Err(FlightError::NotTls));
    assert_eq!(parts(&[22, 2], 1), Err(FlightError::NotTls));
    assert_eq!(
        parts(&[22, 3, 3, 0xff, 0xff], 5),
        Err(FlightError::TooLong { what: "record", length: 65535, limit: LONGEST_RECORD })
    );
}

#[test]
fn a_message_that_is_too_long_is_refused_before_it_comes() {
    let bytes = record(22, ProtocolVersion::TLS1_2, &[11, 0xf0, 0, 0]);
    assert!(matches!(parts(&bytes, 9), Err(FlightError::TooLong { length: 0x00f0_0000, .. })));
}

#[test]
fn a_hello_is_read_with_its_extensions() {
    let hello = ServerHello::read(&hello()).expect("a right hello");
    assert_eq!((hello.version, hello.suite), (ProtocolVersion::TLS1_2, CipherSuite(0xc02f)));
    assert_eq!(hello.extension(extension::RENEGOTIATION), Some(&[0][..]));
    assert_eq!(ServerHello::read(&[3; 20]), Err(FlightError::Malformed("ServerHello")));
}

#[test]
fn behind_a_retry_the_second_hello_is_read() {
    let mut hello = hello();
    hello.truncate(hello.len() - 7);
    // supported_versions: TLS 1.3.
    hello.extend([0, 6, 0, 43, 0, 2, 3, 4]);
    let hello = record(22, ProtocolVersion::TLS1_2, &handshake(2, &hello));
    let change = record(20, ProtocolVersion::TLS1_2, &[1]);
    let parts = parts(&[&hello[..], &change, &hello, &change].concat(), 7).expect("a right flight");
    assert!(matches!(
        parts[..],
        [Part::Handshake(2, _), Part::ChangeCipherSpec, Part::Handshake(2, _), Part::ChangeCipherSpec]
    ));
}

#[test]
fn a_key_exchange_names_curve_and_scheme() {
    let suite = suites::find(CipherSuite(0xc02f)).expect("a suite");
    let body = [3, 0, 29, 2, 8, 9, 4, 1, 0, 1, 5];
    let expected = Exchanged::Curve {
        group: NamedGroup::X25519,
        point: vec![8, 9],
        scheme: Some(SignatureScheme::RSA_PKCS1_SHA256),
    };
    assert_eq!(key_exchange(&body, suite, ProtocolVersion::TLS1_2), Ok(expected));
    let suite = suites::find(CipherSuite(0x0033)).expect("a suite");
    let body = [0, 3, 0, 0xff, 1, 0, 1, 2, 0, 1, 3, 0, 1, 5];
    let expected = Exchanged::Prime { prime: vec![0xff, 1], scheme: None };
    assert_eq!(key_exchange(&body, suite, ProtocolVersion::TLS1_0), Ok(expected));
    assert!(key_exchange(&body[..4], suite, ProtocolVersion::TLS1_0).is_err());
}

#[test]
fn an_answer_of_ssl_2_is_known_by_its_certificate_and_ciphers() {
    assert!(sslv2_accepts(&[0x80, 20, 4, 0, 1, 0, 2, 1, 0, 0, 3, 0, 16]));
    assert!(!sslv2_accepts(&[0x80, 3, 0, 0, 1]));
    assert!(!sslv2_accepts(&[21, 3, 1, 0, 2, 2, 40, 0, 0, 0, 0]));
}

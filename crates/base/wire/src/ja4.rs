//! JA4, a fingerprint of TLS clients. <https://github.com/FoxIO-LLC/ja4>

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::client_hello::ClientHello;
use crate::client_hello::parts::Parts;
use crate::registry::ProtocolVersion;
use crate::vectors::FieldReader;

/// Transport of a hello, the first character of its fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TLS over TCP.
    Tcp,
    /// QUIC.
    Quic,
}

/// JA4 of a `ClientHello`: its fields, and the body of the message. `None` if the body is malformed. About 3 us.
pub fn ja4(hello: &ClientHello, body: &[u8], transport: Transport) -> Option<String> {
    let numbers = extensions(Parts::of(body)?.extensions);
    let numbers: Vec<u16> = numbers.filter(|number| !is_grease(*number)).collect();
    let suites: Vec<u16> =
        hello.suites.iter().map(|suite| suite.0).filter(|suite| !is_grease(*suite)).collect();
    let versions = hello.versions.iter().filter(|version| !is_grease(version.0));
    // JA4 uses the highest version, regardless of the order.
    let version = match versions.max().copied() {
        Some(ProtocolVersion::TLS1_3) => "13",
        Some(ProtocolVersion::TLS1_2) => "12",
        Some(ProtocolVersion::TLS1_1) => "11",
        Some(ProtocolVersion::TLS1_0) => "10",
        Some(ProtocolVersion::SSL3_0) => "s3",
        _ => "00",
    };
    let name = if numbers.contains(&0) { 'd' } else { 'i' };
    // JA4 has two digits for each number.
    let (suites_count, extension_count) = (suites.len().min(99), numbers.len().min(99));
    let alpn = alpn(hello.alpn.first());
    // The first part of JA4 states both extensions already, so its hash omits them.
    let rest = numbers.into_iter().filter(|number| !matches!(number, 0 | 16)).collect();
    let mut hashed = sorted(rest);
    let schemes = hello.signature_schemes.iter().map(|scheme| scheme.0).filter(|scheme| !is_grease(*scheme));
    let schemes = listed(&schemes.collect::<Vec<_>>());
    if !schemes.is_empty() && !hashed.is_empty() {
        hashed = format!("{hashed}_{schemes}");
    }
    let (suites, hashed) = (hash(&sorted(suites)), hash(&hashed));
    let transport = if transport == Transport::Quic { 'q' } else { 't' };
    Some(format!("{transport}{version}{name}{suites_count:02}{extension_count:02}{alpn}_{suites}_{hashed}"))
}

/// Numbers of the extensions in a block without its length.
fn extensions(block: &[u8]) -> impl Iterator<Item = u16> {
    let mut block = FieldReader(block);
    std::iter::from_fn(move || block.extension().map(|(number, _)| number))
}

/// Reserved values (RFC 8701).
const fn is_grease(number: u16) -> bool {
    number & 0x0f0f == 0x0a0a && number >> 8 == number & 0xff
}

/// First and last character of the first protocol; of its hexadecimal form if they are not alphanumeric.
fn alpn(protocol: Option<&Vec<u8>>) -> String {
    let Some((first, last)) = protocol.and_then(|name| name.first().zip(name.last())) else {
        return "00".to_owned();
    };
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        return [char::from(*first), char::from(*last)].iter().collect();
    }
    format!("{:x}{:x}", first >> 4, last & 15)
}

fn sorted(mut numbers: Vec<u16>) -> String {
    numbers.sort_unstable();
    listed(&numbers)
}

fn listed(numbers: &[u16]) -> String {
    numbers.iter().map(|number| format!("{number:04x}")).collect::<Vec<_>>().join(",")
}

/// The first twelve digits of the hash.
fn hash(text: &str) -> String {
    if text.is_empty() {
        return "000000000000".to_owned();
    }
    Sha256::digest(text.as_bytes()).iter().take(6).fold(String::new(), |mut digits, byte| {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_hello::Progress;
    use crate::offer::Offer;
    use crate::registry::{CipherSuite, SignatureScheme};

    #[test]
    fn the_example_of_the_specification_has_its_fingerprint() {
        let suites = [
            0x2a2a, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013, 0xc014,
            0x9c, 0x9d, 0x2f, 0x35,
        ];
        let schemes = [0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601].map(SignatureScheme);
        let mut offer = Offer::new(ProtocolVersion::TLS1_3, [7; 32], suites.map(CipherSuite).to_vec())
            .with(0x1a1a, vec![])
            .server_name("example.com")
            .alpn(&["h2", "http/1.1"])
            .schemes(&schemes)
            .versions(&[ProtocolVersion(0x5a5a), ProtocolVersion::TLS1_3, ProtocolVersion::TLS1_2]);
        for number in [0x1b, 0x33, 0x4469, 0x17, 0x2d, 5, 0x23, 0x12, 0xff01, 0xb, 0xa, 0x15] {
            let content = match number {
                0xa => vec![0, 2, 0, 29],
                0x33 => vec![0, 5, 0, 29, 0, 1, 7],
                _ => vec![0],
            };
            offer = offer.with(number, content);
        }
        let bytes = offer.to_bytes();
        let Ok(Progress::Complete(hello)) = ClientHello::read(&bytes, 4096) else { panic!("a hello") };
        let fingerprint = ja4(&hello, &bytes[9..], Transport::Tcp).expect("a fingerprint");
        assert_eq!(fingerprint, "t13d1516h2_8daaf6152771_e5627efa2ab1");
    }

    #[test]
    fn missing_parts_have_zeros() {
        assert_eq!(alpn(None), "00");
        assert_eq!(alpn(Some(&vec![0xab])), "ab");
        assert_eq!(alpn(Some(&b"h2".to_vec())), "h2");
        assert_eq!(hash(""), "000000000000");
        assert!(is_grease(0xfafa) && !is_grease(0x0a1a) && !is_grease(0x1301));
    }
}

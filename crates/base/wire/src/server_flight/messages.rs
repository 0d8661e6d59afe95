//! The handshake messages of a server that TLS 1.2 and before send in the clear, and the `ServerHello` of TLS 1.3.

use super::FlightError;
use crate::offer::extension;
use crate::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};
use crate::suites::{Exchange, Suite};
use crate::vectors::FieldReader;

/// The random of a `ServerHello` that is a `HelloRetryRequest` (RFC 8446 section 4.1.3).
pub const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// Fields of a `ServerHello`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerHello {
    /// Negotiated version, from the extension if there is one.
    pub version: ProtocolVersion,
    /// The server's random.
    pub random: [u8; 32],
    /// The session ID, at most 32 bytes.
    pub session_id: Vec<u8>,
    /// The suite.
    pub suite: CipherSuite,
    /// The compression method.
    pub compression: u8,
    /// The message is a `HelloRetryRequest`.
    pub is_retry: bool,
    /// Group of the TLS 1.3 key share, or the requested group.
    pub group: Option<NamedGroup>,
    /// Extensions: number and content.
    pub extensions: Vec<(u16, Vec<u8>)>,
}

impl ServerHello {
    /// Reads the body of the message.
    pub fn read(body: &[u8]) -> Result<Self, FlightError> {
        Self::parse(&mut FieldReader(body)).ok_or(FlightError::Malformed("ServerHello"))
    }

    /// The content of an extension.
    pub fn extension(&self, number: u16) -> Option<&[u8]> {
        self.extensions.iter().find(|(own, _)| *own == number).map(|(_, content)| &content[..])
    }

    /// The protocol that ALPN chose.
    pub fn alpn(&self) -> Option<String> {
        let mut names = FieldReader(FieldReader(self.extension(extension::ALPN)?).long()?);
        // RFC 7301 section 3.1: a name may have any bytes.
        Some(String::from_utf8_lossy(names.short()?).into_owned())
    }

    fn parse(body: &mut FieldReader<'_>) -> Option<Self> {
        let legacy = ProtocolVersion(body.two()?);
        let random: [u8; 32] = body.take(32)?.try_into().ok()?;
        let session_id = body.short()?;
        let suite = CipherSuite(body.two()?);
        let compression = body.byte()?;
        let mut extensions = Vec::new();
        if !body.0.is_empty() {
            let mut all = FieldReader(body.long()?);
            while !all.0.is_empty() {
                let (number, content) = all.extension()?;
                extensions.push((number, content.to_vec()));
            }
        }
        if session_id.len() > 32 || !body.0.is_empty() {
            return None;
        }
        let mut hello = Self {
            version: legacy,
            random,
            session_id: session_id.to_vec(),
            suite,
            compression,
            is_retry: random == RETRY,
            group: None,
            extensions,
        };
        if let Some(version) = hello.extension(extension::VERSIONS) {
            hello.version = ProtocolVersion(FieldReader(version).two()?);
        }
        if let Some(share) = hello.extension(extension::KEY_SHARE) {
            hello.group = Some(NamedGroup(FieldReader(share).two()?));
        }
        Some(hello)
    }
}

/// The certificates of a `Certificate` message of TLS 1.2 and before, DER, as they were sent.
pub fn certificates(body: &[u8]) -> Result<Vec<Vec<u8>>, FlightError> {
    fn parse(body: &[u8]) -> Option<Vec<Vec<u8>>> {
        let mut body = FieldReader(body);
        let mut list = FieldReader(body.longest()?);
        let mut all = Vec::new();
        while !list.0.is_empty() {
            all.push(list.longest()?.to_vec());
        }
        body.0.is_empty().then_some(all)
    }
    parse(body).ok_or(FlightError::Malformed("Certificate"))
}

/// The OCSP response of a `CertificateStatus` (RFC 6066 section 8).
pub fn staple(body: &[u8]) -> Result<Vec<u8>, FlightError> {
    let mut body = FieldReader(body);
    let response = body.byte().filter(|kind| *kind == 1).and_then(|_| body.longest());
    response.map(<[u8]>::to_vec).ok_or(FlightError::Malformed("CertificateStatus"))
}

/// The SCTs of a list (RFC 6962 section 3.3): of each the ID of its log.
pub fn scts(list: &[u8]) -> Result<Vec<[u8; 32]>, FlightError> {
    fn parse(list: &[u8]) -> Option<Vec<[u8; 32]>> {
        let mut list = FieldReader(FieldReader(list).long()?);
        let mut logs = Vec::new();
        while !list.0.is_empty() {
            let mut sct = FieldReader(list.long()?);
            // RFC 6962 section 3.2: the version, then the ID of the log.
            sct.byte()?;
            logs.push(sct.take(32)?.try_into().ok()?);
        }
        Some(logs)
    }
    parse(list).ok_or(FlightError::Malformed("SignedCertificateTimestampList"))
}

/// Content of a `ServerKeyExchange`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exchanged {
    /// A point on a named curve.
    Curve {
        /// The curve.
        group: NamedGroup,
        /// The server's point.
        point: Vec<u8>,
        /// Signature scheme; `None` before TLS 1.2, and for anonymous suites.
        scheme: Option<SignatureScheme>,
    },
    /// A Diffie-Hellman group and value.
    Prime {
        /// The prime, without leading zeros.
        prime: Vec<u8>,
        /// Signature scheme; `None` before TLS 1.2, and for anonymous suites.
        scheme: Option<SignatureScheme>,
    },
    /// A temporary RSA key: export suites.
    Rsa {
        /// Bits of its modulus.
        bits: usize,
    },
    /// Something of another suite.
    Other,
}

/// Reads a `ServerKeyExchange` of `suite`.
pub fn key_exchange(body: &[u8], suite: &Suite, version: ProtocolVersion) -> Result<Exchanged, FlightError> {
    let mut bytes = FieldReader(body);
    let read = match suite.exchange {
        Exchange::Ecdhe => curve(&mut bytes, suite, version),
        Exchange::Dhe => prime(&mut bytes, suite, version),
        Exchange::Rsa => bytes.long().map(|modulus| Exchanged::Rsa { bits: bits(modulus) }),
        _ => Some(Exchanged::Other),
    };
    read.ok_or(FlightError::Malformed("ServerKeyExchange"))
}

fn curve(bytes: &mut FieldReader<'_>, suite: &Suite, version: ProtocolVersion) -> Option<Exchanged> {
    // RFC 8422 section 5.4: 3 is a named curve; the other types are deprecated.
    if bytes.byte()? != 3 {
        return Some(Exchanged::Other);
    }
    let group = NamedGroup(bytes.two()?);
    let point = bytes.short()?.to_vec();
    Some(Exchanged::Curve { group, point, scheme: scheme(bytes, suite, version).ok()? })
}

fn prime(bytes: &mut FieldReader<'_>, suite: &Suite, version: ProtocolVersion) -> Option<Exchanged> {
    let prime = bytes.long()?;
    bytes.long()?;
    bytes.long()?;
    let prime = prime.iter().copied().skip_while(|byte| *byte == 0).collect();
    Some(Exchanged::Prime { prime, scheme: scheme(bytes, suite, version).ok()? })
}

/// `Err` where the message ends before its scheme.
fn scheme(
    bytes: &mut FieldReader<'_>,
    suite: &Suite,
    version: ProtocolVersion,
) -> Result<Option<SignatureScheme>, Ended> {
    if suite.is_anonymous || version < ProtocolVersion::TLS1_2 {
        return Ok(None);
    }
    bytes.two().map(|scheme| Some(SignatureScheme(scheme))).ok_or(Ended)
}

/// Error for a message that is too short.
struct Ended;

/// Bits of a number without its leading zeros.
fn bits(number: &[u8]) -> usize {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let rest = &number[zeros..];
    rest.first().map_or(0, |first| rest.len() * 8 - first.leading_zeros() as usize)
}

/// A `NewSessionTicket` of TLS 1.2 (RFC 5077 section 3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionTicket {
    /// Seconds; 0 leaves it to the client.
    pub lifetime: u32,
    /// The ticket.
    pub ticket: Vec<u8>,
}

/// Reads a `NewSessionTicket` of TLS 1.2.
pub fn session_ticket(body: &[u8]) -> Result<SessionTicket, FlightError> {
    fn parse(bytes: &mut FieldReader<'_>) -> Option<SessionTicket> {
        let lifetime = bytes.four()?;
        Some(SessionTicket { lifetime, ticket: bytes.long()?.to_vec() })
    }
    parse(&mut FieldReader(body)).ok_or(FlightError::Malformed("NewSessionTicket"))
}

/// Whether `bytes` begin with a `SERVER-HELLO` of SSL 2.0 that has a certificate and ciphers.
pub fn sslv2_accepts(bytes: &[u8]) -> bool {
    // Two bytes of length, 4 for SERVER-HELLO, session hit, certificate type, version, three lengths.
    let Some(&[length, _, 4, _, 1, 0, 2, a, b, c, d]) = bytes.first_chunk() else { return false };
    length & 0x80 != 0 && u16::from_be_bytes([a, b]) > 0 && u16::from_be_bytes([c, d]) >= 3
}

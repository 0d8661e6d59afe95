//! Handshake messages: type names, and parsers for messages of servers.

use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};
use brisk_wire::server_flight::ServerHello;
use brisk_wire::vectors::FieldReader;

/// The extension `pre_shared_key` (RFC 8446 section 4.2.11).
const PRE_SHARED_KEY: u16 = 41;

/// Type of `ClientHello`.
pub const CLIENT_HELLO: u8 = 1;
/// Type of `ServerHello`.
pub const SERVER_HELLO: u8 = 2;
/// Type of `NewSessionTicket`.
pub(crate) const NEW_SESSION_TICKET: u8 = 4;
/// Type of `Certificate`.
pub const CERTIFICATE: u8 = 11;
/// Type of `ServerKeyExchange`.
pub const SERVER_KEY_EXCHANGE: u8 = 12;
/// Type of `ServerHelloDone`.
pub(crate) const SERVER_HELLO_DONE: u8 = 14;
/// Type of `CertificateVerify`.
pub const CERTIFICATE_VERIFY: u8 = 15;
/// Type of `Finished`.
pub const FINISHED: u8 = 20;
/// Type of `CompressedCertificate`.
pub const COMPRESSED_CERTIFICATE: u8 = 25;

/// Name of a message type; `None` for types of neither TLS 1.2 nor TLS 1.3.
pub(crate) const fn name(kind: u8) -> Option<&'static str> {
    Some(match kind {
        0 => "HelloRequest",
        CLIENT_HELLO => "ClientHello",
        SERVER_HELLO => "ServerHello",
        NEW_SESSION_TICKET => "NewSessionTicket",
        5 => "EndOfEarlyData",
        8 => "EncryptedExtensions",
        CERTIFICATE => "Certificate",
        SERVER_KEY_EXCHANGE => "ServerKeyExchange",
        13 => "CertificateRequest",
        SERVER_HELLO_DONE => "ServerHelloDone",
        CERTIFICATE_VERIFY => "CertificateVerify",
        16 => "ClientKeyExchange",
        FINISHED => "Finished",
        22 => "CertificateStatus",
        24 => "KeyUpdate",
        COMPRESSED_CERTIFICATE => "CompressedCertificate",
        _ => return None,
    })
}

/// Extensions of a block without its length: number and content.
pub fn extensions(block: &[u8]) -> Vec<(u16, &[u8])> {
    let mut input = FieldReader(block);
    let mut found = Vec::new();
    while let Some(extension) = input.extension() {
        found.push(extension);
    }
    found
}

/// Fields of a `ServerHello` (RFC 8446 section 4.1.3, RFC 5246 section 7.4.1.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerChoice {
    /// The message is a `HelloRetryRequest`.
    pub is_retry: bool,
    /// Negotiated version.
    pub version: ProtocolVersion,
    /// Chosen cipher suite.
    pub suite: CipherSuite,
    /// Group of the key share; in a `HelloRetryRequest`, the requested group.
    pub group: Option<NamedGroup>,
    /// The server accepted a pre-shared key.
    pub is_resumed: bool,
    /// The server's random.
    pub random: [u8; 32],
    /// The session ID is not empty. Before TLS 1.3, the server stores the session under this ID.
    pub has_id: bool,
}

impl ServerChoice {
    /// Parses the body of the message; `None` if it is malformed.
    pub fn read(body: &[u8]) -> Option<Self> {
        let hello = ServerHello::read(body).ok()?;
        Some(Self {
            is_retry: hello.is_retry,
            version: hello.version,
            suite: hello.suite,
            group: hello.group,
            is_resumed: hello.extension(PRE_SHARED_KEY).is_some(),
            random: hello.random,
            has_id: !hello.session_id.is_empty(),
        })
    }
}

/// A `NewSessionTicket` without its secret content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Ticket {
    /// Lifetime in seconds; in TLS 1.2, 0 leaves the lifetime to the client.
    pub lifetime_s: u32,
    /// Size of the ticket in bytes.
    pub bytes: usize,
    /// Maximum size of early data in bytes; 0 for none.
    pub early_data: u32,
}

impl Ticket {
    /// Whether the ticket can be resumed: it is not empty and, in TLS 1.3, has a lifetime.
    pub fn is_of_use(&self, version: ProtocolVersion) -> bool {
        // RFC 5077 section 3.3: an empty ticket withdraws the announced one, and a lifetime of 0 is
        // unspecified. RFC 8446 section 4.6.1: in TLS 1.3, a lifetime of 0 means that the ticket is discarded
        // at once.
        self.bytes > 0 && (version != ProtocolVersion::TLS1_3 || self.lifetime_s > 0)
    }

    /// Parses the body of a `NewSessionTicket` (RFC 8446 section 4.6.1, RFC 5077 section 3.3).
    pub fn read(body: &[u8], version: ProtocolVersion) -> Option<Self> {
        let mut input = FieldReader(body);
        let lifetime_s = input.four()?;
        if version != ProtocolVersion::TLS1_3 {
            return Some(Self { lifetime_s, bytes: input.long()?.len(), early_data: 0 });
        }
        input.four()?;
        input.short()?;
        let bytes = input.long()?.len();
        let all = extensions(input.long()?);
        // RFC 8446 section 4.2.10: in a ticket, `early_data` contains the maximum size.
        let early = all.iter().find(|(number, _)| *number == 42);
        let early_data = early.and_then(|(_, content)| FieldReader(content).four()).unwrap_or(0);
        Some(Self { lifetime_s, bytes, early_data })
    }
}

/// Group and scheme of a `ServerKeyExchange` with a named curve (RFC 8422 section 5.4).
pub fn key_exchange(body: &[u8]) -> Option<(NamedGroup, SignatureScheme)> {
    let mut input = FieldReader(body);
    // RFC 8422 section 5.4: explicit curves are deprecated, and have fields of other lengths.
    if input.byte()? != 3 {
        return None;
    }
    let group = NamedGroup(input.two()?);
    input.short()?;
    // RFC 8446 section 4.2.3: schemes have the numbers of the pairs of hash and signature in TLS 1.2.
    Some((group, SignatureScheme(input.two()?)))
}

/// Signature scheme of a `CertificateVerify`.
pub fn scheme(body: &[u8]) -> Option<SignatureScheme> {
    FieldReader(body).two().map(SignatureScheme)
}

/// Algorithm and uncompressed length of a `CompressedCertificate` (RFC 8879 section 4).
pub fn compressed(body: &[u8]) -> Option<(&'static str, usize)> {
    let mut input = FieldReader(body);
    let algorithm = match input.two()? {
        1 => "zlib",
        2 => "brotli",
        3 => "zstd",
        _ => "unknown",
    };
    Some((algorithm, input.three()?))
}

/// Certificates of a `Certificate` message in DER (RFC 8446 section 4.4.2, RFC 5246 section 7.4.2). Ends before the first malformed
/// entry.
pub fn certificates(body: &[u8], version: ProtocolVersion) -> Vec<&[u8]> {
    let mut input = FieldReader(body);
    let is_tls13 = version == ProtocolVersion::TLS1_3;
    let list = if is_tls13 { input.short().and_then(|_| input.three()) } else { input.three() };
    let mut list = FieldReader(list.and_then(|length| input.take(length)).unwrap_or_default());
    let mut all = Vec::new();
    while let Some(certificate) = list.longest() {
        all.push(certificate);
        if is_tls13 && list.long().is_none() {
            break;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use brisk_wire::server_flight::RETRY;

    use super::*;

    #[test]
    fn certificates_of_both_versions_are_read_until_a_malformed_one() {
        let tls12 = [0, 0, 9, 0, 0, 2, 1, 2, 0, 0, 1, 3];
        assert_eq!(certificates(&tls12, ProtocolVersion::TLS1_2), [&[1, 2][..], &[3]]);
        let tls13 = [0, 0, 0, 13, 0, 0, 2, 1, 2, 0, 0, 0, 0, 1, 3, 0, 0];
        assert_eq!(certificates(&tls13, ProtocolVersion::TLS1_3), [&[1, 2][..], &[3]]);
        assert_eq!(
            certificates(&[0, 0, 9, 0, 0, 2, 1, 2, 0, 0, 9, 3], ProtocolVersion::TLS1_2),
            [&[1, 2][..]]
        );
        assert!(certificates(&[0, 0, 200, 1], ProtocolVersion::TLS1_2).is_empty());
    }

    fn hello(random: [u8; 32], extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend(random);
        body.extend([0, 0x13, 2, 0]);
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        body
    }

    #[test]
    fn a_hello_of_tls13_and_a_retry_are_read() {
        let body = hello([1; 32], &[0, 43, 0, 2, 3, 4, 0, 51, 0, 4, 0x11, 0xec, 0, 0, 0, 41, 0, 2, 0, 0]);
        let read = ServerChoice::read(&body).expect("a hello");
        assert_eq!((read.version, read.suite), (ProtocolVersion::TLS1_3, CipherSuite(0x1302)));
        assert_eq!(
            (read.group, read.is_resumed, read.is_retry),
            (Some(NamedGroup::X25519MLKEM768), true, false)
        );
        let retry =
            ServerChoice::read(&hello(RETRY, &[0, 43, 0, 2, 3, 4, 0, 51, 0, 2, 0, 23])).expect("a hello");
        assert!(retry.is_retry && retry.group == Some(NamedGroup::SECP256R1));
        assert!((0..37).all(|end| ServerChoice::read(&body[..end]).is_none()));
    }

    #[test]
    fn tickets_of_both_versions_are_read() {
        let of13 = [0, 0, 0x1c, 0x20, 9, 9, 9, 9, 1, 0, 0, 3, 7, 7, 7, 0, 8, 0, 42, 0, 4, 0, 0, 0x40, 0];
        let ticket = Ticket { lifetime_s: 7200, bytes: 3, early_data: 16384 };
        assert_eq!(Ticket::read(&of13, ProtocolVersion::TLS1_3), Some(ticket));
        let of12 = [0, 0, 0x1c, 0x20, 0, 2, 7, 7];
        let ticket = Ticket { lifetime_s: 7200, bytes: 2, early_data: 0 };
        assert_eq!(Ticket::read(&of12, ProtocolVersion::TLS1_2), Some(ticket));
        let of_no_use =
            |lifetime_s, bytes, version| !Ticket { lifetime_s, bytes, early_data: 0 }.is_of_use(version);
        assert!(of_no_use(0, 9, ProtocolVersion::TLS1_3) && of_no_use(9, 0, ProtocolVersion::TLS1_2));
        assert!(!of_no_use(0, 9, ProtocolVersion::TLS1_2) && !of_no_use(9, 9, ProtocolVersion::TLS1_3));
    }
}

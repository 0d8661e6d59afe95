//! Writer of `ClientHello` messages with any content, including offers that TLS libraries no longer support.

use crate::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};

/// Numbers of extensions.
/// <https://www.iana.org/assignments/tls-extensiontype-values>
pub mod extension {
    /// `server_name`, RFC 6066.
    pub const SERVER_NAME: u16 = 0;
    /// `status_request`, RFC 6066.
    pub const STATUS_REQUEST: u16 = 5;
    /// `supported_groups`, RFC 8422.
    pub const GROUPS: u16 = 10;
    /// `ec_point_formats`, RFC 8422.
    pub const POINT_FORMATS: u16 = 11;
    /// `signature_algorithms`, RFC 8446.
    pub const SCHEMES: u16 = 13;
    /// `heartbeat`, RFC 6520.
    pub const HEARTBEAT: u16 = 15;
    /// `application_layer_protocol_negotiation`, RFC 7301.
    pub const ALPN: u16 = 16;
    /// `signed_certificate_timestamp`, RFC 6962.
    pub const SCT: u16 = 18;
    /// `session_ticket`, RFC 5077.
    pub const TICKET: u16 = 35;
    /// `supported_versions`, RFC 8446.
    pub const VERSIONS: u16 = 43;
    /// `key_share`, RFC 8446.
    pub const KEY_SHARE: u16 = 51;
    /// `renegotiation_info`, RFC 5746.
    pub const RENEGOTIATION: u16 = 0xff01;
}

/// The content of a `ClientHello`. Extensions are written in the order in which they were added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The version of its record. Default: TLS 1.0, or SSL 3.0 where that is offered.
    pub record: ProtocolVersion,
    /// Version in the hello's own field; 1.2 for TLS 1.3.
    pub version: ProtocolVersion,
    /// The client's random.
    pub random: [u8; 32],
    /// The session ID, at most 32 bytes.
    pub session_id: Vec<u8>,
    /// Suites.
    pub suites: Vec<CipherSuite>,
    /// Compression methods. Default: none (0) only.
    pub compression: Vec<u8>,
    /// Extensions: number and content. None at all are written if it is empty, as SSL 3.0 has it.
    pub extensions: Vec<(u16, Vec<u8>)>,
}

impl Offer {
    /// An offer of `version`, suites and random value, without extensions.
    pub fn new(version: ProtocolVersion, random: [u8; 32], suites: Vec<CipherSuite>) -> Self {
        // RFC 8446 section 5.1: the record of the first hello may state TLS 1.0, for compatibility.
        let record = version.min(ProtocolVersion::TLS1_0);
        // RFC 8446 section 4.1.2: TLS 1.3 is offered by its extension only.
        let legacy = version.min(ProtocolVersion::TLS1_2);
        Self {
            record,
            version: legacy,
            random,
            session_id: Vec::new(),
            suites,
            compression: vec![0],
            extensions: Vec::new(),
        }
    }

    /// Adds an extension.
    #[must_use]
    pub fn with(mut self, number: u16, content: Vec<u8>) -> Self {
        self.extensions.push((number, content));
        self
    }

    /// Takes extensions away.
    #[must_use]
    pub fn without(mut self, numbers: &[u16]) -> Self {
        self.extensions.retain(|(number, _)| !numbers.contains(number));
        self
    }

    /// Adds the server's name, which is a host name and no address.
    #[must_use]
    pub fn server_name(self, name: &str) -> Self {
        let mut entry = vec![0];
        entry.extend(vector16(name.as_bytes()));
        self.with(extension::SERVER_NAME, vector16(&entry))
    }

    /// Adds groups, and that points are not compressed.
    #[must_use]
    pub fn groups(self, groups: &[NamedGroup]) -> Self {
        let numbers: Vec<u8> = groups.iter().flat_map(|group| group.0.to_be_bytes()).collect();
        self.with(extension::GROUPS, vector16(&numbers)).with(extension::POINT_FORMATS, vec![1, 0])
    }

    /// Adds signature schemes.
    #[must_use]
    pub fn schemes(self, schemes: &[SignatureScheme]) -> Self {
        let numbers: Vec<u8> = schemes.iter().flat_map(|scheme| scheme.0.to_be_bytes()).collect();
        self.with(extension::SCHEMES, vector16(&numbers))
    }

    /// Adds the versions of TLS 1.3's extension.
    #[must_use]
    pub fn versions(self, versions: &[ProtocolVersion]) -> Self {
        let numbers: Vec<u8> = versions.iter().flat_map(|version| version.0.to_be_bytes()).collect();
        self.with(extension::VERSIONS, vector8(&numbers))
    }

    /// Adds key shares; an empty list requests a `HelloRetryRequest` (RFC 8446 section 4.2.8).
    #[must_use]
    pub fn key_shares(self, shares: &[(NamedGroup, &[u8])]) -> Self {
        let mut entries = Vec::new();
        for (group, share) in shares {
            entries.extend(group.0.to_be_bytes());
            entries.extend(vector16(share));
        }
        self.with(extension::KEY_SHARE, vector16(&entries))
    }

    /// Adds protocols of ALPN.
    #[must_use]
    pub fn alpn(self, protocols: &[&str]) -> Self {
        let names: Vec<u8> = protocols.iter().flat_map(|name| vector8(name.as_bytes())).collect();
        self.with(extension::ALPN, vector16(&names))
    }

    /// Requests an OCSP staple.
    #[must_use]
    pub fn staple(self) -> Self {
        // RFC 6066 section 8: the type OCSP, without responder IDs and extensions.
        self.with(extension::STATUS_REQUEST, vec![1, 0, 0, 0, 0])
    }

    /// The handshake message with its header of 4 bytes. Vectors that are too long for their field are truncated.
    pub fn message(&self) -> Vec<u8> {
        let mut body = self.version.0.to_be_bytes().to_vec();
        body.extend(self.random);
        body.extend(vector8(&self.session_id));
        let suites: Vec<u8> = self.suites.iter().flat_map(|suite| suite.0.to_be_bytes()).collect();
        body.extend(vector16(&suites));
        body.extend(vector8(&self.compression));
        if !self.extensions.is_empty() {
            let mut all = Vec::new();
            for (number, content) in &self.extensions {
                all.extend(number.to_be_bytes());
                all.extend(vector16(content));
            }
            body.extend(vector16(&all));
        }
        handshake(1, &body)
    }

    /// The message in records.
    pub fn to_bytes(&self) -> Vec<u8> {
        record(22, self.record, &self.message())
    }
}

/// `content` in records of the kind `kind`, each of at most 16 KiB.
pub fn record(kind: u8, version: ProtocolVersion, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(content.len() + 5);
    for piece in content.chunks(1 << 14) {
        bytes.push(kind);
        bytes.extend(version.0.to_be_bytes());
        bytes.extend(vector16(piece));
    }
    bytes
}

/// A handshake message of the kind `kind`.
pub fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = (body.len() as u32).to_be_bytes();
    let mut message = vec![kind];
    message.extend(length);
    message.extend(body);
    message
}

/// The hello of SSL 2.0 (its specification, section 2.5) with all its ciphers.
pub fn sslv2_hello(challenge: [u8; 16]) -> Vec<u8> {
    const CIPHERS: [[u8; 3]; 8] = [
        [1, 0, 0x80],
        [2, 0, 0x80],
        [3, 0, 0x80],
        [4, 0, 0x80],
        [5, 0, 0x80],
        [6, 0, 0x40],
        [7, 0, 0xc0],
        [8, 0, 0x80],
    ];
    let mut body = vec![1, 0, 2];
    body.extend([0, (CIPHERS.len() * 3) as u8, 0, 0, 0, 16]);
    body.extend(CIPHERS.as_flattened());
    body.extend(challenge);
    // RFC 6101 appendix E: two bytes of length with the highest bit set, without padding.
    let mut bytes = vec![0x80, body.len() as u8];
    bytes.extend(body);
    bytes
}

fn vector8(content: &[u8]) -> Vec<u8> {
    let content = &content[..content.len().min(usize::from(u8::MAX))];
    [&[content.len() as u8], content].concat()
}

fn vector16(content: &[u8]) -> Vec<u8> {
    let content = &content[..content.len().min(usize::from(u16::MAX))];
    [&(content.len() as u16).to_be_bytes()[..], content].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_hello::{ClientHello, Progress};

    #[test]
    fn what_is_written_is_read_by_the_reader_of_the_gateway() {
        let offer =
            Offer::new(ProtocolVersion::TLS1_3, [7; 32], vec![CipherSuite(0x1301), CipherSuite(0x0005)])
                .server_name("a.test")
                .groups(&[NamedGroup::X25519, NamedGroup::X25519MLKEM768])
                .schemes(&[SignatureScheme::ED25519])
                .versions(&[ProtocolVersion::TLS1_3, ProtocolVersion::TLS1_2])
                .key_shares(&[(NamedGroup::X25519, &[9; 32])])
                .alpn(&["h2", "http/1.1"])
                .staple();
        let bytes = offer.to_bytes();
        let Ok(Progress::Complete(hello)) = ClientHello::read(&bytes, 1 << 14) else {
            panic!("{:?}", ClientHello::read(&bytes, 1 << 14))
        };
        assert_eq!(hello.server_name.as_deref(), Some("a.test"));
        assert_eq!(hello.alpn, [b"h2".to_vec(), b"http/1.1".to_vec()]);
        assert_eq!(hello.versions, [ProtocolVersion::TLS1_3, ProtocolVersion::TLS1_2]);
        assert_eq!(hello.suites, offer.suites);
        assert_eq!(hello.groups, [NamedGroup::X25519, NamedGroup::X25519MLKEM768]);
        assert_eq!(hello.key_shares, Some(vec![NamedGroup::X25519]));
        assert_eq!(hello.signature_schemes, [SignatureScheme::ED25519]);
    }

    #[test]
    fn an_offer_of_old_versions_has_no_extensions_unless_asked() {
        let offer = Offer::new(ProtocolVersion::SSL3_0, [0; 32], vec![CipherSuite(0x000a)]);
        let bytes = offer.to_bytes();
        assert_eq!(bytes[..5], [22, 3, 0, 0, 45]);
        assert_eq!(bytes.len(), 5 + 45);
    }

    #[test]
    fn the_hello_of_ssl_2_has_its_lengths() {
        let bytes = sslv2_hello([5; 16]);
        assert_eq!(usize::from(bytes[1]), bytes.len() - 2);
        assert_eq!(bytes[2..11], [1, 0, 2, 0, 24, 0, 0, 0, 16]);
    }
}

//! Recognition of messages that TLS signs. A key server signs nothing else.

use brisk_keys::is_point_of;
use brisk_wire::registry::{NamedGroup, SignatureScheme};

/// Kind of signed content in TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Content of a server's `CertificateVerify` in TLS 1.3.
    Tls13Server,
    /// Content of a client's `CertificateVerify` in TLS 1.3.
    Tls13Client,
    /// Content of the signature in a `ServerKeyExchange` with ECDHE in TLS 1.2.
    Tls12Server,
}

impl Shape {
    /// Name in the configuration, and label value of metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls13Server => "tls1.3",
            Self::Tls13Client => "tls1.3-client",
            Self::Tls12Server => "tls1.2",
        }
    }

    /// Returns whether TLS permits `scheme` for this content.
    // RFC 8446 section 4.2.3: no PKCS#1 v1.5 in CertificateVerify.
    pub fn is_signed_with(self, scheme: SignatureScheme) -> bool {
        let pkcs1 = [
            SignatureScheme::RSA_PKCS1_SHA256,
            SignatureScheme::RSA_PKCS1_SHA384,
            SignatureScheme::RSA_PKCS1_SHA512,
        ];
        self == Self::Tls12Server || !pkcs1.contains(&scheme)
    }
}

// RFC 8446 section 4.4.3: 64 spaces, the context string, a zero byte, the transcript hash.
const PADDING: [u8; 64] = [b' '; 64];
const SERVER: &[u8] = b"TLS 1.3, server CertificateVerify\0";
const CLIENT: &[u8] = b"TLS 1.3, client CertificateVerify\0";

/// Lengths of the transcript hash: SHA-256 and SHA-384 are the hashes of all TLS 1.3 suites.
const HASHES: [usize; 2] = [32, 48];

/// Length of the client's and server's random in TLS 1.2.
const RANDOMS: usize = 64;

/// `named_curve` (RFC 8422 section 5.4).
const NAMED_CURVE: u8 = 3;

/// Recognises the shape of `message`. `None` if TLS never signs such a message, or if it is also valid ASN.1 (see
/// [`is_asn1`]).
///
/// The shapes are disjoint: at the position of `named_curve`, TLS 1.3 has the first letter of its context string.
pub fn shape(message: &[u8]) -> Option<Shape> {
    tls13(message).or_else(|| (tls12(message) && !is_asn1(message)).then_some(Shape::Tls12Server))
}

/// Returns whether `message` is exactly one ASN.1 SEQUENCE or SET whose elements fill it completely. Signed
/// certificates, CRLs, OCSP responses and CMS attributes have this form.
///
/// A participant of a TLS 1.2 handshake chooses one of the randoms, and could construct such a message to obtain a
/// signature for another purpose. An honest handshake has this form with a probability below one in a million.
pub fn is_asn1(message: &[u8]) -> bool {
    match element(message) {
        Some((SEQUENCE | SET, content, [])) => is_filled(content),
        // Indefinite length: two zero bytes mark the end.
        None => matches!(message, [SEQUENCE | SET, INDEFINITE, .., 0, 0]),
        _ => false,
    }
}

/// Returns whether elements fill `content` completely. An element of indefinite length may end anywhere, so it counts
/// as filling.
fn is_filled(mut content: &[u8]) -> bool {
    loop {
        match element(content) {
            Some((_, _, [])) => return true,
            Some((_, _, rest)) => content = rest,
            None => return matches!(content, [tag, INDEFINITE, ..] if tag & CONSTRUCTED != 0),
        }
    }
}

const CONSTRUCTED: u8 = 0x20;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INDEFINITE: u8 = 0x80;

/// Splits the first element (X.690 section 8.1) from `bytes`: tag, content and remaining bytes. Non-minimal lengths are
/// accepted, as lenient parsers do.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, mut rest) = bytes.split_first()?;
    // X.690 section 8.1.2.4: the tag number follows in further bytes, the last of which has its highest bit clear.
    if tag & 0x1f == 0x1f {
        let last = rest.iter().position(|byte| byte & 0x80 == 0)?;
        rest = &rest[last + 1..];
    }
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..INDEFINITE => (usize::from(first), rest),
        // The length is unknown here; the callers decide about elements of indefinite length.
        INDEFINITE => return None,
        _ => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let add = |sum: usize, byte: &u8| Some(sum.checked_mul(256)? + usize::from(*byte));
            (length.iter().try_fold(0, add)?, rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

// No check for ASN.1: the message begins with spaces, which begin neither a SEQUENCE nor a SET.
fn tls13(message: &[u8]) -> Option<Shape> {
    let rest = message.strip_prefix(&PADDING)?;
    let contexts = [(SERVER, Shape::Tls13Server), (CLIENT, Shape::Tls13Client)];
    let (hash, shape) =
        contexts.into_iter().find_map(|(context, shape)| Some((rest.strip_prefix(context)?, shape)))?;
    HASHES.contains(&hash.len()).then_some(shape)
}

/// RFC 8422 section 5.4: both randoms, then `ServerECDHParams` and nothing else.
fn tls12(message: &[u8]) -> bool {
    let Some(&[kind, high, low, length, ref point @ ..]) = message.get(RANDOMS..) else { return false };
    let curve = NamedGroup(u16::from_be_bytes([high, low]));
    kind == NAMED_CURVE && point.len() == usize::from(length) && is_point(curve, point)
}

/// Returns whether `point` is a valid public key of a supported group. For X25519, any 32 bytes are.
fn is_point(curve: NamedGroup, point: &[u8]) -> bool {
    match curve {
        NamedGroup::X25519 => point.len() == 32,
        other => is_point_of(other, point),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls13_of(context: &[u8], hash: usize) -> Vec<u8> {
        [&PADDING[..], context, &vec![7; hash]].concat()
    }

    fn tls12_of(curve: u16, point: &[u8]) -> Vec<u8> {
        let [high, low] = curve.to_be_bytes();
        [&[9; 64][..], &[3, high, low, point.len() as u8], point].concat()
    }

    #[test]
    fn what_tls_signs_is_known() {
        for hash in [32, 48] {
            assert_eq!(shape(&tls13_of(SERVER, hash)), Some(Shape::Tls13Server));
            assert_eq!(shape(&tls13_of(CLIENT, hash)), Some(Shape::Tls13Client));
        }
        assert_eq!(shape(&tls12_of(29, &[1; 32])), Some(Shape::Tls12Server));
        assert_eq!(shape(&tls12_of(23, &base_point())), Some(Shape::Tls12Server));
    }

    /// The base point of P-256 (FIPS 186-4 section D.1.2.3).
    fn base_point() -> Vec<u8> {
        let digits = "046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296\
                      4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5";
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("a byte");
        (0..digits.len()).step_by(2).map(byte).collect()
    }

    /// An ASN.1 element with a short length.
    fn asn1(tag: u8, content: &[&[u8]]) -> Vec<u8> {
        let content = content.concat();
        [&[tag, content.len() as u8][..], &content].concat()
    }

    /// `SignedAttributes` of CMS (RFC 5652 section 5.4) that also have the layout of a `ServerKeyExchange` with X25519.
    fn signed_attributes() -> Vec<u8> {
        let content_type = asn1(
            0x30,
            &[
                &asn1(6, &[&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 3]]),
                &asn1(SET, &[&asn1(6, &[&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1]])]),
            ],
        );
        // An attribute with an unknown type, filled up to the position of the key exchange.
        let filler = asn1(0x30, &[&asn1(6, &[&[0x2a; 20]]), &asn1(SET, &[&asn1(4, &[])])]);
        let exchange = [&[3, 0, 29, 32][..], &[7; 32]].concat();
        let before = 64 - 2 - content_type.len() - filler.len() - 2;
        let last = asn1(4, &[&vec![0; before], &exchange]);
        asn1(SET, &[&content_type, &filler, &last])
    }

    #[test]
    fn what_could_be_signed_data_of_another_kind_has_no_shape() {
        let attributes = signed_attributes();
        assert!(tls12(&attributes), "the test is about a message of the form of TLS 1.2: {attributes:02x?}");
        assert!(is_asn1(&attributes));
        assert_eq!(shape(&attributes), None);
        let mut sequence = attributes.clone();
        sequence[0] = SEQUENCE;
        assert_eq!(shape(&sequence), None);
        // A non-minimal length, and an indefinite one.
        let mut long = tls12_of(29, &[7; 32]);
        long[..5].copy_from_slice(&[SET, 0x82, 0, 96, 4]);
        long[5] = 94;
        assert_eq!((shape(&long), is_asn1(&long)), (None, true));
        let mut indefinite = tls12_of(29, &[7; 32]);
        indefinite[..2].copy_from_slice(&[SEQUENCE, INDEFINITE]);
        indefinite[98..].fill(0);
        assert_eq!(shape(&indefinite), None);
        let mut inner = tls12_of(29, &[7; 32]);
        inner[..4].copy_from_slice(&[SET, 98, SEQUENCE, INDEFINITE]);
        assert_eq!(shape(&inner), None);
        // A message that only begins like ASN.1 is accepted.
        let mut other = tls12_of(29, &[7; 32]);
        other[..4].copy_from_slice(&[SET, 98, 4, 95]);
        assert_eq!(shape(&other), Some(Shape::Tls12Server));
    }

    #[test]
    fn nothing_else_is() {
        let mut wrong = vec![Vec::new(), vec![1; 32], vec![b' '; 64], vec![b' '; 130], vec![3; 200]];
        for hash in [0, 20, 31, 33, 47, 49, 64] {
            wrong.push(tls13_of(SERVER, hash));
        }
        wrong.push(tls13_of(b"TLS 1.3, server CertificateVerify", 33));
        wrong.push(tls13_of(b"TLS 1.3, another CertificateVerify\0", 32));
        wrong.push(tls13_of(SERVER, 32)[1..].to_vec());
        let x25519 = tls12_of(29, &[1; 32]);
        wrong.push(x25519[..x25519.len() - 1].to_vec());
        wrong.push([&x25519[..], &[0]].concat());
        wrong.push(tls12_of(29, &[1; 31]));
        wrong.push(tls12_of(23, &[1; 65]));
        let mut beside = base_point();
        beside[64] ^= 1;
        wrong.push(tls12_of(23, &beside));
        wrong.push(tls12_of(24, &base_point()));
        // Groups that brisk does not support.
        wrong.push(tls12_of(25, &[&[4][..], &[1; 132]].concat()));
        wrong.push(tls12_of(30, &[1; 56]));
        wrong.push(tls12_of(256, &[1; 32]));
        for message in wrong {
            assert_eq!(shape(&message), None, "{message:?}");
        }
    }

    #[test]
    fn tls_1_3_is_not_signed_with_pkcs1() {
        assert!(!Shape::Tls13Server.is_signed_with(SignatureScheme::RSA_PKCS1_SHA256));
        assert!(Shape::Tls13Server.is_signed_with(SignatureScheme::RSA_PSS_RSAE_SHA256));
        assert!(Shape::Tls12Server.is_signed_with(SignatureScheme::RSA_PKCS1_SHA256));
    }
}

//! What a TLS server signs, distinguished from anything else by its shape: a key server signs nothing else.

use brisk_wire::registry::{NamedGroup, SignatureScheme};

/// The content of a signature in TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// The content of a server's `CertificateVerify` in TLS 1.3.
    Tls13Server,
    /// The content of a client's `CertificateVerify` in TLS 1.3.
    Tls13Client,
    /// The content of the signature in a `ServerKeyExchange` with ECDHE in TLS 1.2.
    Tls12Server,
}

impl Shape {
    /// The name in a configuration and as a label for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls13Server => "tls1.3",
            Self::Tls13Client => "tls1.3-client",
            Self::Tls12Server => "tls1.2",
        }
    }

    /// Whether TLS signs such a content with `scheme`.
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

// RFC 8446 section 4.4.3.
const PADDING: [u8; 64] = [b' '; 64];
const SERVER: &[u8] = b"TLS 1.3, server CertificateVerify\0";
const CLIENT: &[u8] = b"TLS 1.3, client CertificateVerify\0";

/// The lengths of the transcript hash: SHA-256 and SHA-384, of all suites of TLS 1.3.
const HASHES: [usize; 2] = [32, 48];

/// The two randoms of TLS 1.2.
const RANDOMS: usize = 64;

/// `named_curve`, RFC 8422 section 5.4.
const NAMED_CURVE: u8 = 3;

/// The shape of `message`; `None` if no TLS signature is over such bytes.
///
/// No message has two shapes: in the place of `named_curve` TLS 1.3 has the first letter of its context.
pub fn shape(message: &[u8]) -> Option<Shape> {
    tls13(message).or_else(|| tls12(message).then_some(Shape::Tls12Server))
}

fn tls13(message: &[u8]) -> Option<Shape> {
    let rest = message.strip_prefix(&PADDING)?;
    let contexts = [(SERVER, Shape::Tls13Server), (CLIENT, Shape::Tls13Client)];
    let (hash, shape) =
        contexts.into_iter().find_map(|(context, shape)| Some((rest.strip_prefix(context)?, shape)))?;
    HASHES.contains(&hash.len()).then_some(shape)
}

/// Randoms of client and server, then `ServerECDHParams` and nothing else: RFC 8422 section 5.4.
fn tls12(message: &[u8]) -> bool {
    let Some(&[kind, high, low, length, ref point @ ..]) = message.get(RANDOMS..) else { return false };
    let curve = NamedGroup(u16::from_be_bytes([high, low]));
    kind == NAMED_CURVE && point.len() == usize::from(length) && is_point(curve, point)
}

/// Whether `point` has the form of a point of `curve`: its length, and the mark of an uncompressed one.
fn is_point(curve: NamedGroup, point: &[u8]) -> bool {
    let uncompressed = |length: usize| point.len() == length && point.first() == Some(&4);
    match curve {
        NamedGroup::SECP256R1 => uncompressed(65),
        NamedGroup::SECP384R1 => uncompressed(97),
        NamedGroup::SECP521R1 => uncompressed(133),
        NamedGroup::X25519 => point.len() == 32,
        NamedGroup::X448 => point.len() == 56,
        _ => false,
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
        for (curve, length) in [(23, 65), (24, 97), (25, 133)] {
            let mut point = vec![1; length];
            point[0] = 4;
            assert_eq!(shape(&tls12_of(curve, &point)), Some(Shape::Tls12Server), "{curve}");
        }
        for (curve, length) in [(29, 32), (30, 56)] {
            assert_eq!(shape(&tls12_of(curve, &vec![1; length])), Some(Shape::Tls12Server), "{curve}");
        }
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

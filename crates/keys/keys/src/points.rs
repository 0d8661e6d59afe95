//! Validation of points on NIST curves received from a peer.

use aws_lc_rs::agreement::{ECDH_P256, ECDH_P384, ParsedPublicKey, UnparsedPublicKey};
use brisk_wire::registry::NamedGroup;

/// Whether `bytes` are an uncompressed point (SEC 1 section 2.3.3) on the curve of `group`; `false` for groups other
/// than P-256 and P-384.
pub fn is_point_of(group: NamedGroup, bytes: &[u8]) -> bool {
    let (algorithm, length) = match group {
        NamedGroup::SECP256R1 => (&ECDH_P256, 65),
        NamedGroup::SECP384R1 => (&ECDH_P384, 97),
        _ => return false,
    };
    // AWS-LC also parses compressed points and `SubjectPublicKeyInfo`, but RFC 8422 section 5.1.2 permits
    // the uncompressed form only: a message with another form is no content of a TLS signature.
    let is_uncompressed = bytes.len() == length && bytes.first() == Some(&4);
    is_uncompressed && ParsedPublicKey::try_from(&UnparsedPublicKey::new(algorithm, bytes)).is_ok()
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::agreement::PrivateKey;

    use super::*;

    #[test]
    fn a_point_is_on_its_curve_and_no_other() {
        for (group, algorithm) in [(NamedGroup::SECP256R1, &ECDH_P256), (NamedGroup::SECP384R1, &ECDH_P384)] {
            let key = PrivateKey::generate(algorithm).expect("a key");
            let point = key.compute_public_key().expect("a point").as_ref().to_vec();
            assert!(is_point_of(group, &point));
            let mut beside = point.clone();
            *beside.last_mut().expect("a byte") ^= 1;
            assert!(!is_point_of(group, &beside) && !is_point_of(group, &point[1..]));
            assert!(!is_point_of(NamedGroup::SECP521R1, &point));
        }
    }
}

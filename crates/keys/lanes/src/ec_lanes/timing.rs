//! Does the time of a batch depend on secrets? Run by `make check-timing`; see `timing.rs` of the crate.

use super::*;
use crate::timing::{self, Comparison};

fn random() -> [u8; 32] {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).expect("randomness");
    bytes
}

/// A number that is a private key for certain.
fn random_key() -> [u8; 32] {
    let mut key = random();
    key[0] &= 0x7f;
    key
}

/// Compares the two classes of secrets; see [`timing::compare`].
pub(crate) fn compare<T>(name: &str, secrets: &mut [T], perform: impl FnMut(&T)) {
    let measurements = if are_supported() { 60_000 } else { 300 };
    let comparison = Comparison { name, measurements, shares: &[0.5, 0.75], leak: 4.5 };
    timing::compare(&comparison, secrets, perform);
}

/// Copies of one batch of secrets, and batches of random ones, in turns.
fn classes(fixed: [u8; 32], random: impl Fn() -> [u8; 32]) -> Vec<[[[u8; 32]; LANES]; 1]> {
    let batch = |number: usize| {
        if number.is_multiple_of(2) { [fixed; LANES] } else { [(); LANES].map(|()| random()) }
    };
    (0..256).map(|number| [batch(number)]).collect()
}

fn sparse() -> [u8; 32] {
    let mut secret = [0; 32];
    secret[3] = 1;
    secret
}

#[test]
#[ignore = "takes minutes, and a quiet machine: `make check-timing`"]
fn timing_reveals_no_secret_of_an_exchange() {
    let points = [[random(); LANES]];
    for (name, fixed) in [("zero", [0; 32]), ("random", random()), ("sparse", sparse())] {
        compare(&format!("X25519 exchange, {name} secrets"), &mut classes(fixed, random), |secrets| {
            let mut shared = [[[0; 32]; LANES]];
            exchange(secrets, &points, &mut shared);
            std::hint::black_box(&mut shared);
        });
        compare(&format!("X25519 key pairs, {name} secrets"), &mut classes(fixed, random), |secrets| {
            let mut public = [[[0; 32]; LANES]];
            public_keys(secrets, &mut public);
            std::hint::black_box(&mut public);
        });
    }
}

#[test]
#[ignore = "takes minutes, and a quiet machine: `make check-timing`"]
fn timing_reveals_no_nonce() {
    let key = PreparedKey::new(&random_key());
    let operations = [Signing { key: &key, digest: [5; 32] }; LANES];
    for (name, fixed) in [("random", random()), ("sparse", sparse())] {
        let nonces = |batch: &[[[u8; 32]; LANES]; 1]| -> [p256::WideNonce; LANES] {
            let low = |bytes: &[u8; 32]| field25519::words(bytes);
            batch[0].each_ref().map(|bytes| Zeroizing::new([low(bytes), low(bytes)]))
        };
        let mut secrets: Vec<_> = classes(fixed, random).iter().map(nonces).collect();
        compare(&format!("ECDSA, {name} nonces"), &mut secrets, |nonces| {
            let mut signatures = [None; LANES];
            sign_with(&operations, nonces, &mut signatures);
            std::hint::black_box(&mut signatures);
        });
    }
}

#[test]
#[ignore = "takes minutes, and a quiet machine: `make check-timing`"]
fn timing_reveals_no_key_of_a_signature() {
    for (name, fixed) in [("random", random_key()), ("sparse", sparse())] {
        let mut keys: Vec<_> = classes(fixed, random_key)
            .iter()
            .map(|batch| batch[0].map(|key| PreparedKey::new(&key)))
            .collect();
        compare(&format!("ECDSA, {name} keys"), &mut keys, |keys| {
            let operations = keys.each_ref().map(|key| Signing { key, digest: [5; 32] });
            std::hint::black_box(sign(&operations));
        });
    }
}

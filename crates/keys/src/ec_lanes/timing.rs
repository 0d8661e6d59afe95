//! Does the time of a batch depend on secrets? As in `rsa_lanes/timing.rs`: times of two classes of secrets, taken in random
//! order, are compared by Welch's t-test. Run by `make check-timing`.
//!
//! Secrets of both classes lie in one array and are read alike, so that the cache does not distinguish the classes.

use std::time::Instant;

use super::*;

/// Above this a difference is hardly chance: with no leak |t| is above it once in 100,000 runs.
const LEAK: f64 = 4.5;

/// Batches of each comparison.
const BATCHES_MEASURED: usize = 60_000;

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

/// Welch's t of the times below `limit`.
fn t_value(classes: &[Vec<f64>; 2], limit: f64) -> f64 {
    let [(mean, error), (other_mean, other_error)] = [0, 1].map(|class| {
        let times: Vec<f64> = classes[class].iter().copied().filter(|time| *time <= limit).collect();
        let count = times.len() as f64;
        let mean = times.iter().sum::<f64>() / count;
        let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, variance / count)
    });
    (mean - other_mean) / (error + other_error).sqrt()
}

/// Secrets with an even number are of one class, the others of the other.
pub(crate) fn compare<T>(name: &str, secrets: &[T], mut perform: impl FnMut(&T)) {
    let measurements = if are_supported() { BATCHES_MEASURED } else { 300 };
    let mut coins = vec![0u8; measurements];
    rand::fill(&mut coins).expect("randomness");
    let mut classes = [Vec::new(), Vec::new()];
    for coin in coins {
        let number = usize::from(coin) % secrets.len();
        let began = Instant::now();
        perform(&secrets[number]);
        classes[number % 2].push(began.elapsed().as_secs_f64());
    }
    let mut all = classes.concat();
    all.sort_by(f64::total_cmp);
    // Interruptions make a long tail that says nothing.
    for share in [0.5, 0.75] {
        let t = t_value(&classes, all[(all.len() as f64 * share) as usize]);
        eprintln!("{name}: {measurements} batches, fastest {:>3.0} %: t = {t:.2}", share * 100.0);
        assert!(t.abs() < LEAK, "the time depends on {name}");
    }
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
        compare(&format!("X25519 exchange, {name} secrets"), &classes(fixed, random), |secrets| {
            let mut shared = [[[0; 32]; LANES]];
            exchange(secrets, &points, &mut shared);
            std::hint::black_box(&mut shared);
        });
        compare(&format!("X25519 key pairs, {name} secrets"), &classes(fixed, random), |secrets| {
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
        let nonces = |batch: &[[[u8; 32]; LANES]; 1]| -> Vec<p256::WideNonce> {
            let low = |bytes: &[u8; 32]| field25519::words(bytes);
            batch[0].iter().map(|bytes| Zeroizing::new([low(bytes), low(bytes)])).collect()
        };
        let secrets: Vec<_> = classes(fixed, random).iter().map(nonces).collect();
        compare(&format!("ECDSA, {name} nonces"), &secrets, |nonces| {
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
        let keys: Vec<_> = classes(fixed, random_key)
            .iter()
            .map(|batch| batch[0].map(|key| PreparedKey::new(&key)))
            .collect();
        compare(&format!("ECDSA, {name} keys"), &keys, |keys| {
            let operations = keys.each_ref().map(|key| Signing { key, digest: [5; 32] });
            std::hint::black_box(sign(&operations));
        });
    }
}

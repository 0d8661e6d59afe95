//! Does the time of a batch depend on secrets? Run by `make check-timing`; see `timing.rs` of the crate.

use std::time::Instant;

use aws_lc_rs::{
    encoding::{AsDer, Pkcs8V1Der},
    rand::{SecureRandom, SystemRandom},
    rsa::KeySize,
    signature::RsaKeyPair,
};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::*;
use crate::{rsa::RawRsa, timing::Comparison};

/// Keys of each class. Those of the fixed class are copies of one: so both classes use as much memory.
const KEYS: usize = 24;

/// Above this a difference is not chance. More than elsewhere, for keys lie in different places of the heap, which alone makes
/// a difference of some nanoseconds.
const LEAK: f64 = 10.0;

struct Class {
    keys: Vec<PreparedKey>,
    /// Of a fixed input there are copies too.
    inputs: Vec<Vec<u8>>,
    times: Vec<f64>,
}

/// All that this processor has, or the portable form of AVX-512 IFMA.
fn instructions() -> Vec<Instructions> {
    let supported: Vec<_> =
        Instructions::ALL.into_iter().filter(|instructions| instructions.are_supported()).collect();
    if supported.is_empty() { vec![Instructions::Ifma] } else { supported }
}

fn der() -> PrivateKeyDer<'static> {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
    let der: Pkcs8V1Der<'_> = pair.as_der().expect("DER");
    PrivatePkcs8KeyDer::from(der.as_ref().to_vec()).into()
}

fn prepared(der: &PrivateKeyDer<'_>, instructions: Instructions) -> PreparedKey {
    PreparedKey::new(&RawRsa::from_private_der(der).expect("a key").numbers(), instructions)
        .expect("2048 bits")
}

fn random_input() -> Vec<u8> {
    let mut input = vec![0; 256];
    SystemRandom::new().fill(&mut input).expect("randomness");
    input[0] &= 0x7f;
    input
}

impl Class {
    fn of_fixed(instructions: Instructions, der: &PrivateKeyDer<'_>, input: &[u8]) -> Self {
        let keys = (0..KEYS).map(|_| prepared(der, instructions)).collect();
        Self { keys, inputs: vec![input.to_vec(); KEYS], times: Vec::new() }
    }

    fn of_random(instructions: Instructions) -> Self {
        let keys = (0..KEYS).map(|_| prepared(&der(), instructions)).collect();
        Self { keys, inputs: (0..KEYS).map(|_| random_input()).collect(), times: Vec::new() }
    }

    fn measure(&mut self, turn: usize) {
        let operations = self.keys[0].instructions().operations();
        let mut outputs = vec![[0; 256]; operations];
        let chosen = |lane: usize| (operations * turn + lane) % KEYS;
        let mut lanes: Vec<Lane<'_>> = outputs
            .iter_mut()
            .enumerate()
            .map(|(lane, output)| Lane {
                key: &self.keys[chosen(lane)],
                input: &self.inputs[chosen(lane)],
                output,
            })
            .collect();
        let began = Instant::now();
        let verdicts = private_transform(&mut lanes);
        self.times.push(began.elapsed().as_secs_f64());
        assert_eq!(verdicts[..operations], vec![Verdict::Done; operations]);
    }
}

fn compare(name: &str, mut classes: [Class; 2]) {
    let instructions = classes[0].keys[0].instructions();
    let measurements = if instructions.are_supported() { 40_000 } else { 1_000 };
    let mut coins = vec![0; measurements];
    SystemRandom::new().fill(&mut coins).expect("randomness");
    for (turn, coin) in coins.iter().enumerate() {
        classes[usize::from(coin & 1)].measure(turn);
    }
    let name = format!("{name} of RSA with {instructions:?}");
    Comparison { name: &name, measurements, shares: &[0.5, 0.75, 0.9, 1.0], leak: LEAK }
        .judge(&classes.map(|class| class.times));
}

#[test]
#[ignore = "takes minutes, and a quiet machine: `make check-timing`"]
fn timing_reveals_no_key() {
    for instructions in instructions() {
        let fixed = Class::of_fixed(instructions, &der(), &random_input());
        compare("the key", [fixed, Class::of_random(instructions)]);
    }
}

#[test]
#[ignore = "takes minutes, and a quiet machine: `make check-timing`"]
fn timing_reveals_no_input() {
    for instructions in instructions() {
        let (key, mut one) = (der(), vec![0; 256]);
        one[255] = 1;
        let of_fixed = |input: &[u8]| Class::of_fixed(instructions, &key, input);
        compare("the input", [of_fixed(&one), of_fixed(&random_input())]);
    }
}

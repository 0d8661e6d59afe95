//! The lanes against aws-lc and, where the processor has them, the instructions against their definition.

use std::sync::OnceLock;

use aws_lc_rs::{
    encoding::{AsDer, Pkcs8V1Der},
    rand::{SecureRandom, SystemRandom},
    rsa::KeySize,
    signature::RsaKeyPair,
};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::{faults::Place, lanes::Lanes, portable::Portable, *};
use crate::rsa::{RawRsa, RsaNumbers};

const WIDTHS: [Width; 3] = [Width::Rsa2048, Width::Rsa3072, Width::Rsa4096];

/// So many batches of each width: 20,000 operations in all where the processor is fast at them.
fn batches(width: Width) -> usize {
    match (is_supported(), width) {
        (true, Width::Rsa2048) => 3000,
        (true, _) => 1500,
        (false, Width::Rsa2048) => 16,
        (false, _) => 5,
    }
}

struct Key {
    reference: RawRsa,
    numbers: RsaNumbers,
    prepared: PreparedKey,
}

/// Some keys of a width, made once.
fn keys(width: Width) -> &'static [Key] {
    static KEYS: [OnceLock<Vec<Key>>; 3] = [const { OnceLock::new() }; 3];
    let make = || {
        let count = if is_supported() { 12 } else { 3 };
        (0..count).map(|_| key(width)).collect()
    };
    KEYS[WIDTHS.iter().position(|other| *other == width).unwrap()].get_or_init(make)
}

fn key(width: Width) -> Key {
    let size = match width {
        Width::Rsa2048 => KeySize::Rsa2048,
        Width::Rsa3072 => KeySize::Rsa3072,
        Width::Rsa4096 => KeySize::Rsa4096,
    };
    let pair = RsaKeyPair::generate(size).unwrap();
    let der: Pkcs8V1Der<'_> = pair.as_der().unwrap();
    let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(der.as_ref().to_vec()));
    let reference = RawRsa::from_private_der(&der).unwrap();
    let numbers = reference.numbers();
    let prepared = PreparedKey::new(&numbers).unwrap();
    Key { reference, numbers, prepared }
}

fn random_below(number: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; number.len()];
    SystemRandom::new().fill(&mut bytes).unwrap();
    // The modulus has its highest bit set.
    bytes[0] &= 0x7f;
    bytes
}

/// Performs the operations of a batch, and gives what became of them.
fn perform(operations: &[(&Key, Vec<u8>)]) -> Vec<(Verdict, Vec<u8>)> {
    let mut outputs: Vec<Vec<u8>> = operations.iter().map(|(_, input)| vec![0xaa; input.len()]).collect();
    let mut lanes: Vec<Lane<'_>> = operations
        .iter()
        .zip(&mut outputs)
        .map(|((key, input), output)| Lane { key: &key.prepared, input, output })
        .collect();
    let verdicts = private_transform(&mut lanes);
    verdicts.into_iter().zip(outputs).collect()
}

fn reference(key: &Key, input: &[u8]) -> Vec<u8> {
    let mut output = vec![0; input.len()];
    key.reference.transform(input, &mut output).unwrap();
    output
}

fn agree(operations: &[(&Key, Vec<u8>)]) {
    for ((key, input), (verdict, output)) in operations.iter().zip(perform(operations)) {
        assert_eq!(verdict, Verdict::Done);
        assert_eq!(output, reference(key, input), "{} operations", operations.len());
    }
}

/// `prime · factor` in as many bytes as the modulus has.
fn multiple(prime: &[u8], factor: u8, length: usize) -> Vec<u8> {
    let mut product = vec![0; length];
    let mut carry = 0;
    for (place, digit) in product.iter_mut().rev().zip(prime.iter().rev().chain(std::iter::repeat(&0))) {
        let column = u16::from(*digit) * u16::from(factor) + carry;
        (*place, carry) = (column as u8, column >> 8);
    }
    product
}

#[test]
fn every_lane_and_every_fill_agree_with_aws_lc() {
    for width in WIDTHS {
        let keys = keys(width);
        for batch in 0..batches(width) {
            let fill = 1 + batch % LANES;
            let key = |lane: usize| &keys[(7 * batch + 3 * lane + batch / keys.len()) % keys.len()];
            let operation = |lane| (key(lane), random_below(&key(lane).numbers.n));
            agree(&(0..fill).map(operation).collect::<Vec<_>>());
        }
    }
}

#[test]
fn edge_inputs_agree_with_aws_lc_in_every_lane() {
    for width in WIDTHS {
        let key = &keys(width)[0];
        let length = key.numbers.n.len();
        let number = |last: u8| [vec![0; length - 1], vec![last]].concat();
        let mut greatest = key.numbers.n.to_vec();
        // n is odd.
        *greatest.last_mut().unwrap() -= 1;
        let mut inputs = vec![number(0), number(1), number(2), greatest];
        for prime in [&key.numbers.p, &key.numbers.q] {
            inputs.extend([1, 2, 255].map(|factor| multiple(prime, factor, length)));
        }
        for turn in 0..inputs.len() {
            inputs.rotate_left(1);
            let other = &keys(width)[turn % 2];
            let mut batch: Vec<_> = inputs[..LANES - 1].iter().map(|input| (key, input.clone())).collect();
            batch.insert(turn % LANES, (other, random_below(&other.numbers.n)));
            agree(&batch);
        }
    }
}

#[test]
fn an_input_that_is_no_number_below_the_modulus_is_refused_and_the_other_lanes_go_on() {
    for width in WIDTHS {
        let key = &keys(width)[0];
        let n = key.numbers.n.to_vec();
        for wrong in [n.clone(), vec![0xff; n.len()], n[1..].to_vec()] {
            let right = random_below(&n);
            let results = perform(&[(key, right.clone()), (key, wrong), (key, right.clone())]);
            assert_eq!(results[0], (Verdict::Done, reference(key, &right)));
            assert_eq!(results[1].0, Verdict::OutOfRange);
            assert!(results[1].1.iter().all(|byte| *byte == 0));
            assert_eq!(results[2], results[0]);
        }
    }
}

#[test]
fn a_fault_in_any_lane_is_caught_and_shows_nothing() {
    for width in WIDTHS {
        let key = &keys(width)[0];
        for lane in 0..2 * LANES {
            let operations: Vec<_> = (0..LANES).map(|_| (key, random_below(&key.numbers.n))).collect();
            faults::in_next_batch(Place::Power, lane);
            for (index, ((_, input), (verdict, output))) in
                operations.iter().zip(perform(&operations)).enumerate()
            {
                if index == lane % LANES {
                    assert_eq!(verdict, Verdict::Fault);
                    assert!(output.iter().all(|byte| *byte == 0), "a faulty result got out");
                } else {
                    assert_eq!((verdict, output), (Verdict::Done, reference(key, input)));
                }
            }
        }
    }
}

#[test]
fn a_fault_in_the_blinding_is_caught_and_spoils_one_operation_only() {
    let key = key(Width::Rsa2048);
    let faults_in_a_batch = || {
        let operations: Vec<_> = (0..LANES).map(|_| (&key, random_below(&key.numbers.n))).collect();
        let results = perform(&operations);
        for ((_, input), (verdict, output)) in operations.iter().zip(&results) {
            assert!(*verdict == Verdict::Fault || *output == reference(&key, input));
        }
        results.iter().filter(|(verdict, _)| *verdict == Verdict::Fault).count()
    };
    assert_eq!(faults_in_a_batch(), 0);
    faults::in_next_batch(Place::Blinding, 1);
    assert_eq!([faults_in_a_batch(), faults_in_a_batch()], [1, 0]);
    // What is wrong here is not used before the next batch.
    faults::in_next_batch(Place::Blinding, LANES + 1);
    assert_eq!([faults_in_a_batch(), faults_in_a_batch(), faults_in_a_batch()], [0, 1, 0]);
}

#[test]
fn blinding_goes_on_past_the_life_of_a_chain_and_never_repeats() {
    let key = key(Width::Rsa2048);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..600 {
        let blinding = key.prepared.take_blinding().unwrap();
        assert!(seen.insert(blinding.factor.to_vec()));
        // What a batch does, without the batch.
        let square = |factor: &mut digits::Digits| {
            let modulus = &key.prepared.modulus;
            *factor = digits::montgomery_multiply(factor, factor, &modulus.digits, modulus.inverse);
        };
        let mut squared = blinding;
        square(&mut squared.factor);
        square(&mut squared.inverse);
        key.prepared.give_blinding(squared);
    }
}

#[test]
fn keys_that_the_lanes_cannot_work_with_are_left_to_others() {
    let numbers = |change: fn(&mut RsaNumbers)| {
        let mut numbers = key(Width::Rsa2048).numbers;
        change(&mut numbers);
        PreparedKey::new(&numbers)
    };
    assert!(numbers(|_| ()).is_some());
    assert!(numbers(|numbers| numbers.e = vec![3].into()).is_none());
    assert!(numbers(|numbers| numbers.n.push(1)).is_none(), "2056 bits");
    assert!(numbers(|numbers| numbers.p = vec![1; 100].into()).is_none());
}

/// Where the processor has the instructions: each of the lanes' operations against the portable one.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_instructions_do_what_the_portable_lanes_do() {
    if !is_supported() {
        eprintln!("skipped: this processor has no AVX-512 IFMA");
        return;
    }
    let random = SystemRandom::new();
    let vector = || {
        let mut bytes = [0u8; 64];
        random.fill(&mut bytes).unwrap();
        let words: [u64; 8] = std::array::from_fn(|index| {
            u64::from_le_bytes(bytes[8 * index..8 * index + 8].try_into().expect("eight bytes"))
        });
        words
    };
    for _ in 0..1000 {
        let operands = [vector(), vector(), vector()];
        assert_eq!(every_operation::<ifma::Ifma>(operands), every_operation::<Portable>(operands));
    }
}

/// What all operations of the lanes make of three vectors.
fn every_operation<V: Lanes>(operands: [[u64; 8]; 3]) -> Vec<[u64; 8]> {
    let [a, b, c] = operands.map(|lanes| {
        let mut vector = V::splat(0);
        *vector.lanes_mut() = lanes;
        vector
    });
    let mut results = vec![
        V::splat(operands[0][0]),
        a.add(b),
        a.subtract(b),
        a.xor(b),
        a.or(b),
        a.multiply_add_low(b, c),
        a.multiply_add_high(b, c),
        a.digit(),
        a.carry(),
        V::select(a.is_negative(), b, c),
        a.swap_halves(),
        *V::hide(&a),
    ];
    results.extend((0..64).map(|bit| V::select(a.has_bit(bit), b, c)));
    results.iter().map(|vector| *vector.lanes()).collect()
}

//! The lanes against aws-lc and, where the processor has them, the instructions against their definition.

use std::sync::OnceLock;

use aws_lc_rs::{
    encoding::{AsDer, Pkcs8V1Der},
    rand::{SecureRandom, SystemRandom},
    rsa::KeySize,
    signature::RsaKeyPair,
};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::{faults::Place, *};
#[cfg(target_arch = "x86_64")]
use super::{
    lanes::{Lanes, MultiplyAdd},
    montgomery::{self, Arithmetic, Blocks, Modulus, Scratch},
    portable::Portable,
};
use crate::rsa::{RawRsa, RsaNumbers};

/// Lanes that run here, and keys that they work with. Those of AVX-512 IFMA run everywhere, in their portable form if need
/// be; those of FMA where the processor has it.
fn cases() -> impl Iterator<Item = (Instructions, Width)> {
    let instructions = Instructions::ALL.into_iter().filter(|instructions| {
        let runs = *instructions == Instructions::Ifma || instructions.are_supported();
        if !runs {
            eprintln!("skipped: this processor has not what {instructions:?} needs");
        }
        runs
    });
    instructions.flat_map(|instructions| Width::ALL.map(|width| (instructions, width)))
}

/// Batches of a test: 20,000 operations in all where the processor is fast at them, in an optimized build.
fn batches(instructions: Instructions, width: Width) -> usize {
    let smallest = match instructions {
        _ if !instructions.are_supported() => 16,
        _ if cfg!(debug_assertions) => 60,
        Instructions::Ifma | Instructions::Fma512 => 4000,
        Instructions::Fma => 6800,
    };
    if width == Width::Rsa2048 { smallest } else { smallest.div_ceil(2) }
}

struct Key {
    reference: RawRsa,
    numbers: RsaNumbers,
    prepared: PreparedKey,
}

/// Some keys of a width, made once.
fn keys(instructions: Instructions, width: Width) -> &'static [Key] {
    static KEYS: [[OnceLock<Vec<Key>>; 3]; Instructions::ALL.len()] =
        [const { [const { OnceLock::new() }; 3] }; Instructions::ALL.len()];
    let make = || {
        let count = if instructions.are_supported() && !cfg!(debug_assertions) { 12 } else { 3 };
        (0..count).map(|_| key(instructions, width)).collect()
    };
    let kind = Instructions::ALL.iter().position(|other| *other == instructions).unwrap();
    KEYS[kind][Width::ALL.iter().position(|other| *other == width).unwrap()].get_or_init(make)
}

fn key(instructions: Instructions, width: Width) -> Key {
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
    let prepared = PreparedKey::new(&numbers, instructions).unwrap();
    Key { reference, numbers, prepared }
}

fn random_below(number: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; number.len()];
    SystemRandom::new().fill(&mut bytes).unwrap();
    // The modulus has its highest bit set.
    bytes[0] &= 0x7f;
    bytes
}

/// Performs the operations of a batch, and returns their verdicts and outputs.
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
    for (instructions, width) in cases() {
        let keys = keys(instructions, width);
        for batch in 0..batches(instructions, width) {
            let fill = 1 + batch % instructions.operations();
            let key = |lane: usize| &keys[(7 * batch + 3 * lane + batch / keys.len()) % keys.len()];
            let operation = |lane| (key(lane), random_below(&key(lane).numbers.n));
            agree(&(0..fill).map(operation).collect::<Vec<_>>());
        }
    }
}

#[test]
fn edge_inputs_agree_with_aws_lc_in_every_lane() {
    for (instructions, width) in cases() {
        let key = &keys(instructions, width)[0];
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
            let other = &keys(instructions, width)[turn % 2];
            let operations = instructions.operations();
            let mut batch: Vec<_> =
                inputs[..operations - 1].iter().map(|input| (key, input.clone())).collect();
            batch.insert(turn % operations, (other, random_below(&other.numbers.n)));
            agree(&batch);
        }
    }
}

#[test]
fn an_input_that_is_no_number_below_the_modulus_is_refused_and_the_other_lanes_go_on() {
    for (instructions, width) in cases() {
        let key = &keys(instructions, width)[0];
        let n = key.numbers.n.to_vec();
        for wrong in [n.clone(), vec![0xff; n.len()], n[1..].to_vec()] {
            let right = random_below(&n);
            for place in 0..instructions.operations() {
                let mut batch = vec![(key, right.clone()); instructions.operations()];
                batch[place].1.clone_from(&wrong);
                let mut results = perform(&batch);
                let (verdict, output) = results.remove(place);
                assert_eq!(verdict, Verdict::OutOfRange);
                assert!(output.iter().all(|byte| *byte == 0));
                assert!(results.iter().all(|result| *result == (Verdict::Done, reference(key, &right))));
            }
        }
    }
}

#[test]
fn a_fault_in_any_lane_is_caught_and_shows_nothing() {
    for (instructions, width) in cases() {
        let key = &keys(instructions, width)[0];
        let count = instructions.operations();
        for lane in 0..2 * count {
            let operations: Vec<_> = (0..count).map(|_| (key, random_below(&key.numbers.n))).collect();
            faults::in_next_batch(Place::Power, lane);
            for (index, ((_, input), (verdict, output))) in
                operations.iter().zip(perform(&operations)).enumerate()
            {
                if index == lane % count {
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
    for (instructions, width) in cases().filter(|(_, width)| *width == Width::Rsa2048) {
        let (key, count) = (key(instructions, width), instructions.operations());
        let faults_in_a_batch = || {
            let operations: Vec<_> = (0..count).map(|_| (&key, random_below(&key.numbers.n))).collect();
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
        faults::in_next_batch(Place::Blinding, count + 1);
        assert_eq!([faults_in_a_batch(), faults_in_a_batch(), faults_in_a_batch()], [0, 1, 0]);
    }
}

#[test]
fn blinding_goes_on_past_the_life_of_a_chain_and_never_repeats() {
    let instructions = Instructions::Ifma;
    let key = key(instructions, Width::Rsa2048);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..600 {
        let blinding = key.prepared.take_blinding().unwrap();
        assert!(seen.insert(blinding.factor.to_vec()));
        // What a batch does, without the batch.
        let square = |factor: &mut digits::Digits| {
            let key::Modulus { digits, inverse, .. } = &key.prepared.modulus;
            *factor = digits::montgomery_multiply(factor, factor, digits, **inverse, instructions.radix());
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
        let mut numbers = key(Instructions::Ifma, Width::Rsa2048).numbers;
        change(&mut numbers);
        PreparedKey::new(&numbers, Instructions::Ifma)
    };
    assert!(numbers(|_| ()).is_some());
    assert!(numbers(|numbers| numbers.e = vec![3].into()).is_none());
    assert!(numbers(|numbers| numbers.n.push(1)).is_none(), "2056 bits");
    assert!(numbers(|numbers| numbers.p = vec![1; 100].into()).is_none());
}

/// Where the processor has the instructions: each of the lanes' operations against the portable one.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_instructions_of_ifma_do_what_the_portable_lanes_do() {
    if !Instructions::Ifma.are_supported() {
        eprintln!("skipped: this processor has no AVX-512 IFMA");
        return;
    }
    for _ in 0..1000 {
        let operands = [(); 3].map(|()| random_words::<8>(u64::MAX));
        assert_eq!(every_operation::<ifma::Ifma>(operands), every_operation::<Portable>(operands));
    }
}

#[cfg(target_arch = "x86_64")]
fn random_words<const N: usize>(mask: u64) -> [u64; N] {
    [(); N].map(|()| {
        let mut bytes = [0; 8];
        SystemRandom::new().fill(&mut bytes).unwrap();
        u64::from_le_bytes(bytes) & mask
    })
}

#[cfg(target_arch = "x86_64")]
fn vector<V: Lanes>(lanes: &[u64]) -> V {
    let mut vector = V::splat(0);
    vector.lanes_mut().copy_from_slice(lanes);
    vector
}

/// What all operations of the lanes make of three vectors.
#[cfg(target_arch = "x86_64")]
fn every_operation<V: MultiplyAdd>(operands: [[u64; 8]; 3]) -> Vec<Vec<u64>> {
    let [a, b, c] = operands.map(|lanes| vector::<V>(&lanes));
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
    results.iter().map(|vector| vector.lanes().to_vec()).collect()
}

/// Calls a generic function with the lanes of AVX2 and of AVX-512, where the processor has them.
#[cfg(target_arch = "x86_64")]
macro_rules! for_lanes_of_fma {
    ($check:ident) => {
        for (instructions, check) in [
            (Instructions::Fma, $check::<fma::Fma256> as fn()),
            (Instructions::Fma512, $check::<fma::Fma512>),
        ] {
            if instructions.are_supported() {
                check();
            } else {
                eprintln!("skipped: this processor has not what {instructions:?} needs");
            }
        }
    };
}

/// FMA has no portable implementation, so the lanes are compared with integers.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_lanes_of_fma_compute_with_digits_of_51_bits() {
    for_lanes_of_fma!(check_digits);
}

#[cfg(target_arch = "x86_64")]
fn check_digits<V: Lanes>() {
    let mask = V::RADIX.mask();
    // A column is less than 2^62, positive or negative.
    let column =
        || random_words::<8>(u64::MAX >> 2).map(|word| word.wrapping_sub(1 << 61))[..V::COUNT].to_vec();
    let each = |of: &[u64], result: fn(u64) -> u64| of.iter().copied().map(result).collect::<Vec<_>>();
    for edges in [0, 1, mask, mask - 1, 1 << 50, mask >> 1, 1 << 52, (1 << 52) - 1].chunks(V::COUNT) {
        assert_eq!(vector::<V>(edges).digit().column().lanes(), each(edges, |word| word & V::RADIX.mask()));
    }
    for _ in 0..1000 {
        let [x, y] = [column(), column()];
        let [a, b] = [&x, &y].map(|lanes| vector::<V>(lanes));
        assert_eq!(a.digit().column().lanes(), each(&x, |word| word & V::RADIX.mask()));
        assert_eq!(a.digit().lanes(), each(&x, |word| V::encode(word & V::RADIX.mask())));
        assert!(x.iter().all(|word| V::decode(V::encode(word & mask)) == word & mask));
        assert_eq!(a.carry().lanes(), each(&x, |word| (word.cast_signed() >> V::RADIX.bits).cast_unsigned()));
        let (lower, upper) = x.split_at(V::COUNT / 2);
        assert_eq!(a.swap_halves().lanes(), [upper, lower].concat());
        let chosen = |set: &dyn Fn(u64) -> bool| -> Vec<u64> {
            x.iter().zip(&y).map(|(x, y)| if set(*x) { *y } else { *x }).collect()
        };
        assert_eq!(V::select(a.is_negative(), b, a).lanes(), chosen(&|word| word >> 63 == 1));
        for bit in 0..64 {
            assert_eq!(V::select(a.has_bit(bit), b, a).lanes(), chosen(&|word| word >> bit & 1 == 1));
        }
    }
}

/// Digits that are as large as can be: sums must not overflow, nor roundings go astray.
#[cfg(target_arch = "x86_64")]
#[test]
fn products_of_the_greatest_digits_are_right() {
    for_lanes_of_fma!(check_products);
}

#[cfg(target_arch = "x86_64")]
fn check_products<V: Blocks<11>>() {
    const B: usize = 11;
    let mask = V::RADIX.mask();
    for greatest in [mask, mask - 1, 1 << 50, (1 << 50) + 1, (1 << 50) - 1, 1, 0] {
        let digit = V::splat(V::encode(greatest));
        let (mut low, mut high) = ([V::splat(0); B], [V::splat(0); B]);
        V::multiply_block::<false>(&mut low, &mut high, &[digit; B], &[digit; B]);
        V::multiply_block::<true>(&mut low, &mut high, &[digit; B], &[digit; B]);
        let mut digits = [V::splat(0); 2 * B];
        V::normalize(&mut digits, &[low, high].concat());
        // Twice the sum of as many products as fall into each column, and the carry.
        let mut carry = 0u128;
        for (column, digits) in digits.iter().enumerate() {
            let products = (column + 1).min((2 * B - 1).saturating_sub(column));
            let sum = 2 * products as u128 * u128::from(greatest) * u128::from(greatest) + carry;
            assert_eq!(digits.column().lanes(), vec![sum as u64 & mask; V::COUNT], "{greatest:x} {column}");
            carry = sum >> V::RADIX.bits;
        }
    }
}

/// Modulo R - 1, all digits of which are the greatest and which is its own multiple, a product by the multiple, a square and
/// an exact product are the same number; of digits as large as can be, and of those where roundings turn.
#[cfg(target_arch = "x86_64")]
#[test]
fn squares_and_products_of_the_greatest_digits_agree() {
    for_lanes_of_fma!(check_squares);
}

#[cfg(target_arch = "x86_64")]
fn check_squares<V: Arithmetic<11>>() {
    const B: usize = 11;
    let (mask, vector) = (V::RADIX.mask(), |digit| V::splat(V::encode(digit)));
    for blocks in [2, 3, 4, 6, 8] {
        let greatest = vec![[vector(mask); B]; blocks];
        let modulus = Modulus { digits: greatest.clone(), inverse: vector(1), multiple: greatest };
        let mut scratch = Scratch::new(blocks);
        for digit in [mask, mask - 1, (1 << 50) + 1, 1 << 50, (1 << 50) - 1, 1, 0] {
            let number = vec![[vector(digit); B]; blocks];
            let (mut square, mut product, mut exact) = (number.clone(), number.clone(), number.clone());
            V::square(&mut square, &modulus, &mut scratch);
            V::multiply(&mut product, &number, &number, &modulus, &mut scratch);
            V::multiply_exactly(&mut exact, &number, &number, &modulus, &mut scratch);
            for number in [&mut square, &mut product, &mut exact] {
                montgomery::subtract_once(number, &modulus);
            }
            let lanes = |number: &[[V; B]]| -> Vec<u64> {
                number.as_flattened().iter().flat_map(|digit| digit.column().lanes().to_vec()).collect()
            };
            assert_eq!(lanes(&square), lanes(&exact), "{blocks} {digit:x}");
            assert_eq!(lanes(&product), lanes(&exact), "{blocks} {digit:x}");
            // R is 1 modulo this, so what comes out is the square itself: of 1 in every digit, as many ones.
            if digit == 0 {
                assert!(lanes(&exact).iter().all(|digit| *digit == 0));
            } else if digit == 1 {
                let count = (blocks * B) as u64;
                assert!(lanes(&exact).iter().all(|digit| *digit == count), "{blocks}");
            }
        }
    }
}

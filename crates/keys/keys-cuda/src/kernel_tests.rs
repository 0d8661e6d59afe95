//! Tests of the kernels on the processor, against AWS-LC and arbitrary-precision integers.

use std::sync::OnceLock;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use brisk_keys::device::{RsaNumbers, Width};
use brisk_testkit::rsa::{TestKey, bytes, edge_inputs, key, number};
use num_bigint::BigUint;

use super::{
    host::{Fault, HostKernels},
    key::{GpuKey, record_words},
    source::{Geometry, SLOTS, words},
};
use crate::testing::{Reference, numbers};

const DONE: u32 = 1;
const OUT_OF_RANGE: u32 = 2;
const FAULT: u32 = 3;

/// Number of filled slots in tests that do not need all.
const FILLED: u32 = 5;

struct Key {
    reference: Reference,
    numbers: RsaNumbers,
    gpu: GpuKey,
}

impl Key {
    fn new(test_key: &TestKey, exchange_primes: bool) -> Self {
        let (reference, numbers) = (Reference::of(test_key), numbers(test_key));
        let numbers = if exchange_primes { with_primes_exchanged(numbers) } else { numbers };
        let gpu = GpuKey::new(&numbers).unwrap();
        Self { reference, numbers, gpu }
    }

    fn edge_inputs(&self) -> Vec<Vec<u8>> {
        edge_inputs([&self.numbers.n, &self.numbers.p, &self.numbers.q].map(|number| number.as_slice()))
    }

    fn n(&self) -> BigUint {
        number(&self.numbers.n)
    }

    fn transform(&self, input: &[u8]) -> Vec<u8> {
        self.reference.transform(input).unwrap()
    }

    fn random_input(&self) -> Vec<u8> {
        let mut input = random(self.numbers.n.len());
        // Below the modulus, whose highest bit is set.
        input[0] &= 0x7f;
        input
    }
}

/// The same key with exchanged primes, so that the smaller one comes first or second.
fn with_primes_exchanged(numbers: RsaNumbers) -> RsaNumbers {
    let RsaNumbers { n, e, p: q, q: p, dp: dq, dq: dp, .. } = numbers;
    let (p_number, q_number) = (number(&p), number(&q));
    let qinv = q_number.modinv(&p_number).unwrap().to_bytes_be().into();
    RsaNumbers { n, e, p, q, dp, dq, qinv }
}

fn random(size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    SystemRandom::new().fill(&mut bytes).unwrap();
    bytes
}

fn random_below(limit: u32) -> u32 {
    u32::from_le_bytes(random(4).try_into().unwrap()) % limit
}

/// Keys of a width, generated once, with primes in both orders.
fn keys(width: Width) -> &'static [Key] {
    static KEYS: [OnceLock<Vec<Key>>; 3] = [const { OnceLock::new() }; 3];
    KEYS[width as usize].get_or_init(|| {
        let first = key(width.bits());
        let mut keys = vec![Key::new(first, false), Key::new(first, true)];
        // Exchanging the primes, because generating another key takes seconds.
        if width != Width::Rsa4096 {
            keys.push(Key::new(&TestKey::generate(width.bits()), false));
        }
        keys
    })
}

/// Kernels with the contents of a GPU's memory.
struct Gpu {
    kernels: std::sync::Arc<HostKernels>,
    width: Width,
    keys: &'static [Key],
    records: Vec<u32>,
    blinding: Vec<u32>,
}

/// Results of a launch.
struct Launched {
    outputs: Vec<Vec<u8>>,
    verdicts: Vec<u32>,
}

impl Gpu {
    fn new(kernels: std::sync::Arc<HostKernels>, width: Width) -> Self {
        let keys = keys(width);
        let records = keys.iter().flat_map(|key| key.gpu.words().to_vec()).collect();
        let mut blinding = vec![0; keys.len() * ring_words(width)];
        for (key, ring) in keys.iter().zip(blinding.chunks_mut(ring_words(width))) {
            let pair = key.gpu.blinding_pair().unwrap();
            ring[..pair.len()].copy_from_slice(&pair);
        }
        let mut gpu = Self { kernels, width, keys, records, blinding };
        (1..FILLED).for_each(|slot| gpu.advance(slot));
        gpu
    }

    /// State for one geometry, as on a GPU.
    fn of(geometry: Geometry) -> Self {
        Self::new(HostKernels::of(geometry), geometry.width())
    }

    /// Fills a slot of every ring.
    fn advance(&mut self, slot: u32) {
        let advances: Vec<_> = (0..self.keys.len() as u32).flat_map(|key| [key, slot]).collect();
        self.kernels.advance(&self.records, &mut self.blinding, &advances);
    }

    fn launch(&self, operations: &[(usize, Vec<u8>)], fault: Option<Fault>) -> Launched {
        let slots = || random_below(FILLED) << 16 | random_below(FILLED);
        let requests: Vec<_> = operations.iter().flat_map(|(key, _)| [*key as u32, slots()]).collect();
        let inputs: Vec<u8> = operations.iter().flat_map(|(_, input)| input.clone()).collect();
        // Not zero, so that missing writes are detected.
        let (mut outputs, mut verdicts) = (vec![0xaa; inputs.len()], vec![0; operations.len()]);
        let Self { kernels, records, blinding, .. } = self;
        match fault {
            None => kernels.private(records, blinding, &requests, &inputs, &mut outputs, &mut verdicts),
            Some(fault) => kernels.private_with_fault(
                records,
                blinding,
                &requests,
                &inputs,
                &mut outputs,
                &mut verdicts,
                fault,
            ),
        }
        let outputs = outputs.chunks(self.width.bits() / 8).map(<[u8]>::to_vec).collect();
        Launched { outputs, verdicts }
    }

    fn agrees(&self, operations: &[(usize, Vec<u8>)]) {
        let launched = self.launch(operations, None);
        for ((key, input), (output, verdict)) in
            operations.iter().zip(launched.outputs.iter().zip(launched.verdicts))
        {
            assert_eq!(verdict, DONE, "{:?}, key {key}, {input:02x?}", self.width);
            assert_eq!(
                *output,
                self.keys[*key].transform(input),
                "{:?}, key {key}, {input:02x?}",
                self.width
            );
        }
    }

    /// `u` or `v` of a key's slot, converted from Montgomery form.
    fn blinding(&self, key: usize, slot: u32, which: usize) -> BigUint {
        let (words, n) = (words(self.width) as usize, self.keys[key].n());
        let first = key * ring_words(self.width) + (2 * slot as usize + which) * words;
        let number = BigUint::from_slice(&self.blinding[first..][..words]);
        let r_inverse = (BigUint::from(1_u8) << (32 * words)).modinv(&n).unwrap();
        number * r_inverse % n
    }
}

fn ring_words(width: Width) -> usize {
    (SLOTS * 2 * words(width)) as usize
}

/// The fastest geometries, and for the smallest width all that differ in more than the block size.
fn geometries(width: Width) -> impl Iterator<Item = Geometry> {
    let threads: &[u32] = if width == Width::Rsa2048 { &[1, 2, 4, 8, 16] } else { &[4, 8, 16] };
    threads.iter().filter_map(move |threads| Geometry::new(width, Some(*threads), None))
}

fn best(width: Width) -> Geometry {
    Geometry::new(width, None, None).unwrap()
}

/// `count` random operations, with the keys in turn.
fn random_operations(width: Width, count: usize) -> Vec<(usize, Vec<u8>)> {
    let keys = keys(width);
    (0..count).map(|index| index % keys.len()).map(|key| (key, keys[key].random_input())).collect()
}

#[test]
fn random_operations_agree_with_aws_lc_on_any_number_of_threads() {
    for width in Width::ALL {
        for geometry in geometries(width) {
            // A partial block, and a complete one where that is fast.
            let full =
                if width == Width::Rsa2048 && geometry.operations() < 8 { geometry.operations() } else { 0 };
            Gpu::of(geometry).agrees(&random_operations(width, full as usize + 1));
        }
    }
}

#[test]
fn windows_need_not_divide_the_exponent_and_blocks_may_be_of_several_warps() {
    let width = Width::Rsa2048;
    let geometries = [
        best(width).with_window(5),
        Geometry::new(width, Some(8), Some(96)).and_then(|geometry| geometry.with_window(3)),
    ];
    for geometry in geometries {
        let geometry = geometry.unwrap();
        Gpu::of(geometry).agrees(&random_operations(width, geometry.operations() as usize + 1));
    }
}

#[test]
fn edge_inputs_agree_with_aws_lc_whichever_prime_is_the_larger() {
    for width in Width::ALL {
        let gpu = Gpu::of(best(width));
        // All slots where that is fast.
        let (orders, step) = match width {
            Width::Rsa2048 => (0..2, 1),
            Width::Rsa3072 => (1..2, 2),
            Width::Rsa4096 => (1..2, 3),
        };
        let operations = orders.flat_map(|key| {
            gpu.keys[key].edge_inputs().into_iter().step_by(step).map(move |input| (key, input))
        });
        gpu.agrees(&operations.collect::<Vec<_>>());
    }
}

#[test]
fn an_input_that_is_no_number_below_the_modulus_is_refused_and_the_others_are_performed() {
    for width in Width::ALL {
        let (gpu, key) = (Gpu::of(best(width)), &keys(width)[0]);
        let size = key.numbers.n.len();
        let wrong = [bytes(&key.n(), size), bytes(&(key.n() + 1_u8), size), vec![0xff; size]];
        let right = key.random_input();
        let mut operations: Vec<_> = wrong.into_iter().map(|input| (0, input)).collect();
        operations.insert(1, (0, right.clone()));
        let launched = gpu.launch(&operations, None);
        assert_eq!(launched.verdicts, [OUT_OF_RANGE, DONE, OUT_OF_RANGE, OUT_OF_RANGE]);
        for (index, output) in launched.outputs.iter().enumerate() {
            assert_eq!(*output, if index == 1 { key.transform(&right) } else { vec![0; size] });
        }
    }
}

#[test]
fn a_fault_in_either_half_is_caught_and_shows_nothing() {
    for width in Width::ALL {
        let gpu = Gpu::new(HostKernels::with_faults(best(width)), width);
        let operations = random_operations(width, 2);
        let places = [(0, 0), (1, 1), (0, 1), (1, 0)];
        for (operation, half) in places.into_iter().take(if width == Width::Rsa2048 { 4 } else { 2 }) {
            let launched = gpu.launch(&operations, Some(Fault { operation, half }));
            for (index, ((key, input), output)) in operations.iter().zip(&launched.outputs).enumerate() {
                if index == operation as usize {
                    assert_eq!(launched.verdicts[index], FAULT);
                    assert!(output.iter().all(|byte| *byte == 0), "a faulty result got out");
                } else {
                    assert_eq!(launched.verdicts[index], DONE);
                    assert_eq!(*output, gpu.keys[*key].transform(input));
                }
            }
        }
    }
}

#[test]
fn blinding_that_does_not_cancel_out_is_caught() {
    let width = Width::Rsa2048;
    let mut gpu = Gpu::of(best(width));
    // The first words of `u` in every slot of the first key.
    for pair in gpu.blinding[..ring_words(width)].chunks_mut(2 * words(width) as usize) {
        pair[0] ^= 1;
    }
    let launched = gpu.launch(&random_operations(width, 2), None);
    assert_eq!(launched.verdicts, [FAULT, DONE]);
}

#[test]
fn each_blinding_pair_is_the_square_of_the_one_before_round_the_ring() {
    for width in Width::ALL {
        let mut gpu = Gpu::of(best(width));
        let laps = if width == Width::Rsa2048 { FILLED..SLOTS + 2 } else { FILLED..FILLED + 2 };
        for slot in laps {
            gpu.advance(slot % SLOTS);
        }
        let filled = if width == Width::Rsa2048 { 2..SLOTS } else { 1..FILLED + 2 };
        for key in [0, gpu.keys.len() - 1] {
            let (n, e) = (gpu.keys[key].n(), BigUint::from(65_537_u32));
            for slot in filled.clone() {
                let [u, v] = [0, 1].map(|which| gpu.blinding(key, slot, which));
                assert_eq!(&u * v.modpow(&e, &n) % &n, BigUint::from(1_u8), "{width:?} {slot}");
                if slot > filled.start {
                    let before = gpu.blinding(key, slot - 1, 0);
                    assert_eq!(u, before.modpow(&BigUint::from(2_u8), &n), "{width:?} {slot}");
                }
            }
            if width == Width::Rsa2048 {
                // Around the end of the ring.
                let [last, first] = [SLOTS - 1, 0].map(|slot| gpu.blinding(key, slot, 1));
                assert_eq!(first, last.modpow(&BigUint::from(2_u8), &n));
            }
        }
    }
}

#[test]
fn multiplication_is_right_at_its_edges_with_carries_through_all_threads() {
    for width in Width::ALL {
        for geometry in geometries(width) {
            let kernels = HostKernels::of(geometry);
            for length in [words(width) as usize, words(width) as usize / 2] {
                for modulus in edge_moduli(length) {
                    multiplies_right(&kernels, &modulus);
                }
            }
        }
    }
}

/// Odd numbers of `length` words with their highest bit set.
fn edge_moduli(length: usize) -> [Vec<u32>; 5] {
    let mut least = vec![0; length];
    (least[0], least[length - 1]) = (1, 1 << 31);
    let greatest = vec![u32::MAX; length];
    let (mut all_but_one, mut upper) = (greatest.clone(), vec![0; length]);
    all_but_one[length / 2] = 0;
    upper[length / 2..].fill(u32::MAX);
    upper[0] = 1;
    let mut any: Vec<_> =
        random(4 * length).chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    any[0] |= 1;
    any[length - 1] |= 1 << 31;
    [least, greatest, all_but_one, upper, any]
}

fn multiplies_right(kernels: &HostKernels, modulus_words: &[u32]) {
    let (length, modulus) = (modulus_words.len(), BigUint::from_slice(modulus_words));
    let r: BigUint = BigUint::from(1_u8) << (32 * length);
    let (r_inverse, word) = (r.modinv(&modulus).unwrap(), BigUint::from(1_u8) << 32);
    let inverse = u32::try_from(&word - modulus.modinv(&word).unwrap()).unwrap();
    let to_words = |number: &BigUint| {
        let mut words = number.to_u32_digits();
        words.resize(length, 0);
        words
    };
    let any = BigUint::from_bytes_le(&random(4 * length));
    let half: BigUint = BigUint::from(1_u8) << (16 * length);
    // Factors need not be below the modulus.
    let numbers = [BigUint::ZERO, 1_u8.into(), half - 1_u8, &modulus - 1_u8, modulus.clone(), &r - 1_u8, any];
    for a in &numbers {
        for b in &numbers[1..] {
            let product = kernels.multiply(modulus_words, inverse, &to_words(a), &to_words(b));
            let expected = a * b * &r_inverse % &modulus;
            assert_eq!(BigUint::from_slice(&product) % &modulus, expected, "{a:x} {b:x} {modulus:x}");
        }
    }
}

#[test]
fn records_are_as_long_as_the_kernels_take_them_to_be() {
    for width in Width::ALL {
        assert_eq!(record_words(width), keys(width)[0].gpu.words().len());
    }
}

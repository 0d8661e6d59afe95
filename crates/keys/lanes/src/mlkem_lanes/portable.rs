//! The registers as arrays: the same arithmetic on any processor, for tests, in no hurry.

use zeroize::Zeroize;

use super::{
    Encapsulation, LANES,
    batch::{self, NOISES, Noise, Secrets},
    matrices::{self, Matrices},
    polynomial::{self, Polynomial, Prepared, Sum},
    register::{BytePlaces, Coefficients, Places, Register},
};

/// 64 bytes as coefficients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Portable([i16; 32]);

impl Portable {
    fn map(self, operation: impl Fn(i16) -> i16) -> Self {
        Self(self.0.map(operation))
    }

    fn with(self, other: Self, operation: impl Fn(i16, i16) -> i16) -> Self {
        Self(std::array::from_fn(|at| operation(self.0[at], other.0[at])))
    }

    fn bytes(self) -> [u8; 64] {
        std::array::from_fn(|at| self.0[at / 2].to_le_bytes()[at % 2])
    }

    fn pairs(self) -> [u32; 16] {
        let (bytes, mut pairs) = (self.bytes(), [0; 16]);
        for (pair, bytes) in pairs.iter_mut().zip(bytes.as_chunks().0) {
            *pair = u32::from_le_bytes(*bytes);
        }
        pairs
    }

    fn of_pairs(pairs: [u32; 16]) -> Self {
        Self(std::array::from_fn(|at| (pairs[at / 2] >> (16 * (at % 2))) as i16))
    }

    fn words(self) -> [u64; 8] {
        let pairs = self.pairs();
        std::array::from_fn(|word| u64::from(pairs[2 * word]) | u64::from(pairs[2 * word + 1]) << 32)
    }

    fn of_words(words: [u64; 8]) -> Self {
        Self(std::array::from_fn(|at| (words[at / 4] >> (16 * (at % 4))) as i16))
    }
}

impl Register for Portable {
    fn zero() -> Self {
        Self([0; 32])
    }

    fn load(bytes: &[u8; 64]) -> Self {
        Self(std::array::from_fn(|at| i16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]])))
    }

    fn store(self, bytes: &mut [u8; 64]) {
        *bytes = self.bytes();
    }

    fn load_words(words: &[u64; 8]) -> Self {
        Self::of_words(*words)
    }

    fn load_coefficients(coefficients: &[i16; 32]) -> Self {
        Self(*coefficients)
    }

    fn store_words(self, words: &mut [u64; 8]) {
        *words = self.words();
    }

    fn store_coefficients(self, coefficients: &mut [i16; 32]) {
        *coefficients = self.0;
    }

    fn splat(coefficient: i16) -> Self {
        Self([coefficient; 32])
    }

    fn and(self, other: Self) -> Self {
        self.with(other, |a, b| a & b)
    }

    fn xor(self, other: Self) -> Self {
        self.with(other, |a, b| a ^ b)
    }

    fn xor_both(self, a: Self, b: Self) -> Self {
        self.xor(a).xor(b)
    }

    fn xor_unless(self, a: Self, b: Self) -> Self {
        self.xor(a.with(b, |a, b| !a & b))
    }

    fn rotate_left<const BITS: i32>(self) -> Self {
        Self::of_words(self.words().map(|word| word.rotate_left(BITS.cast_unsigned())))
    }

    fn transpose(rows: &[Self; 8]) -> [Self; 8] {
        let words = rows.map(Self::words);
        std::array::from_fn(|column| Self::of_words(words.map(|row| row[column])))
    }

    fn add(self, other: Self) -> Self {
        self.with(other, i16::wrapping_add)
    }

    fn subtract(self, other: Self) -> Self {
        self.with(other, i16::wrapping_sub)
    }

    fn multiply_low(self, other: Self) -> Self {
        self.with(other, i16::wrapping_mul)
    }

    fn multiply_high(self, other: Self) -> Self {
        self.with(other, |a, b| ((i32::from(a) * i32::from(b)) >> 16) as i16)
    }

    fn multiply_rounded(self, other: Self) -> Self {
        self.with(other, |a, b| ((i32::from(a) * i32::from(b) + (1 << 14)) >> 15) as i16)
    }

    fn shift_left<const BITS: u32>(self) -> Self {
        self.map(|coefficient| coefficient << BITS)
    }

    fn shift_second_right_by_4(self) -> Self {
        Self(std::array::from_fn(|at| (self.0[at].cast_unsigned() >> (4 * (at % 2))).cast_signed()))
    }

    fn less_than(self, other: Self) -> u32 {
        (0..32).fold(0, |mask, at| mask | u32::from(self.0[at] < other.0[at]) << at)
    }

    fn only(self, mask: u32) -> Self {
        Self(std::array::from_fn(|at| if mask >> at & 1 == 1 { self.0[at] } else { 0 }))
    }

    fn compress(self, mask: u32) -> Self {
        let mut chosen = [0; 32];
        let places = (0..32).filter(|at| mask >> at & 1 == 1);
        chosen.iter_mut().zip(places).for_each(|(chosen, at)| *chosen = self.0[at]);
        Self(chosen)
    }

    fn add_products(self, a: Self, b: Self) -> Self {
        let sums = self.pairs();
        Self::of_pairs(std::array::from_fn(|pair| {
            let product = |at| i32::from(a.0[at]) * i32::from(b.0[at]);
            sums[pair].wrapping_add((product(2 * pair) + product(2 * pair + 1)).cast_unsigned())
        }))
    }

    fn swap_pairs(self) -> Self {
        Self(std::array::from_fn(|at| self.0[at ^ 1]))
    }

    fn low_halves(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| if at % 2 == 0 { self.0[at] } else { other.0[at - 1] }))
    }

    fn high_halves(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| if at % 2 == 0 { self.0[at + 1] } else { other.0[at] }))
    }

    fn join_20_bits(self) -> Self {
        let join = |word: u64| (word & 0xf_ffff) | (word >> 32 & 0xf_ffff) << 20;
        Self::of_words(self.words().map(join))
    }

    fn pick(self, other: Self, places: &Places) -> Self {
        let both = [self.0, other.0];
        Self(places.0.map(|place| both.as_flattened()[place as usize]))
    }

    fn pick_bytes(self, places: &BytePlaces) -> Self {
        let bytes = self.bytes();
        Self::load(&places.0.map(|place| bytes[usize::from(place)]))
    }

    fn look_up(self, entries: &Coefficients) -> Self {
        self.map(|number| entries.0[number as usize % 32])
    }

    fn wipe(registers: &mut [Self]) {
        for register in registers {
            register.0.zeroize();
        }
    }
}

impl polynomial::Kernels for Portable {
    fn transform(polynomial: &mut Polynomial<Self>) {
        polynomial::transform(polynomial);
    }

    fn transform_back(polynomial: &mut Polynomial<Self>) {
        polynomial::transform_back(polynomial);
    }

    fn add_product(sum: &mut Sum<Self>, polynomial: &Polynomial<Self>, factor: &Prepared<Self>) {
        polynomial::add_product(sum, polynomial, factor);
    }
}

impl matrices::Kernels for Portable {
    fn hash_keys(encapsulations: &[Encapsulation], matrices: &mut Matrices, hashes: &mut [[u8; 64]; LANES]) {
        matrices::hash_keys::<Self>(encapsulations, matrices, hashes);
    }

    fn sample(matrices: &mut Matrices, first: usize) {
        matrices::sample::<Self>(matrices, first);
    }
}

impl batch::Kernels for Portable {
    fn secrets(hashes: &[[u8; 64]], messages: &[[u8; 32]], secrets: &mut [Secrets]) {
        batch::secrets::<Self>(hashes, messages, secrets);
    }

    fn make_noises(secrets: &[Secrets], noises: &mut [[Noise<Self>; NOISES]]) {
        batch::make_noises(secrets, noises);
    }

    fn encrypt(
        encapsulation: &mut Encapsulation,
        message: &[u8; 32],
        noises: &[Noise<Self>; NOISES],
        matrices: &mut Matrices,
    ) {
        batch::encrypt(encapsulation, message, noises, matrices);
    }
}

//! A register of 64 bytes, and the few operations on it that ML-KEM is made of.

/// 64 bytes as eight words of 64 bits, 16 pairs, or 32 coefficients of 16 bits, which are signed unless the operation
/// states otherwise. No operation takes time that depends on the contents of the register.
pub(super) trait Register: Copy + 'static {
    fn zero() -> Self;
    fn load(bytes: &[u8; 64]) -> Self;
    fn store(self, bytes: &mut [u8; 64]);
    fn load_words(words: &[u64; 8]) -> Self;
    fn store_words(self, words: &mut [u64; 8]);
    fn load_coefficients(coefficients: &[i16; 32]) -> Self;
    fn store_coefficients(self, coefficients: &mut [i16; 32]);
    /// `coefficient` in all coefficients.
    fn splat(coefficient: i16) -> Self;

    fn and(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;

    /// `self ^ a ^ b`.
    fn xor_both(self, a: Self, b: Self) -> Self;
    /// `self ^ (!a & b)`.
    fn xor_unless(self, a: Self, b: Self) -> Self;
    /// Of words.
    fn rotate_left<const BITS: i32>(self) -> Self;
    /// Word `j` of register `i` becomes word `i` of register `j`.
    fn transpose(rows: &[Self; 8]) -> [Self; 8];

    fn add(self, other: Self) -> Self;
    fn subtract(self, other: Self) -> Self;
    /// The low half of each product of coefficients.
    fn multiply_low(self, other: Self) -> Self;
    /// The high half.
    fn multiply_high(self, other: Self) -> Self;
    /// Each product divided by 2^15, rounded to the nearest.
    fn multiply_rounded(self, other: Self) -> Self;
    /// Of coefficients.
    fn shift_left<const BITS: u32>(self) -> Self;
    /// Shifts every second coefficient, the first not, to the right by 4 as an unsigned number.
    fn shift_second_right_by_4(self) -> Self;
    /// A bit mask of the coefficients that are less than the ones of `other`.
    fn less_than(self, other: Self) -> u32;
    /// The coefficients whose bit is set, zero for the others.
    fn only(self, mask: u32) -> Self;
    /// Moves the coefficients whose bit is set to the front; the rest is undefined. For public masks only, since the
    /// mask affects later timing.
    fn compress(self, mask: u32) -> Self;

    /// In each pair the sum of both products with the other pair, 32 bits, added to the 32 bits of `self`.
    fn add_products(self, a: Self, b: Self) -> Self;
    /// Both coefficients of each pair change places.
    fn swap_pairs(self) -> Self;
    /// Pairs of the low halves of two sums of 32 bits.
    fn low_halves(self, other: Self) -> Self;
    /// Pairs of the high halves.
    fn high_halves(self, other: Self) -> Self;
    /// In each word the low 40 bits become the low 20 bits of both halves.
    fn join_20_bits(self) -> Self;

    /// Coefficient `places[i]` of the 64 in `self` and `other`.
    fn pick(self, other: Self, places: &Places) -> Self;
    /// Byte `places[i]`.
    fn pick_bytes(self, places: &BytePlaces) -> Self;
    /// The entry whose number is in the low five bits of each coefficient. All entries are in a register, so no address
    /// depends on it.
    fn look_up(self, entries: &Coefficients) -> Self;

    /// Overwrites registers with zeroes, in a way that the compiler does not leave out.
    fn wipe(registers: &mut [Self]);
}

/// Aligned for one load.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Aligned<T>(pub(super) T);

pub(super) type Coefficients = Aligned<[i16; 32]>;
pub(super) type Places = Aligned<[i16; 32]>;
pub(super) type BytePlaces = Aligned<[u8; 64]>;

//! Eight lanes of 64 bits that are worked on as one: the few operations that the arithmetic of curves is made of.

use zeroize::{Zeroize, Zeroizing};

/// Number of lanes in a `Lanes`.
pub const LANES: usize = 8;

/// One limb of the 32 entries of a table that is read at secret places.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Entries(pub(super) [u64; 32]);

/// Eight lanes of 64 bits. No operation takes time that depends on the contents of the lanes.
pub(super) trait Lanes: Copy + 'static {
    /// One bit for each lane.
    type Mask: Copy;

    fn splat(value: u64) -> Self;
    fn array(&self) -> &[u64; LANES];
    fn array_mut(&mut self) -> &mut [u64; LANES];

    fn add(self, other: Self) -> Self;
    fn subtract(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    /// `BITS` is less than 64, as with all shifts here.
    fn shift_left<const BITS: u32>(self) -> Self;
    fn shift_right<const BITS: u32>(self) -> Self;
    /// The lanes are signed numbers: `BITS` copies of the highest bit enter.
    fn shift_right_signed<const BITS: u32>(self) -> Self;
    fn shift_left_by(self, bits: u32) -> Self;
    fn shift_right_by(self, bits: u32) -> Self;

    /// `self + a·b mod 2^52` of the lowest 52 bits of `a` and `b`.
    fn multiply_add_low(self, a: Self, b: Self) -> Self;
    /// `self + a·b / 2^52`, likewise.
    fn multiply_add_high(self, a: Self, b: Self) -> Self;

    /// The lanes in which bit number `bit` is set.
    fn has_bit(self, bit: u32) -> Self::Mask;
    /// The lanes that are zero.
    fn is_zero(self) -> Self::Mask;
    /// `set` in the lanes of the mask, `clear` in the others.
    fn select(mask: Self::Mask, set: Self, clear: Self) -> Self;
    /// The entry whose number, less than 32, the lane holds. All entries are in registers, so no address depends on it.
    fn look_up(self, table: &Entries) -> Self;

    /// Returns `self` in a form that is opaque to the compiler. Otherwise it would replace a sum of shifted numbers
    /// by a multiplication, which competes for the units that the other instructions need.
    fn hide(self) -> Self;

    /// Overwrites the lanes with zeroes, in a way that the compiler does not leave out.
    fn wipe(lanes: &mut [Self]) {
        for lane in lanes {
            lane.array_mut().zeroize();
        }
    }
}

/// Five lanes of the same value each.
#[inline(always)]
pub(super) fn splat<V: Lanes>(limbs: &[u64; 5]) -> [V; 5] {
    let mut all = [V::splat(0); 5];
    for limb in 0..5 {
        all[limb] = V::splat(limbs[limb]);
    }
    all
}

/// Lane by lane, word by word: the words of eight numbers side by side.
#[inline(always)]
pub(super) fn transpose<V: Lanes, const N: usize>(numbers: &[[u64; N]; LANES]) -> [V; N] {
    let columns = Zeroizing::new(side_by_side(numbers));
    let mut words = [V::splat(0); N];
    for word in 0..N {
        *words[word].array_mut() = columns[word];
    }
    words
}

/// A separate function without the instructions: with them, LLVM would gather the words from memory, which is slow on
/// processors with mitigations for gather data sampling (CVE-2022-40982).
#[inline(never)]
fn side_by_side<const N: usize>(numbers: &[[u64; N]; LANES]) -> [[u64; LANES]; N] {
    let mut columns = [[0; LANES]; N];
    for (lane, number) in numbers.iter().enumerate() {
        for word in 0..N {
            columns[word][lane] = number[word];
        }
    }
    columns
}

/// Six bits of each number from bit `from` on.
#[inline(always)]
pub(super) fn window<V: Lanes>(words: &[V; 4], from: u32) -> V {
    let (word, bit) = ((from / 64) as usize, from % 64);
    let mut window = words[word].shift_right_by(bit);
    if bit > 58 && word < 3 {
        window = window.or(words[word + 1].shift_left_by(64 - bit));
    }
    window.and(V::splat(63))
}

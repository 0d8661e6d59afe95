//! Lanes of 64 bits that are worked on as one: the few operations that the arithmetic is made of.

use super::digits::Radix;

/// Several lanes of 64 bits processed together. No operation takes time that depends on the contents of the lanes.
///
/// A lane contains a digit, in the form in which the instructions multiply it, or a column: a signed sum of products
/// whose carry has not been propagated.
pub(super) trait Lanes: Copy + 'static {
    /// Number of lanes: two for each operation of a batch.
    const COUNT: usize;
    /// Size of a digit; see [`Radix`].
    const RADIX: Radix;
    /// One bit for each lane.
    type Mask: Copy;

    fn splat(value: u64) -> Self;
    fn lanes(&self) -> &[u64];
    fn lanes_mut(&mut self) -> &mut [u64];

    fn add(self, other: Self) -> Self;
    fn subtract(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;

    /// A digit in the form in which it is multiplied.
    fn encode(digit: u64) -> u64;
    /// The digit that [`encode`](Self::encode) was given.
    fn decode(lane: u64) -> u64;

    /// The lowest digit of a column, in the form in which it is multiplied.
    fn digit(self) -> Self;
    /// A digit as a column.
    fn column(self) -> Self;
    /// The carry of a column to the next: all bits above its lowest digit, as a signed number.
    fn carry(self) -> Self;

    /// Digits from columns. The carry of the last is zero.
    #[inline(always)]
    fn normalize(digits: &mut [Self], columns: &[Self]) {
        let mut carry = Self::splat(0);
        for (digit, column) in digits.iter_mut().zip(columns) {
            let column = column.add(carry);
            (*digit, carry) = (column.digit(), column.carry());
        }
    }

    /// The lanes in which bit number `bit` is set.
    fn has_bit(self, bit: u32) -> Self::Mask;
    /// The lanes that are negative as signed numbers.
    fn is_negative(self) -> Self::Mask;
    /// `set` in the lanes of the mask, `clear` in the others.
    fn select(mask: Self::Mask, set: Self, clear: Self) -> Self;
    /// The upper half of the lanes before the lower half.
    fn swap_halves(self) -> Self;
}

/// Lanes with instructions that multiply integers and add a half of the products.
pub(super) trait MultiplyAdd: Lanes {
    /// `self + low half of a·b`, which is as long as a digit.
    fn multiply_add_low(self, a: Self, b: Self) -> Self;
    /// `self + high half of a·b`.
    fn multiply_add_high(self, a: Self, b: Self) -> Self;

    /// Returns `reference` in a form that is opaque to the compiler.
    ///
    /// The factor of a loop is the same in every row, and LLVM would load all its twenty vectors before the loop.
    /// They do not fit in the registers beside the accumulators, so it would spill them to the stack, where they are
    /// not even aligned. With this function, each instruction reads its operand from its original address.
    fn hide<T>(reference: &T) -> &T;

    /// Returns both unchanged, and makes the compiler compute the value before anything is read through the
    /// reference.
    ///
    /// LLVM schedules a value by its last use, even if the whole next row waits for it. A processor starts the oldest
    /// ready instruction, so the order of the source has to be preserved.
    fn before<T>(self, reference: &T) -> (Self, &T);
}

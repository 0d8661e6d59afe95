//! Lanes of 64 bits that are worked on as one: the few operations that the arithmetic is made of.

use super::digits::Radix;

/// Some lanes of 64 bits that are worked on as one. Nothing here takes time that depends on what the lanes hold.
///
/// A lane holds a digit, in the form in which the instructions multiply it, or a column: a sum of products, which is a
/// signed number, whose carry is not yet handed on.
pub(super) trait Lanes: Copy + 'static {
    /// How many: two for each operation of a batch.
    const COUNT: usize;
    /// Size of a digit.
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
    /// What a column hands to the next: all above its lowest digit, as a signed number.
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

    /// The same reference, of which the compiler no longer knows that it is the same.
    ///
    /// What a loop multiplies by does not change from row to row, and LLVM would load all twenty vectors of it before
    /// the loop. They do not fit in the registers beside the accumulators, so it would write them to the stack and read
    /// them from there, where they are not even aligned. With this, each instruction reads its operand where it is.
    fn hide<T>(reference: &T) -> &T;

    /// Returns both unchanged, and makes the compiler compute the value before anything is read through the reference.
    ///
    /// LLVM computes last what is used last, even if all of the next row waits for it. A processor starts the oldest
    /// instruction that is ready, so the source's order has to survive.
    fn before<T>(self, reference: &T) -> (Self, &T);
}

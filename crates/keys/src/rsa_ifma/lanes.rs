//! Eight 64-bit lanes: the few operations that the arithmetic is made of, and a portable form of them.

/// Bits of a digit: what one IFMA instruction multiplies.
pub(super) const DIGIT_BITS: u32 = 52;

/// The low 52 bits.
pub(super) const DIGIT_MASK: u64 = (1 << DIGIT_BITS) - 1;

/// Eight lanes of 64 bits that are worked on as one. Nothing here takes time that depends on what the lanes hold.
///
/// The arithmetic is generic over this trait, so that what runs in AVX-512 registers is what the tests of any processor
/// run, instruction by instruction.
pub(super) trait Lanes: Copy + 'static {
    /// One bit for each lane.
    type Mask: Copy;

    fn splat(value: u64) -> Self;
    fn lanes(&self) -> &[u64; 8];
    fn lanes_mut(&mut self) -> &mut [u64; 8];

    fn add(self, other: Self) -> Self;
    fn subtract(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;

    /// `self + low 52 bits of a·b`, of which the low 52 bits of `a` and `b` count.
    fn multiply_add_low(self, a: Self, b: Self) -> Self;
    /// `self + (a·b >> 52)`, of which the low 52 bits of `a` and `b` count.
    fn multiply_add_high(self, a: Self, b: Self) -> Self;

    /// The low 52 bits.
    fn digit(self) -> Self;
    /// What a digit hands to the next: the bits above the low 52, as a signed number.
    fn carry(self) -> Self;

    /// The lanes in which bit number `bit` is set.
    fn has_bit(self, bit: u32) -> Self::Mask;
    /// The lanes that are negative as signed numbers.
    fn is_negative(self) -> Self::Mask;
    /// `set` in the lanes of the mask, `clear` in the others.
    fn select(mask: Self::Mask, set: Self, clear: Self) -> Self;
    /// Lanes 4 to 7 before lanes 0 to 3.
    fn swap_halves(self) -> Self;

    /// The same reference, of which the compiler no longer knows that it is the same.
    ///
    /// What a loop multiplies by does not change from row to row, and LLVM would load all twenty vectors of it before
    /// the loop. They do not fit in the registers beside the accumulators, so it would write them to the stack and read
    /// them from there, where they are not even aligned. With this, each instruction reads its operand where it is.
    fn hide<T>(reference: &T) -> &T;
}

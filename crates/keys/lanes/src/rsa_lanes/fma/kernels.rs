//! The functions for which the instructions of a register are enabled. Functions that they call are inlined into them, except
//! for each other.

use std::arch::x86_64::{__m256i, __m512i};

use super::{
    super::{
        Lane, OPERATIONS, Verdict,
        montgomery::{self, Arithmetic, Blocks, Modulus, Scratch, two},
        operation,
    },
    Fma,
    block::{self, DIGITS},
    register::Register,
};
use crate::processor::{has_fma, has_fma_512};

/// A block of digits.
type Block<R> = [Fma<R>; DIGITS];

/// Operations on one block beside those of [`Blocks`].
trait FurtherBlocks<R: Register>: Blocks<DIGITS> {
    /// [`block::square`].
    fn square_block(low: &mut Block<R>, high: &mut Block<R>, a: &Block<R>);

    /// [`block::reduce_by_multiple`].
    fn reduce_block_by_multiple(
        low: &Block<R>,
        high: &mut Block<R>,
        quotient: &mut Block<R>,
        modulus: &Block<R>,
    );
}

/// As [`montgomery::multiply`], but by the multiple of the modulus: its least digit makes the digits of the quotient those
/// of the columns themselves, and nothing waits for a product to know them.
#[inline(always)]
fn multiply<R: Register>(
    product: &mut [Block<R>],
    a: &[Block<R>],
    b: &[Block<R>],
    modulus: &Modulus<Fma<R>, DIGITS>,
    scratch: &mut Scratch<Fma<R>, DIGITS>,
) where
    Fma<R>: FurtherBlocks<R>,
{
    let columns = &mut scratch.product[..2 * a.len()];
    montgomery::multiply_columns(columns, a, b);
    reduce_by_multiple(columns, &modulus.multiple, &mut scratch.quotient);
    montgomery::normalize(product, &columns[a.len()..]);
}

#[inline(always)]
fn square<R: Register>(
    number: &mut [Block<R>],
    modulus: &Modulus<Fma<R>, DIGITS>,
    scratch: &mut Scratch<Fma<R>, DIGITS>,
) where
    Fma<R>: FurtherBlocks<R>,
{
    let blocks = number.len();
    let (columns, doubled) = (&mut scratch.product[..2 * blocks], &mut scratch.quotient);
    for (index, digits) in number.iter().enumerate() {
        let (low, high) = two(columns, 2 * index);
        Fma::square_block(low, high, digits);
    }
    for (index, digits) in number.iter().enumerate().take(blocks - 1) {
        for (doubled, digit) in doubled.iter_mut().zip(digits) {
            *doubled = digit.doubled();
        }
        for (further, others) in number.iter().enumerate().skip(index + 1) {
            let (low, high) = two(columns, index + further);
            Fma::multiply_block::<true>(low, high, others, doubled);
        }
    }
    reduce_by_multiple(columns, &modulus.multiple, &mut scratch.quotient);
    montgomery::normalize(number, &columns[blocks..]);
}

/// Makes the lower half of the columns zero by adding a multiple of `modulus`, whose least digit is the greatest there is.
#[inline(always)]
fn reduce_by_multiple<R: Register>(columns: &mut [Block<R>], modulus: &[Block<R>], quotient: &mut Block<R>)
where
    Fma<R>: FurtherBlocks<R>,
{
    let (least, further) = modulus.split_first().expect("a modulus has digits");
    for index in 0..modulus.len() {
        let (low, high) = two(columns, index);
        Fma::reduce_block_by_multiple(low, high, quotient, least);
        for (offset, digits) in further.iter().enumerate() {
            let (low, high) = two(columns, index + 1 + offset);
            Fma::multiply_block::<true>(low, high, digits, quotient);
        }
    }
}

/// Functions that only the lanes of `$register` can be given to, compiled for `$features`.
macro_rules! kernels {
    ($register:ident, $features:literal: $($trait:ty {$(
        fn $name:ident $(<const $flag:ident>)? ($($argument:ident: $type:ty),*) = $body:expr;
    )*})*) => {$(
        impl $trait for Fma<$register> {$(
            fn $name $(<const $flag: bool>)? ($($argument: $type),*) {
                #[target_feature(enable = $features)]
                // Inlined into each other, the blocks would be spread over functions that exceed the instruction cache.
                #[inline(never)]
                fn with_features $(<const $flag: bool>)? ($($argument: $type),*) {
                    $body
                }
                // SAFETY: see `Fma`.
                unsafe { with_features $(::<$flag>)? ($($argument),*) }
            }
        )*}
    )*};
}

/// All functions for one register, of which `$has` detects the instructions.
macro_rules! register {
    ($perform:ident, $register:ident, $features:literal, $has:ident) => {
        /// Performs as many operations as the register has pairs of lanes.
        ///
        /// # Panics
        ///
        /// On a processor without the instructions.
        pub(in crate::rsa_lanes) fn $perform(lanes: &mut [Lane<'_>]) -> [Verdict; OPERATIONS] {
            #[target_feature(enable = $features)]
            fn with_features(lanes: &mut [Lane<'_>]) -> [Verdict; OPERATIONS] {
                operation::perform::<Fma<$register>, DIGITS>(lanes)
            }

            assert!($has(), concat!("this processor lacks ", $features));
            // SAFETY: the processor has the features, as was just asserted.
            unsafe { with_features(lanes) }
        }

        kernels! { $register, $features:
            Blocks<DIGITS> {
                fn multiply_block<const ADD>(
                    low: &mut Block<$register>,
                    high: &mut Block<$register>,
                    a: &Block<$register>,
                    b: &Block<$register>
                ) = block::multiply::<$register, ADD>(low, high, a, b);
                fn reduce_block(
                    low: &Block<$register>,
                    high: &mut Block<$register>,
                    quotient: &mut Block<$register>,
                    modulus: &Block<$register>,
                    inverse: Fma<$register>
                ) = block::reduce(low, high, quotient, modulus, inverse);
            }
            FurtherBlocks<$register> {
                fn square_block(low: &mut Block<$register>, high: &mut Block<$register>, a: &Block<$register>) =
                    block::square(low, high, a);
                fn reduce_block_by_multiple(
                    low: &Block<$register>,
                    high: &mut Block<$register>,
                    quotient: &mut Block<$register>,
                    modulus: &Block<$register>
                ) = block::reduce_by_multiple(low, high, quotient, modulus);
            }
            Arithmetic<DIGITS> {
                fn multiply(
                    product: &mut [Block<$register>],
                    a: &[Block<$register>],
                    b: &[Block<$register>],
                    modulus: &Modulus<Fma<$register>, DIGITS>,
                    scratch: &mut Scratch<Fma<$register>, DIGITS>
                ) = multiply(product, a, b, modulus, scratch);
                fn multiply_exactly(
                    product: &mut [Block<$register>],
                    a: &[Block<$register>],
                    b: &[Block<$register>],
                    modulus: &Modulus<Fma<$register>, DIGITS>,
                    scratch: &mut Scratch<Fma<$register>, DIGITS>
                ) = montgomery::multiply(product, a, b, modulus, scratch);
                fn square(
                    number: &mut [Block<$register>],
                    modulus: &Modulus<Fma<$register>, DIGITS>,
                    scratch: &mut Scratch<Fma<$register>, DIGITS>
                ) = square(number, modulus, scratch);
                fn look_up(
                    entry: &mut [Fma<$register>],
                    table: &[[Fma<$register>; 32]],
                    index: Fma<$register>
                ) = montgomery::look_up(entry, table, index);
            }
        }
    };
}

register!(perform_in_four_lanes, __m256i, "avx2,fma", has_fma);
register!(perform_in_eight_lanes, __m512i, "avx512f,avx512dq", has_fma_512);

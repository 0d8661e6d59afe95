//! Products and Montgomery reduction of one block of digits with floating-point instructions: the loops in which nearly all
//! of the time is spent.
//!
//! # One product
//!
//! Two digits of 51 bits have a product below 2^102, of which a floating-point number cannot hold all. But FMA computes
//! `a·b + c` as if without bounds and rounds once, so what it leaves out can be had by a second one:
//!
//! - `high = a·b + 2^103`. Numbers there are 2^51 apart, so this is `2^103 + h·2^51` with `h` the product in units of the
//!   radix, rounded; and the bits of the number, taken as an integer, are [`HIGH_BITS`] plus `h`.
//! - `low = a·b + ((2^103 + 3·2^51) - high)`. Both steps are exact: `low` is `3·2^51` plus `l`, the product less
//!   `h·2^51`, which is between -2^50 and 2^50; and its bits are [`LOW_BITS`] plus `l`.
//!
//! Columns are integers, to which these bits are added as they are. The surplus in them, a multiple of `LOW_BITS` and
//! one of `HIGH_BITS`, depends only on how many products a column gets, and is taken off in one addition when the
//! column enters: [`Surplus`]. One factor may be twice a digit: then `h` is below 2^52, and all of this still holds.
//!
//! A column gets at most 2·88 highs and lows, so it stays within ±2^60.
//!
//! # Rows
//!
//! As in [`super::super::block`]: row by row one digit of `b` meets all of `a`, and 11 columns are in registers. What is
//! different is that rows are written out, so that the column that enters gets the register of the one that has left, and
//! nothing moves. The instructions of a product are written out too, and not `pure`, since their order is the point: left
//! to itself LLVM computes all products of a row before it adds the first, with most of them on the stack in between,
//! which takes half as long again.

use super::{super::lanes::Lanes, Fma, Register};

/// Digits in a block: beside as many columns, the 16 registers of AVX2 hold a digit, two constants and two halves of a product.
/// AVX-512 has 32 registers, but the same blocks.
pub(super) const DIGITS: usize = 11;

/// To which a product is added to get its high half: 2^103.
pub(super) const HIGH: f64 = (1u128 << 103) as f64;
/// Minuend for the high half; the difference is added to the low half.
pub(super) const LOW: f64 = ((1u128 << 103) + (3u128 << 51)) as f64;

/// The bits of a high half that is zero.
const HIGH_BITS: u64 = HIGH.to_bits();
/// Bits of a zero low half, 3·2^51.
const LOW_BITS: u64 = ((3u64 << 51) as f64).to_bits();

/// For each column of a block, the negated sum of the constant bits in its products.
struct Surplus<R>([Fma<R>; 2 * DIGITS]);

impl<R: Register> Surplus<R> {
    const OF_PRODUCT: Self = Self::new(0, false);
    const OF_SQUARE: Self = Self::new(0, true);
    /// Without the least digit of the modulus.
    const OF_REDUCTION: Self = Self::new(1, false);

    /// The surplus for products of each digit with each, with digits from `first` on, or, for a square, from the
    /// digit itself on.
    const fn new(first: usize, square: bool) -> Self {
        let mut columns = [0u64; 2 * DIGITS];
        let mut a = 0;
        while a < DIGITS {
            let mut b = if square { a } else { first };
            while b < DIGITS {
                columns[a + b] = columns[a + b].wrapping_sub(LOW_BITS);
                columns[a + b + 1] = columns[a + b + 1].wrapping_sub(HIGH_BITS);
                b += 1;
            }
            a += 1;
        }
        let mut lanes = [Fma::same(0); 2 * DIGITS];
        let mut column = 0;
        while column < 2 * DIGITS {
            lanes[column] = Fma::same(columns[column]);
            column += 1;
        }
        Self(lanes)
    }

    #[inline(always)]
    const fn of(&self, column: usize) -> Fma<R> {
        self.0[column]
    }
}

/// Adds the halves of `digits[index]·digit` to two columns.
macro_rules! add_product {
    ($digits:ident[$index:expr], $digit:expr => $low:expr, $high:expr) => {
        let constants = [Fma::splat(HIGH.to_bits()).0, Fma::splat(LOW.to_bits()).0];
        // SAFETY: see `Fma`; `digits` points to a block, and `index` is less than its length.
        let columns =
            unsafe { R::add_product::<{ $index }>($digits, $digit.0, constants, [$low.0, $high.0]) };
        ($low, $high) = (Fma(columns[0]), Fma(columns[1]));
    };
}

/// Does something with each index of a block, as a literal.
macro_rules! for_each_index {
    ($what:ident) => {
        $what!(0);
        $what!(1);
        $what!(2);
        $what!(3);
        $what!(4);
        $what!(5);
        $what!(6);
        $what!(7);
        $what!(8);
        $what!(9);
        $what!(10);
    };
}

/// Adds the products of `digit` with the digits but the least to the window, in which column `row + i` has the place
/// `(row + i) % DIGITS`: that of the column that left is the one of the column that has entered.
macro_rules! add_further_products {
    ($digits:ident, $digit:ident => $window:ident[$row:expr]) => {
        macro_rules! column {
                    ($index:expr) => {
                        if $index > 0 {
                            add_product!($digits[$index], $digit =>
                                $window[($row + $index) % DIGITS], $window[($row + $index + 1) % DIGITS]);
                        }
                    };
                }
        for_each_index!(column);
    };
}

/// Adds `a·b` to the columns `low` and `high`, or puts it there if not `ADD`.
#[inline(always)]
pub(super) fn multiply<R: Register, const ADD: bool>(
    low: &mut [Fma<R>; DIGITS],
    high: &mut [Fma<R>; DIGITS],
    a: &[Fma<R>; DIGITS],
    b: &[Fma<R>; DIGITS],
) {
    macro_rules! enter {
        ($surplus:expr, $column:expr) => {
            if ADD {
                $column.add(const { Surplus::<R>::OF_PRODUCT.of($surplus) })
            } else {
                const { Surplus::<R>::OF_PRODUCT.of($surplus) }
            }
        };
    }
    let (mut window, a) = (*low, a.as_ptr().cast::<R>());
    macro_rules! first {
        ($column:expr) => {
            window[$column] = enter!($column, low[$column]);
        };
    }
    for_each_index!(first);
    macro_rules! row {
        ($row:expr) => {
            let digit = b[$row];
            add_product!(a[0], digit => window[$row], window[($row + 1) % DIGITS]);
            low[$row] = window[$row];
            window[$row] = enter!(DIGITS + $row, high[$row]);
            add_further_products!(a, digit => window[$row]);
        };
    }
    for_each_index!(row);
    *high = window;
}

/// Puts `a²` into the columns `low` and `high`. Products of two different digits are computed once, with one of them
/// doubled.
#[inline(always)]
pub(super) fn square<R: Register>(
    low: &mut [Fma<R>; DIGITS],
    high: &mut [Fma<R>; DIGITS],
    a: &[Fma<R>; DIGITS],
) {
    let mut columns: [Fma<R>; 2 * DIGITS] = [Fma::splat(0); 2 * DIGITS];
    let digits = a.as_ptr().cast::<R>();
    macro_rules! row {
        ($row:expr) => {
            let doubled = a[$row].doubled();
            macro_rules! column {
                ($index:expr) => {
                    if $index > $row {
                        add_product!(digits[$index], doubled => columns[$row + $index], columns[$row + $index + 1]);
                    }
                };
            }
            add_product!(digits[$row], a[$row] => columns[2 * $row], columns[2 * $row + 1]);
            for_each_index!(column);
            macro_rules! leave {
                ($column:expr) => {
                    let column = columns[$column].add(const { Surplus::<R>::OF_SQUARE.of($column) });
                    if $column < DIGITS { low[$column % DIGITS] = column } else { high[$column % DIGITS] = column }
                };
            }
            leave!(2 * $row);
            leave!(2 * $row + 1);
        };
    }
    for_each_index!(row);
}

/// The low half of `a·b`, with a surplus that is not in its lowest digit.
#[inline(always)]
fn low_half<R: Register>(a: Fma<R>, b: Fma<R>) -> Fma<R> {
    let (high, low) = (Fma::splat(HIGH.to_bits()).0, Fma::splat(LOW.to_bits()).0);
    // SAFETY: see `Fma`.
    unsafe {
        let high = R::multiply_add_doubles(a.0, b.0, high);
        Fma(R::multiply_add_doubles(a.0, b.0, R::subtract_doubles(low, high)))
    }
}

/// Adds the multiple of `modulus` that makes the columns `low` zero, and hands their carry to `high`.
#[inline(always)]
pub(super) fn reduce<R: Register>(
    low: &[Fma<R>; DIGITS],
    high: &mut [Fma<R>; DIGITS],
    quotient: &mut [Fma<R>; DIGITS],
    modulus: &[Fma<R>; DIGITS],
    inverse: Fma<R>,
) {
    let (mut window, modulus) = (*low, modulus.as_ptr().cast::<R>());
    macro_rules! first {
        ($column:expr) => {
            window[$column] = low[$column].add(const { Surplus::<R>::OF_PRODUCT.of($column) });
        };
    }
    for_each_index!(first);
    macro_rules! row {
        ($row:expr) => {
            // The surplus of the product that the column still lacks is not in its lowest digit.
            let digit = low_half(window[$row].digit(), inverse).digit();
            quotient[$row] = digit;
            let next = ($row + 1) % DIGITS;
            add_product!(modulus[0], digit => window[$row], window[next]);
            window[next] = window[next].add(window[$row].carry());
            window[$row] = high[$row].add(const { Surplus::<R>::OF_PRODUCT.of(DIGITS + $row) });
            add_further_products!(modulus, digit => window[$row]);
        };
    }
    for_each_index!(row);
    *high = window;
}

/// The same with a modulus whose least digit is the greatest there is: then the column's own digit times that is what makes it
/// zero, and of their sum the column itself is the carry, added to what it had to hand on.
#[inline(always)]
pub(super) fn reduce_by_multiple<R: Register>(
    low: &[Fma<R>; DIGITS],
    high: &mut [Fma<R>; DIGITS],
    quotient: &mut [Fma<R>; DIGITS],
    modulus: &[Fma<R>; DIGITS],
) {
    let (mut window, modulus) = (*low, modulus.as_ptr().cast::<R>());
    macro_rules! first {
        ($column:expr) => {
            window[$column] = low[$column].add(const { Surplus::<R>::OF_REDUCTION.of($column) });
        };
    }
    for_each_index!(first);
    macro_rules! row {
        ($row:expr) => {
            let digit = window[$row].digit();
            quotient[$row] = digit;
            let next = ($row + 1) % DIGITS;
            window[next] = window[next].add(window[$row].carry()).add(window[$row].lowest());
            window[$row] = high[$row].add(const { Surplus::<R>::OF_REDUCTION.of(DIGITS + $row) });
            add_further_products!(modulus, digit => window[$row]);
        };
    }
    for_each_index!(row);
    *high = window;
}

//! Products and Montgomery reduction of one block of digits with instructions that multiply integers and add: the loops in
//! which nearly all of the time is spent.
//!
//! A block is `B` digits (20 or 15) in each of eight lanes. Sums are kept as 64-bit columns whose carries are not yet
//! handed on: a column takes the low or high half of a product, below 2^52, at most 4 · 80 times, and so stays below 2^61.
//!
//! Row by row, one digit of `b` meets all digits of `a`. The row's columns are a window of `B` accumulators that slides
//! by one column with each row: the lowest is finished and leaves, the next one enters. So the accumulators are registers
//! throughout, the digits of `a` are read from memory by the multiplying instruction itself, and a row is 2·B of these.

use super::lanes::MultiplyAdd;

/// All rows of a block. Two to a turn of the loop measured best; one, four and five were slower by a tenth.
macro_rules! rows_by_twos {
    ($row:ident) => {
        for turn in 0..B / 2 {
            $row!(2 * turn);
            $row!(2 * turn + 1);
        }
        if B % 2 == 1 {
            $row!(B - 1);
        }
    };
}

/// Adds `a·b` to the `2·B` columns `low` and `high`, or puts it there if not `ADD`.
#[inline(always)]
pub(super) fn multiply<V: MultiplyAdd, const B: usize, const ADD: bool>(
    low: &mut [V; B],
    high: &mut [V; B],
    a: &[V; B],
    b: &[V; B],
) {
    let mut window = if ADD { *low } else { [V::splat(0); B] };
    macro_rules! row {
        ($index:expr) => {
            let entering = if ADD { high[$index] } else { V::splat(0) };
            low[$index] = multiply_row(&mut window, entering, V::hide(a), b[$index]);
        };
    }
    rows_by_twos!(row);
    *high = window;
}

/// Adds `a·digit` to the window and slides it by a column; gives the column that leaves.
#[inline(always)]
fn multiply_row<V: MultiplyAdd, const B: usize>(window: &mut [V; B], entering: V, a: &[V; B], digit: V) -> V {
    for column in 0..B {
        window[column] = window[column].multiply_add_low(a[column], digit);
    }
    let leaving = window[0];
    for column in 0..B - 1 {
        window[column] = window[column + 1].multiply_add_high(a[column], digit);
    }
    window[B - 1] = entering.multiply_add_high(a[B - 1], digit);
    leaving
}

/// Adds the multiple of `modulus` that makes the columns `low` zero, and moves their carry to `high`.
///
/// `quotient` receives the digits of the multiplier for the remaining blocks of the modulus; `inverse` is -1/modulus
/// modulo 2^52.
#[inline(always)]
pub(super) fn reduce<V: MultiplyAdd, const B: usize>(
    low: &[V; B],
    high: &mut [V; B],
    quotient: &mut [V; B],
    modulus: &[V; B],
    inverse: V,
) {
    let mut window = *low;
    let mut digit = V::splat(0).multiply_add_low(window[0], inverse);
    macro_rules! row {
        ($index:expr) => {
            quotient[$index] = digit;
            reduce_row(&mut window, high[$index], V::hide(modulus), inverse, &mut digit);
        };
    }
    rows_by_twos!(row);
    *high = window;
}

/// Adds `modulus·digit` to the window and slides it by a column, of which only the carry remains. `digit` becomes
/// that of the next row.
#[inline(always)]
fn reduce_row<V: MultiplyAdd, const B: usize>(
    window: &mut [V; B],
    entering: V,
    modulus: &[V; B],
    inverse: V,
    next: &mut V,
) {
    let digit = *next;
    // The low half of the lowest product is what the column lacks to the next multiple of 2^52, nothing if it is one
    // already. So the carry is known without computing it.
    let carry = window[0].add(V::splat(V::RADIX.mask())).carry();
    // The next digit comes first, since all of the next row waits for it.
    let first = window[1].multiply_add_low(modulus[1], digit).multiply_add_high(modulus[0], digit).add(carry);
    let (ahead, modulus) = V::splat(0).multiply_add_low(first, inverse).before(modulus);
    *next = ahead;
    for column in 2..B {
        window[column] = window[column].multiply_add_low(modulus[column], digit);
    }
    window[0] = first;
    for column in 1..B - 1 {
        window[column] = window[column + 1].multiply_add_high(modulus[column], digit);
    }
    window[B - 1] = entering.multiply_add_high(modulus[B - 1], digit);
}

/// Puts `a²` into the `2·B` columns `low` and `high`; if `ADD`, `a²` and twice what they hold.
///
/// Products of two different digits are computed once and doubled when their column is complete, so this takes little
/// more than half of the multiplications. Rows get shorter, so they cannot be turns of one loop.
#[inline(always)]
pub(super) fn square<V: MultiplyAdd, const B: usize, const ADD: bool>(
    low: &mut [V; B],
    high: &mut [V; B],
    a: &[V; B],
) {
    let mut sums = Columns { low: [V::splat(0); B], high: [V::splat(0); B] };
    macro_rules! complete {
        ($index:expr, $multiply_add:ident, $digit:expr) => {
            let column = if $index < B { &mut low[$index] } else { &mut high[$index - B] };
            let sum = *sums.column($index);
            let sum = if ADD { column.add(sum) } else { sum };
            *column = sum.add(sum).$multiply_add($digit, $digit);
        };
    }
    macro_rules! rows {
        ($($index:literal)*) => {
            $(if $index < B {
                square_row::<V, B, $index>(&mut sums, V::hide(a));
                complete!(2 * $index, multiply_add_low, a[$index]);
                complete!(2 * $index + 1, multiply_add_high, a[$index]);
            })*
        };
    }
    rows!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
}

/// The `2·B` columns of a square, without the squares of the digits themselves, each product once.
struct Columns<V, const B: usize> {
    low: [V; B],
    high: [V; B],
}

impl<V: MultiplyAdd, const B: usize> Columns<V, B> {
    #[inline(always)]
    fn column(&mut self, index: usize) -> &mut V {
        if index < B { &mut self.low[index] } else { &mut self.high[index - B] }
    }
}

/// Digit number `ROW` times each digit above it.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "an index into both, as in the other rows")]
fn square_row<V: MultiplyAdd, const B: usize, const ROW: usize>(columns: &mut Columns<V, B>, a: &[V; B]) {
    let digit = a[ROW];
    for other in ROW + 1..B {
        let column = columns.column(ROW + other);
        *column = column.multiply_add_low(a[other], digit);
    }
    for other in ROW + 1..B {
        let column = columns.column(ROW + other + 1);
        *column = column.multiply_add_high(a[other], digit);
    }
}

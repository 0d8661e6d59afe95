//! Almost-Montgomery arithmetic on whole numbers: some blocks of digits in each lane.
//!
//! With R the radix to the power of the number of digits and m the modulus, `a·b/R` is made by adding a multiple of m that
//! is less than R·m, so it is below `a·b/R + m`. R is more than 2^16·m: of two numbers below 2·m that is below
//! `m + m/2^14`, so no subtraction is needed in between, and one at the end makes the result less than m.

use zeroize::Zeroize;

use super::{
    block,
    lanes::{Lanes, MultiplyAdd},
};

/// A modulus in each lane, odd.
pub(super) struct Modulus<V, const B: usize> {
    /// Its digits, block by block.
    pub(super) digits: Vec<[V; B]>,
    /// -1/modulus modulo the radix.
    pub(super) inverse: V,
    /// The modulus times `inverse`, whose least digit is the greatest there is; empty for lanes that have no use for it.
    pub(super) multiple: Vec<[V; B]>,
}

/// Memory for intermediate results.
pub(super) struct Scratch<V, const B: usize> {
    /// A product before it is reduced, as columns.
    pub(super) product: Vec<[V; B]>,
    pub(super) quotient: [V; B],
}

impl<V: Lanes, const B: usize> Scratch<V, B> {
    /// For numbers of up to `blocks` blocks.
    pub(super) fn new(blocks: usize) -> Self {
        let zero = [V::splat(0); B];
        Self { product: vec![zero; 2 * blocks], quotient: zero }
    }

    pub(super) fn wipe(&mut self) {
        wipe(self.product.as_flattened_mut());
        wipe(&mut self.quotient);
    }
}

/// Operations on one block of digits.
pub(super) trait Blocks<const B: usize>: Lanes {
    /// Adds `a·b` to the `2·B` columns `low` and `high`, or puts it there if not `ADD`.
    fn multiply_block<const ADD: bool>(
        low: &mut [Self; B],
        high: &mut [Self; B],
        a: &[Self; B],
        b: &[Self; B],
    );

    /// Adds the multiple of `modulus`, a least significant block, that makes the columns `low` zero, and moves their
    /// carry to `high`. `low` is not updated, since it is not read again.
    ///
    /// `quotient` receives the digits of the multiplier for the remaining blocks of the modulus; `inverse` is
    /// -1/modulus modulo the radix.
    fn reduce_block(
        low: &[Self; B],
        high: &mut [Self; B],
        quotient: &mut [Self; B],
        modulus: &[Self; B],
        inverse: Self,
    );
}

impl<V: MultiplyAdd, const B: usize> Blocks<B> for V {
    #[inline(always)]
    fn multiply_block<const ADD: bool>(low: &mut [V; B], high: &mut [V; B], a: &[V; B], b: &[V; B]) {
        block::multiply::<V, B, ADD>(low, high, a, b);
    }

    #[inline(always)]
    fn reduce_block(low: &[V; B], high: &mut [V; B], quotient: &mut [V; B], modulus: &[V; B], inverse: V) {
        block::reduce(low, high, quotient, modulus, inverse);
    }
}

/// The operations that a private operation consists of.
///
/// A trait, so that each kind of lanes can have them compiled as functions for the instructions that it is made of.
pub(super) trait Arithmetic<const B: usize>: Blocks<B> {
    /// `product = a·b/R` modulo the modulus, of factors that are such products or below 3 moduli. Good as a factor, and
    /// not to be shown.
    fn multiply(
        product: &mut [[Self; B]],
        a: &[[Self; B]],
        b: &[[Self; B]],
        modulus: &Modulus<Self, B>,
        scratch: &mut Scratch<Self, B>,
    );

    /// `product = a·b/R`, less than twice the modulus, of factors of which one at most is from
    /// [`multiply`](Self::multiply), and others are below 3 moduli.
    #[inline(always)]
    fn multiply_exactly(
        product: &mut [[Self; B]],
        a: &[[Self; B]],
        b: &[[Self; B]],
        modulus: &Modulus<Self, B>,
        scratch: &mut Scratch<Self, B>,
    ) {
        Self::multiply(product, a, b, modulus, scratch);
    }

    /// `number = number²/R`, as [`multiply`](Self::multiply).
    fn square(number: &mut [[Self; B]], modulus: &Modulus<Self, B>, scratch: &mut Scratch<Self, B>);

    /// Entry number `index` of a table, by reading all of it.
    fn look_up(entry: &mut [Self], table: &[[Self; 32]], index: Self);
}

/// `product = a·b/R`, less than twice the modulus.
#[inline(always)]
pub(super) fn multiply<V: Blocks<B>, const B: usize>(
    product: &mut [[V; B]],
    a: &[[V; B]],
    b: &[[V; B]],
    modulus: &Modulus<V, B>,
    scratch: &mut Scratch<V, B>,
) {
    let columns = &mut scratch.product[..2 * a.len()];
    multiply_columns(columns, a, b);
    reduce_columns(columns, modulus, &mut scratch.quotient);
    normalize(product, &columns[a.len()..]);
}

/// `number = number²/R`, less than twice the modulus.
#[inline(always)]
pub(super) fn square<V: MultiplyAdd, const B: usize>(
    number: &mut [[V; B]],
    modulus: &Modulus<V, B>,
    scratch: &mut Scratch<V, B>,
) {
    let blocks = number.len();
    let columns = &mut scratch.product[..2 * blocks];
    if let [digits] = number {
        let (low, high) = two(columns, 0);
        block::square::<V, B, false>(low, high, digits);
    } else {
        // First the products of different blocks, which the squares then double together with their own. Products of
        // neighbouring blocks cover all columns but the outermost once, so they are written and all others added.
        columns[0] = [V::splat(0); B];
        columns[2 * blocks - 1] = [V::splat(0); B];
        for (index, neighbours) in number.windows(2).enumerate() {
            let (low, high) = two(columns, 2 * index + 1);
            block::multiply::<V, B, false>(low, high, &neighbours[0], &neighbours[1]);
        }
        for (index, digits) in number.iter().enumerate() {
            for (further, others) in number.iter().enumerate().skip(index + 2) {
                let (low, high) = two(columns, index + further);
                block::multiply::<V, B, true>(low, high, digits, others);
            }
        }
        for (index, digits) in number.iter().enumerate() {
            let (low, high) = two(columns, 2 * index);
            block::square::<V, B, true>(low, high, digits);
        }
    }
    reduce_columns(columns, modulus, &mut scratch.quotient);
    normalize(number, &columns[blocks..]);
}

/// The columns of `a·b`.
#[inline(always)]
pub(super) fn multiply_columns<V: Blocks<B>, const B: usize>(
    columns: &mut [[V; B]],
    a: &[[V; B]],
    b: &[[V; B]],
) {
    // The products of blocks of the same number cover all columns once, so these are put and all others added.
    for (index, (a, b)) in a.iter().zip(b).enumerate() {
        let (low, high) = two(columns, 2 * index);
        V::multiply_block::<false>(low, high, a, b);
    }
    for (i, a) in a.iter().enumerate() {
        for (j, b) in b.iter().enumerate() {
            if j != i {
                let (low, high) = two(columns, i + j);
                V::multiply_block::<true>(low, high, a, b);
            }
        }
    }
}

/// Makes the lower half of the columns zero by adding a multiple of the modulus: the upper half is then the number
/// divided by R.
#[inline(always)]
fn reduce_columns<V: Blocks<B>, const B: usize>(
    columns: &mut [[V; B]],
    modulus: &Modulus<V, B>,
    quotient: &mut [V; B],
) {
    let (least, further) = modulus.digits.split_first().expect("a modulus has digits");
    for index in 0..modulus.digits.len() {
        let (low, high) = two(columns, index);
        V::reduce_block(low, high, quotient, least, modulus.inverse);
        for (offset, digits) in further.iter().enumerate() {
            let (low, high) = two(columns, index + 1 + offset);
            V::multiply_block::<true>(low, high, digits, quotient);
        }
    }
}

#[inline(always)]
pub(super) fn look_up<V: Lanes>(entry: &mut [V], table: &[[V; 32]], index: V) {
    let bits = [index.has_bit(0), index.has_bit(1), index.has_bit(2), index.has_bit(3), index.has_bit(4)];
    for (digit, entries) in entry.iter_mut().zip(table) {
        let sixteen: [V; 16] = choose(entries, bits[0]);
        let eight: [V; 8] = choose(&sixteen, bits[1]);
        let four: [V; 4] = choose(&eight, bits[2]);
        let two: [V; 2] = choose(&four, bits[3]);
        let [one] = choose(&two, bits[4]);
        *digit = one;
    }
}

/// Of each pair the second where the bit is set, the first where it is not.
#[inline(always)]
fn choose<V: Lanes, const N: usize, const HALF: usize>(from: &[V; N], bit: V::Mask) -> [V; HALF] {
    let mut chosen = [V::splat(0); HALF];
    for (index, chosen) in chosen.iter_mut().enumerate() {
        *chosen = V::select(bit, from[2 * index + 1], from[2 * index]);
    }
    chosen
}

/// `product = a·b + addend`, not reduced. `addend` has the length of `a`.
#[inline(always)]
pub(super) fn multiply_add<V: Blocks<B>, const B: usize>(
    product: &mut [[V; B]],
    a: &[[V; B]],
    b: &[[V; B]],
    addend: &[[V; B]],
    scratch: &mut Scratch<V, B>,
) {
    let columns = &mut scratch.product[..2 * a.len()];
    multiply_columns(columns, a, b);
    for (column, digit) in columns.as_flattened_mut().iter_mut().zip(addend.as_flattened()) {
        *column = column.add(digit.column());
    }
    normalize(product, columns);
}

/// `result = number/R`, less than twice the modulus, of a number of twice as many blocks as the modulus has.
#[inline(always)]
pub(super) fn reduce<V: Blocks<B>, const B: usize>(
    result: &mut [[V; B]],
    number: &[[V; B]],
    modulus: &Modulus<V, B>,
    scratch: &mut Scratch<V, B>,
) {
    let columns = &mut scratch.product[..number.len()];
    for (column, digit) in columns.as_flattened_mut().iter_mut().zip(number.as_flattened()) {
        *column = digit.column();
    }
    reduce_columns(columns, modulus, &mut scratch.quotient);
    normalize(result, &columns[result.len()..]);
}

/// Subtracts the modulus in the lanes in which the number is not less.
#[inline(always)]
pub(super) fn subtract_once<V: Lanes, const B: usize>(number: &mut [[V; B]], modulus: &Modulus<V, B>) {
    let modulus = modulus.digits.as_flattened();
    let number = number.as_flattened_mut();
    let mut borrow = V::splat(0);
    for (digit, other) in number.iter().zip(modulus) {
        borrow = digit.column().subtract(other.column()).add(borrow).carry();
    }
    let (less, mut borrow) = (borrow.is_negative(), V::splat(0));
    for (digit, other) in number.iter_mut().zip(modulus) {
        let difference = digit.column().subtract(other.column()).add(borrow);
        borrow = difference.carry();
        *digit = V::select(less, *digit, difference.digit());
    }
}

/// `difference = a - b + 2·modulus`, which is positive for numbers below 2·modulus.
#[inline(always)]
pub(super) fn difference<V: Lanes, const B: usize>(
    difference: &mut [[V; B]],
    a: &[[V; B]],
    b: &[[V; B]],
    modulus: &Modulus<V, B>,
) {
    let operands = a.as_flattened().iter().zip(b.as_flattened()).zip(modulus.digits.as_flattened());
    let mut carry = V::splat(0);
    for (result, ((a, b), modulus)) in difference.as_flattened_mut().iter_mut().zip(operands) {
        let modulus = modulus.column();
        let column = a.column().add(modulus).add(modulus).subtract(b.column()).add(carry);
        (*result, carry) = (column.digit(), column.carry());
    }
}

/// Digits from columns.
#[inline(always)]
pub(super) fn normalize<V: Lanes, const B: usize>(digits: &mut [[V; B]], columns: &[[V; B]]) {
    V::normalize(digits.as_flattened_mut(), columns.as_flattened());
}

/// Two neighbouring blocks.
#[inline(always)]
pub(super) fn two<V, const B: usize>(blocks: &mut [[V; B]], index: usize) -> (&mut [V; B], &mut [V; B]) {
    let (low, high) = blocks[index..].split_at_mut(1);
    (&mut low[0], &mut high[0])
}

/// Overwrites lanes with zeroes, in a way that the compiler does not leave out.
pub(super) fn wipe<V: Lanes>(lanes: &mut [V]) {
    for lanes in lanes {
        lanes.lanes_mut().zeroize();
    }
}

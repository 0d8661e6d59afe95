//! Polynomials with 256 coefficients modulo 3329 in eight registers, and the number-theoretic transform. FIPS 203
//! section 4.3.
//!
//! Coefficients are signed and not reduced to one form; each function says how large they may be. A product is
//! Montgomery's with R = 2^16: `a·b/R`, less than `|a|·|b|/2^16 + 1665`. Constants that are multiplied by are kept as
//! `c·R`.

use super::register::{Aligned, Coefficients, Places, Register};

/// The modulus `q` of ML-KEM.
pub(super) const Q: i16 = 3329;

/// 1/q modulo 2^16.
const Q_INVERSE: i16 = -3327;

/// Registers of a polynomial.
pub(super) const REGISTERS: usize = 8;

/// Coefficients in their order, 32 in a register.
#[derive(Clone, Copy)]
pub(super) struct Polynomial<V>(pub(super) [V; REGISTERS]);

/// A constant factor and the factor times 1/q modulo 2^16.
struct Factor<V> {
    factor: V,
    quotient: V,
}

/// Such factors for one register.
#[derive(Clone, Copy)]
struct Factors {
    factor: Coefficients,
    quotient: Coefficients,
}

/// A factor for the products of a transformed polynomial with others: these are polynomials of degree one, pair by
/// pair.
pub(super) struct Prepared<V> {
    /// The first coefficient, and the second one times the root: their products with a pair add up to its first
    /// coefficient.
    first: [V; REGISTERS],
    /// Both coefficients, exchanged: likewise for the second.
    second: [V; REGISTERS],
}

/// A sum of such products, 32 bits for each coefficient.
pub(super) struct Sum<V> {
    first: [V; REGISTERS],
    second: [V; REGISTERS],
}

/// Heavy operations as functions of their own.
pub(super) trait Kernels: Register {
    fn transform(polynomial: &mut Polynomial<Self>);
    fn transform_back(polynomial: &mut Polynomial<Self>);
    fn add_product(sum: &mut Sum<Self>, polynomial: &Polynomial<Self>, factor: &Prepared<Self>);
}

/// `number` modulo q, between -q/2 and q/2.
const fn centered(number: i64) -> i16 {
    let rest = number.rem_euclid(Q as i64);
    (if rest > Q as i64 / 2 { rest - Q as i64 } else { rest }) as i16
}

/// `number·R` modulo q.
const fn montgomery(number: i64) -> i16 {
    centered(number << 16)
}

const fn quotient(factor: i16) -> i16 {
    factor.wrapping_mul(Q_INVERSE)
}

/// 17 to the power of `exponent`, a root of unity.
const fn root(exponent: usize) -> i64 {
    let (mut power, mut step) = (1, 0);
    while step < exponent {
        power = power * 17 % Q as i64;
        step += 1;
    }
    power
}

/// The seven bits of a number in reverse.
const fn reversed(number: usize) -> usize {
    (number as u8).reverse_bits() as usize >> 1
}

/// The roots in the order in which layers take them, times R.
const ROOTS: [i16; 128] = {
    let mut roots = [0; 128];
    let mut number = 0;
    while number < 128 {
        roots[number] = montgomery(root(reversed(number)));
        number += 1;
    }
    roots
};

/// Two registers with the 64 coefficients of a pair of them in the order for a layer: in blocks of twice the distance,
/// the lower halves of the blocks are in the first register and the upper halves in the second. At a distance of 32
/// that is the natural order. This is the number of the coefficient at `place`.
const fn number_at(distance: usize, place: usize) -> usize {
    let (upper, place) = (place / 32, place % 32);
    place / distance * 2 * distance + upper * distance + place % distance
}

const fn place_of(distance: usize, number: usize) -> usize {
    let within = number % (2 * distance);
    within / distance * 32 + number / (2 * distance) * distance + within % distance
}

/// From the order for one distance to that for another.
const fn reorder(from: usize, to: usize) -> [Places; 2] {
    let mut places = [Aligned([0; 32]); 2];
    let mut place = 0;
    while place < 64 {
        places[place / 32].0[place % 32] = (place_of(from, number_at(to, place)) as u16).cast_signed();
        place += 1;
    }
    places
}

/// Distances of a transform within pairs of registers; the inverse uses them in reverse order.
const DISTANCES: [usize; 6] = [32, 16, 8, 4, 2, 32];
static REORDER: [[Places; 2]; 5] = reorders(false);
static REORDER_BACK: [[Places; 2]; 5] = reorders(true);

const fn reorders(back: bool) -> [[Places; 2]; 5] {
    let mut all = [[Aligned([0; 32]); 2]; 5];
    let mut step = 0;
    while step < 5 {
        all[step] = if back {
            reorder(DISTANCES[5 - step], DISTANCES[4 - step])
        } else {
            reorder(DISTANCES[step], DISTANCES[step + 1])
        };
        step += 1;
    }
    all
}

const fn with_quotients(factor: [i16; 32]) -> Factors {
    let mut quotients = [0; 32];
    let mut at = 0;
    while at < 32 {
        quotients[at] = quotient(factor[at]);
        at += 1;
    }
    Factors { factor: Aligned(factor), quotient: Aligned(quotients) }
}

/// The roots of the layers within pairs of registers, by layer (distance 16, 8, 4, 2; back 2, 4, 8, 16) and pair.
static LAYER_ROOTS: [[Factors; 4]; 4] = layer_roots(false);
static LAYER_ROOTS_BACK: [[Factors; 4]; 4] = layer_roots(true);

const fn layer_roots(back: bool) -> [[Factors; 4]; 4] {
    let mut all = [[with_quotients([0; 32]); 4]; 4];
    let mut layer = 0;
    while layer < 4 {
        let distance = if back { 2 << layer } else { 16 >> layer };
        let mut pair = 0;
        while pair < 4 {
            let mut roots = [0; 32];
            let mut place = 0;
            while place < 32 {
                let block = (64 * pair + number_at(distance, place)) / (2 * distance);
                let blocks = 128 / distance;
                roots[place] = ROOTS[if back { 2 * blocks - 1 - block } else { blocks + block }];
                place += 1;
            }
            all[layer][pair] = with_quotients(roots);
            pair += 1;
        }
        layer += 1;
    }
    all
}

/// For [`Prepared`]: one, and the root that a pair is reduced by. FIPS 203 algorithm 11.
static PAIR_ROOTS: [Factors; REGISTERS] = {
    let mut all = [with_quotients([0; 32]); REGISTERS];
    let mut register = 0;
    while register < REGISTERS {
        let mut roots = [0; 32];
        let mut pair = 0;
        while pair < 16 {
            roots[2 * pair] = montgomery(1);
            roots[2 * pair + 1] = montgomery(root(2 * reversed(16 * register + pair) + 1));
            pair += 1;
        }
        all[register] = with_quotients(roots);
        register += 1;
    }
    all
};

/// Divisor of the inverse transform, 128, and the R by which products of pairs were divided: as a factor, times R.
const LAST: i16 = montgomery(montgomery(3303) as i64);
/// The same times the root of the last layer.
const LAST_ROOT: i16 = centered(LAST as i64 * root(reversed(1)));

impl<V: Register> Factor<V> {
    #[inline(always)]
    fn splat(factor: i16) -> Self {
        Self { factor: V::splat(factor), quotient: V::splat(quotient(factor)) }
    }

    #[inline(always)]
    fn load(factors: &Factors) -> Self {
        Self {
            factor: V::load_coefficients(&factors.factor.0),
            quotient: V::load_coefficients(&factors.quotient.0),
        }
    }

    /// The product divided by R.
    #[inline(always)]
    fn times(&self, number: V) -> V {
        let multiple = number.multiply_low(self.quotient).multiply_high(V::splat(Q));
        number.multiply_high(self.factor).subtract(multiple)
    }
}

/// The number modulo q, at most 2188 either way: `number/3277` is close enough to `number/q`.
#[inline(always)]
fn reduced<V: Register>(number: V) -> V {
    number.subtract(number.multiply_rounded(V::splat(10)).multiply_low(V::splat(Q)))
}

impl<V: Register> Polynomial<V> {
    #[inline(always)]
    pub(super) fn zero() -> Self {
        Self([V::zero(); REGISTERS])
    }

    #[inline(always)]
    pub(super) fn add(&mut self, other: &Self) {
        for register in 0..REGISTERS {
            self.0[register] = self.0[register].add(other.0[register]);
        }
    }

    /// A layer whose distance is a number of registers.
    #[inline(always)]
    fn layer<const DISTANCE: usize>(&mut self) {
        for block in 0..4 / DISTANCE {
            let root = Factor::splat(ROOTS[4 / DISTANCE + block]);
            for at in 0..DISTANCE {
                let (lower, upper) = (2 * DISTANCE * block + at, 2 * DISTANCE * block + at + DISTANCE);
                let (sum, difference) = butterfly(self.0[lower], self.0[upper], &root);
                (self.0[lower], self.0[upper]) = (sum, difference);
            }
        }
    }

    #[inline(always)]
    fn layer_back<const DISTANCE: usize>(&mut self) {
        for block in 0..4 / DISTANCE {
            let root = Factor::splat(ROOTS[8 / DISTANCE - 1 - block]);
            for at in 0..DISTANCE {
                let (lower, upper) = (2 * DISTANCE * block + at, 2 * DISTANCE * block + at + DISTANCE);
                let (sum, difference) = butterfly_back(self.0[lower], self.0[upper], &root);
                (self.0[lower], self.0[upper]) = (sum, difference);
            }
        }
    }
}

#[inline(always)]
fn butterfly<V: Register>(lower: V, upper: V, root: &Factor<V>) -> (V, V) {
    let product = root.times(upper);
    (lower.add(product), lower.subtract(product))
}

#[inline(always)]
fn butterfly_back<V: Register>(lower: V, upper: V, root: &Factor<V>) -> (V, V) {
    (lower.add(upper), root.times(upper.subtract(lower)))
}

#[inline(always)]
fn pick<V: Register>(pair: (V, V), places: &[Places; 2]) -> (V, V) {
    (pair.0.pick(pair.1, &places[0]), pair.0.pick(pair.1, &places[1]))
}

/// [`Kernels::transform`], FIPS 203 algorithm 9: of coefficients up to 1664 either way, to coefficients up to 2188.
#[inline(always)]
pub(super) fn transform<V: Register>(polynomial: &mut Polynomial<V>) {
    let mut state = *polynomial;
    state.layer::<4>();
    state.layer::<2>();
    state.layer::<1>();
    for number in 0..4 {
        let mut pair = (state.0[2 * number], state.0[2 * number + 1]);
        for layer in 0..4 {
            pair = pick(pair, &REORDER[layer]);
            pair = butterfly(pair.0, pair.1, &Factor::load(&LAYER_ROOTS[layer][number]));
        }
        // A layer adds at most 2497.
        pair = pick((reduced(pair.0), reduced(pair.1)), &REORDER[4]);
        (polynomial.0[2 * number], polynomial.0[2 * number + 1]) = pair;
    }
}

/// [`Kernels::transform_back`], FIPS 203 algorithm 10, times R: of coefficients up to 2400 either way, to ones up to
/// 1800.
#[inline(always)]
pub(super) fn transform_back<V: Register>(polynomial: &mut Polynomial<V>) {
    let mut state = *polynomial;
    for number in 0..4 {
        let mut pair = (state.0[2 * number], state.0[2 * number + 1]);
        for layer in 0..4 {
            pair = pick(pair, &REORDER_BACK[layer]);
            pair = butterfly_back(pair.0, pair.1, &Factor::load(&LAYER_ROOTS_BACK[layer][number]));
            if layer == 2 {
                // Sums may have become eight times as large, 19,200.
                pair.0 = reduced(pair.0);
            }
        }
        (state.0[2 * number], state.0[2 * number + 1]) = pick(pair, &REORDER_BACK[4]);
    }
    // Now at most 2 · 2400, and four times that after the next two layers.
    state.layer_back::<1>();
    state.layer_back::<2>();
    let (last, last_root) = (Factor::splat(LAST), Factor::splat(LAST_ROOT));
    for at in 0..4 {
        let (lower, upper) = (reduced_sum(state.0[at], at), reduced_sum(state.0[at + 4], at));
        let (sum, difference) = butterfly_back(lower, upper, &last_root);
        (polynomial.0[at], polynomial.0[at + 4]) = (last.times(sum), difference);
    }
}

/// Of the layer before the last, sums are in the registers 0, 1, 4 and 5.
#[inline(always)]
fn reduced_sum<V: Register>(number: V, at: usize) -> V {
    if at < 2 { reduced(number) } else { number }
}

impl<V: Register> Prepared<V> {
    /// Of a transformed polynomial.
    #[inline(always)]
    pub(super) fn of(polynomial: &Polynomial<V>) -> Self {
        let mut prepared = Self::zero();
        for register in 0..REGISTERS {
            let number = polynomial.0[register];
            prepared.first[register] = Factor::load(&PAIR_ROOTS[register]).times(number);
            prepared.second[register] = number.swap_pairs();
        }
        prepared
    }

    #[inline(always)]
    pub(super) fn zero() -> Self {
        Self { first: [V::zero(); REGISTERS], second: [V::zero(); REGISTERS] }
    }
}

impl<V: Register> Sum<V> {
    #[inline(always)]
    pub(super) fn zero() -> Self {
        Self { first: [V::zero(); REGISTERS], second: [V::zero(); REGISTERS] }
    }

    /// The sum of three products, divided by R: at most 2 · 3 · 3328 · 2188 / 2^16 + 1665 either way.
    #[inline(always)]
    pub(super) fn reduced(&self) -> Polynomial<V> {
        let mut polynomial = Polynomial::zero();
        for register in 0..REGISTERS {
            let low = self.first[register].low_halves(self.second[register]);
            let high = self.first[register].high_halves(self.second[register]);
            let multiple = low.multiply_low(V::splat(Q_INVERSE)).multiply_high(V::splat(Q));
            polynomial.0[register] = high.subtract(multiple);
        }
        polynomial
    }
}

/// [`Kernels::add_product`]: adds the product with a transformed polynomial whose coefficients are from 0 to q.
#[inline(always)]
pub(super) fn add_product<V: Register>(sum: &mut Sum<V>, polynomial: &Polynomial<V>, factor: &Prepared<V>) {
    for register in 0..REGISTERS {
        let coefficients = polynomial.0[register];
        sum.first[register] = sum.first[register].add_products(coefficients, factor.first[register]);
        sum.second[register] = sum.second[register].add_products(coefficients, factor.second[register]);
    }
}

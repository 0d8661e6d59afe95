//! X25519, RFC 7748, in eight lanes: the Montgomery ladder, and one inversion for all batches.

use super::{
    BATCHES,
    field25519::{self, Element, words},
    lanes::{LANES, Lanes, transpose},
};

/// `(A - 2)/4` of the curve.
const A24: u64 = 121_665;

/// A number as a quotient, whose division waits for others.
#[derive(Clone, Copy)]
pub(super) struct Fraction<V> {
    pub(super) numerator: Element<V>,
    pub(super) denominator: Element<V>,
}

impl<V: Lanes> Fraction<V> {
    #[inline(always)]
    pub(super) fn zero() -> Self {
        Self { numerator: Element::zero(), denominator: Element::one() }
    }

    pub(super) fn wipe(fractions: &mut [Self]) {
        for fraction in fractions {
            V::wipe(&mut fraction.numerator.0);
            V::wipe(&mut fraction.denominator.0);
        }
    }
}

/// Heavy operations as functions of their own.
pub(super) trait Kernels: field25519::Kernels {
    fn ladder(secrets: &[[u8; 32]; LANES], points: &[[u8; 32]; LANES]) -> Fraction<Self>;
}

/// Exchanges of up to [`BATCHES`] times eight lanes. The contents of unused lanes do not matter.
///
/// A point of small order gives zeroes. RFC 8446 section 7.4.2 has them refused, which is the caller's to do.
#[inline(always)]
pub(super) fn exchange<V: Kernels>(
    secrets: &[[[u8; 32]; LANES]],
    points: &[[[u8; 32]; LANES]],
    shared: &mut [[[u8; 32]; LANES]],
) {
    let mut results = [Fraction::<V>::zero(); BATCHES];
    for batch in 0..secrets.len() {
        results[batch] = V::ladder(&secrets[batch], &points[batch]);
        if secrets.len() > 1 {
            results[batch] = without_zero(&results[batch]);
        }
    }
    divide(&mut results[..secrets.len()], shared);
}

/// The same number with a non-zero denominator, 0 for a division by zero: a zero denominator would turn the same lane
/// of other batches in the shared inversion to zero.
#[inline(always)]
fn without_zero<V: Lanes>(number: &Fraction<V>) -> Fraction<V> {
    let denominator = number.denominator.reduced();
    let zero = denominator.is_zero();
    Fraction {
        numerator: Element::select(zero, &Element::zero(), &number.numerator),
        denominator: Element::select(zero, &Element::one(), &denominator),
    }
}

/// Divides with one inversion, and wipes the numbers.
#[inline(always)]
pub(super) fn divide<V: Kernels>(numbers: &mut [Fraction<V>], quotients: &mut [[[u8; 32]; LANES]]) {
    let mut before = [Element::one(); BATCHES];
    // Montgomery's trick: one inversion of the product of all denominators, and some products for each
    // quotient.
    for batch in 1..numbers.len() {
        before[batch] = V::product(&before[batch - 1], &numbers[batch - 1].denominator);
    }
    let last = numbers.len() - 1;
    let mut inverse = field25519::invert(&V::product(&before[last], &numbers[last].denominator));
    for batch in (0..numbers.len()).rev() {
        let number = &numbers[batch];
        let own = V::product(&inverse, &before[batch]);
        V::product(&number.numerator, &own).to_bytes(&mut quotients[batch]);
        inverse = V::product(&inverse, &number.denominator);
    }
    Fraction::wipe(numbers);
    for product in &mut before {
        V::wipe(&mut product.0);
    }
    V::wipe(&mut inverse.0);
}

/// Words of secrets, with the bits set and cleared that RFC 7748 section 5 has so.
#[inline(always)]
pub(super) fn clamped<V: Lanes>(secrets: &[[u8; 32]; LANES]) -> [V; 4] {
    let mut numbers = [[0; 4]; LANES];
    for lane in 0..LANES {
        numbers[lane] = words(&secrets[lane]);
        numbers[lane][0] &= !7;
        numbers[lane][3] = numbers[lane][3] & (u64::MAX >> 1) | 1 << 62;
    }
    transpose(&numbers)
}

/// [`Kernels::ladder`]: RFC 7748 section 5, but that nothing is swapped. The sum of both points is the same whichever is
/// which, so only the one to be doubled is chosen.
///
/// The state is in local variables, and this is one function: in a struct that is handed on it took a tenth longer.
#[inline(always)]
pub(super) fn ladder<V: Lanes>(secrets: &[[u8; 32]; LANES], points: &[[u8; 32]; LANES]) -> Fraction<V> {
    let point = Element::<V>::from_bytes(points);
    let mut secret = clamped::<V>(secrets);
    let mut swaps = swaps(&secret);
    let (mut x2, mut z2) = (Element::one().raised(), Element::zero().wide());
    let (mut x3, mut z3) = (point.raised(), Element::one().wide());
    for bit in (0..255).rev() {
        let swap = swaps[bit / 64].has_bit((bit % 64) as u32);
        let (a, b) = (x2.plus(&z2).carry(), x2.minus(&z2).carry());
        let (c, d) = (x3.plus(&z3).carry(), x3.minus(&z3).carry());
        let sum = Element::select(swap, &c, &a);
        let difference = Element::select(swap, &d, &b);
        let (aa, bb) = (sum.square_raised(), difference.square());
        let (da, cb) = (d.multiply_raised(&a), c.multiply(&b));
        let e = aa.minus(&bb).carry();
        let f = aa.wide().plus_small_multiple(&e, A24).carry();
        x2 = aa.carry().multiply_raised(&bb.carry());
        let (dif, sum) = (da.minus(&cb).carry(), da.plus(&cb).carry());
        x3 = sum.square_raised();
        let square = dif.square().carry();
        z2 = e.multiply(&f);
        z3 = point.multiply(&square);
    }
    V::wipe(&mut secret);
    V::wipe(&mut swaps);
    // The three lowest bits are zero: nothing is left to be swapped.
    Fraction { numerator: x2.carry(), denominator: z2.carry() }
}

/// Positions at which a bit differs from the one above it, where the points are swapped.
#[inline(always)]
fn swaps<V: Lanes>(secret: &[V; 4]) -> [V; 4] {
    let mut swaps = *secret;
    for word in 0..4 {
        let mut above = secret[word].shift_right::<1>();
        if word < 3 {
            above = above.or(secret[word + 1].shift_left::<63>());
        }
        swaps[word] = secret[word].xor(above);
    }
    swaps
}

//! Public keys of X25519 in eight lanes: multiples of the base point by a table, without doublings.
//!
//! A secret is eight times a number of 252 bits, hence 42 windows of six bits; half of eight times the base point is 4B.
//!
//! The sum is one on the twisted Edwards curve, by formulas that are complete (Hisil, Wong, Carter and Dawson, 2008). A table
//! holds `y + x`, `y - x` and `2dxy` of each point.

use super::{
    BATCHES,
    field25519::{Element, Raised, Wide, invert, limbs},
    lanes::{LANES, Lanes, window},
    table::{self, Coordinates, WINDOW, look_up},
    x25519::{self, Fraction, clamped, divide},
};

const WINDOWS: usize = 42;

/// The lowest window begins here: the three lowest bits of a secret are zero.
const FIRST_BIT: u32 = 3;

/// `(2j + 1)·64^i·4B` for each window `i` and entry `j`.
pub(super) struct Table {
    windows: Box<[[Coordinates; 3]]>,
    /// x, y, z and t of the point that a sum starts with.
    start: [[u64; 5]; 4],
}

/// Heavy operations as functions of their own.
pub(super) trait Kernels: x25519::Kernels {
    fn multiply_base(table: &Table, secrets: &[[u8; 32]; LANES]) -> Fraction<Self>;
    /// The sum of any two points.
    fn sum(a: &Point<Self>, b: &Point<Self>) -> Point<Self>;
}

/// Extended coordinates, RFC 8032 section 5.1.4, as they come out of an addition.
#[derive(Clone, Copy)]
pub(super) struct Point<V> {
    x: Wide<V>,
    y: Raised<V>,
    z: Raised<V>,
    t: Wide<V>,
}

/// A point of the table: `y + x`, `y - x` and `2dxy`, all reduced.
#[derive(Clone, Copy)]
struct Niels<V> {
    sum: Element<V>,
    difference: Element<V>,
    product: Element<V>,
}

/// The public keys of secrets, of up to [`BATCHES`] times eight lanes.
#[inline(always)]
pub(super) fn public_keys<V: Kernels>(
    table: &Table,
    secrets: &[[[u8; 32]; LANES]],
    public: &mut [[[u8; 32]; LANES]],
) {
    let mut results = [Fraction::<V>::zero(); BATCHES];
    for batch in 0..secrets.len() {
        results[batch] = V::multiply_base(table, &secrets[batch]);
    }
    divide(&mut results[..secrets.len()], public);
}

/// [`Kernels::multiply_base`]: the u-coordinate on the Montgomery curve, `(1 + y)/(1 - y)`.
#[inline(always)]
pub(super) fn multiply_base<V: Lanes>(table: &Table, secrets: &[[u8; 32]; LANES]) -> Fraction<V> {
    let mut secret = clamped::<V>(secrets);
    let mut sum = Point::start(&table.start);
    for (index, entries) in table.windows.iter().enumerate() {
        let digit = window(&secret, FIRST_BIT + (WINDOW * index) as u32);
        let positive = digit.has_bit(5);
        let flipped = digit.xor(V::splat(63));
        let place = V::select(positive, digit, flipped).and(V::splat(31));
        let entry = [
            Element(look_up(&entries[0], place)),
            Element(look_up(&entries[1], place)),
            Element(look_up(&entries[2], place)),
        ];
        let negative = entry[2].negative_of_reduced();
        sum = sum.plus(&Niels {
            sum: Element::select(positive, &entry[0], &entry[1]),
            difference: Element::select(positive, &entry[1], &entry[0]),
            product: Element::select(positive, &entry[2], &negative),
        });
    }
    V::wipe(&mut secret);
    Fraction { numerator: sum.z.plus(&sum.y.wide()).carry(), denominator: sum.z.minus_raised(&sum.y).carry() }
}

impl<V: Lanes> Point<V> {
    #[inline(always)]
    fn start(coordinates: &[[u64; 5]; 4]) -> Self {
        let [x, y, z, t] = coordinates;
        Self {
            x: Element::of(x).wide(),
            y: Element::of(y).raised(),
            z: Element::of(z).raised(),
            t: Element::of(t).wide(),
        }
    }

    /// The sum with a point whose z is 1.
    #[inline(always)]
    fn plus(&self, other: &Niels<V>) -> Self {
        let a = self.y.minus(&self.x).carry().multiply(&other.difference);
        let b = self.y.plus(&self.x).carry().multiply_raised(&other.sum);
        let c = self.t.carry().multiply(&other.product);
        let d = self.z.doubled();
        let (e, h) = (b.minus(&a).carry(), b.plus(&a).carry());
        let (f, g) = (d.minus(&c).carry(), d.plus(&c).carry());
        Self { x: e.multiply(&f), y: g.multiply_raised(&h), z: f.multiply_raised(&g), t: e.multiply(&h) }
    }
}

/// The curve's d, and the base point, RFC 8032 section 5.1.
const D: [u64; 5] =
    limbs([0x75eb_4dca_1359_78a3, 0x0070_0a4d_4141_d8ab, 0x8cc7_4079_7779_e898, 0x5203_6cee_2b6f_fe73]);
const BASE_X: [u64; 5] =
    limbs([0xc956_2d60_8f25_d51a, 0x692c_c760_9525_a7b2, 0xc0a4_e231_fdd6_dc5c, 0x2169_36d3_cd6e_53fe]);
const BASE_Y: [u64; 5] =
    limbs([0x6666_6666_6666_6658, 0x6666_6666_6666_6666, 0x6666_6666_6666_6666, 0x6666_6666_6666_6666]);

/// Additions of any points, for the table.
impl<V: Kernels> Point<V> {
    #[inline(always)]
    fn niels(&self) -> Niels<V> {
        let d = Element::of(&D);
        let twice_d = d.wide().plus(&d.wide()).carry();
        Niels {
            sum: self.y.plus(&self.x).carry(),
            difference: self.y.minus(&self.x).carry(),
            product: V::product(&self.t.carry(), &twice_d),
        }
    }

    #[inline(always)]
    fn negative(&self) -> Self {
        let zero = Element::zero().raised();
        Self { x: zero.minus(&self.x), t: zero.minus(&self.t), ..*self }
    }

    /// The same point with this inverse of z.
    #[inline(always)]
    fn affine(&self, inverse: &Element<V>) -> Self {
        let (x, y) = (V::product(&self.x.carry(), inverse), V::product(&self.y.carry(), inverse));
        Self { x: x.wide(), y: y.raised(), z: Element::one().raised(), t: x.multiply(&y) }
    }
}

impl<V: Kernels> table::Point for Point<V> {
    #[inline(always)]
    fn sum(&self, other: &Self) -> Self {
        V::sum(self, other)
    }

    #[inline(always)]
    fn put(&mut self, lane: usize, other: &Self) {
        let from = [other.x.limbs(), other.y.wide().limbs(), other.z.wide().limbs(), other.t.limbs()];
        let to = [self.x.limbs_mut(), self.y.limbs_mut(), self.z.limbs_mut(), self.t.limbs_mut()];
        for (to, from) in to.into_iter().zip(from) {
            for limb in 0..5 {
                to[limb].array_mut()[lane] = from[limb].array()[lane];
            }
        }
    }
}

/// [`Kernels::sum`].
#[inline(always)]
pub(super) fn sum<V: Kernels>(a: &Point<V>, b: &Point<V>) -> Point<V> {
    let z = a.z.carry().multiply_raised(&b.z.carry());
    Point { z, ..*a }.plus(&b.niels())
}

impl Table {
    /// Computes the table: less than a millisecond of public arithmetic.
    #[inline(always)]
    pub(super) fn compute<V: Kernels>() -> Self {
        let (x, y) = (Element::<V>::of(&BASE_X), Element::of(&BASE_Y));
        let base = Point { x: x.wide(), y: y.raised(), z: Element::one().raised(), t: x.multiply(&y) };
        let twice = V::sum(&base, &base);
        let quadruple = V::sum(&twice, &twice);
        let (mut points, beyond) = table::multiples(&quadruple, WINDOWS);
        points.push(V::sum(&beyond, &quadruple.negative()));
        make_affine(&mut points);
        let start = points.pop().expect("it was pushed");
        let mut windows = table::empty(WINDOWS);
        for (number, point) in points.iter().enumerate() {
            let Niels { sum, difference, product } = point.niels();
            let limbs = [sum.reduced().0, difference.reduced().0, product.reduced().0];
            table::enter(&mut windows, number, &limbs);
        }
        let start = [start.x.carry(), start.y.carry(), start.z.carry(), start.t.carry()];
        let start = [start[0].reduced().0, start[1].reduced().0, start[2].reduced().0, start[3].reduced().0];
        Self { windows, start: table::first_lanes(&start) }
    }
}

/// Divides by z, with one inversion.
#[inline(always)]
fn make_affine<V: Kernels>(points: &mut [Point<V>]) {
    let mut products = vec![Element::one()];
    // Montgomery's trick, as in `divide`: an inversion costs as much as hundreds of products.
    for (number, point) in points.iter().enumerate() {
        products.push(V::product(&products[number], &point.z.carry()));
    }
    let mut inverse = invert(&products[points.len()]);
    for (number, point) in points.iter_mut().enumerate().rev() {
        let own = V::product(&inverse, &products[number]);
        inverse = V::product(&inverse, &point.z.carry());
        *point = point.affine(&own);
    }
}

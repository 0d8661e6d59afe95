//! Multiples of the base point of P-256 in eight lanes, by a table, without doublings.

use super::{
    super::{
        lanes::{LANES, Lanes, window},
        table::{self, Coordinates, WINDOW, look_up},
    },
    field::{self, Coordinate, in_form},
    words::{N, Words},
};

const WINDOWS: usize = 43;

/// `(2j + 1)·64^i·G/2` for each window `i` and entry `j`: x and y.
pub(in crate::ec_lanes) struct Table {
    windows: Box<[[Coordinates; 2]]>,
    /// The point that a sum starts with.
    start: [[u64; 5]; 2],
}

/// Heavy operations as functions of their own.
pub(in crate::ec_lanes) trait Kernels: field::Kernels {
    fn p256_multiply_base(table: &Table, scalars: &[Self; 4]) -> Jacobian<Self>;
    /// The sum of any two points.
    fn p256_sum(a: &Projective<Self>, b: &Projective<Self>) -> Projective<Self>;
}

/// A point `(x/z², y/z³)`.
#[derive(Clone, Copy)]
pub(in crate::ec_lanes) struct Jacobian<V> {
    pub(in crate::ec_lanes) x: Coordinate<V>,
    pub(in crate::ec_lanes) y: Coordinate<V>,
    pub(in crate::ec_lanes) z: Coordinate<V>,
}

impl<V: Lanes> Jacobian<V> {
    /// The sum with the point (x, y), or its negative in the lanes of the mask.
    ///
    /// Of two points with the same x the result has z = 0, and so has every later sum: with a random scalar that has a chance
    /// of 2^-250, and the caller finds that the result is not on the curve.
    #[inline(always)]
    fn plus(&self, x: &Coordinate<V>, y: &Coordinate<V>, negative: V::Mask) -> Self {
        let zz = self.z.square().carry();
        let u = x.multiply(&zz);
        let zzz = self.z.multiply(&zz).carry();
        let h = u.minus(&self.x.columns()).reduced(4);
        let s = y.multiply(&zzz).negated(negative);
        let hh = h.square().carry();
        let z = self.z.multiply(&h).carry();
        let r = s.minus(&self.y.columns()).reduced(4);
        let v = self.x.multiply(&hh);
        let hhh = h.multiply(&hh);
        let x = r.square().minus(&hhh).minus(&v).minus(&v).reduced(8);
        let yhhh = self.y.multiply(&hhh.carry());
        let y = r.multiply(&v.minus(&x.columns()).reduced(4)).minus(&yhhh).reduced(4);
        Self { x, y, z }
    }

    pub(in crate::ec_lanes) fn wipe(&mut self) {
        V::wipe(&mut self.x.0);
        V::wipe(&mut self.y.0);
        V::wipe(&mut self.z.0);
    }
}

impl<V: Kernels> Jacobian<V> {
    /// `y² - x³ + 3xz⁴ - bz⁶` in each lane: zero if the point is on the curve.
    #[inline(always)]
    pub(in crate::ec_lanes) fn equation(&self) -> [Words; LANES] {
        let zz = V::p256_product(&self.z, &self.z);
        let zzzz = V::p256_product(&zz, &zz);
        let zzzzzz = V::p256_product(&zzzz, &zz);
        let linear = zzzz.columns().plus(&zzzz.columns()).plus(&zzzz.columns());
        let bracket = self.x.square().minus(&linear).reduced(8);
        let right = bracket.multiply(&self.x).plus(&zzzzzz.multiply(&Coordinate::of(&B)));
        self.y.square().minus(&right).reduced(8).to_words()
    }
}

/// [`Kernels::p256_multiply_base`]: of scalars in words, the least first.
#[inline(always)]
pub(in crate::ec_lanes) fn multiply_base<V: Lanes>(table: &Table, scalars: &[V; 4]) -> Jacobian<V> {
    let mut sum = Jacobian {
        x: Coordinate::of(&table.start[0]),
        y: Coordinate::of(&table.start[1]),
        z: Coordinate::one(),
    };
    for (index, entries) in table.windows.iter().enumerate() {
        let digit: V = window(scalars, (WINDOW * index) as u32);
        let flipped = digit.xor(V::splat(63));
        let place = V::select(digit.has_bit(5), digit, flipped).and(V::splat(31));
        let (x, y) = (Coordinate(look_up(&entries[0], place)), Coordinate(look_up(&entries[1], place)));
        sum = sum.plus(&x, &y, flipped.has_bit(5));
    }
    sum
}

/// The curve's b, and the base point, FIPS 186-4 section D.1.2.3.
const B: [u64; 5] =
    in_form([0x3bce_3c3e_27d2_604b, 0x651d_06b0_cc53_b0f6, 0xb3eb_bd55_7698_86bc, 0x5ac6_35d8_aa3a_93e7]);
const BASE_X: [u64; 5] =
    in_form([0xf4a1_3945_d898_c296, 0x7703_7d81_2deb_33a0, 0xf8bc_e6e5_63a4_40f2, 0x6b17_d1f2_e12c_4247]);
const BASE_Y: [u64; 5] =
    in_form([0xcbb6_4068_37bf_51f5, 0x2bce_3357_6b31_5ece, 0x8ee7_eb4a_7c0f_9e16, 0x4fe3_42e2_fe1a_7f9b]);

/// A point `(x/z, y/z)`, for the table.
#[derive(Clone, Copy)]
pub(in crate::ec_lanes) struct Projective<V> {
    x: Coordinate<V>,
    y: Coordinate<V>,
    z: Coordinate<V>,
}

/// Arithmetic for the table: in no hurry, each result a factor.
#[inline(always)]
fn times<V: Kernels>(a: &Coordinate<V>, b: &Coordinate<V>) -> Coordinate<V> {
    V::p256_product(a, b)
}

#[inline(always)]
fn plus<V: Lanes>(a: &Coordinate<V>, b: &Coordinate<V>) -> Coordinate<V> {
    a.columns().plus(&b.columns()).reduced(1)
}

#[inline(always)]
fn minus<V: Lanes>(a: &Coordinate<V>, b: &Coordinate<V>) -> Coordinate<V> {
    a.columns().minus(&b.columns()).reduced(4)
}

/// [`Kernels::p256_sum`] (Renes, Costello and Batina, 2016, algorithm 4).
#[inline(always)]
pub(in crate::ec_lanes) fn sum<V: Kernels>(one: &Projective<V>, other: &Projective<V>) -> Projective<V> {
    let b = &Coordinate::of(&B);
    let (xx, yy, zz) = (times(&one.x, &other.x), times(&one.y, &other.y), times(&one.z, &other.z));
    let xy = minus(&times(&plus(&one.x, &one.y), &plus(&other.x, &other.y)), &plus(&xx, &yy));
    let yz = minus(&times(&plus(&one.y, &one.z), &plus(&other.y, &other.z)), &plus(&yy, &zz));
    let xz = minus(&times(&plus(&one.x, &one.z), &plus(&other.x, &other.z)), &plus(&xx, &zz));
    let difference = minus(&xz, &times(b, &zz));
    let triple = plus(&plus(&difference, &difference), &difference);
    let (low, high) = (minus(&yy, &triple), plus(&yy, &triple));
    let zz_triple = plus(&plus(&zz, &zz), &zz);
    let rest = minus(&minus(&times(b, &xz), &zz_triple), &xx);
    let rest = plus(&plus(&rest, &rest), &rest);
    let slope = minus(&plus(&plus(&xx, &xx), &xx), &zz_triple);
    Projective {
        x: minus(&times(&xy, &high), &times(&yz, &rest)),
        y: plus(&times(&high, &low), &times(&slope, &rest)),
        z: plus(&times(&yz, &low), &times(&xy, &slope)),
    }
}

impl<V: Kernels> table::Point for Projective<V> {
    #[inline(always)]
    fn sum(&self, other: &Self) -> Self {
        V::p256_sum(self, other)
    }

    #[inline(always)]
    fn put(&mut self, lane: usize, other: &Self) {
        for limb in 0..5 {
            self.x.0[limb].array_mut()[lane] = other.x.0[limb].array()[lane];
            self.y.0[limb].array_mut()[lane] = other.y.0[limb].array()[lane];
            self.z.0[limb].array_mut()[lane] = other.z.0[limb].array()[lane];
        }
    }
}

impl Table {
    /// Computes the table: about a millisecond of public arithmetic.
    #[inline(always)]
    pub(in crate::ec_lanes) fn compute<V: Kernels>() -> Self {
        let base =
            Projective { x: Coordinate::<V>::of(&BASE_X), y: Coordinate::of(&BASE_Y), z: Coordinate::one() };
        let half = half(&base);
        let (mut points, beyond) = table::multiples(&half, WINDOWS);
        let zero = Coordinate([V::splat(0); 5]);
        let negative = Projective { y: minus(&zero, &half.y), ..half };
        points.push(V::p256_sum(&beyond, &negative));
        make_affine(&mut points);
        let start = points.pop().expect("it was pushed");
        let mut windows = table::empty(WINDOWS);
        for (number, point) in points.iter().enumerate() {
            table::enter(&mut windows, number, &[point.x.0, point.y.0]);
        }
        Self { windows, start: table::first_lanes(&[start.x.0, start.y.0]) }
    }
}

/// Half a point: `(n + 1)/2` times it.
#[inline(always)]
fn half<V: Kernels>(point: &Projective<V>) -> Projective<V> {
    let [a, b, c, d] = N;
    let scalar = [(a + 1) >> 1 | b << 63, b >> 1 | c << 63, c >> 1 | d << 63, d >> 1];
    let mut half = *point;
    for bit in (0..254).rev() {
        half = V::p256_sum(&half, &half);
        if scalar[bit / 64] >> (bit % 64) & 1 == 1 {
            half = V::p256_sum(&half, point);
        }
    }
    half
}

/// Divides by z, with one inversion.
#[inline(always)]
fn make_affine<V: Kernels>(points: &mut [Projective<V>]) {
    let mut products = vec![Coordinate::one()];
    for (number, point) in points.iter().enumerate() {
        products.push(times(&products[number], &point.z));
    }
    let (mut inverse, _) = V::p256_invert(&products[points.len()], &field::Scalar([V::splat(1); 5]));
    for (number, point) in points.iter_mut().enumerate().rev() {
        let own = times(&inverse, &products[number]);
        inverse = times(&inverse, &point.z);
        point.x = times(&point.x, &own);
        point.y = times(&point.y, &own);
    }
}

//! Operations on five limbs that the types of the field share: sums, products and carries.

use super::MASK;
use crate::ec_lanes::lanes::{Lanes, splat};

/// A multiple of the modulus, limb by limb.
#[inline(always)]
pub(super) fn modulus_times<V: Lanes>(times: u64) -> [V; 5] {
    splat(&[times * (MASK - 18), times * MASK, times * MASK, times * MASK, times * MASK])
}

#[inline(always)]
pub(super) fn add<V: Lanes>(a: &[V; 5], b: &[V; 5]) -> [V; 5] {
    let mut sum = *a;
    for limb in 0..5 {
        sum[limb] = sum[limb].add(b[limb]);
    }
    sum
}

#[inline(always)]
pub(super) fn subtract<V: Lanes>(a: &[V; 5], b: &[V; 5]) -> [V; 5] {
    let mut difference = *a;
    for limb in 0..5 {
        difference[limb] = difference[limb].subtract(b[limb]);
    }
    difference
}

/// Hands carries on, all at a time.
#[inline(always)]
pub(super) fn carry<V: Lanes>(wide: &[V; 5]) -> [V; 5] {
    let (mask, [a, b, c, d, e]) = (V::splat(MASK), *wide);
    [
        a.and(mask).multiply_add_low(e.shift_right::<51>(), V::splat(19)),
        b.and(mask).add(a.shift_right::<51>()),
        c.and(mask).add(b.shift_right::<51>()),
        d.and(mask).add(c.shift_right::<51>()),
        e.and(mask).add(d.shift_right::<51>()),
    ]
}

/// Hands carries on one after the other, up to the highest limb.
#[inline(always)]
pub(super) fn ripple<V: Lanes>(limbs: &mut [V; 5]) {
    for limb in 0..4 {
        limbs[limb + 1] = limbs[limb + 1].add(limbs[limb].shift_right::<51>());
        limbs[limb] = limbs[limb].and(V::splat(MASK));
    }
}

/// A product of which `38·more` is added to the limbs.
///
/// Columns 5 to 9 weigh 2^255 times as much as columns 0 to 4, which is 19 times. High halves weigh 2^52, twice as much as the
/// next limb, so they come first in a column and are doubled. Upper and lower columns are sums of their own until the end:
/// one that went on with the other would wait for it.
#[inline(always)]
pub(super) fn product<V: Lanes>(a: &[V; 5], b: &[V; 5], more: &[V; 5]) -> [V; 5] {
    let (mut upper, mut lower) = (*more, [V::splat(0); 5]);
    for j in 0..5 {
        for i in 4 - j..5 {
            upper[i + j - 4] = upper[i + j - 4].multiply_add_high(a[i], b[j]);
        }
    }
    for j in 0..4 {
        for i in 0..4 - j {
            lower[i + j + 1] = lower[i + j + 1].multiply_add_high(a[i], b[j]);
        }
    }
    (upper, lower) = (add(&upper, &upper), add(&lower, &lower));
    for j in 1..5 {
        for i in 5 - j..5 {
            upper[i + j - 5] = upper[i + j - 5].multiply_add_low(a[i], b[j]);
        }
    }
    for j in 0..5 {
        for i in 0..5 - j {
            lower[i + j] = lower[i + j].multiply_add_low(a[i], b[j]);
        }
    }
    plus_nineteen_times(&lower, &upper)
}

/// A square, as [`product`]. Products of different limbs count twice, so their high halves count four times; they are
/// doubled with all else that is.
#[inline(always)]
pub(super) fn square<V: Lanes>(a: &[V; 5], more: &[V; 5]) -> [V; 5] {
    let zero = V::splat(0);
    let [a0, a1, a2, a3, a4] = *a;
    let (mut upper, mut lower) = ([zero; 5], [zero; 5]);
    upper[0] = upper[0].multiply_add_high(a0, a4).multiply_add_high(a1, a3);
    upper[1] = upper[1].multiply_add_high(a1, a4).multiply_add_high(a2, a3);
    upper[2] = upper[2].multiply_add_high(a2, a4);
    upper[3] = upper[3].multiply_add_high(a3, a4);
    lower[2] = lower[2].multiply_add_high(a0, a1);
    lower[3] = lower[3].multiply_add_high(a0, a2);
    lower[4] = lower[4].multiply_add_high(a0, a3).multiply_add_high(a1, a2);
    (upper, lower) = (add(&upper, &add(&upper, more)), add(&lower, &lower));
    upper[0] = upper[0].multiply_add_low(a1, a4).multiply_add_low(a2, a3).multiply_add_high(a2, a2);
    upper[1] = upper[1].multiply_add_low(a2, a4);
    upper[2] = upper[2].multiply_add_low(a3, a4).multiply_add_high(a3, a3);
    upper[4] = upper[4].multiply_add_high(a4, a4);
    lower[1] = lower[1].multiply_add_low(a0, a1).multiply_add_high(a0, a0);
    lower[2] = lower[2].multiply_add_low(a0, a2);
    lower[3] = lower[3].multiply_add_low(a0, a3).multiply_add_low(a1, a2).multiply_add_high(a1, a1);
    lower[4] = lower[4].multiply_add_low(a0, a4).multiply_add_low(a1, a3);
    (upper, lower) = (add(&upper, &upper), add(&lower, &lower));
    upper[1] = upper[1].multiply_add_low(a3, a3);
    upper[3] = upper[3].multiply_add_low(a4, a4);
    lower[0] = lower[0].multiply_add_low(a0, a0);
    lower[2] = lower[2].multiply_add_low(a1, a1);
    lower[4] = lower[4].multiply_add_low(a2, a2);
    plus_nineteen_times(&lower, &upper)
}

#[inline(always)]
fn plus_nineteen_times<V: Lanes>(lower: &[V; 5], upper: &[V; 5]) -> [V; 5] {
    let mut sum = *lower;
    for column in 0..5 {
        let nine_times = upper[column].shift_left::<3>().add(upper[column]).hide();
        sum[column] = sum[column].add(upper[column]).add(nine_times.add(nine_times));
    }
    sum
}

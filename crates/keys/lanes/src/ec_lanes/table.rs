//! Tables of multiples of a base point: their generation and constant-time lookup for both curves.
//!
//! A window of six bits `u` represents the odd digit `2u - 63` of half the base point: 32 points and their negatives,
//! without zero and without recoding. The sum of the offsets over all windows is constant, and a sum starts with it.

use super::lanes::{Entries, LANES, Lanes};

/// Bits of a window.
pub(super) const WINDOW: usize = 6;

/// Points of a window.
const POINTS: usize = 32;

/// A coordinate of the points of one window, limb by limb.
pub(super) type Coordinates = [Entries; 5];

/// Eight points, while a table is made.
pub(super) trait Point: Copy {
    /// The sum with any other.
    fn sum(&self, other: &Self) -> Self;
    /// Takes one lane of another.
    fn put(&mut self, lane: usize, other: &Self);
}

/// A table of zeroes, of `windows` windows and `COORDINATES` coordinates.
pub(super) fn empty<const COORDINATES: usize>(windows: usize) -> Box<[[Coordinates; COORDINATES]]> {
    vec![[[Entries([0; POINTS]); 5]; COORDINATES]; windows].into()
}

/// The points of each window, for eight windows at a time, starting with `first`; and the start of the window after
/// the last.
#[inline(always)]
pub(super) fn multiples<P: Point>(first: &P, windows: usize) -> (Vec<P>, P) {
    let mut points = Vec::new();
    let mut base = *first;
    for group in 0..windows.div_ceil(LANES) {
        let mut bases = base;
        for lane in 0..LANES {
            bases.put(lane, &base);
            if group * LANES + lane < windows {
                for _ in 0..WINDOW {
                    base = base.sum(&base);
                }
            }
        }
        let twice = bases.sum(&bases);
        let mut point = bases;
        for _ in 0..POINTS {
            points.push(point);
            point = point.sum(&twice);
        }
    }
    (points, base)
}

/// Enters number `number` of the points that [`multiples`] gives.
#[inline(always)]
pub(super) fn enter<V: Lanes, const COORDINATES: usize>(
    windows: &mut [[Coordinates; COORDINATES]],
    number: usize,
    point: &[[V; 5]; COORDINATES],
) {
    for lane in 0..LANES {
        let Some(window) = windows.get_mut(number / POINTS * LANES + lane) else { return };
        for coordinate in 0..COORDINATES {
            for limb in 0..5 {
                window[coordinate][limb].0[number % POINTS] = point[coordinate][limb].array()[lane];
            }
        }
    }
}

/// Coordinates of the point with which a sum starts, in the first lane.
#[inline(always)]
pub(super) fn first_lanes<V: Lanes, const COORDINATES: usize>(
    point: &[[V; 5]; COORDINATES],
) -> [[u64; 5]; COORDINATES] {
    let mut first = [[0; 5]; COORDINATES];
    for coordinate in 0..COORDINATES {
        for limb in 0..5 {
            first[coordinate][limb] = point[coordinate][limb].array()[0];
        }
    }
    first
}

/// A coordinate of the points whose numbers are in the lanes.
#[inline(always)]
pub(super) fn look_up<V: Lanes>(coordinates: &Coordinates, place: V) -> [V; 5] {
    let mut limbs = [place; 5];
    for limb in 0..5 {
        limbs[limb] = place.look_up(&coordinates[limb]);
    }
    limbs
}

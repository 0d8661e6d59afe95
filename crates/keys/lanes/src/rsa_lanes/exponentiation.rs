//! Powers with secret exponents, by windows of five bits.

use super::{
    lanes::Lanes,
    montgomery::{self, Arithmetic, Modulus, Scratch},
};

/// Bits of the exponent that one multiplication deals with.
const WINDOW: usize = 5;

/// The powers 0 to 31 of the base; for each digit of them the 32 candidates side by side.
pub(super) struct Table<V>(Vec<[V; 1 << WINDOW]>);

impl<V: Lanes> Table<V> {
    /// A table of zeroes for numbers of `digits` digits.
    pub(super) fn new(digits: usize) -> Self {
        Self(vec![[V::splat(0); 1 << WINDOW]; digits])
    }

    fn put<const B: usize>(&mut self, index: usize, power: &[[V; B]]) {
        for (candidates, digit) in self.0.iter_mut().zip(power.as_flattened()) {
            candidates[index] = *digit;
        }
    }

    pub(super) fn wipe(&mut self) {
        montgomery::wipe(self.0.as_flattened_mut());
    }
}

/// Raises `base` to a power in each lane; base and result are in Montgomery form.
///
/// `one` is 1 in that form, `windows` the exponent from its most significant window. Each window takes five squarings
/// and a multiplication, also where its value is 0, and the multiplier is selected by reading the whole table.
#[inline(always)]
pub(super) fn exponentiate<V: Arithmetic<B>, const B: usize>(
    base: &mut Vec<[V; B]>,
    one: &[[V; B]],
    windows: &[V],
    modulus: &Modulus<V, B>,
    table: &mut Table<V>,
    scratch: &mut Scratch<V, B>,
) {
    let mut power = one.to_vec();
    let mut next = one.to_vec();
    table.put(0, one);
    for index in 1..1 << WINDOW {
        V::multiply(&mut next, &power, base, modulus, scratch);
        table.put(index, &next);
        std::mem::swap(&mut power, &mut next);
    }
    let (result, entry) = (base, &mut next);
    let (greatest, further) = windows.split_first().expect("an exponent has windows");
    V::look_up(result.as_flattened_mut(), &table.0, *greatest);
    let part = table.0.len().div_ceil(WINDOW);
    for window in further {
        // A part of the table at a time: its loads fill the time in which the carries of a square ripple.
        for (entry, table) in entry.as_flattened_mut().chunks_mut(part).zip(table.0.chunks(part)) {
            V::square(result, modulus, scratch);
            V::look_up(entry, table, *window);
        }
        V::multiply(&mut power, result, entry, modulus, scratch);
        std::mem::swap(result, &mut power);
    }
    montgomery::wipe(power.as_flattened_mut());
    montgomery::wipe(next.as_flattened_mut());
}

//! One batch of private operations, from bytes to bytes: blinding, two powers by the Chinese remainder theorem, and
//! verification of the results.
//!
//! Modulo the primes, the lower half of the lanes computes modulo p and the upper half modulo q, each lane for one
//! operation. Modulo n the operations are in the lower half, and the upper lanes square the blinding factors
//! meanwhile, for the next operation.

#[cfg(test)]
use super::faults::{self, Place};
use super::{
    Lane, OPERATIONS, Verdict, digits,
    exponentiation::{Table, exponentiate},
    key::{self, Blinding, PreparedKey},
    lanes::Lanes,
    montgomery::{self, Arithmetic, Modulus, Scratch},
};

type Number<V, const B: usize> = Vec<[V; B]>;

/// The batch in lanes.
struct Batch<'a, V: Lanes, const B: usize> {
    /// The key of each operation; a lane that is not asked for computes something with the first key.
    keys: [&'a PreparedKey; OPERATIONS],
    blindings: [Option<Blinding>; OPERATIONS],
    /// Modulo n.
    input: Number<V, B>,
    modulus: Modulus<V, B>,
    r2: Number<V, B>,
    /// Modulo p and q.
    primes: Modulus<V, B>,
    one: Number<V, B>,
    r3: Number<V, B>,
    q_inverse: Number<V, B>,
    windows: Vec<V>,
    table: Table<V>,
    scratch: Scratch<V, B>,
}

/// Performs as many operations as there are pairs of lanes, or fewer; the keys of all are of the width that `B` belongs to.
#[inline(always)]
pub(super) fn perform<V: Arithmetic<B>, const B: usize>(lanes: &mut [Lane<'_>]) -> [Verdict; OPERATIONS] {
    let first = lanes.first().expect("a batch has operations").key;
    let keys: [&PreparedKey; OPERATIONS] =
        std::array::from_fn(|lane| lanes.get(lane).map_or(first, |lane| lane.key));
    let mut batch = Batch::<V, B>::new(keys);
    let mut verdicts = [Verdict::OutOfRange; OPERATIONS];
    for (index, (lane, verdict)) in lanes.iter().zip(&mut verdicts).enumerate() {
        if lane.key.accepts(lane.input) {
            *verdict = batch.load(index, lane.input);
        }
    }
    let mut result = batch.transform();
    let right = batch.check(&result);
    // A faulty result is zeroed: together with the right one it would reveal a prime (see `check`).
    for (index, (lane, verdict)) in lanes.iter_mut().zip(&mut verdicts).enumerate() {
        if *verdict == Verdict::Done && !right[index] {
            *verdict = Verdict::Fault;
        }
        if *verdict == Verdict::Done {
            digits::to_bytes(&digits_of(&result, index), lane.output, V::RADIX);
        } else {
            lane.output.fill(0);
        }
    }
    montgomery::wipe(result.as_flattened_mut());
    batch.give_blindings(verdicts);
    verdicts
}

impl<'a, V: Arithmetic<B>, const B: usize> Batch<'a, V, B> {
    /// The first lane of the upper half: as many operations as a batch has.
    const UPPER: usize = V::COUNT / 2;

    #[inline(always)]
    fn new(keys: [&'a PreparedKey; OPERATIONS]) -> Self {
        let digits = keys[0].p.modulus.digits.len();
        let mut batch = Self {
            keys,
            blindings: [const { None }; OPERATIONS],
            input: zero(2 * digits),
            modulus: modulus_like(&keys[0].modulus),
            r2: zero(2 * digits),
            primes: modulus_like(&keys[0].p.modulus),
            one: zero(digits),
            r3: zero(digits),
            q_inverse: zero(digits),
            windows: vec![V::splat(0); keys[0].p.exponent.len()],
            table: Table::new(digits),
            scratch: Scratch::new(2 * digits / B),
        };
        for (lane, key) in keys.into_iter().enumerate().take(Self::UPPER) {
            batch.load_key(lane, key);
        }
        batch
    }

    #[inline(always)]
    fn load_key(&mut self, lane: usize, key: &PreparedKey) {
        // The upper lanes have the same modulus, for the blinding factors of the operation in the lower one.
        for lane in [lane, lane + Self::UPPER] {
            load_modulus(&mut self.modulus, lane, &key.modulus);
        }
        put(&mut self.r2, lane, &key.r2);
        put(&mut self.q_inverse, lane, &key.q_inverse);
        for (lane, prime) in [(lane, &key.p), (lane + Self::UPPER, &key.q)] {
            load_modulus(&mut self.primes, lane, &prime.modulus);
            put(&mut self.one, lane, &prime.one);
            put(&mut self.r3, lane, &prime.r3);
            for (windows, window) in self.windows.iter_mut().zip(prime.exponent.iter()) {
                windows.lanes_mut()[lane] = u64::from(*window);
            }
        }
    }

    /// Takes an operation into a lane, and blinding factors for it. Without these it is not performed.
    #[inline(always)]
    fn load(&mut self, lane: usize, input: &[u8]) -> Verdict {
        let Some(blinding) = self.keys[lane].take_blinding() else {
            return Verdict::Fault;
        };
        let digits = digits::from_bytes(input, self.keys[lane].modulus.digits.len(), V::RADIX);
        put(&mut self.input, lane, &digits);
        self.blindings[lane] = Some(blinding);
        Verdict::Done
    }

    /// `input^d mod n` in the lower half of the lanes.
    #[inline(always)]
    fn transform(&mut self) -> Number<V, B> {
        let blocks = self.input.len();
        let mut blinded = self.input.clone();
        self.blind(&mut blinded, |blinding| &mut blinding.factor);
        let mut power = self.reduce_for_primes(&blinded);
        let Self { one, windows, primes, table, scratch, .. } = self;
        exponentiate(&mut power, one, windows, primes, table, scratch);
        // Out of Montgomery form.
        blinded[..blocks / 2].copy_from_slice(&power);
        blinded[blocks / 2..].fill([V::splat(0); B]);
        montgomery::reduce(&mut power, &blinded, primes, scratch);
        montgomery::subtract_once(&mut power, primes);
        #[cfg(test)]
        faults::inject(Place::Power, &mut power.as_flattened_mut()[0]);
        let mut result = blinded;
        self.recombine(&mut result, &mut power);
        montgomery::wipe(power.as_flattened_mut());
        self.blind(&mut result, |blinding| &mut blinding.inverse);
        montgomery::subtract_once(&mut result, &self.modulus);
        result
    }

    /// Multiplies the lower lanes by one of the blinding factors, and squares that factor in the upper ones.
    #[inline(always)]
    fn blind(&mut self, number: &mut Number<V, B>, factor: impl Fn(&mut Blinding) -> &mut digits::Digits) {
        let mut factors = vec![[V::splat(0); B]; number.len()];
        for (lane, blinding) in self.blindings.iter_mut().enumerate() {
            let Some(blinding) = blinding else {
                continue;
            };
            put(&mut factors, lane, factor(blinding));
            put(&mut factors, lane + Self::UPPER, factor(blinding));
            put(number, lane + Self::UPPER, factor(blinding));
        }
        let mut product = factors.clone();
        V::multiply_exactly(&mut product, number, &factors, &self.modulus, &mut self.scratch);
        #[cfg(test)]
        faults::inject(Place::Blinding, &mut product.as_flattened_mut()[0]);
        for (lane, blinding) in self.blindings.iter_mut().enumerate() {
            if let Some(blinding) = blinding {
                factor(blinding).copy_from_slice(&digits_of(&product, lane + Self::UPPER));
            }
        }
        montgomery::wipe(number.as_flattened_mut());
        montgomery::wipe(factors.as_flattened_mut());
        *number = product;
    }

    /// The number of the lower lanes modulo p and, in the upper lanes, modulo q, in Montgomery form.
    #[inline(always)]
    fn reduce_for_primes(&mut self, number: &Number<V, B>) -> Number<V, B> {
        let mut both = number.clone();
        for digit in both.as_flattened_mut() {
            digit.lanes_mut().copy_within(..Self::UPPER, Self::UPPER);
        }
        // Reduction divides by R and the product by R³ multiplies by R².
        let mut reduced = self.r3.clone();
        montgomery::reduce(&mut reduced, &both, &self.primes, &mut self.scratch);
        let mut result = self.r3.clone();
        V::multiply(&mut result, &reduced, &self.r3, &self.primes, &mut self.scratch);
        montgomery::wipe(both.as_flattened_mut());
        montgomery::wipe(reduced.as_flattened_mut());
        result
    }

    /// Garner's formula: from `m_p` and `m_q`, less than p and q, `m_q + q · ((m_p - m_q)/q mod p)`.
    #[inline(always)]
    fn recombine(&mut self, result: &mut Number<V, B>, power: &mut Number<V, B>) {
        let Self { primes, q_inverse, scratch, .. } = self;
        let (mut of_q, mut q) = (power.clone(), primes.digits.clone());
        for digit in of_q.as_flattened_mut().iter_mut().chain(q.as_flattened_mut()) {
            *digit = digit.swap_halves();
        }
        let mut difference = power.clone();
        montgomery::difference(&mut difference, power, &of_q, primes);
        V::multiply_exactly(power, &difference, q_inverse, primes, scratch);
        montgomery::subtract_once(power, primes);
        montgomery::multiply_add(result, power, &q, &of_q, scratch);
        for number in [&mut of_q, &mut q, &mut difference] {
            montgomery::wipe(number.as_flattened_mut());
        }
    }

    /// For each operation whether `result^65537 mod n` is the input.
    ///
    /// A fault in the computation modulo one of the primes makes a result that is right modulo the other, and whose
    /// difference from the right one has that other prime as its greatest common divisor with n: it must not get out.
    #[inline(always)]
    fn check(&mut self, result: &Number<V, B>) -> [bool; OPERATIONS] {
        let Self { modulus, r2, input, scratch, .. } = self;
        let (mut power, mut product) = (result.clone(), result.clone());
        V::multiply(&mut power, result, r2, modulus, scratch);
        for _ in 0..16 {
            V::square(&mut power, modulus, scratch);
        }
        V::multiply_exactly(&mut product, &power, result, modulus, scratch);
        montgomery::subtract_once(&mut product, modulus);
        let mut unequal = V::splat(0);
        for (a, b) in product.as_flattened().iter().zip(input.as_flattened()) {
            unequal = unequal.or(a.xor(*b));
        }
        // Of a decryption the input is known, and the input through this power is the result.
        montgomery::wipe(power.as_flattened_mut());
        montgomery::wipe(product.as_flattened_mut());
        std::array::from_fn(|lane| lane < Self::UPPER && unequal.lanes()[lane] == 0)
    }

    /// Gives the blinding factors back, squared by now; but not those of an operation that failed, since they may be why.
    fn give_blindings(&mut self, verdicts: [Verdict; OPERATIONS]) {
        for ((key, blinding), verdict) in self.keys.into_iter().zip(&mut self.blindings).zip(verdicts) {
            if let Some(blinding) = blinding.take().filter(|_| verdict == Verdict::Done) {
                key.give_blinding(blinding);
            }
        }
    }
}

impl<V: Lanes, const B: usize> Drop for Batch<'_, V, B> {
    fn drop(&mut self) {
        let Modulus { digits, inverse, multiple } = &mut self.primes;
        for number in [&mut self.input, &mut self.one, &mut self.r3, &mut self.q_inverse, digits, multiple] {
            montgomery::wipe(number.as_flattened_mut());
        }
        montgomery::wipe(std::slice::from_mut(inverse));
        montgomery::wipe(&mut self.windows);
        self.table.wipe();
        self.scratch.wipe();
    }
}

/// A number of `digits` digits, all zero.
#[inline(always)]
fn zero<V: Lanes, const B: usize>(digits: usize) -> Number<V, B> {
    vec![[V::splat(0); B]; digits / B]
}

/// A modulus as long as `modulus`, all zero.
#[inline(always)]
fn modulus_like<V: Lanes, const B: usize>(modulus: &key::Modulus) -> Modulus<V, B> {
    Modulus {
        digits: zero(modulus.digits.len()),
        inverse: V::splat(0),
        multiple: zero(modulus.multiple.len()),
    }
}

/// Puts a modulus into one lane.
#[inline(always)]
fn load_modulus<V: Lanes, const B: usize>(modulus: &mut Modulus<V, B>, lane: usize, of_key: &key::Modulus) {
    put(&mut modulus.digits, lane, &of_key.digits);
    put(&mut modulus.multiple, lane, &of_key.multiple);
    modulus.inverse.lanes_mut()[lane] = V::encode(*of_key.inverse);
}

/// Puts a number into one lane.
#[inline(always)]
fn put<V: Lanes, const B: usize>(number: &mut [[V; B]], lane: usize, digits: &[u64]) {
    for (lanes, digit) in number.as_flattened_mut().iter_mut().zip(digits) {
        lanes.lanes_mut()[lane] = V::encode(*digit);
    }
}

/// The number in one lane.
fn digits_of<V: Lanes, const B: usize>(number: &[[V; B]], lane: usize) -> digits::Digits {
    let mut digits = digits::Digits::default();
    digits.reserve_exact(number.as_flattened().len());
    for lanes in number.as_flattened() {
        digits.push(V::decode(lanes.lanes()[lane]));
    }
    digits
}

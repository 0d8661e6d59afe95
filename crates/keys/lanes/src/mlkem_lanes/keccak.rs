//! Eight sponges of FIPS 202 side by side, each in its own 64-bit lane.

use zeroize::Zeroizing;

use super::{LANES, register::Register};

/// Words of a state.
const WORDS: usize = 25;

/// Bytes of a block of SHA3-256 and SHAKE256.
pub(super) const RATE_256: usize = 136;
/// Bytes of a block of SHAKE128.
pub(super) const RATE_128: usize = 168;
/// Bytes of a block of SHA3-512.
const RATE_512: usize = 72;

/// Suffix of the input: the bits that distinguish functions, and the first bit of the padding. FIPS 202 section B.2.
pub(super) const SHA3: u64 = 0x06;
pub(super) const SHAKE: u64 = 0x1f;
/// The last bit of the padding, in the last word of a block.
pub(super) const LAST: u64 = 1 << 63;

/// FIPS 202 section 3.2.5: constants added to the first word, by round.
const ROUND_CONSTANTS: [u64; 24] = {
    let mut constants = [0; 24];
    let (mut round, mut register) = (0, 1u8);
    while round < 24 {
        let mut bit = 0;
        while bit < 7 {
            if register & 1 == 1 {
                constants[round] |= 1 << ((1 << bit) - 1);
            }
            let carry = register >> 7;
            register = (register << 1) ^ (0x71 * carry);
            bit += 1;
        }
        round += 1;
    }
    constants
};

/// A block of SHA3-256, and zeroes up to a whole register.
#[derive(Clone, Copy)]
pub(super) struct Block(pub(super) [u8; 192]);

impl Block {
    pub(super) const ZERO: Self = Self([0; 192]);
}

/// Eight states.
#[derive(Clone, Copy)]
pub(super) struct Sponges<V>([V; WORDS]);

impl<V: Register> Sponges<V> {
    /// Absorbs inputs that are shorter than a block, with their suffix.
    #[inline(always)]
    pub(super) fn of_words<const N: usize>(inputs: &[[u64; LANES]; N], rate: usize) -> Self {
        let mut sponges = Self([V::zero(); WORDS]);
        for word in 0..N {
            sponges.0[word] = V::load_words(&inputs[word]);
        }
        sponges.pad(rate);
        sponges
    }

    /// SHA3-512 of 64 bytes each.
    #[inline(always)]
    pub(super) fn sha3_512(inputs: &[[u64; LANES]; 8]) -> Self {
        let mut padded = Zeroizing::new([[SHA3; LANES]; 9]);
        padded[..8].copy_from_slice(inputs);
        let mut sponges = Self::of_words(&padded, RATE_512);
        sponges.permute();
        sponges
    }

    #[inline(always)]
    pub(super) fn empty() -> Self {
        Self([V::zero(); WORDS])
    }

    /// Begins anew in the lanes from `lane` on, with inputs that are shorter than a block.
    #[inline(always)]
    pub(super) fn restart<const N: usize>(&mut self, lane: usize, inputs: &[[u64; LANES]; N], rate: usize) {
        let (mut keep, mut last) = ([u64::MAX; LANES], [0; LANES]);
        keep[lane..].fill(0);
        last[lane..].fill(LAST);
        for word in 0..WORDS {
            self.0[word] = self.0[word].and(V::load_words(&keep));
        }
        for word in 0..N {
            self.0[word] = self.0[word].xor(V::load_words(&inputs[word]));
        }
        self.0[rate / 8 - 1] = self.0[rate / 8 - 1].xor(V::load_words(&last));
    }

    #[inline(always)]
    pub(super) fn absorb(&mut self, blocks: &[Block; LANES]) {
        for part in 0..WORDS.div_ceil(LANES) - 1 {
            let mut rows = [V::zero(); LANES];
            for lane in 0..LANES {
                rows[lane] = V::load(&blocks[lane].0.as_chunks().0[part]);
            }
            let words = V::transpose(&rows);
            for word in 0..LANES {
                self.0[LANES * part + word] = self.0[LANES * part + word].xor(words[word]);
            }
        }
    }

    #[inline(always)]
    fn pad(&mut self, rate: usize) {
        let last = rate / 8 - 1;
        self.0[last] = self.0[last].xor(V::load_words(&[LAST; LANES]));
    }

    /// Words `8·PART` and on of each lane; zeroes beyond the state.
    #[inline(always)]
    pub(super) fn squeeze<const PART: usize>(&self) -> [V; LANES] {
        let mut words = [V::zero(); LANES];
        for word in 0..LANES {
            if LANES * PART + word < WORDS {
                words[word] = self.0[LANES * PART + word];
            }
        }
        V::transpose(&words)
    }

    /// Keccak-f\[1600\], FIPS 202 section 3.3.
    #[inline(always)]
    pub(super) fn permute(&mut self) {
        for constant in &ROUND_CONSTANTS {
            self.0 = round(&self.0, *constant);
        }
    }
}

/// Step mappings: theta mixes columns, rho rotates, pi moves, chi combines rows, iota adds the constant.
#[inline(always)]
fn round<V: Register>(state: &[V; WORDS], constant: u64) -> [V; WORDS] {
    let mut parity = [V::zero(); 5];
    for x in 0..5 {
        parity[x] = state[x].xor_both(state[x + 5], state[x + 10]).xor_both(state[x + 15], state[x + 20]);
    }
    let mut rotated = parity;
    for x in 0..5 {
        rotated[x] = parity[(x + 1) % 5].rotate_left::<1>();
    }
    let mut moved = [V::zero(); WORDS];
    macro_rules! theta_rho_pi {
        ($($x:literal $y:literal $bits:literal),*) => {$(
            moved[$y + 5 * ((2 * $x + 3 * $y) % 5)] =
                state[$x + 5 * $y].xor_both(parity[($x + 4) % 5], rotated[$x]).rotate_left::<$bits>();
        )*};
    }
    theta_rho_pi!(
        0 0 0, 1 0 1, 2 0 62, 3 0 28, 4 0 27,
        0 1 36, 1 1 44, 2 1 6, 3 1 55, 4 1 20,
        0 2 3, 1 2 10, 2 2 43, 3 2 25, 4 2 39,
        0 3 41, 1 3 45, 2 3 15, 3 3 21, 4 3 8,
        0 4 18, 1 4 2, 2 4 61, 3 4 56, 4 4 14
    );
    let mut next = [V::zero(); WORDS];
    for y in 0..5 {
        for x in 0..5 {
            next[x + 5 * y] =
                moved[x + 5 * y].xor_unless(moved[(x + 1) % 5 + 5 * y], moved[(x + 2) % 5 + 5 * y]);
        }
    }
    next[0] = next[0].xor(V::load_words(&[constant; LANES]));
    next
}

//! Polynomials from random bytes. FIPS 203 section 4.2.2.

use super::{
    encoding,
    keccak::RATE_128,
    polynomial::{Polynomial, Q, REGISTERS},
    register::{Aligned, BytePlaces, Coefficients, Register},
};

/// Blocks of SHAKE128 that are nearly always enough for a polynomial: in one case of 130 they are not.
pub(super) const FIRST_BLOCKS: usize = 3;

/// Room for these blocks, and for registers that are stored whole at their ends.
pub(super) type Blocks = [u8; FIRST_BLOCKS * RATE_128 + 72];

/// A polynomial while it is sampled. It has room for a register behind its end.
#[derive(Clone, Copy)]
pub(super) struct Sampled {
    coefficients: [i16; 32 * (REGISTERS + 1)],
    length: usize,
}

impl Sampled {
    pub(super) const EMPTY: Self = Self { coefficients: [0; 32 * (REGISTERS + 1)], length: 0 };

    pub(super) const fn clear(&mut self) {
        self.length = 0;
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.length >= 32 * REGISTERS
    }

    #[inline(always)]
    pub(super) fn polynomial<V: Register>(&self) -> Polynomial<V> {
        let mut polynomial = Polynomial::zero();
        for register in 0..REGISTERS {
            polynomial.0[register] = V::load_coefficients(&self.coefficients.as_chunks().0[register]);
        }
        polynomial
    }
}

/// FIPS 203 algorithm 7: keeps the 12-bit numbers below q. Its branches depend on public data only, as the
/// polynomials are public.
#[inline(always)]
pub(super) fn sample<V: Register>(sampled: &mut Sampled, blocks: &Blocks, bytes: usize) {
    let mut from = 0;
    while from < bytes && !sampled.is_complete() {
        let numbers: V =
            encoding::numbers_of_12_bits(blocks[from..].first_chunk().expect("a whole register"));
        // The last ones of a block may be half a register.
        let present = if bytes - from < 48 { 0xffff } else { u32::MAX };
        let fit = numbers.less_than(V::splat(Q)) & present;
        let place = sampled.coefficients[sampled.length..].first_chunk_mut().expect("a whole register");
        numbers.compress(fit).store_coefficients(place);
        sampled.length += fit.count_ones() as usize;
        from += 48;
    }
}

/// Both numbers of each of 16 bytes of a register, by quarters of it.
static QUARTERS: [BytePlaces; 4] = {
    let mut all = [Aligned([0; 64]); 4];
    let mut place = 0;
    while place < 256 {
        all[place / 64].0[place % 64] = (place / 64 * 16 + place % 64 / 4) as u8;
        place += 1;
    }
    all
};

/// Of the four lowest bits the first two minus the other two.
static BINOMIAL: Coefficients = {
    let mut all = Aligned([0; 32]);
    let mut bits = 0i16;
    while bits < 32 {
        all.0[bits as usize] = (bits & 1) + (bits >> 1 & 1) - (bits >> 2 & 1) - (bits >> 3 & 1);
        bits += 1;
    }
    all
};

/// FIPS 203 algorithm 8 with η = 2: coefficients from -2 to 2.
#[inline(always)]
pub(super) fn binomial<V: Register>(bytes: &[V; 2]) -> Polynomial<V> {
    let mut polynomial = Polynomial::zero();
    for register in 0..REGISTERS {
        let bytes = bytes[register / 4].pick_bytes(&QUARTERS[register % 4]);
        polynomial.0[register] = bytes.shift_second_right_by_4().look_up(&BINOMIAL);
    }
    polynomial
}

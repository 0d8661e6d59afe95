//! Numbers of 256 bits in words of 64 bits, the least first, and in limbs of 52 bits. No branch depends on a number.

/// A number below 2^256.
pub(in crate::ec_lanes) type Words = [u64; 4];

pub(in crate::ec_lanes) const MASK: u64 = (1 << 52) - 1;

/// The prime of the field.
pub(in crate::ec_lanes) const P: Words =
    [0xffff_ffff_ffff_ffff, 0x0000_0000_ffff_ffff, 0, 0xffff_ffff_0000_0001];

/// The order of the base point.
pub(in crate::ec_lanes) const N: Words =
    [0xf3b9_cac2_fc63_2551, 0xbce6_faad_a717_9e84, 0xffff_ffff_ffff_ffff, 0xffff_ffff_0000_0000];

pub(in crate::ec_lanes) const fn limbs([a, b, c, d]: Words) -> [u64; 5] {
    [a & MASK, (a >> 52 | b << 12) & MASK, (b >> 40 | c << 24) & MASK, (c >> 28 | d << 36) & MASK, d >> 16]
}

/// The number below `modulus` of limbs that make one below twice the modulus.
pub(in crate::ec_lanes) const fn reduced([a, b, c, d, e]: [u64; 5], modulus: Words) -> Words {
    let words = [a | b << 52, b >> 12 | c << 40, c >> 24 | d << 28, d >> 36 | e << 16];
    subtract_once(words, e >> 48, modulus)
}

/// `number - modulus`, or `number` if it is below the modulus; `above` are its bits above 256.
pub(in crate::ec_lanes) const fn subtract_once(number: Words, above: u64, modulus: Words) -> Words {
    let (difference, borrow) = subtract(number, modulus);
    select(borrow & (above ^ 1), number, difference)
}

/// The difference modulo 2^256, and 1 if it is negative.
pub(in crate::ec_lanes) const fn subtract(a: Words, b: Words) -> (Words, u64) {
    let (mut difference, mut borrow, mut word) = ([0; 4], 0, 0);
    while word < 4 {
        let (partial, first) = a[word].overflowing_sub(b[word]);
        let (rest, second) = partial.overflowing_sub(borrow);
        difference[word] = rest;
        borrow = (first | second) as u64;
        word += 1;
    }
    (difference, borrow)
}

/// `set` if the choice is 1, `clear` if it is 0.
const fn select(choice: u64, set: Words, clear: Words) -> Words {
    let (mask, mut chosen, mut word) = (0u64.wrapping_sub(choice), clear, 0);
    while word < 4 {
        chosen[word] = set[word] & mask | clear[word] & !mask;
        word += 1;
    }
    chosen
}

/// Whether a number is zero.
pub(in crate::ec_lanes) const fn is_zero([a, b, c, d]: Words) -> bool {
    a | b | c | d == 0
}

/// The limbs of `number·2^times` modulo a modulus above 2^255.
pub(in crate::ec_lanes) const fn doubled(mut number: Words, times: u32, modulus: Words) -> [u64; 5] {
    let mut count = 0;
    while count < times {
        let [a, b, c, d] = number;
        number =
            subtract_once([a << 1, b << 1 | a >> 63, c << 1 | b >> 63, d << 1 | c >> 63], d >> 63, modulus);
        count += 1;
    }
    limbs(number)
}

pub(in crate::ec_lanes) fn from_big_endian(bytes: &[u8; 32]) -> Words {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().rev().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_be_bytes(*bytes);
    }
    words
}

pub(in crate::ec_lanes) fn to_big_endian(words: Words) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words.iter().rev()) {
        *bytes = word.to_be_bytes();
    }
    bytes
}

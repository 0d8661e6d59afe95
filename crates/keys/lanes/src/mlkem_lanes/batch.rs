//! Encapsulations of one batch, from keys to ciphertexts. FIPS 203 algorithms 17 and 14.
//!
//! Hashes take eight inputs at a time, from any encapsulations. All other steps process one encapsulation after
//! another, in registers with 32 coefficients.

use zeroize::{Zeroize, Zeroizing};

use super::{
    Encapsulation, LANES, encoding,
    keccak::{RATE_256, SHAKE, Sponges},
    matrices::{self, Matrices},
    polynomial::{Polynomial, Prepared, Sum},
    sampling,
};

/// The rank k of ML-KEM-768: the polynomials of a vector.
pub(super) const RANK: usize = 3;

/// Bytes of a polynomial of the ciphertext's vector.
const COMPRESSED: usize = 320;

/// Polynomials of random noise of an encapsulation: y and e1, vectors, and e2.
pub(super) const NOISES: usize = 2 * RANK + 1;

/// The heavy parts as functions of their own.
pub(super) trait Kernels: matrices::Kernels {
    fn secrets(hashes: &[[u8; 64]], messages: &[[u8; 32]], secrets: &mut [Secrets]);
    fn make_noises(secrets: &[Secrets], noises: &mut [[Noise<Self>; NOISES]]);
    fn encrypt(
        encapsulation: &mut Encapsulation,
        message: &[u8; 32],
        noises: &[Noise<Self>; NOISES],
        matrices: &mut Matrices,
    );
}

/// Inputs from which an encapsulation is derived.
#[derive(Clone, Copy)]
pub(super) struct Secrets {
    /// The shared secret, then the randomness of the encryption.
    words: [u64; 8],
}

/// Random bytes of a noise polynomial.
pub(super) type Noise<V> = [V; 2];

/// Performs up to eight encapsulations, each with its random message.
#[inline(always)]
pub(super) fn encapsulate<V: Kernels>(encapsulations: &mut [Encapsulation], messages: &[[u8; 32]]) {
    let count = encapsulations.len();
    let mut matrices = Matrices::of(encapsulations);
    let mut hashes = [[0; 64]; LANES];
    V::hash_keys(encapsulations, &mut matrices, &mut hashes);
    let mut secrets = [Secrets { words: [0; 8] }; LANES];
    V::secrets(&hashes[..count], messages, &mut secrets[..count]);
    let mut noises = [[[V::zero(); 2]; NOISES]; LANES];
    V::make_noises(&secrets[..count], &mut noises[..count]);
    for (number, encapsulation) in encapsulations.iter_mut().enumerate() {
        V::encrypt(encapsulation, &messages[number], &noises[number], &mut matrices);
        V::wipe(noises[number].as_flattened_mut());
        let shared = encapsulation.0.shared.as_chunks_mut().0;
        for (bytes, word) in shared.iter_mut().zip(&mut secrets[number].words) {
            *bytes = word.to_le_bytes();
        }
        secrets[number].words.zeroize();
        encapsulation.0.is_done = true;
    }
}

/// [`Kernels::secrets`]: hashes of the messages and of the hashes of the keys.
#[inline(always)]
pub(super) fn secrets<V: Kernels>(hashes: &[[u8; 64]], messages: &[[u8; 32]], secrets: &mut [Secrets]) {
    let mut inputs = Zeroizing::new([[0; LANES]; 8]);
    for lane in 0..messages.len() {
        for word in 0..4 {
            inputs[word][lane] = word_of(&messages[lane], word);
            inputs[4 + word][lane] = word_of(&hashes[lane], word);
        }
    }
    let lanes = Sponges::<V>::sha3_512(&inputs).squeeze::<0>();
    for lane in 0..secrets.len() {
        lanes[lane].store_words(&mut secrets[lane].words);
    }
}

#[inline(always)]
pub(super) fn word_of(bytes: &[u8], word: usize) -> u64 {
    u64::from_le_bytes(bytes.as_chunks().0[word])
}

/// [`Kernels::make_noises`]: SHAKE256 of the randomness and a number for each polynomial.
#[inline(always)]
pub(super) fn make_noises<V: Kernels>(secrets: &[Secrets], noises: &mut [[Noise<V>; NOISES]]) {
    let noises = noises.as_flattened_mut();
    let mut inputs = Zeroizing::new([[0; LANES]; 5]);
    let mut first = 0;
    while first < noises.len() {
        let wanted = LANES.min(noises.len() - first);
        for lane in 0..wanted {
            let number = first + lane;
            for word in 0..4 {
                inputs[word][lane] = secrets[number / NOISES].words[4 + word];
            }
            inputs[4][lane] = (number % NOISES) as u64 | SHAKE << 8;
        }
        let mut sponges = Sponges::<V>::of_words(&inputs, RATE_256);
        sponges.permute();
        let (low, high) = (sponges.squeeze::<0>(), sponges.squeeze::<1>());
        for lane in 0..wanted {
            noises[first + lane] = [low[lane], high[lane]];
        }
        first += LANES;
    }
}

/// [`Kernels::encrypt`], FIPS 203 algorithm 14.
#[inline(always)]
pub(super) fn encrypt<V: Kernels>(
    encapsulation: &mut Encapsulation,
    message: &[u8; 32],
    noises: &[Noise<V>; NOISES],
    matrices: &mut Matrices,
) {
    let mut y = [Prepared::<V>::zero(), Prepared::zero(), Prepared::zero()];
    for row in 0..RANK {
        let mut polynomial = sampling::binomial(&noises[row]);
        V::transform(&mut polynomial);
        y[row] = Prepared::of(&polynomial);
    }
    let (vector, last) = encapsulation.0.ciphertext.split_at_mut(RANK * COMPRESSED);
    for row in 0..RANK {
        let mut sum = Sum::zero();
        for column in 0..RANK {
            let entry = matrices.next::<V>().polynomial();
            V::add_product(&mut sum, &entry, &y[column]);
        }
        let u = finish(&sum, &noises[RANK + row]);
        encoding::compress_to_10_bits(&u, &mut vector[COMPRESSED * row..COMPRESSED * (row + 1)]);
    }
    let mut sum = Sum::zero();
    for row in 0..RANK {
        let entry = encoding::polynomial_of_12_bits(&encapsulation.0.key[encoding::BYTES_OF_12_BITS * row..]);
        V::add_product(&mut sum, &entry, &y[row]);
    }
    let mut v = finish(&sum, &noises[2 * RANK]);
    v.add(&encoding::of_message(message));
    encoding::compress_to_4_bits(&v, last);
}

/// A sum of products, no longer transformed, with noise.
#[inline(always)]
fn finish<V: Kernels>(sum: &Sum<V>, noise: &Noise<V>) -> Polynomial<V> {
    let mut polynomial = sum.reduced();
    V::transform_back(&mut polynomial);
    polynomial.add(&sampling::binomial(noise));
    polynomial
}

//! ECDSA signatures on P-256, FIPS 186-5 section 6.4.1, in eight lanes.
//!
//! A signature is `r`, the x-coordinate of `kG`, and `s = (z + r·d)/k` modulo n, of a digest `z`, a private key `d` and a
//! nonce `k` that must be unpredictable and never used for two digests: else the private key can be computed from the
//! signatures.
//!
//! **Nonces** are 512 bits of HMAC-SHA-512 modulo n, keyed with the private key, over 256 random bits and the digest. As long as
//! the randomness is good that is as good as random; should it ever fail, the nonces are those of a deterministic scheme in
//! the manner of RFC 6979 and still differ from digest to digest. The 256 bits above the order of the group leave no bias
//! that could be measured.
//!
//! **Checks.** `kG` must be on the curve, and `s·k` must be `z + r·d`, where `r·d` is computed anew from a second copy of the
//! private key. A wrong bit in the private key or in the field's arithmetic, of which attacks are known, is found. A wrong
//! nonce in the multiplication alone makes a signature that is not valid, and that is all it makes.

mod curve;
mod field;
mod signature;
mod words;

use aws_lc_rs::{
    encoding::{AsBigEndian, EcPrivateKeyBin},
    hmac, rand,
    signature::EcdsaKeyPair,
};
use zeroize::Zeroizing;

pub use signature::Signature;

pub(super) use curve::{Jacobian, Kernels as CurveKernels, Projective, Table, multiply_base, sum};
pub(super) use field::{Coordinate, Kernels as FieldKernels, Scalar, invert};

use super::{
    BATCHES,
    lanes::{LANES, Lanes, transpose},
};
use words::{N, Words, from_big_endian, is_zero, subtract, subtract_once, to_big_endian};

/// A private key as signatures in lanes use it. Wiped when dropped.
pub struct PreparedKey {
    secret: Zeroizing<Words>,
    /// `n - secret`: the second copy, for the check.
    complement: Zeroizing<Words>,
    nonces: hmac::Key,
}

/// One signature to be made.
#[derive(Clone, Copy)]
pub struct Signing<'a> {
    /// The key.
    pub key: &'a PreparedKey,
    /// SHA-256 of the message.
    pub digest: [u8; 32],
}

/// 512 bits that are reduced modulo n to the nonce: the lower half, then the upper.
pub(super) type WideNonce = Zeroizing<[Words; 2]>;

impl PreparedKey {
    /// The key of this number, which is above zero and below n.
    pub fn new(secret: &[u8; 32]) -> Self {
        let nonces = hmac::Key::new(hmac::HMAC_SHA512, secret);
        let secret = Zeroizing::new(from_big_endian(secret));
        let complement = Zeroizing::new(subtract(N, *secret).0);
        Self { secret, complement, nonces }
    }

    /// The same of a pair of aws-lc. `None`: it is not one of P-256.
    pub fn of_pair(pair: &EcdsaKeyPair) -> Option<Self> {
        let secret: EcPrivateKeyBin<'_> = pair.private_key().as_be_bytes().ok()?;
        secret.as_ref().try_into().ok().map(Self::new)
    }

    /// Makes the key wrong, to see that signatures are checked.
    #[cfg(any(test, feature = "testing"))]
    pub fn flip_a_bit(&mut self) {
        self.secret[1] ^= 1 << 20;
    }

    pub(super) fn nonce(&self, random: &[u8; 32], digest: &[u8; 32]) -> WideNonce {
        let mut input = Zeroizing::new([0; 64]);
        input[..32].copy_from_slice(random);
        input[32..].copy_from_slice(digest);
        let tag = hmac::sign(&self.nonces, &*input);
        let mut wide = Zeroizing::new([[0; 4]; 2]);
        for (half, bytes) in wide.iter_mut().zip(tag.as_ref().as_chunks::<32>().0) {
            *half = from_big_endian(bytes);
        }
        wide
    }
}

/// Nonces for up to [`BATCHES`] times eight signatures. A separate function, so that its remains on the stack are
/// wiped too.
#[inline(never)]
pub(super) fn nonces(operations: &[Signing<'_>]) -> Option<Vec<WideNonce>> {
    let mut random = Zeroizing::new([[0; 32]; LANES * BATCHES]);
    rand::fill(random[..operations.len()].as_flattened_mut()).ok()?;
    let of_each = operations.iter().zip(random.iter());
    Some(of_each.map(|(operation, random)| operation.key.nonce(random, &operation.digest)).collect())
}

/// State of a batch until the inversion.
#[derive(Clone, Copy)]
struct Begun<V> {
    point: Jacobian<V>,
    /// In Montgomery form.
    nonce: Scalar<V>,
}

/// Makes the signatures of up to [`BATCHES`] times eight operations with their nonces, in the order of the operations. `None`:
/// the result did not stand its check, and the signature is to be made by other means.
#[inline(always)]
pub(super) fn sign<V: CurveKernels>(
    table: &Table,
    operations: &[Signing<'_>],
    nonces: &[WideNonce],
    signatures: &mut [Option<Signature>],
) {
    let batches = operations.len().div_ceil(LANES);
    let mut begun = [Begun::<V>::empty(); BATCHES];
    for batch in 0..batches {
        begun[batch] = begin(table, &nonces[batch * LANES..]);
    }
    let mut z_before = [Coordinate::one(); BATCHES];
    let mut k_before = [begun[0].nonce; BATCHES];
    // `k_before[1]` is the first nonce itself, which spares a product.
    for batch in 1..batches {
        let previous = &begun[batch - 1];
        z_before[batch] = V::p256_product(&z_before[batch - 1], &previous.point.z);
        if batch > 1 {
            k_before[batch] = V::p256_scalar_product(&k_before[batch - 1], &previous.nonce);
        }
    }
    let last = &begun[batches - 1];
    let z_all = V::p256_product(&z_before[batches - 1], &last.point.z);
    let k_all = match batches {
        1 => last.nonce,
        _ => V::p256_scalar_product(&k_before[batches - 1], &last.nonce),
    };
    let (mut z_inverse, mut k_inverse) = V::p256_invert(&z_all, &k_all);
    for batch in (0..batches).rev() {
        let own = &begun[batch];
        let z = V::p256_product(&z_inverse, &z_before[batch]);
        let k = match batch {
            0 => k_inverse,
            _ => V::p256_scalar_product(&k_inverse, &k_before[batch]),
        };
        z_inverse = V::p256_product(&z_inverse, &own.point.z);
        k_inverse = V::p256_scalar_product(&k_inverse, &own.nonce);
        let from = batch * LANES;
        let to = operations.len().min(from + LANES);
        finish(own, &z, &k, &operations[from..to], &mut signatures[from..to]);
    }
    for batch in 0..batches {
        begun[batch].point.wipe();
        V::wipe(&mut begun[batch].nonce.0);
        V::wipe(&mut z_before[batch].0);
        V::wipe(&mut k_before[batch].0);
    }
    V::wipe(&mut z_inverse.0);
    V::wipe(&mut k_inverse.0);
}

impl<V: Lanes> Begun<V> {
    #[inline(always)]
    fn empty() -> Self {
        let one = Coordinate::one();
        Self { point: Jacobian { x: one, y: one, z: one }, nonce: Scalar(one.0) }
    }
}

/// The operation of each lane: the one with its number, or the first one again.
#[inline(always)]
const fn operation_of(lane: usize, operations: usize) -> usize {
    if lane < operations { lane } else { 0 }
}

/// Computes `kG`. `nonces` contains the nonces of this batch and later ones.
#[inline(always)]
fn begin<V: CurveKernels>(table: &Table, nonces: &[WideNonce]) -> Begun<V> {
    let (mut low, mut high) = (Zeroizing::new([[0; 4]; LANES]), Zeroizing::new([[0; 4]; LANES]));
    // Unused lanes repeat a nonce: a zero has no inverse, and would spoil the lane in all batches that
    // share the inversion.
    for lane in 0..LANES {
        let wide = &nonces[operation_of(lane, nonces.len())];
        (low[lane], high[lane]) = (wide[0], wide[1]);
    }
    let low = Scalar::<V>::from_words(&low).montgomery();
    let nonce = Scalar::from_words(&high).montgomery_above().plus(&low);
    let scalars = Zeroizing::new(nonce.plain().to_words());
    let mut words = transpose(&scalars);
    let point = V::p256_multiply_base(table, &words);
    V::wipe(&mut words);
    Begun { point, nonce }
}

/// The signatures of a batch, of the inverses of z and of the nonce.
#[inline(always)]
fn finish<V: CurveKernels>(
    begun: &Begun<V>,
    z_inverse: &Coordinate<V>,
    nonce_inverse: &Scalar<V>,
    operations: &[Signing<'_>],
    signatures: &mut [Option<Signature>],
) {
    let (mut secrets, mut complements) = (Zeroizing::new([[0; 4]; LANES]), Zeroizing::new([[0; 4]; LANES]));
    let mut digests = [[0; 4]; LANES];
    for lane in 0..LANES {
        let operation = &operations[operation_of(lane, operations.len())];
        secrets[lane] = *operation.key.secret;
        complements[lane] = *operation.key.complement;
        digests[lane] = from_big_endian(&operation.digest);
    }
    let zz = V::p256_product(z_inverse, z_inverse);
    let mut r = V::p256_product(&begun.point.x, &zz).to_words();
    for lane in 0..LANES {
        r[lane] = subtract_once(r[lane], 0, N);
    }
    let digest = Scalar::from_words(&digests);
    let r_factor = Scalar::from_words(&r).montgomery();
    let product = V::p256_scalar_product(&r_factor, &Scalar::from_words(&secrets));
    let s = V::p256_scalar_product(&product.plus(&digest), nonce_inverse).to_words();

    let complement = V::p256_scalar_product(&r_factor, &Scalar::from_words(&complements));
    let again = V::p256_scalar_product(&Scalar::from_words(&s), &begun.nonce).plus(&complement);
    let difference = again.minus(&digest).plain().to_words();
    let equation = begun.point.equation();
    // The equation was computed with the second copy of the private key, so a flipped bit in either copy is
    // found. `&` instead of `&&`: no branch depends on a single result.
    for (lane, signature) in signatures.iter_mut().enumerate() {
        let holds = is_zero(difference[lane]) & is_zero(equation[lane]);
        let usable = !is_zero(r[lane]) & !is_zero(s[lane]);
        *signature =
            (holds & usable).then(|| Signature { r: to_big_endian(r[lane]), s: to_big_endian(s[lane]) });
    }
}

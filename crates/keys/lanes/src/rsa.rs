//! RSA below the signing interface of AWS-LC: the private operation without padding, a key's numbers, and blinding.
//!
//! `aws-lc-rs` offers none of these, so this file calls the C library itself, at the version that `aws-lc-rs` links:
//! the process contains one library. AWS-LC wipes memory that it frees; secrets that leave it are `Zeroizing`.
#![expect(unsafe_code, reason = "aws-lc-rs has no safe binding for RSA without padding")]

use std::{
    ffi::{c_int, c_uint},
    ptr::NonNull,
};

use aws_lc_sys as ffi;
use rustls_pki_types::PrivateKeyDer;
use zeroize::Zeroizing;

/// The reason why an RSA key was not read or an operation not performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RsaError {
    /// The DER is not that of an RSA private key with all its numbers.
    #[error("not an RSA private key with its prime factors, in PKCS#1 or PKCS#8")]
    Malformed,
    /// The input is not a number below the modulus, of its length.
    #[error("not a number below the modulus")]
    OutOfRange,
    /// AWS-LC failed: no memory or no randomness.
    #[error("the cryptographic library refused an RSA operation")]
    Refused,
}

/// An RSA private key for the bare operation. aws-lc blinds it, computes by the prime factors in constant time, and
/// checks every result with the public exponent before it lets it out.
pub struct RawRsa {
    rsa: Owned<ffi::RSA>,
    modulus: Vec<u8>,
}

/// The numbers of a private key by which it is used with its prime factors, big-endian without leading zeroes; wiped when
/// dropped.
pub struct RsaNumbers {
    /// The modulus, `p * q`.
    pub n: Zeroizing<Vec<u8>>,
    /// The public exponent, usually 65,537.
    pub e: Zeroizing<Vec<u8>>,
    /// A prime factor of `n`.
    pub p: Zeroizing<Vec<u8>>,
    /// The other prime factor of `n`.
    pub q: Zeroizing<Vec<u8>>,
    /// `d mod (p - 1)`.
    pub dp: Zeroizing<Vec<u8>>,
    /// `d mod (q - 1)`.
    pub dq: Zeroizing<Vec<u8>>,
    /// `q^-1 mod p`.
    pub qinv: Zeroizing<Vec<u8>>,
}

/// Pair of factors that blinds an operation with a random `r`: the input is multiplied by `factor`, the result by
/// `inverse`. Both are big-endian and as long as the modulus.
pub struct BlindingPair {
    /// `r^e mod n`.
    pub factor: Zeroizing<Vec<u8>>,
    /// `r^-1 mod n`.
    pub inverse: Zeroizing<Vec<u8>>,
}

// SAFETY: threads may use one RSA object at a time as long as none of them changes it (openssl/rsa.h, at the top). After
// `from_private_der` we call only functions that take it const, and `RSA_decrypt`, which that header declares usable
// concurrently: what it caches in the object, it guards with a lock of the object.
unsafe impl Send for RawRsa {}
// SAFETY: as above.
unsafe impl Sync for RawRsa {}

impl RawRsa {
    /// Reads PKCS#1 or PKCS#8. aws-lc checks that the numbers belong together, though not that the factors are prime.
    pub fn from_private_der(der: &PrivateKeyDer<'_>) -> Result<Self, RsaError> {
        let rsa = match der {
            PrivateKeyDer::Pkcs1(key) => parse_pkcs1(key.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(key) => parse_pkcs8(key.secret_pkcs8_der()),
            _ => None,
        };
        let Some(rsa) = rsa.filter(has_factors) else {
            clear_errors();
            return Err(RsaError::Malformed);
        };
        // SAFETY: the key is alive, and aws-lc does not parse an RSA key without a modulus.
        let modulus = unsafe { bytes_of(ffi::RSA_get0_n(rsa.as_ptr())) };
        Ok(Self { rsa, modulus: modulus.to_vec() })
    }

    /// A copy of the private exponent, big-endian and as long as the modulus. `None` for a key without one.
    pub fn private_exponent(&self) -> Option<Zeroizing<Vec<u8>>> {
        // SAFETY: the key is alive, and so is its exponent, which is below the modulus, if it has one.
        unsafe {
            let exponent = ffi::RSA_get0_d(self.rsa.as_ptr());
            (!exponent.is_null()).then(|| padded_bytes_of(exponent, self.size()))
        }
    }

    /// Length of the modulus in bytes: that of every input and every result.
    pub const fn size(&self) -> usize {
        self.modulus.len()
    }

    /// Length of the modulus in bits.
    pub fn bits(&self) -> usize {
        // SAFETY: the key is alive and has a modulus.
        unsafe { ffi::RSA_bits(self.rsa.as_ptr()) as usize }
    }

    /// Puts `input^d mod n` into `output`, both big-endian and as long as the modulus.
    ///
    /// Takes a time that does not depend on the key's numbers. It may depend on `input`, which is no secret: a
    /// ciphertext, or an encoded message that its signature gives away.
    pub fn transform(&self, input: &[u8], output: &mut [u8]) -> Result<(), RsaError> {
        assert_eq!(output.len(), self.size(), "callers make room for one result");
        // Numbers of the same length are ordered as their bytes are.
        if input.len() != self.size() || input >= &self.modulus[..] {
            return Err(RsaError::OutOfRange);
        }
        // aws-lc refuses these, as no padding yields them; but they are inputs of the operation like any other.
        if self.maps_to_itself(input) {
            output.copy_from_slice(input);
            return Ok(());
        }
        let mut written = 0;
        // SAFETY: the key is alive; `input` is readable and `output` writable for the lengths given; they do not overlap,
        // one being borrowed exclusively. Without padding, no more than the size of the modulus is written.
        let status = unsafe {
            ffi::RSA_decrypt(
                self.rsa.as_ptr(),
                &raw mut written,
                output.as_mut_ptr(),
                output.len(),
                input.as_ptr(),
                input.len(),
                ffi::RSA_NO_PADDING,
            )
        };
        succeeded(status)
    }

    /// Copies of the key's numbers.
    pub fn numbers(&self) -> RsaNumbers {
        let number = |get: unsafe extern "C" fn(*const ffi::RSA) -> *const ffi::BIGNUM| {
            // SAFETY: the key is alive, and nothing changes its numbers; `from_private_der` saw that it has them all.
            unsafe { bytes_of(get(self.rsa.as_ptr())) }
        };
        RsaNumbers {
            n: number(ffi::RSA_get0_n),
            e: number(ffi::RSA_get0_e),
            p: number(ffi::RSA_get0_p),
            q: number(ffi::RSA_get0_q),
            dp: number(ffi::RSA_get0_dmp1),
            dq: number(ffi::RSA_get0_dmq1),
            qinv: number(ffi::RSA_get0_iqmp),
        }
    }

    /// Whether `input`, which is below the modulus, is 0, 1 or n - 1: `d` is odd.
    fn maps_to_itself(&self, input: &[u8]) -> bool {
        let (Some((&last, before)), Some((&modulus_last, modulus_before))) =
            (input.split_last(), self.modulus.split_last())
        else {
            return false;
        };
        let zero_or_one = last <= 1 && before.iter().all(|byte| *byte == 0);
        // The modulus is odd: nothing is borrowed from the byte before the last.
        zero_or_one || (last == modulus_last - 1 && before == modulus_before)
    }
}

/// A random `r` modulo `n` as `r^e` and `r^-1`, for base blinding. `n` is odd and public, and a product of two large
/// primes.
///
/// Takes a time that does not depend on `r`: the inversion is itself blinded, and `e` is public.
pub fn blinding_pair(n: &[u8], e: &[u8]) -> Result<BlindingPair, RsaError> {
    // SAFETY: no arguments; the returned object is owned by the caller.
    let context = owned(unsafe { Owned::new(ffi::BN_CTX_new(), ffi::BN_CTX_free) })?;
    let (modulus, exponent) = (number_from(n)?, number_from(e)?);
    // SAFETY: `modulus` and `context` are alive; the returned object is owned by the caller.
    let montgomery = owned(unsafe {
        let montgomery = ffi::BN_MONT_CTX_new_for_modulus(modulus.as_ptr(), context.as_ptr());
        Owned::new(montgomery, ffi::BN_MONT_CTX_free)
    })?;
    let (random, inverse, factor) = (number()?, number()?, number()?);
    // Not tried again if `random` has no inverse: to find such a number by chance is to factor the modulus.
    let mut no_inverse = 0;
    // SAFETY: every object is alive and used by this thread only; each call only writes to its first argument, to
    // `no_inverse` and to `context`. `random` is below the modulus, which the inversion demands.
    unsafe {
        succeeded(ffi::BN_rand_range_ex(random.as_ptr(), 1, modulus.as_ptr()))?;
        succeeded(ffi::BN_mod_inverse_blinded(
            inverse.as_ptr(),
            &raw mut no_inverse,
            random.as_ptr(),
            montgomery.as_ptr(),
            context.as_ptr(),
        ))?;
        succeeded(ffi::BN_mod_exp_mont(
            factor.as_ptr(),
            random.as_ptr(),
            exponent.as_ptr(),
            modulus.as_ptr(),
            context.as_ptr(),
            montgomery.as_ptr(),
        ))?;
        Ok(BlindingPair {
            factor: padded_bytes_of(factor.as_ptr(), n.len()),
            inverse: padded_bytes_of(inverse.as_ptr(), n.len()),
        })
    }
}

/// An object of aws-lc that is freed with us.
struct Owned<T> {
    object: NonNull<T>,
    free: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    /// `None` for null.
    ///
    /// # Safety
    ///
    /// `object` is null, or valid and ours to free, and `free` is the function to free it with.
    unsafe fn new(object: *mut T, free: unsafe extern "C" fn(*mut T)) -> Option<Self> {
        NonNull::new(object).map(|object| Self { object, free })
    }

    const fn as_ptr(&self) -> *mut T {
        self.object.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: `new` was promised that the object is ours to free with this function, and it is freed only here.
        unsafe { (self.free)(self.as_ptr()) }
    }
}

fn parse_pkcs1(der: &[u8]) -> Option<Owned<ffi::RSA>> {
    let mut input = ffi::CBS { data: der.as_ptr(), len: der.len() };
    // SAFETY: `input` describes `der`, which is borrowed for longer; the key that is returned is a copy, and ours.
    unsafe { Owned::new(ffi::RSA_parse_private_key(&raw mut input), ffi::RSA_free) }
}

fn parse_pkcs8(der: &[u8]) -> Option<Owned<ffi::RSA>> {
    let mut input = ffi::CBS { data: der.as_ptr(), len: der.len() };
    // SAFETY: as in `parse_pkcs1`.
    let key = unsafe { Owned::new(ffi::EVP_parse_private_key(&raw mut input), ffi::EVP_PKEY_free) }?;
    // SAFETY: `key` is alive.
    if unsafe { ffi::EVP_PKEY_id(key.as_ptr()) } != ffi::EVP_PKEY_RSA {
        return None;
    }
    // SAFETY: `key` is alive, and the returned object is a counted reference owned by the caller.
    unsafe { Owned::new(ffi::EVP_PKEY_get1_RSA(key.as_ptr()), ffi::RSA_free) }
}

/// Whether the key has all numbers of [`RsaNumbers`]. aws-lc reads keys that Java has stripped to `n` and `d`, too; of
/// such a key, which has no public exponent, nothing can be checked.
fn has_factors(rsa: &Owned<ffi::RSA>) -> bool {
    // SAFETY: the key is alive. Either all of the numbers are there or only `n` and `d` (`detect_stripped_jca_private_key`
    // in rsa_asn1.c), so that two stand for all.
    unsafe { !ffi::RSA_get0_e(rsa.as_ptr()).is_null() && !ffi::RSA_get0_iqmp(rsa.as_ptr()).is_null() }
}

/// A new number; wiped when it is freed.
fn number() -> Result<Owned<ffi::BIGNUM>, RsaError> {
    // SAFETY: no arguments; the returned object is owned by the caller.
    owned(unsafe { Owned::new(ffi::BN_new(), ffi::BN_clear_free) })
}

fn number_from(bytes: &[u8]) -> Result<Owned<ffi::BIGNUM>, RsaError> {
    let number = number()?;
    // SAFETY: `bytes` is readable for its length, and `number` is alive.
    let read = unsafe { ffi::BN_bin2bn(bytes.as_ptr(), bytes.len(), number.as_ptr()) };
    succeeded(c_int::from(!read.is_null()))?;
    Ok(number)
}

/// The number in big-endian bytes without leading zeroes.
///
/// # Safety
///
/// `number` is alive, not negative, and not modified during the call.
unsafe fn bytes_of(number: *const ffi::BIGNUM) -> Zeroizing<Vec<u8>> {
    // SAFETY: the caller's promise.
    unsafe {
        let size: c_uint = ffi::BN_num_bytes(number);
        padded_bytes_of(number, size as usize)
    }
}

/// The number in `size` big-endian bytes, in a time that does not depend on it.
///
/// # Safety
///
/// As for [`bytes_of`].
unsafe fn padded_bytes_of(number: *const ffi::BIGNUM, size: usize) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(vec![0; size]);
    // SAFETY: `bytes` is writable for `size` bytes; the rest is the caller's promise.
    let status = unsafe { ffi::BN_bn2bin_padded(bytes.as_mut_ptr(), size, number) };
    assert_eq!(status, 1, "a number fits into the bytes it needs, one modulo n into those of n");
    bytes
}

fn owned<T>(object: Option<Owned<T>>) -> Result<Owned<T>, RsaError> {
    object.ok_or_else(|| {
        clear_errors();
        RsaError::Refused
    })
}

fn succeeded(status: c_int) -> Result<(), RsaError> {
    if status == 1 {
        return Ok(());
    }
    clear_errors();
    Err(RsaError::Refused)
}

/// Empties this thread's queue of errors, lest the next user of aws-lc on this thread take ours for his.
fn clear_errors() {
    // SAFETY: touches nothing but that queue.
    unsafe { ffi::ERR_clear_error() }
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;

    use super::*;
    use crate::rsa::testing::{Raw, SIZES, TestKey, bytes, edge_inputs, key, number};

    fn transform(key: &RawRsa, input: &[u8]) -> Result<Vec<u8>, RsaError> {
        let mut output = vec![0; key.size()];
        key.transform(input, &mut output)?;
        Ok(output)
    }

    /// Some number below the modulus.
    fn arbitrary(key: &RawRsa) -> Vec<u8> {
        let pair = blinding_pair(&key.numbers().n, &[3]).unwrap();
        pair.factor.to_vec()
    }

    #[test]
    fn the_private_operation_is_that_of_openssl() {
        for bits in SIZES {
            let raw = key(bits).raw();
            for input in edge_inputs(&raw.numbers()).into_iter().chain([arbitrary(&raw), arbitrary(&raw)]) {
                assert_eq!(transform(&raw, &input), Ok(key(bits).transform(&input)), "{bits} {input:02x?}");
            }
        }
    }

    #[test]
    fn the_public_operation_undoes_it() {
        for bits in SIZES {
            let raw = key(bits).raw();
            let numbers = raw.numbers();
            for input in edge_inputs(&numbers) {
                let output = number(&transform(&raw, &input).unwrap());
                assert_eq!(output.modpow(&number(&numbers.e), &number(&numbers.n)), number(&input));
            }
        }
    }

    #[test]
    fn what_is_no_number_below_the_modulus_is_refused() {
        let raw = key(2048).raw();
        let modulus = raw.numbers().n.to_vec();
        let more = bytes(&(number(&modulus) + 1_u8), 256);
        for input in [&modulus[..], &more, &[0xff; 256], &[1; 255], &[0; 257], &[]] {
            assert_eq!(transform(&raw, input), Err(RsaError::OutOfRange), "{input:02x?}");
        }
    }

    #[test]
    fn the_numbers_are_those_of_the_key() {
        for bits in SIZES {
            let RsaNumbers { n, e, p, q, dp, dq, qinv } = key(bits).raw().numbers();
            for number in [&n, &e, &p, &q, &dp, &dq, &qinv] {
                assert_ne!(number[0], 0, "no leading zeroes");
            }
            let [n, e, p, q, dp, dq, qinv] = [n, e, p, q, dp, dq, qinv].map(|bytes| number(&bytes));
            let one = BigUint::from(1_u8);
            assert_eq!(&p * &q, n);
            assert_eq!(&e * &dp % (&p - 1_u8), one);
            assert_eq!(&e * &dq % (&q - 1_u8), one);
            assert_eq!(q * qinv % p, one);
        }
    }

    #[test]
    fn pkcs1_and_pkcs8_hold_the_same_key() {
        let key = key(2048);
        let (pkcs1, pkcs8) = (RawRsa::from_private_der(&key.pkcs1()).unwrap(), key.raw());
        assert_eq!(pkcs1.numbers().dp, pkcs8.numbers().dp);
        assert_eq!((pkcs1.bits(), pkcs1.size()), (2048, 256));
    }

    #[test]
    fn what_is_no_rsa_key_is_refused() {
        let ecdsa = rcgen::KeyPair::generate().unwrap().serialize_der();
        let truncated = key(2048).der.secret_der()[..500].to_vec();
        for der in [ecdsa, truncated, Vec::new()] {
            for der in [PrivateKeyDer::Pkcs1(der.clone().into()), PrivateKeyDer::Pkcs8(der.into())] {
                let refusal = RawRsa::from_private_der(&der).err().expect("a refusal").to_string();
                assert!(refusal.contains("not an RSA private key"), "{refusal}");
            }
        }
    }

    #[test]
    fn a_key_without_its_factors_is_refused() {
        // As Java may write it: all but the modulus and the private exponent are zero. aws-lc would use it.
        let modulus = key(2048).raw().numbers().n;
        let (zero, integer) = ([0x02, 0x01, 0x00], [&[0x02, 0x82, 0x01, 0x01, 0x00], &modulus[..]].concat());
        let body = [&zero[..], &integer, &zero, &integer, &zero.repeat(5)].concat();
        let der = [&[0x30, 0x82], &(body.len() as u16).to_be_bytes()[..], &body].concat();
        assert!(parse_pkcs1(&der).is_some());
        assert!(RawRsa::from_private_der(&PrivateKeyDer::Pkcs1(der.into())).is_err());
    }

    #[test]
    fn one_key_serves_many_threads() {
        let key = TestKey::generate(2048);
        let raw = key.raw();
        let input = arbitrary(&raw);
        let expected = key.transform(&input);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..20).for_each(|_| assert_eq!(transform(&raw, &input).unwrap(), expected)));
            }
        });
    }

    #[test]
    fn a_blinding_pair_cancels_out() {
        for bits in SIZES {
            let RsaNumbers { n, e, .. } = key(bits).raw().numbers();
            let BlindingPair { factor, inverse } = blinding_pair(&n, &e).unwrap();
            assert_eq!((factor.len(), inverse.len()), (n.len(), n.len()));
            // factor · inverse^e = r^e · r^-e
            let (n, e) = (number(&n), number(&e));
            let product = number(&factor) * number(&inverse).modpow(&e, &n) % n;
            assert_eq!(product, BigUint::from(1_u8), "{bits}");
        }
    }

    #[test]
    fn no_blinding_pair_is_like_another() {
        let RsaNumbers { n, e, .. } = key(2048).raw().numbers();
        assert_ne!(blinding_pair(&n, &e).unwrap().factor, blinding_pair(&n, &e).unwrap().factor);
    }

    #[test]
    fn an_error_leaves_nothing_in_the_queue_of_errors() {
        let even = [[0xff; 255].as_slice(), &[0xfe]].concat();
        assert_eq!(blinding_pair(&even, &[3]).err(), Some(RsaError::Refused));
        assert!(RawRsa::from_private_der(&PrivateKeyDer::Pkcs1(vec![0x30].into())).is_err());
        // SAFETY: looks at the queue of this thread only.
        assert_eq!(unsafe { ffi::ERR_peek_error() }, 0);
    }
}

//! Encoded messages of RSA signatures (RFC 8017 section 9).
//!
//! AWS-LC encodes only within its own signatures; a batch performs the private operation itself and needs the encoded
//! message alone.

use aws_lc_rs::{
    digest::{self, Context, Digest},
    rand::SecureRandom,
};
use brisk_wire::registry::SignatureScheme;

use crate::{KeyAlgorithm, KeyError};

/// A hash function with its prefix in PKCS#1 v1.5.
struct Hash {
    algorithm: &'static digest::Algorithm,
    /// The DER of `DigestInfo` up to the value: RFC 8017 section 9.2, note 1.
    prefix: [u8; 19],
}

const SHA256: Hash = Hash { algorithm: &digest::SHA256, prefix: digest_info(1, 32) };
const SHA384: Hash = Hash { algorithm: &digest::SHA384, prefix: digest_info(2, 48) };
const SHA512: Hash = Hash { algorithm: &digest::SHA512, prefix: digest_info(3, 64) };

/// Encodes `message` for `scheme`. The result is as long as the modulus, and below it as a number. `random` supplies
/// the salt of PSS, which is as long as the hash (RFC 8446 section 4.2.3).
///
/// Fails if the scheme is not an RSA scheme or the modulus is too short for the hash.
pub(crate) fn encode(
    scheme: SignatureScheme,
    message: &[u8],
    modulus_bits: usize,
    random: &dyn SecureRandom,
) -> Result<Vec<u8>, KeyError> {
    let too_short = || KeyError::Failed("the RSA modulus is too short for the hash");
    let encoded = match scheme {
        SignatureScheme::RSA_PKCS1_SHA256 => pkcs1(&SHA256, message, modulus_bits),
        SignatureScheme::RSA_PKCS1_SHA384 => pkcs1(&SHA384, message, modulus_bits),
        SignatureScheme::RSA_PKCS1_SHA512 => pkcs1(&SHA512, message, modulus_bits),
        SignatureScheme::RSA_PSS_RSAE_SHA256 => pss(&SHA256, message, modulus_bits, random)?,
        SignatureScheme::RSA_PSS_RSAE_SHA384 => pss(&SHA384, message, modulus_bits, random)?,
        SignatureScheme::RSA_PSS_RSAE_SHA512 => pss(&SHA512, message, modulus_bits, random)?,
        _ => {
            let bits = u16::try_from(modulus_bits).unwrap_or(u16::MAX);
            return Err(KeyError::UnsupportedScheme { scheme, algorithm: KeyAlgorithm::Rsa { bits } });
        }
    };
    encoded.ok_or_else(too_short)
}

/// EMSA-PKCS1-v1_5, RFC 8017 section 9.2: `00 01 ff .. ff 00`, then `DigestInfo`. `None` if the modulus is too short.
fn pkcs1(hash: &Hash, message: &[u8], modulus_bits: usize) -> Option<Vec<u8>> {
    let size = modulus_bits.div_ceil(8);
    let digest = digest::digest(hash.algorithm, message);
    let used = 3 + hash.prefix.len() + digest.as_ref().len();
    // RFC 8017 section 9.2, step 3: the padding has eight bytes or more.
    let padding = size.checked_sub(used).filter(|padding| *padding >= 8)?;
    let mut encoded = Vec::with_capacity(size);
    encoded.extend([0, 1]);
    encoded.resize(2 + padding, 0xff);
    encoded.push(0);
    encoded.extend(hash.prefix);
    encoded.extend(digest.as_ref());
    Some(encoded)
}

/// EMSA-PSS, RFC 8017 section 9.1.1, with leading zero bytes up to the length of the modulus. `None` if the modulus
/// is too short.
fn pss(
    hash: &Hash,
    message: &[u8],
    modulus_bits: usize,
    random: &dyn SecureRandom,
) -> Result<Option<Vec<u8>>, KeyError> {
    let hash_size = hash.algorithm.output_len();
    // RFC 8017 section 8.1.1: one bit less than the modulus, so that the number is below it. For a modulus of 8k + 1
    // bits the encoded message is one byte shorter.
    let bits = modulus_bits.saturating_sub(1);
    let size = bits.div_ceil(8);
    // RFC 8017 section 9.1.1, steps 7 to 12: the data block is zeroes, a one and the salt; the hash of the salted
    // digest and the trailer follow.
    let Some(block_size) = size.checked_sub(hash_size + 1).filter(|block| *block > hash_size) else {
        return Ok(None);
    };
    let mut encoded = vec![0; modulus_bits.div_ceil(8)];
    let leading = encoded.len() - size;
    let (block, rest) = encoded[leading..].split_at_mut(block_size);
    let (salted, trailer) = rest.split_at_mut(hash_size);

    let (padding, salt) = block.split_at_mut(block_size - hash_size);
    random.fill(salt).map_err(|_| KeyError::Failed("the system gives no random numbers"))?;
    let digest = digest::digest(hash.algorithm, message);
    // RFC 8017 section 9.1.1, steps 5 and 6: the hash of eight zero bytes, the digest and the salt.
    salted.copy_from_slice(concatenated(hash, &[&[0; 8], digest.as_ref(), salt]).as_ref());
    if let Some(last) = padding.last_mut() {
        *last = 1;
    }
    mask(hash, salted, block);
    // RFC 8017 section 9.1.1, step 11: without this, the number could exceed the modulus.
    block[0] &= 0xff >> (8 * size - bits);
    trailer.copy_from_slice(&[0xbc]);
    Ok(Some(encoded))
}

/// Applies the mask generated from `seed` to `block`: MGF1, RFC 8017 appendix B.2.1.
fn mask(hash: &Hash, seed: &[u8], block: &mut [u8]) {
    for (counter, part) in (0_u32..).zip(block.chunks_mut(hash.algorithm.output_len())) {
        let mask = concatenated(hash, &[seed, &counter.to_be_bytes()]);
        part.iter_mut().zip(mask.as_ref()).for_each(|(byte, mask)| *byte ^= mask);
    }
}

fn concatenated(hash: &Hash, parts: &[&[u8]]) -> Digest {
    let mut context = Context::new(hash.algorithm);
    for part in parts {
        context.update(part);
    }
    context.finish()
}

/// Prefix of `DigestInfo` for the hash 2.16.840.1.101.3.4.2.`number`, up to its value of `size` bytes.
const fn digest_info(number: u8, size: u8) -> [u8; 19] {
    let mut prefix = [
        0x30, 0, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, number, 0x05, 0x00,
        0x04, size,
    ];
    prefix[1] = prefix.len() as u8 - 2 + size;
    prefix
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// The salt in an encoded message of PSS, a modulus of whole bytes supposed. Everything before it must be right.
    pub(crate) fn salt(scheme: SignatureScheme, encoded: &[u8]) -> Vec<u8> {
        let hash = match scheme {
            SignatureScheme::RSA_PSS_RSAE_SHA256 => SHA256,
            SignatureScheme::RSA_PSS_RSAE_SHA384 => SHA384,
            SignatureScheme::RSA_PSS_RSAE_SHA512 => SHA512,
            _ => panic!("{scheme} has no salt"),
        };
        let size = hash.algorithm.output_len();
        let (block, rest) = encoded.split_at(encoded.len() - size - 1);
        let mut block = block.to_vec();
        mask(&hash, &rest[..size], &mut block);
        let (padding, salt) = block.split_at(block.len() - size);
        // The highest bit was cleared after masking.
        assert_eq!(padding[0] & 0x7f, 0);
        assert!(padding[1..].strip_suffix(&[1]).unwrap().iter().all(|byte| *byte == 0));
        salt.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::{rand::SystemRandom, test::rand::FixedByteRandom};

    use super::{testing::salt, *};

    const MESSAGE: &[u8] = b"what the server signs";
    const SCHEMES: &[SignatureScheme] = KeyAlgorithm::Rsa { bits: 2048 }.schemes();

    fn encoded(scheme: SignatureScheme, bits: usize) -> Result<Vec<u8>, KeyError> {
        encode(scheme, MESSAGE, bits, &SystemRandom::new())
    }

    #[test]
    fn it_is_as_long_as_the_modulus_and_below_it() {
        for bits in 2048..=2064 {
            for &scheme in SCHEMES {
                let encoded = encoded(scheme, bits).unwrap();
                assert_eq!(encoded.len(), bits.div_ceil(8), "{scheme} {bits}");
                let unused = 8 * encoded.len() - bits;
                // Its highest bit is below that of the modulus.
                let first_two = u16::from_be_bytes([encoded[0], encoded[1]]);
                assert!(first_two.leading_zeros() as usize > unused, "{scheme} {bits}");
            }
        }
    }

    #[test]
    fn pkcs1_is_the_same_each_time_and_pss_is_not() {
        for &scheme in SCHEMES {
            let same = encoded(scheme, 2048) == encoded(scheme, 2048);
            assert_eq!(same, scheme.to_string().starts_with("rsa_pkcs1"), "{scheme}");
        }
    }

    #[test]
    fn the_salt_is_as_long_as_the_hash() {
        let random = FixedByteRandom { byte: 0x5a };
        let scheme = SignatureScheme::RSA_PSS_RSAE_SHA384;
        let encoded = encode(scheme, MESSAGE, 2048, &random).unwrap();
        assert_eq!(salt(scheme, &encoded), [0x5a; 48]);
    }

    #[test]
    fn a_modulus_without_room_for_the_hash_is_refused() {
        let least = [(SignatureScheme::RSA_PKCS1_SHA512, 745), (SignatureScheme::RSA_PSS_RSAE_SHA512, 1034)];
        for (scheme, bits) in least {
            assert!(encoded(scheme, bits).is_ok(), "{scheme}");
            for bits in [bits - 1, 8, 1, 0] {
                assert!(matches!(encoded(scheme, bits), Err(KeyError::Failed(_))), "{scheme} {bits}");
            }
        }
    }

    #[test]
    fn schemes_of_other_keys_are_refused() {
        let (scheme, algorithm) = (SignatureScheme::ED25519, KeyAlgorithm::Rsa { bits: 2048 });
        assert_eq!(encoded(scheme, 2048), Err(KeyError::UnsupportedScheme { scheme, algorithm }));
    }

    #[test]
    fn the_prefixes_are_those_of_the_rfc() {
        let known = [
            (SHA256, b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20"),
            (SHA384, b"\x30\x41\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x02\x05\x00\x04\x30"),
            (SHA512, b"\x30\x51\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03\x05\x00\x04\x40"),
        ];
        for (hash, known) in known {
            assert_eq!(hash.prefix, *known);
        }
    }
}

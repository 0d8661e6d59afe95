//! Cipher suites: aws-lc encrypts records, [`hmac`] with the SHA-2 of [`sha2`] computes the key schedule.
//!
//! A TLS 1.3 handshake computes about thirty HMACs over short inputs. aws-lc allocates and keys a context for each,
//! which costs more than the hashing; [`hmac`] keys once per secret and clones. Both use the processor's SHA
//! instructions. On an x86-64 processor without them, [`AwsLcSha256`] takes the place of [`Sha256`].

use std::sync::LazyLock;

use hmac::digest::block_api::EagerHash;
use hmac::digest::{Digest, FixedOutput, KeyInit};
use hmac::{Hmac, Mac};
use rustls::crypto::tls12::PrfUsingHmac;
use rustls::crypto::tls13::HkdfUsingHmac;
use rustls::crypto::{CipherSuiteCommon, aws_lc_rs, hash};
use rustls::{SupportedCipherSuite, Tls12CipherSuite, Tls13CipherSuite};
use sha2::{Sha256, Sha384};

use crate::sha256::AwsLcSha256;

/// The supported cipher suites, the cheapest first: forward-secret AEAD suites of TLS 1.3 and 1.2.
pub fn suites() -> &'static [SupportedCipherSuite] {
    &SUITES
}

static SUITES: LazyLock<Vec<SupportedCipherSuite>> = LazyLock::new(|| {
    use aws_lc_rs::cipher_suite::{
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
    };
    let suites = [
        TLS13_AES_128_GCM_SHA256,
        TLS13_AES_256_GCM_SHA384,
        TLS13_CHACHA20_POLY1305_SHA256,
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ];
    suites.map(with_own_hashes).to_vec()
});

/// Replaces the hash functions of `suite` by [`Hashes`]. [`rustls`] needs suites with a static lifetime, so each is leaked
/// once.
fn with_own_hashes(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    match suite {
        SupportedCipherSuite::Tls13(suite) => {
            let hashes = Hashes::of(&suite.common);
            SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
                common: hashes.replaced_in(&suite.common),
                hkdf_provider: &hashes.hkdf,
                aead_alg: suite.aead_alg,
                quic: suite.quic,
            })))
        }
        SupportedCipherSuite::Tls12(suite) => {
            let hashes = Hashes::of(&suite.common);
            SupportedCipherSuite::Tls12(Box::leak(Box::new(Tls12CipherSuite {
                common: hashes.replaced_in(&suite.common),
                prf_provider: &hashes.prf,
                kx: suite.kx,
                sign: suite.sign,
                aead_alg: suite.aead_alg,
            })))
        }
    }
}

/// The parts of a suite that use its hash function.
struct Hashes {
    transcript: &'static dyn hash::Hash,
    hkdf: HkdfUsingHmac<'static>,
    prf: PrfUsingHmac<'static>,
}

static OF_SHA256: Hashes =
    Hashes { transcript: &SHA256, hkdf: HkdfUsingHmac(&SHA256), prf: PrfUsingHmac(&SHA256) };
static OF_AWS_LC_SHA256: Hashes = Hashes {
    transcript: &AWS_LC_SHA256,
    hkdf: HkdfUsingHmac(&AWS_LC_SHA256),
    prf: PrfUsingHmac(&AWS_LC_SHA256),
};
static OF_SHA384: Hashes =
    Hashes { transcript: &SHA384, hkdf: HkdfUsingHmac(&SHA384), prf: PrfUsingHmac(&SHA384) };

/// Whether `sha2` has only portable code for SHA-256 on this processor: an Intel server before Ice Lake, for example.
fn lacks_sha_instructions() -> bool {
    #[cfg(target_arch = "x86_64")]
    return !std::arch::is_x86_feature_detected!("sha");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

impl Hashes {
    fn of(suite: &CipherSuiteCommon) -> &'static Self {
        match suite.hash_provider.algorithm() {
            // The instructions concern SHA-256 only: for SHA-384, `sha2` has no slower code on these
            // processors.
            hash::HashAlgorithm::SHA384 => &OF_SHA384,
            _ if lacks_sha_instructions() => &OF_AWS_LC_SHA256,
            _ => &OF_SHA256,
        }
    }

    fn replaced_in(&self, common: &CipherSuiteCommon) -> CipherSuiteCommon {
        CipherSuiteCommon {
            suite: common.suite,
            hash_provider: self.transcript,
            confidentiality_limit: common.confidentiality_limit,
        }
    }
}

static SHA256: Sha2<Sha256> = Sha2 { algorithm: hash::HashAlgorithm::SHA256, empty: Sha256::new };
static AWS_LC_SHA256: Sha2<AwsLcSha256> =
    Sha2 { algorithm: hash::HashAlgorithm::SHA256, empty: AwsLcSha256::new };
static SHA384: Sha2<Sha384> = Sha2 { algorithm: hash::HashAlgorithm::SHA384, empty: Sha384::new };

/// A hash function for transcripts and for HMAC, as [`rustls`] requires it.
struct Sha2<D> {
    algorithm: hash::HashAlgorithm,
    empty: fn() -> D,
}

/// The bounds that SHA-256 and SHA-384 satisfy.
trait Function: Digest + FixedOutput + EagerHash<Core: Send + Sync> + Clone + Send + Sync + 'static {}

impl Function for Sha256 {}
impl Function for Sha384 {}
impl Function for AwsLcSha256 {}

impl<D: Function> hash::Hash for Sha2<D> {
    fn start(&self) -> Box<dyn hash::Context> {
        Box::new(Transcript((self.empty)()))
    }

    fn hash(&self, data: &[u8]) -> hash::Output {
        hash::Output::new(&D::digest(data))
    }

    fn output_len(&self) -> usize {
        <D as Digest>::output_size()
    }

    fn algorithm(&self) -> hash::HashAlgorithm {
        self.algorithm
    }
}

struct Transcript<D>(D);

impl<D: Function> hash::Context for Transcript<D> {
    fn fork_finish(&self) -> hash::Output {
        // The transcript continues, for example after its hash for `Finished`.
        hash::Output::new(&self.0.clone().finalize())
    }

    fn fork(&self) -> Box<dyn hash::Context> {
        Box::new(Self(self.0.clone()))
    }

    fn finish(self: Box<Self>) -> hash::Output {
        hash::Output::new(&self.0.finalize())
    }

    fn update(&mut self, data: &[u8]) {
        Digest::update(&mut self.0, data);
    }
}

impl<D: Function> rustls::crypto::hmac::Hmac for Sha2<D> {
    fn with_key(&self, key: &[u8]) -> Box<dyn rustls::crypto::hmac::Key> {
        Box::new(Keyed(Hmac::<D>::new_from_slice(key).expect("HMAC takes keys of any length")))
    }

    fn hash_output_len(&self) -> usize {
        <D as Digest>::output_size()
    }
}

/// A keyed HMAC without data. Zeroized on drop.
struct Keyed<D: Function>(Hmac<D>);

impl<D: Function> rustls::crypto::hmac::Key for Keyed<D> {
    fn sign_concat(&self, first: &[u8], middle: &[&[u8]], last: &[u8]) -> rustls::crypto::hmac::Tag {
        // Two hash states are copied; with the key, two blocks would have to be hashed again.
        let mut mac = self.0.clone();
        mac.update(first);
        for part in middle {
            mac.update(part);
        }
        mac.update(last);
        rustls::crypto::hmac::Tag::new(&mac.finalize().into_bytes())
    }

    fn tag_len(&self) -> usize {
        <D as Digest>::output_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }

    /// RFC 4231 section 4.3, test case 2.
    #[test]
    fn hmac_agrees_with_the_vectors_of_the_rfc() {
        let tag = |hash: &dyn rustls::crypto::hmac::Hmac| {
            hex(hash
                .with_key(b"Jefe")
                .sign_concat(b"what do ya", &[b" want ", b"for"], b" nothing?")
                .as_ref())
        };
        let by_sha256 = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!([tag(&SHA256), tag(&AWS_LC_SHA256)], [by_sha256; 2]);
        assert_eq!(
            tag(&SHA384),
            "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649"
        );
    }

    #[test]
    fn every_suite_hashes_as_aws_lc_does() {
        let data = vec![0x5a; 5000];
        for own in SUITES.iter() {
            let theirs =
                aws_lc_rs::ALL_CIPHER_SUITES.iter().find(|suite| suite.suite() == own.suite()).unwrap();
            let (own, theirs) = (common(own).hash_provider, common(theirs).hash_provider);
            assert_eq!(own.algorithm(), theirs.algorithm());
            assert_eq!(own.output_len(), theirs.output_len());
            let mut context = own.start();
            context.update(&data[..1]);
            let fork = context.fork();
            context.update(&data[1..]);
            assert_eq!(context.fork_finish().as_ref(), theirs.hash(&data).as_ref());
            assert_eq!(context.finish().as_ref(), theirs.hash(&data).as_ref());
            assert_eq!(fork.finish().as_ref(), theirs.hash(&data[..1]).as_ref());
        }
    }

    #[test]
    fn both_implementations_of_sha256_agree_on_every_length_and_division() {
        let data: Vec<u8> = (0..300_u32).map(|number| (number * 7 + 1) as u8).collect();
        for length in 0..=data.len() {
            let expected = hash::Hash::hash(&SHA256, &data[..length]);
            assert_eq!(hash::Hash::hash(&AWS_LC_SHA256, &data[..length]).as_ref(), expected.as_ref());
            let mut context = hash::Hash::start(&AWS_LC_SHA256);
            data[..length].chunks(length % 97 + 1).for_each(|piece| context.update(piece));
            assert_eq!(context.fork_finish().as_ref(), expected.as_ref());
            assert_eq!(context.finish().as_ref(), expected.as_ref());
        }
    }

    fn common(suite: &SupportedCipherSuite) -> &'static CipherSuiteCommon {
        match suite {
            SupportedCipherSuite::Tls13(suite) => &suite.common,
            SupportedCipherSuite::Tls12(suite) => &suite.common,
        }
    }
}

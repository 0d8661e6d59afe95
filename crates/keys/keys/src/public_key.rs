//! Verification of signatures that another process or device made.

use std::sync::Arc;

use aws_lc_rs::signature::{self, ParsedPublicKey, VerificationAlgorithm};
use brisk_wire::registry::SignatureScheme;

/// Public key of a private key outside this process. Clones share the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(Arc<[u8]>);

impl PublicKey {
    /// The public key whose DER `SubjectPublicKeyInfo` is `spki`, which is not parsed yet.
    pub fn of_spki(spki: &[u8]) -> Self {
        Self(spki.into())
    }

    /// Returns whether `signature` is valid for `message`. A key that cannot be parsed verifies nothing.
    pub fn verifies(&self, scheme: SignatureScheme, message: &[u8], signature: &[u8]) -> bool {
        let key = verification(scheme).map(|algorithm| ParsedPublicKey::new(algorithm, &self.0));
        key.is_some_and(|key| key.is_ok_and(|key| key.verify_sig(message, signature).is_ok()))
    }
}

/// Algorithm that verifies signatures of `scheme`; `None` for schemes that no key of this crate supports.
pub fn verification(scheme: SignatureScheme) -> Option<&'static dyn VerificationAlgorithm> {
    Some(match scheme {
        SignatureScheme::ECDSA_SECP256R1_SHA256 => &signature::ECDSA_P256_SHA256_ASN1,
        SignatureScheme::ECDSA_SECP384R1_SHA384 => &signature::ECDSA_P384_SHA384_ASN1,
        SignatureScheme::ED25519 => &signature::ED25519,
        SignatureScheme::RSA_PSS_RSAE_SHA256 => &signature::RSA_PSS_2048_8192_SHA256,
        SignatureScheme::RSA_PSS_RSAE_SHA384 => &signature::RSA_PSS_2048_8192_SHA384,
        SignatureScheme::RSA_PSS_RSAE_SHA512 => &signature::RSA_PSS_2048_8192_SHA512,
        SignatureScheme::RSA_PKCS1_SHA256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        SignatureScheme::RSA_PKCS1_SHA384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        SignatureScheme::RSA_PKCS1_SHA512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        // ML-DSA is missing on purpose: its signatures exceed a frame of the protocol of key servers, so
        // that the configuration refuses such keys outside of the process.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        KeyAlgorithm, LocalEngine, PrivateKeyEngine,
        testing::{MESSAGE, key, keystore, sign},
    };

    #[test]
    fn signatures_of_every_scheme_verify_and_altered_ones_do_not() {
        let (store, engine) = (keystore(), LocalEngine::new(keystore()));
        for algorithm in [KeyAlgorithm::EcdsaP256, KeyAlgorithm::EcdsaP384, KeyAlgorithm::Ed25519] {
            let id = key(algorithm);
            let public = PublicKey::of_spki(store.public_key(id).expect("a public key"));
            for scheme in algorithm.schemes() {
                let signed = engine.submit(sign(id, *scheme)).try_take();
                let mut signature = signed.expect("a result").expect("a signature").to_vec();
                assert!(public.verifies(*scheme, MESSAGE, &signature), "{scheme}");
                assert!(!public.verifies(*scheme, b"another message", &signature), "{scheme}");
                *signature.last_mut().expect("a byte") ^= 1;
                assert!(!public.verifies(*scheme, MESSAGE, &signature), "{scheme}");
            }
        }
        let unusable = PublicKey::of_spki(b"no key");
        assert!(!unusable.verifies(SignatureScheme::ED25519, MESSAGE, &[]));
        assert!(!unusable.verifies(SignatureScheme(0), MESSAGE, &[]));
    }
}

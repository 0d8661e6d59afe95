//! Keys and operations for the tests of engines.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use aws_lc_rs::signature::{self, VerificationAlgorithm};
use brisk_wire::registry::SignatureScheme;
use bytes::Bytes;
use rcgen::RsaKeySize;

use crate::{KeyAlgorithm, KeyId, KeyOperation, Keystore};

pub(crate) const MESSAGE: &[u8] = b"what the server signs";

/// One key of each kind, RSA of 2048 bits; made once, since RSA keys take long.
pub(crate) fn keystore() -> Arc<Keystore> {
    static KEYSTORE: OnceLock<Arc<Keystore>> = OnceLock::new();
    let make = || {
        let rsa = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
        let mut keystore = Keystore::new();
        for algorithm in
            [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519]
        {
            let pem = rcgen::KeyPair::generate_for(algorithm).unwrap().serialize_pem();
            keystore.add_pem(pem.as_bytes()).unwrap();
        }
        keystore.add_pem(rsa.serialize_pem().as_bytes()).unwrap();
        Arc::new(keystore)
    };
    Arc::clone(KEYSTORE.get_or_init(make))
}

/// The key of `keystore` that is of this kind.
pub(crate) fn key(algorithm: KeyAlgorithm) -> KeyId {
    let keystore = keystore();
    keystore.ids().find(|id| keystore.algorithm(*id) == Some(algorithm)).unwrap()
}

/// A deadline that no test reaches.
pub(crate) fn deadline() -> Instant {
    Instant::now() + Duration::from_hours(1)
}

/// A signature over [`MESSAGE`].
pub(crate) fn sign(key: KeyId, scheme: SignatureScheme) -> KeyOperation {
    KeyOperation::sign(key, scheme, Bytes::from_static(MESSAGE), deadline())
}

/// How a signature is verified that one of our keys made.
pub(crate) fn verification(scheme: SignatureScheme) -> &'static dyn VerificationAlgorithm {
    match scheme {
        SignatureScheme::ECDSA_SECP256R1_SHA256 => &signature::ECDSA_P256_SHA256_ASN1,
        SignatureScheme::ECDSA_SECP384R1_SHA384 => &signature::ECDSA_P384_SHA384_ASN1,
        SignatureScheme::ED25519 => &signature::ED25519,
        SignatureScheme::RSA_PSS_RSAE_SHA256 => &signature::RSA_PSS_2048_8192_SHA256,
        SignatureScheme::RSA_PSS_RSAE_SHA384 => &signature::RSA_PSS_2048_8192_SHA384,
        SignatureScheme::RSA_PSS_RSAE_SHA512 => &signature::RSA_PSS_2048_8192_SHA512,
        SignatureScheme::RSA_PKCS1_SHA256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        SignatureScheme::RSA_PKCS1_SHA384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        SignatureScheme::RSA_PKCS1_SHA512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        _ => panic!("no key makes {scheme}"),
    }
}

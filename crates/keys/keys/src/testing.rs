//! Keys and operations for the tests of engines.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use aws_lc_rs::signature::VerificationAlgorithm;
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

/// Algorithm that verifies signatures of `scheme`.
pub(crate) fn verification(scheme: SignatureScheme) -> &'static dyn VerificationAlgorithm {
    crate::verification(scheme).expect("a scheme that a key supports")
}

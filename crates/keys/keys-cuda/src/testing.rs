//! Keys of tests, and the reference results of AWS-LC.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use brisk_keys::{
    KeyError, KeyId, KeyOperation, Keystore, LocalEngine, PrivateKeyEngine,
    device::{self, RsaNumbers},
};
use brisk_testkit::rsa::TestKey;
use bytes::Bytes;

/// A deadline that no test reaches.
pub(crate) fn deadline() -> Instant {
    Instant::now() + Duration::from_hours(1)
}

/// The numbers of a key.
pub(crate) fn numbers(key: &TestKey) -> RsaNumbers {
    let (keystore, id) = store(key);
    device::key(&keystore, id).unwrap().rsa_numbers().unwrap()
}

fn store(key: &TestKey) -> (Keystore, KeyId) {
    let mut keystore = Keystore::new();
    let id = keystore.add_der(key.der.clone_key()).unwrap();
    (keystore, id)
}

/// The private key operation of one key, performed by AWS-LC.
pub(crate) struct Reference {
    engine: LocalEngine,
    id: KeyId,
    modulus: Vec<u8>,
}

impl Reference {
    pub(crate) fn of(key: &TestKey) -> Self {
        let (keystore, id) = store(key);
        Self { engine: LocalEngine::new(Arc::new(keystore)), id, modulus: numbers(key).n.to_vec() }
    }

    /// The modulus, big-endian.
    pub(crate) fn modulus(&self) -> &[u8] {
        &self.modulus
    }

    /// Computes `input^d mod n`; both are big-endian and as long as the modulus.
    pub(crate) fn transform(&self, input: &[u8]) -> Result<Vec<u8>, KeyError> {
        let operation = KeyOperation::decrypt(self.id, Bytes::copy_from_slice(input), deadline());
        let result = self.engine.submit(operation).try_take().expect("performed within `submit`");
        result.map(|output| output.to_vec())
    }
}

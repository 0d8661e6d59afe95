//! Keys for a run, made on all cores, and operations with them.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rand;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::RsaKeyPair;
use brisk_keys::{KeyId, KeyOperation, Keystore};
use bytes::Bytes;
use rustls_pki_types::PrivatePkcs8KeyDer;

use crate::SpeedError;
use crate::subject::Algorithm;

/// Operations that are made before the clock starts, and performed again and again.
const OPERATIONS: usize = 1024;

/// No operation of a run is too late.
const FAR: Duration = Duration::from_hours(24 * 365);

/// Keys of one size, and operations with them.
pub(super) struct Pool {
    algorithm: Algorithm,
    keystore: Arc<Keystore>,
    operations: Vec<KeyOperation>,
}

impl Pool {
    pub(super) fn new(algorithm: Algorithm, keys: usize, cores: NonZeroUsize) -> Result<Self, SpeedError> {
        let (keystore, ids) = make(algorithm, keys, cores)?;
        let operation = |index| Ok(operation(ids[index % ids.len()], random(algorithm)?));
        let operations = (0..OPERATIONS).map(operation).collect::<Result<_, SpeedError>>()?;
        Ok(Self { algorithm, keystore, operations })
    }

    pub(super) const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Of the modulus.
    pub(super) fn bits(&self) -> usize {
        bits(self.algorithm)
    }

    pub(super) const fn keystore(&self) -> &Arc<Keystore> {
        &self.keystore
    }

    /// One of the operations, for every number.
    pub(super) fn operation(&self, number: usize) -> KeyOperation {
        self.operations[number % self.operations.len()].clone()
    }
}

const fn bits(algorithm: Algorithm) -> usize {
    match algorithm {
        Algorithm::Rsa3072 => 3072,
        Algorithm::Rsa4096 => 4096,
        _ => 2048,
    }
}

/// So many keys, and their names.
pub(super) fn make(
    algorithm: Algorithm,
    count: usize,
    cores: NonZeroUsize,
) -> Result<(Arc<Keystore>, Vec<KeyId>), SpeedError> {
    let size = match algorithm {
        Algorithm::Rsa3072 => KeySize::Rsa3072,
        Algorithm::Rsa4096 => KeySize::Rsa4096,
        _ => KeySize::Rsa2048,
    };
    let generate = move |_| {
        let der: Pkcs8V1Der<'_> = RsaKeyPair::generate(size)?.as_der()?;
        Ok(PrivatePkcs8KeyDer::from(der.as_ref().to_vec()))
    };
    let cores = cores.get();
    let made = thread::scope(|scope| {
        let share = |core: usize| (core..count).step_by(cores);
        let threads: Vec<_> = (0..cores)
            .map(|core| {
                scope.spawn(move || share(core).map(generate).collect::<Result<Vec<_>, SpeedError>>())
            })
            .collect();
        threads.into_iter().map(crate::join).collect::<Result<Vec<_>, _>>()
    })?;
    let mut keystore = Keystore::new();
    let ids = made.into_iter().flatten().map(|key| keystore.add_der(key.into()));
    let ids = ids.collect::<Result<_, _>>()?;
    Ok((Arc::new(keystore), ids))
}

/// The private operation itself, which AWS-LC performs alike.
pub(super) fn operation(key: KeyId, number: Vec<u8>) -> KeyOperation {
    KeyOperation::decrypt(key, Bytes::from(number), Instant::now() + FAR)
}

/// A random number below every modulus of this size.
pub(super) fn random(algorithm: Algorithm) -> Result<Vec<u8>, SpeedError> {
    let mut number = vec![0; bits(algorithm) / 8];
    rand::fill(&mut number)?;
    number[0] &= 0x7f;
    Ok(number)
}

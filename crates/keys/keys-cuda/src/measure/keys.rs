//! Keys and operations of a run, generated on all cores.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rand;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::RsaKeyPair;
use brisk_keys::device::Width;
use brisk_keys::{KeyId, KeyOperation, Keystore};
use bytes::Bytes;
use rustls_pki_types::PrivatePkcs8KeyDer;

use super::MeasureError;

/// Number of operations that are prepared before the clock starts and then repeated.
const OPERATIONS: usize = 1024;

/// A deadline that no operation reaches.
const FAR: Duration = Duration::from_hours(24 * 365);

/// Keys of one size, with prepared operations.
pub(super) struct Pool {
    width: Width,
    keystore: Arc<Keystore>,
    operations: Vec<KeyOperation>,
}

impl Pool {
    pub(super) fn new(width: Width, keys: usize, cores: NonZeroUsize) -> Result<Self, MeasureError> {
        let (keystore, ids) = make(width, keys, cores)?;
        let operation = |index| Ok(operation(ids[index % ids.len()], random(width)?));
        let operations = (0..OPERATIONS).map(operation).collect::<Result<_, MeasureError>>()?;
        Ok(Self { width, keystore, operations })
    }

    pub(super) const fn width(&self) -> Width {
        self.width
    }

    /// Size of the modulus in bits.
    pub(super) const fn bits(&self) -> usize {
        self.width.bits()
    }

    pub(super) const fn keystore(&self) -> &Arc<Keystore> {
        &self.keystore
    }

    /// The [`KeyOperation`] for a number; the prepared ones repeat.
    pub(super) fn operation(&self, number: usize) -> KeyOperation {
        self.operations[number % self.operations.len()].clone()
    }
}

/// Generates `count` keys and returns them with their IDs.
pub(super) fn make(
    width: Width,
    count: usize,
    cores: NonZeroUsize,
) -> Result<(Arc<Keystore>, Vec<KeyId>), MeasureError> {
    let size = match width {
        Width::Rsa3072 => KeySize::Rsa3072,
        Width::Rsa4096 => KeySize::Rsa4096,
        Width::Rsa2048 => KeySize::Rsa2048,
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
                scope.spawn(move || share(core).map(generate).collect::<Result<Vec<_>, MeasureError>>())
            })
            .collect();
        threads.into_iter().map(super::join).collect::<Result<Vec<_>, _>>()
    })?;
    let mut keystore = Keystore::new();
    let ids = made.into_iter().flatten().map(|key| keystore.add_der(key.into()));
    let ids = ids.collect::<Result<_, _>>()?;
    Ok((Arc::new(keystore), ids))
}

/// A private key operation without padding, which AWS-LC performs too.
pub(super) fn operation(key: KeyId, number: Vec<u8>) -> KeyOperation {
    KeyOperation::decrypt(key, Bytes::from(number), Instant::now() + FAR)
}

/// A random number below every modulus of this size.
pub(super) fn random(width: Width) -> Result<Vec<u8>, MeasureError> {
    let mut number = vec![0; width.bits() / 8];
    rand::fill(&mut number)?;
    number[0] &= 0x7f;
    Ok(number)
}

//! Comparison of the GPU's results with those of AWS-LC.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use aws_lc_rs::rand;
use brisk_keys::device::Width;
use brisk_keys::{KeyId, KeyOperation, Keystore, LocalEngine, PrivateKeyEngine};

use super::load::wait;
use super::{MeasureError, Verification, keys};
use crate::CudaEngine;

/// Number of operations in progress per thread.
const TOGETHER: usize = 512;

/// One of this number of operations is an edge case.
const EDGES: usize = 100;

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The size.
    pub width: Width,
    /// Number of keys.
    pub keys: usize,
    /// Number of operations.
    pub operations: usize,
    /// Operations that the GPU performed, or correctly refused.
    pub on_gpu: u64,
    /// Results that failed the GPU's own check.
    pub faults: u64,
    /// Results that differ from those of AWS-LC.
    pub wrong: u64,
}

/// Compares operations with generated keys.
pub(super) fn verify(
    width: Width,
    wanted: Verification,
    cores: NonZeroUsize,
    engine: impl FnOnce(Arc<Keystore>) -> Result<CudaEngine, MeasureError>,
) -> Result<Comparison, MeasureError> {
    let (keystore, ids) = keys::make(width, wanted.keys.get(), cores)?;
    let cuda = engine(Arc::clone(&keystore))?;
    let wrong = compare(&cuda, &keystore, &ids, (width, wanted.operations), cores)?;
    let statistics = cuda.statistics();
    Ok(Comparison {
        width,
        keys: keystore.len(),
        operations: wanted.operations,
        on_gpu: statistics.operations(),
        faults: statistics.faults(),
        wrong,
    })
}

/// Number of results of `engine` that differ from those of AWS-LC.
fn compare(
    engine: &impl PrivateKeyEngine,
    keystore: &Arc<Keystore>,
    ids: &[KeyId],
    (width, count): (Width, usize),
    cores: NonZeroUsize,
) -> Result<u64, MeasureError> {
    let (local, wrong) = (LocalEngine::new(Arc::clone(keystore)), AtomicU64::new(0));
    let each = count.div_ceil(cores.get());
    thread::scope(|scope| {
        let (local, wrong) = (&local, &wrong);
        let threads: Vec<_> = (0..cores.get())
            .map(|core| {
                scope.spawn(move || {
                    let mine = (core * each).min(count)..((core + 1) * each).min(count);
                    let numbers: Vec<_> = mine.collect();
                    for numbers in numbers.chunks(TOGETHER) {
                        let operations = numbers.iter().map(|number| operation(*number, ids, width));
                        let operations = operations.collect::<Result<Vec<_>, _>>()?;
                        let found = compare_some(engine, local, &operations);
                        wrong.fetch_add(found, Ordering::Relaxed);
                    }
                    Ok::<_, MeasureError>(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(super::join)
    })?;
    Ok(wrong.into_inner())
}

fn compare_some(engine: &impl PrivateKeyEngine, local: &LocalEngine, operations: &[KeyOperation]) -> u64 {
    let pending: Vec<_> = operations.iter().map(|operation| engine.submit(operation.clone())).collect();
    let differ = operations.iter().zip(pending).filter_map(|(operation, pending)| {
        let expected = local.submit(operation.clone()).try_take();
        let expected = expected.expect("a local engine performs within `submit`");
        (wait(pending) != expected).then_some(())
    });
    differ.count() as u64
}

/// A [`KeyOperation`] with a random key on a random number, or on an edge case: 0, 1, and a number above the modulus.
fn operation(number: usize, ids: &[KeyId], width: Width) -> Result<KeyOperation, MeasureError> {
    let mut drawn = [0; 8];
    rand::fill(&mut drawn)?;
    let key = ids[(u64::from_le_bytes(drawn) % ids.len() as u64) as usize];
    let mut input = keys::random(width)?;
    if number.is_multiple_of(EDGES) {
        match number / EDGES % 3 {
            0 => input.fill(0xff),
            edge => {
                input.fill(0);
                *input.last_mut().expect("keys have bytes") = edge as u8 - 1;
            }
        }
    }
    Ok(keys::operation(key, input))
}

#[cfg(test)]
mod tests {
    use brisk_keys::{BatchEngine, BatchSettings, KeyError, PendingOperation, Performer};

    use super::*;

    const TWO: NonZeroUsize = NonZeroUsize::new(2).unwrap();

    #[test]
    fn engines_that_agree_have_nothing_wrong_and_the_edges_are_among_it() {
        let (keystore, ids) = keys::make(Width::Rsa2048, 3, TWO).unwrap();
        assert_eq!(ids.len(), 3);
        let engine = BatchEngine::new(Arc::clone(&keystore), &BatchSettings::default()).unwrap();
        let wrong = compare(&engine, &keystore, &ids, (Width::Rsa2048, 301), TWO).unwrap();
        assert_eq!(wrong, 0);
        let edges = [0, 100, 200].map(|number| {
            let operation = operation(number, &ids, Width::Rsa2048).unwrap();
            LocalEngine::new(Arc::clone(&keystore)).submit(operation).try_take().unwrap()
        });
        assert_eq!(edges[0], Err(KeyError::OutOfRange));
        assert_eq!(edges[1].as_ref().unwrap()[..], [0; 256]);
        assert_eq!(edges[2].as_ref().unwrap()[255], 1);
    }

    #[derive(Debug)]
    struct Liar;

    impl PrivateKeyEngine for Liar {
        fn submit(&self, _: KeyOperation) -> PendingOperation {
            PendingOperation::ready(Ok(vec![7; 256].into()), Performer::new("liar"))
        }
    }

    #[test]
    fn what_is_wrong_is_counted() {
        let (keystore, ids) = keys::make(Width::Rsa2048, 1, TWO).unwrap();
        let wrong = compare(&Liar, &keystore, &ids, (Width::Rsa2048, 9), TWO).unwrap();
        assert_eq!(wrong, 9);
    }
}

//! How long operations take on the card and on the processor: measured when the engine starts, with the keys it has.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use bytes::Bytes;

use super::{
    engine::card_width,
    error::CudaError,
    station::Station,
    statistics::{CudaStatistics, CudaTimes},
};
use crate::{
    KeyError, Keystore, OperationKind,
    batch::perform::Transform,
    private_key::PrivateKey,
    rsa_lanes::{Lane, Width, private_transform},
};

/// The shortest of so many counts: the others may have been interrupted, or found the card asleep. In tests the card is
/// the processor, and slow.
const TRIES: usize = if cfg!(test) { 1 } else { 3 };

/// Measures each width of which there is a key.
pub(super) fn all(
    station: &mut Station,
    keystore: &Keystore,
    statistics: &CudaStatistics,
) -> Result<(), CudaError> {
    for width in Width::ALL {
        if let Some(key) = keystore.keys().find(|key| card_width(key) == Some(width)) {
            statistics.measured(width, times(station, width, key)?);
        }
    }
    Ok(())
}

fn times(station: &mut Station, width: Width, key: &Arc<PrivateKey>) -> Result<CudaTimes, CudaError> {
    // It knows them with its first key.
    station.admit(width, [key].into_iter())?;
    let (wave_operations, layout) = (station.wave(width), station.layout(width));
    let mut on_card = |count| shortest(|| station.rehearse(width, key, count));
    let (one, wave) = (on_card(1)?, on_card(wave_operations)?);
    Ok(CudaTimes { one, wave, wave_operations, processor: on_processor(key)?, layout })
}

/// The time of one operation on this thread, in a batch where that is faster.
fn on_processor(key: &PrivateKey) -> Result<Duration, CudaError> {
    let rsa = key.rsa().expect("only RSA has a width");
    let mut input = vec![0; rsa.size()];
    // Without its first byte it is below the modulus.
    SystemRandom::new()
        .fill(&mut input[1..])
        .map_err(|_| CudaError::Key(KeyError::Failed("the system has no randomness")))?;
    let kind = OperationKind::Decrypt { ciphertext: Bytes::copy_from_slice(&input) };
    let alone = shortest(|| {
        let started = Instant::now();
        key.perform(&kind)?;
        Ok(started.elapsed())
    })?;
    let (Some(prepared), Some(transform)) = (rsa.prepared(), Transform::supported()) else {
        return Ok(alone);
    };
    let operations = transform.instructions.operations();
    let mut outputs = vec![vec![0; input.len()]; operations];
    let together = shortest(|| {
        let lane = |output| Lane { key: prepared, input: &input, output };
        let mut lanes: Vec<_> = outputs.iter_mut().map(|output| lane(&mut output[..])).collect();
        let started = Instant::now();
        private_transform(&mut lanes);
        Ok(started.elapsed())
    })?;
    Ok(alone.min(together / operations as u32))
}

fn shortest(mut measure: impl FnMut() -> Result<Duration, CudaError>) -> Result<Duration, CudaError> {
    let times = (0..TRIES).map(|_| measure()).collect::<Result<Vec<_>, _>>()?;
    Ok(times.into_iter().min().expect("there is one try at least"))
}

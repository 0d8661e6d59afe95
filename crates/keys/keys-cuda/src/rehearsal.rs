//! Measurement of launches at the start of the engine, with its keys, for the choice between GPU and processor.

use std::{sync::Arc, time::Duration};

use brisk_keys::{
    BatchChoice, Keystore,
    device::{self, PrivateKey, Width},
};

use super::{
    error::CudaError,
    keyed_stream::KeyedStream,
    statistics::{CudaStatistics, CudaTimes},
};

/// Number of repetitions, the shortest of which counts: others may have been interrupted, or the GPU was in a
/// power-saving state. One in tests, where the processor replaces the GPU.
const TRIES: usize = if cfg!(test) { 1 } else { 3 };

/// Measures each width that has a [`PrivateKey`].
pub(super) fn all(
    stream: &mut KeyedStream,
    keystore: &Keystore,
    statistics: &CudaStatistics,
) -> Result<(), CudaError> {
    for width in Width::ALL {
        if let Some(key) = device::keys(keystore).find(|key| key.width() == Some(width)) {
            statistics.measured(width, times(stream, width, key)?);
        }
    }
    Ok(())
}

fn times(stream: &mut KeyedStream, width: Width, key: &Arc<PrivateKey>) -> Result<CudaTimes, CudaError> {
    // Wave and layout are known after the first key.
    stream.admit(width, [key].into_iter())?;
    let (wave_operations, layout) = (stream.wave(width), stream.layout(width));
    let mut on_gpu = |count| shortest(|| stream.rehearse(width, key, count));
    let (one, wave) = (on_gpu(1)?, on_gpu(wave_operations)?);
    let processor = BatchChoice::of_this_machine(width).time();
    Ok(CudaTimes { one, wave, wave_operations, processor, layout })
}

fn shortest(mut measure: impl FnMut() -> Result<Duration, CudaError>) -> Result<Duration, CudaError> {
    let times = (0..TRIES).map(|_| measure()).collect::<Result<Vec<_>, _>>()?;
    Ok(times.into_iter().min().expect("there is one try at least"))
}

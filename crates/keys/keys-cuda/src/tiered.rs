//! The engine that chooses between processor and GPU for each operation.

use std::{fmt, sync::Arc, time::Duration};

use brisk_keys::{
    BatchEngine, KeyOperation, Keystore, PendingOperation, PrivateKeyEngine,
    device::{self, Width},
};

use super::{
    engine::CudaEngine,
    statistics::{CudaStatistics, CudaTimes},
};

/// Performs operations on the processor at low load, and on a GPU at high load.
///
/// The GPU has a high latency at any load: a `KeyOperation` waits for others, and a single one takes a GPU thread much
/// longer than a core of the processor. The GPU is therefore used once the processor would take longer for all
/// operations in progress. Both durations are measured at the start. By Little's law, the GPU then gets the work when
/// more operations arrive than the processor's threads can perform.
#[derive(Debug)]
pub struct Tiered {
    cuda: CudaEngine,
    wait: Duration,
}

impl Tiered {
    /// Chooses between the GPU of `cuda`, where operations wait up to `wait` for others, and its processor.
    pub const fn new(cuda: CudaEngine, wait: Duration) -> Self {
        Self { cuda, wait }
    }

    /// A `CudaEngine` for other keys on the same threads and GPU.
    #[must_use]
    pub fn with_keystore(&self, keystore: Arc<Keystore>) -> Self {
        Self { cuda: self.cuda.with_keystore(keystore), wait: self.wait }
    }

    /// The [`BatchEngine`] of the processor.
    pub const fn processor(&self) -> &BatchEngine {
        self.cuda.processor()
    }

    /// Statistics of the GPU.
    pub const fn statistics(&self) -> &Arc<CudaStatistics> {
        self.cuda.statistics()
    }

    /// Number of operations in progress from which operations with keys of `bits` bits are sent to the GPU; `None`:
    /// never.
    pub fn threshold(&self, bits: usize) -> Option<usize> {
        Width::of_bits(bits).and_then(|width| self.threshold_of(width))
    }

    fn threshold_of(&self, width: Width) -> Option<usize> {
        let (threads, queue) = self.processor().capacity()?;
        let times = self.statistics().times_of(width)?;
        Some(threshold(&times, self.wait, threads, queue))
    }

    fn prefers_gpu(&self, width: Width) -> bool {
        // Operations of all widths count alike, which is exact only if all keys have one size.
        let under_way = self.processor().statistics().waiting() + self.statistics().pending();
        !self.statistics().is_lost() && self.threshold_of(width).is_some_and(|least| under_way >= least)
    }
}

impl PrivateKeyEngine for Tiered {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        let width = device::key(self.cuda.keystore(), operation.key).and_then(|key| key.width());
        if width.is_some_and(|width| self.prefers_gpu(width)) {
            self.cuda.submit(operation)
        } else {
            self.processor().submit(operation)
        }
    }
}

impl fmt::Display for Tiered {
    /// Summarizes the thresholds in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RSA on {} under load", self.cuda)?;
        let mut before = ": from ";
        for width in Width::ALL {
            if let Some(threshold) = self.threshold_of(width) {
                write!(f, "{before}{threshold} operations of {} bits", width.bits())?;
                before = ", ";
            }
        }
        Ok(())
    }
}

/// The number of operations that the processor's threads perform during the latency of the GPU. At most half of the
/// processor's queue, so that the queue does not overflow while the GPU is idle.
fn threshold(times: &CudaTimes, wait: Duration, threads: usize, queue: usize) -> usize {
    let answer = (times.one + wait).as_nanos() * threads as u128;
    let operations = answer.div_ceil(times.processor.as_nanos().max(1));
    usize::try_from(operations).unwrap_or(usize::MAX).min(queue / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CudaLayout;

    fn times(one: u64, processor: u64) -> CudaTimes {
        let [one, processor] = [one, processor].map(Duration::from_micros);
        CudaTimes { one, wave: one * 2, wave_operations: 8000, processor, layout: CudaLayout::default() }
    }

    #[test]
    fn the_gpu_has_what_the_processor_would_be_longer_busy_with() {
        let wait = Duration::from_millis(2);
        assert_eq!(threshold(&times(2000, 100), wait, 1, 1024), 40);
        assert_eq!(threshold(&times(2000, 100), wait, 4, 1024), 160);
        assert_eq!(threshold(&times(2001, 100), wait, 1, 1024), 41);
        assert_eq!(threshold(&times(2000, 100), wait, 64, 1024), 512, "the queue has room for the rest");
    }
}

//! Counters of a GPU for metrics, and durations of launches for the choice between GPU and processor.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use brisk_keys::device::Width;

use super::error::CudaError;

/// Counters of the GPU of a [`CudaEngine`](super::CudaEngine) since its start.
#[derive(Debug, Default)]
pub struct CudaStatistics {
    pending: AtomicUsize,
    operations: AtomicU64,
    launches: AtomicU64,
    faults: AtomicU64,
    taken_over: AtomicU64,
    lost: OnceLock<CudaError>,
    times: [OnceLock<CudaTimes>; Width::ALL.len()],
}

/// Durations and layout of operations of one width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaTimes {
    /// Duration of a launch of one operation, from host memory to host memory.
    pub one: Duration,
    /// Duration of a launch of a full wave.
    pub wave: Duration,
    /// Number of operations in a wave.
    pub wave_operations: usize,
    /// Duration of an operation on one core of the processor; in a batch, the share of one operation.
    pub processor: Duration,
    /// Layout of the operations.
    pub layout: CudaLayout,
}

/// Layout of operations of one width on the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CudaLayout {
    /// GPU threads for each half of an operation.
    pub threads: u32,
    /// Threads per block.
    pub block: u32,
    /// Bits of the exponent per multiplication.
    pub window: u32,
    /// Registers per thread.
    pub registers: u32,
    /// Bytes per thread that did not fit in registers; any value except 0 is slow.
    pub spilled: u32,
    /// Number of operations that fit on the GPU at a time.
    pub resident: usize,
}

impl CudaStatistics {
    /// Operations that wait for the GPU or are on it.
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Operations that the GPU performed.
    pub fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    /// Number of launches.
    pub fn launches(&self) -> u64 {
        self.launches.load(Ordering::Relaxed)
    }

    /// Results that failed their check and were not used.
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Operations for the GPU that the processor performed instead.
    pub fn taken_over(&self) -> u64 {
        self.taken_over.load(Ordering::Relaxed)
    }

    /// Returns whether the GPU was lost. It gets no further operations.
    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// The reason of the loss.
    pub fn loss(&self) -> Option<&CudaError> {
        self.lost.get()
    }

    /// Durations measured with the first key of `bits` bits; `None` before.
    pub fn times(&self, bits: usize) -> Option<CudaTimes> {
        Width::of_bits(bits).and_then(|width| self.times_of(width))
    }

    pub(super) fn times_of(&self, width: Width) -> Option<CudaTimes> {
        self.times[width as usize].get().copied()
    }

    /// Records a measurement. The first one is kept.
    pub(super) fn measured(&self, width: Width, times: CudaTimes) {
        self.times[width as usize].get_or_init(|| times);
    }

    pub(super) fn arrived(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that `operations` operations have ended or were passed to the processor.
    pub(super) fn left(&self, operations: usize) {
        self.pending.fetch_sub(operations, Ordering::Relaxed);
    }

    pub(super) fn launched(&self, operations: usize) {
        self.operations.fetch_add(operations as u64, Ordering::Relaxed);
        self.launches.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn take_over(&self) {
        self.taken_over.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts wrong results and returns their total.
    pub(super) fn fault(&self, faults: usize) -> u64 {
        self.faults.fetch_add(faults as u64, Ordering::Relaxed) + faults as u64
    }

    /// Records the loss of the GPU. Returns `false` if it was recorded before.
    pub(super) fn lose(&self, error: &CudaError) -> bool {
        self.lost.set(error.clone()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_there_once_they_were_measured() {
        let statistics = CudaStatistics::default();
        assert_eq!(statistics.times(3072), None);
        let times = CudaTimes {
            one: Duration::from_micros(900),
            wave: Duration::from_millis(3),
            wave_operations: 4000,
            processor: Duration::from_micros(190),
            layout: CudaLayout::default(),
        };
        statistics.measured(Width::Rsa3072, times);
        assert_eq!(statistics.times(3072), Some(times));
        assert_eq!((statistics.times(2048), statistics.times(1024)), (None, None));
    }

    #[test]
    fn a_gpu_is_lost_once() {
        let statistics = CudaStatistics::default();
        assert!(!statistics.is_lost());
        let reasons = [CudaError::Panicked, CudaError::NoDriver];
        assert_eq!(reasons.each_ref().map(|reason| statistics.lose(reason)), [true, false]);
        assert_eq!(statistics.loss(), Some(&reasons[0]));
    }
}

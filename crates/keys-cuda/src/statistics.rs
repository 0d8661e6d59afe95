//! What a GPU has done, counted for metrics, and how long it takes, for who chooses between it and the processor.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use brisk_keys::device::Width;

use super::error::CudaError;

/// What the GPU of a [`CudaEngine`](super::CudaEngine) has done since the start, and has to do.
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

/// How long operations of one width take, and how they lie on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaTimes {
    /// A launch of one operation on the GPU, from host memory to host memory.
    pub one: Duration,
    /// A launch of as many as one stream takes.
    pub wave: Duration,
    /// How many these are.
    pub wave_operations: usize,
    /// An operation on one core of the processor, in a batch if it has the instructions.
    pub processor: Duration,
    /// How the operations are laid out.
    pub layout: CudaLayout,
}

/// How operations of one width lie on the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CudaLayout {
    /// Threads of the GPU for each half of an operation.
    pub threads: u32,
    /// Threads to a block.
    pub block: u32,
    /// Bits of an exponent to one multiplication.
    pub window: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of a thread that found no room in registers; anything but 0 is slow.
    pub spilled: u32,
    /// Operations that the GPU has room for at a time.
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

    /// Launches in which it did so.
    pub fn launches(&self) -> u64 {
        self.launches.load(Ordering::Relaxed)
    }

    /// Results that did not stand the check and were not used.
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Operations that were meant for the GPU and that the processor performed, for want of a result or of the GPU.
    pub fn taken_over(&self) -> u64 {
        self.taken_over.load(Ordering::Relaxed)
    }

    /// Whether the GPU was given up. Nothing is sent to it any more.
    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Why the GPU was given up, if it was.
    pub fn loss(&self) -> Option<&CudaError> {
        self.lost.get()
    }

    /// The times measured with the first key of `bits` bits; `None` if there was none yet.
    pub fn times(&self, bits: usize) -> Option<CudaTimes> {
        Width::of_bits(bits).and_then(|width| self.times_of(width))
    }

    pub(super) fn times_of(&self, width: Width) -> Option<CudaTimes> {
        self.times[width as usize].get().copied()
    }

    /// What is measured first stays.
    pub(super) fn measured(&self, width: Width, times: CudaTimes) {
        self.times[width as usize].get_or_init(|| times);
    }

    pub(super) fn arrived(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that `operations` operations are answered, or were handed on.
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

    /// More faults; returns how many there were by now.
    pub(super) fn fault(&self, faults: usize) -> u64 {
        self.faults.fetch_add(faults as u64, Ordering::Relaxed) + faults as u64
    }

    /// Whether this is news.
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

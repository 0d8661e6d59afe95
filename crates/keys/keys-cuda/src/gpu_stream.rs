//! [`GpuStream`], the interface of the engine to a GPU: one stream of work with its own memory.
//!
//! Each stream is used by one thread, which blocks on it. Two streams keep a GPU busy: while one computes, the other
//! collects, copies and completes operations.

use brisk_keys::device::Width;

use super::{error::CudaError, statistics::CudaLayout};

/// A stream of a GPU. It owns copies of the keys, their blinding pairs and its buffers, and wipes all of them on drop.
///
/// For each [`Width`], keys are stored at indices (`place`) from 0 on. After a [`CudaError`] the stream must not be used
/// further.
pub(crate) trait GpuStream: Send {
    /// Maximum number of operations of this width in a launch, which is also the best number. 1 before the first key.
    fn wave(&self, width: Width) -> usize;

    /// Layout of operations of this width. Only after [`reserve`](Self::reserve).
    fn layout(&self, width: Width) -> CudaLayout;

    /// Allocates memory for at least `places` keys. Existing keys stay.
    fn reserve(&mut self, width: Width, places: usize) -> Result<(), CudaError>;

    /// Stores a key: its record, and `u` and `v` of the blinding pair in slot 0.
    fn put_key(&mut self, width: Width, place: u32, record: &[u32], pair: &[u32]) -> Result<(), CudaError>;

    /// Wipes a key and its blinding pairs.
    fn wipe_key(&mut self, width: Width, place: u32) -> Result<(), CudaError>;

    /// Squares blinding pairs into their next slots. Two words for each: index of the key, and the slot to fill.
    fn advance(&mut self, width: Width, advances: &[u32]) -> Result<(), CudaError>;

    /// Buffers for the next launch.
    fn buffers(&mut self, width: Width) -> Buffers<'_>;

    /// Performs the first `count` operations in the buffers. Returns when the results are available; `advances` are
    /// processed afterwards, in the background.
    fn perform(&mut self, width: Width, count: usize, advances: &[u32]) -> Result<Results<'_>, CudaError>;

    /// Wipes inputs and outputs of the last launch of `count` operations.
    fn wipe_buffers(&mut self, width: Width, count: usize);
}

/// Input buffers of a launch.
pub(crate) struct Buffers<'a> {
    /// Two words for each operation: index of its key, and two slots of blinding pairs, `b << 16 | a`.
    pub(crate) requests: &'a mut [u32],
    /// Inputs, big-endian, each as long as the modulus.
    pub(crate) inputs: &'a mut [u8],
}

/// Results of a launch.
pub(crate) struct Results<'a> {
    /// Outputs, big-endian, each as long as the modulus.
    pub(crate) outputs: &'a [u8],
    /// One verdict for each operation: [`DONE`], [`OUT_OF_RANGE`], or a failure.
    pub(crate) verdicts: &'a [u32],
}

/// Verdict of an operation that was performed and checked. All other values, except [`OUT_OF_RANGE`], mean failure.
pub(crate) const DONE: u32 = 1;

/// Verdict of an input that is not below the modulus.
pub(crate) const OUT_OF_RANGE: u32 = 2;

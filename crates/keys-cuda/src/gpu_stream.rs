//! What an engine asks of a GPU: one stream of work, with memory of its own.
//!
//! A stream is used by one thread, which waits for it. Two of them keep a GPU busy: while one computes, the other
//! gathers, copies and answers.

use brisk_keys::device::Width;

use super::{error::CudaError, statistics::CudaLayout};

/// One stream of a GPU. Its keys, their blinding factors and its buffers belong to it alone; all of them are wiped when
/// it is dropped.
///
/// For each width there are places for keys, from 0 on. After an error nothing more can be expected of the stream.
pub(crate) trait GpuStream: Send {
    /// How many operations of this width one launch takes at most: as many as the stream should have under way at a time.
    /// One, as long as there has been no room for a key.
    fn wave(&self, width: Width) -> usize;

    /// How operations of this width lie on the GPU. There has been room for a key.
    fn layout(&self, width: Width) -> CudaLayout;

    /// Makes room for at least `places` keys. Keys that are there stay.
    fn reserve(&mut self, width: Width, places: usize) -> Result<(), CudaError>;

    /// Puts a key at its place: its record, and `u` and `v` of the blinding pair in slot 0.
    fn put_key(&mut self, width: Width, place: u32, record: &[u32], pair: &[u32]) -> Result<(), CudaError>;

    /// Wipes the key at this place, and its blinding factors.
    fn wipe_key(&mut self, width: Width, place: u32) -> Result<(), CudaError>;

    /// Squares blinding pairs into the slots that follow them. Two words each: the place of the key, the slot to be filled.
    fn advance(&mut self, width: Width, advances: &[u32]) -> Result<(), CudaError>;

    /// The buffers that the next launch is read from.
    fn buffers(&mut self, width: Width) -> Buffers<'_>;

    /// Performs the first `count` operations in the buffers, and returns when their results are there; then advances
    /// blinding pairs, which is not waited for.
    fn perform(&mut self, width: Width, count: usize, advances: &[u32]) -> Result<Results<'_>, CudaError>;

    /// Wipes what the last launch of `count` operations left in the buffers.
    fn wipe_buffers(&mut self, width: Width, count: usize);
}

/// What a launch is read from.
pub(crate) struct Buffers<'a> {
    /// Two words for each operation: the place of its key, and two slots of blinding pairs, `b << 16 | a`.
    pub(crate) requests: &'a mut [u32],
    /// For each operation as many bytes as its modulus has, big-endian.
    pub(crate) inputs: &'a mut [u8],
}

/// What comes of a launch.
pub(crate) struct Results<'a> {
    /// For each operation as many bytes as its modulus has, big-endian.
    pub(crate) outputs: &'a [u8],
    /// One for each operation.
    pub(crate) verdicts: &'a [u32],
}

/// What a kernel writes for an operation that it performed. Anything else is no result.
pub(crate) const DONE: u32 = 1;

/// What it writes where the input is not a number below the modulus.
pub(crate) const OUT_OF_RANGE: u32 = 2;

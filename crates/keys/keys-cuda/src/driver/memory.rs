//! Memory of the GPU, and pinned memory of this process. Both are wiped before they are freed, because they contain
//! keys and results.

use std::{
    ops::{Deref, DerefMut, Range},
    ptr::NonNull,
    slice,
};

use cudarc::driver::{
    result,
    sys::{CUdeviceptr, CUstream},
};
use zeroize::Zeroize;

use super::{CudaError, failed};

/// Bytes per word of [`DeviceMemory`] and [`PinnedMemory`].
const WORD: usize = size_of::<u32>();

/// Words on the GPU, used by one stream that outlives them. The context must be current in every call.
pub(super) struct DeviceMemory {
    address: CUdeviceptr,
    words: usize,
    stream: CUstream,
}

impl DeviceMemory {
    /// Allocates `words` words, all zero.
    pub(super) fn zeroes(words: usize, stream: CUstream) -> Result<Self, CudaError> {
        // SAFETY: the memory is filled by `wipe` before it is read.
        let address = unsafe { result::malloc_sync(words.max(1) * WORD) }.map_err(failed("find memory"))?;
        let memory = Self { address, words, stream };
        memory.wipe(0..words)?;
        Ok(memory)
    }

    pub(super) const fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// Address of a word.
    fn at(&self, word: usize) -> CUdeviceptr {
        assert!(word <= self.words, "word {word} of {}", self.words);
        self.address + (word * WORD) as CUdeviceptr
    }

    /// Copies `source` to the words from `word` on. `source` must not change until the stream has been synchronized.
    pub(super) fn fill(&mut self, word: usize, source: &[u32]) -> Result<(), CudaError> {
        assert!(word + source.len() <= self.words, "it has room");
        // SAFETY: the range was checked, and the caller keeps the source.
        unsafe { result::memcpy_htod_async(self.at(word), source, self.stream) }.map_err(failed("take data"))
    }

    /// Copies the first words to `target`, which is valid after the stream has been synchronized.
    pub(super) fn read(&self, target: &mut [u32]) -> Result<(), CudaError> {
        assert!(target.len() <= self.words, "the memory has as many words");
        // SAFETY: the range was checked, and the caller keeps the target.
        unsafe { result::memcpy_dtoh_async(target, self.address, self.stream) }.map_err(failed("give data"))
    }

    /// Copies `source`, memory of the same stream, to the first words.
    pub(super) fn copy(&mut self, source: &Self) -> Result<(), CudaError> {
        assert!(source.words <= self.words, "it has room");
        let bytes = source.words * WORD;
        // SAFETY: both exist, and synchronize the stream before they are freed.
        unsafe { result::memcpy_dtod_async(self.address, source.address, bytes, self.stream) }
            .map_err(failed("move data"))
    }

    pub(super) fn wipe(&self, words: Range<usize>) -> Result<(), CudaError> {
        assert!(words.end <= self.words, "the memory has as many words");
        // SAFETY: the range was checked.
        unsafe { result::memset_d8_async(self.at(words.start), 0, words.len() * WORD, self.stream) }
            .map_err(failed("wipe its memory"))
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // An error means that the GPU is lost, together with its memory.
        drop(self.wipe(0..self.words));
        // SAFETY: the stream exists; after the synchronization nothing uses the memory, which is freed once.
        unsafe {
            let _ = result::stream::synchronize(self.stream);
            let _ = result::free_sync(self.address);
        }
    }
}

/// Pinned words of this process, which the GPU copies without the processor.
pub(super) struct PinnedMemory {
    words: NonNull<u32>,
    count: usize,
}

// SAFETY: this value owns the memory, and the driver does not bind it to a thread.
unsafe impl Send for PinnedMemory {}

impl PinnedMemory {
    /// Allocates `count` words, all zero. The context must be current.
    pub(super) fn zeroes(count: usize) -> Result<Self, CudaError> {
        // Not write-combined, because results are read from it.
        // SAFETY: the memory is filled before it is read.
        let address = unsafe { result::malloc_host(count.max(1) * WORD, 0) };
        let address = address.map_err(failed("find memory that it can reach"))?;
        let words = NonNull::new(address.cast::<u32>()).expect("the driver says if it has none");
        // SAFETY: `count` words were allocated, and no other pointer to them exists.
        unsafe { words.as_ptr().write_bytes(0, count) };
        Ok(Self { words, count })
    }

    /// The words as bytes, in native order.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: each word has four initialized bytes.
        unsafe { slice::from_raw_parts(self.words.as_ptr().cast(), self.count * WORD) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and any bytes are valid words.
        unsafe { slice::from_raw_parts_mut(self.words.as_ptr().cast(), self.count * WORD) }
    }
}

impl Deref for PinnedMemory {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        // SAFETY: all `count` words are initialized; the GPU writes to them only in calls that borrow `self` mutably.
        unsafe { slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }
}

impl DerefMut for PinnedMemory {
    fn deref_mut(&mut self) -> &mut [u32] {
        // SAFETY: as in `deref`.
        unsafe { slice::from_raw_parts_mut(self.words.as_ptr(), self.count) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        (**self).zeroize();
        // SAFETY: the driver allocated the memory, it is freed once, and its owner has synchronized the stream that
        // uses it.
        let _ = unsafe { result::free_host(self.words.as_ptr().cast()) };
    }
}

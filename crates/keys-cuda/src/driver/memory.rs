//! Memory of a GPU, and memory of this process that the GPU can reach by itself. Both are wiped before they are freed.

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

/// Bytes of a word.
const WORD: usize = size_of::<u32>();

/// Words on the GPU, for the work of one stream, which outlives them. The context is current in every call.
pub(super) struct DeviceMemory {
    address: CUdeviceptr,
    words: usize,
    stream: CUstream,
}

impl DeviceMemory {
    /// Memory of `words` words, all zero.
    pub(super) fn zeroes(words: usize, stream: CUstream) -> Result<Self, CudaError> {
        // SAFETY: the memory is not read before the stream has filled it.
        let address = unsafe { result::malloc_sync(words.max(1) * WORD) }.map_err(failed("find memory"))?;
        let memory = Self { address, words, stream };
        memory.wipe(0..words)?;
        Ok(memory)
    }

    pub(super) const fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// Where the word with this number lies.
    fn at(&self, word: usize) -> CUdeviceptr {
        assert!(word <= self.words, "word {word} of {}", self.words);
        self.address + (word * WORD) as CUdeviceptr
    }

    /// Copies `source`, which stays as it is until the stream was waited for, to the words from `word` on.
    pub(super) fn fill(&mut self, word: usize, source: &[u32]) -> Result<(), CudaError> {
        assert!(word + source.len() <= self.words, "it has room");
        // SAFETY: the memory is ours and large enough, and the caller keeps the source.
        unsafe { result::memcpy_htod_async(self.at(word), source, self.stream) }.map_err(failed("take data"))
    }

    /// Copies the first words to `target`, which is not read before the stream was waited for.
    pub(super) fn read(&self, target: &mut [u32]) -> Result<(), CudaError> {
        assert!(target.len() <= self.words, "the memory has as many words");
        // SAFETY: the memory is ours and as long as the target at least, and the caller keeps the target.
        unsafe { result::memcpy_dtoh_async(target, self.address, self.stream) }.map_err(failed("give data"))
    }

    /// Copies all of `source`, memory of the same stream, to the first words.
    pub(super) fn copy(&mut self, source: &Self) -> Result<(), CudaError> {
        assert!(source.words <= self.words, "it has room");
        let bytes = source.words * WORD;
        // SAFETY: both are alive, and wait for the stream before they are freed.
        unsafe { result::memcpy_dtod_async(self.address, source.address, bytes, self.stream) }
            .map_err(failed("move data"))
    }

    pub(super) fn wipe(&self, words: Range<usize>) -> Result<(), CudaError> {
        assert!(words.end <= self.words, "the memory has as many words");
        // SAFETY: the memory is ours, and has these words.
        unsafe { result::memset_d8_async(self.at(words.start), 0, words.len() * WORD, self.stream) }
            .map_err(failed("wipe its memory"))
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // An error means that the GPU is lost, and its memory with it: there is nothing to report.
        drop(self.wipe(0..self.words));
        // SAFETY: the stream is alive; when it was waited for nothing uses the memory, which is freed this once.
        unsafe {
            let _ = result::stream::synchronize(self.stream);
            let _ = result::free_sync(self.address);
        }
    }
}

/// Words of this process that stay where they are, so that the GPU copies them while the processor does other things.
pub(super) struct PinnedMemory {
    words: NonNull<u32>,
    count: usize,
}

// SAFETY: the memory belongs to this value alone, and the driver binds it to no thread.
unsafe impl Send for PinnedMemory {}

impl PinnedMemory {
    /// Memory of `count` words, all zero. The context is current.
    pub(super) fn zeroes(count: usize) -> Result<Self, CudaError> {
        // Not write-combined: results are read.
        // SAFETY: the memory is filled before anything reads it.
        let address = unsafe { result::malloc_host(count.max(1) * WORD, 0) };
        let address = address.map_err(failed("find memory that it can reach"))?;
        let words = NonNull::new(address.cast::<u32>()).expect("the driver says if it has none");
        // SAFETY: `count` words were allocated, and there is no other pointer to them.
        unsafe { words.as_ptr().write_bytes(0, count) };
        Ok(Self { words, count })
    }

    /// The words as bytes, in memory's order.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: every word is four bytes, all of them set.
        unsafe { slice::from_raw_parts(self.words.as_ptr().cast(), self.count * WORD) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and any bytes make words.
        unsafe { slice::from_raw_parts_mut(self.words.as_ptr().cast(), self.count * WORD) }
    }
}

impl Deref for PinnedMemory {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        // SAFETY: there are `count` words, all set; the GPU writes to them only in calls that borrow `self` mutably.
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
        // SAFETY: the driver gave the memory, it is freed this once, and our owner has waited for the stream that uses it.
        let _ = unsafe { result::free_host(self.words.as_ptr().cast()) };
    }
}

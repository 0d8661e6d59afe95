//! The allocator, and giving memory back.
#![expect(unsafe_code, reason = "the allocator's own collection has no safe binding")]

/// Small blocks per thread, given back quickly: connections make and drop many.
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Gives memory that the calling thread freed back to the system. mimalloc does so only while a thread allocates, so a
/// worker that has gone idle after a burst would keep the burst's memory.
pub(crate) fn give_back() {
    // SAFETY: has no preconditions; it works on the calling thread's own heap.
    unsafe { libmimalloc_sys::mi_collect(false) };
}

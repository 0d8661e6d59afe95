//! The allocator, pages, and giving memory back.
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

/// Has the kernel use pages of 4 KiB throughout. With larger ones it fills the gaps that freed memory has left, minutes after
/// a burst too: 10,000 clients at once then cost an eighth more, and four times as much stays behind when they are gone. Requests
/// and handshakes cost the same either way. A kernel that refuses costs memory and nothing else.
pub(crate) fn small_pages() {
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

//! The allocator, pages, and giving memory back.
#![expect(
    unsafe_code,
    reason = "an allocator is unsafe to write, and mimalloc's own collection has no safe binding"
)]

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys::{
    mi_collect, mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc,
    mi_zalloc_aligned,
};

/// Small blocks per thread, given back quickly: connections make and drop many.
#[global_allocator]
static GLOBAL: Mimalloc = Mimalloc;

/// mimalloc, as its crate of that name binds it, but for one thing: what is aligned as all blocks are is asked for without an
/// alignment. With one, mimalloc 3 takes a larger block by a longer way for most sizes, at up to two and a half times the cost.
struct Mimalloc;

/// mimalloc aligns every block to this.
const ALIGNED: usize = size_of::<usize>();

// SAFETY: mimalloc returns blocks of the size and alignment that it is asked for, or null, and never unwinds. `ALIGNED` is the least
// alignment of its blocks.
unsafe impl GlobalAlloc for Mimalloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: an alignment is a power of two.
        unsafe { if align <= ALIGNED { mi_malloc(size) } else { mi_malloc_aligned(size, align) } }.cast()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: as above.
        unsafe { if align <= ALIGNED { mi_zalloc(size) } else { mi_zalloc_aligned(size, align) } }.cast()
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller has the block from here.
        unsafe { mi_free(block.cast()) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (block, align) = (block.cast(), layout.align());
        // SAFETY: the caller has the block from here.
        unsafe {
            if align <= ALIGNED { mi_realloc(block, size) } else { mi_realloc_aligned(block, size, align) }
        }
        .cast()
    }
}

/// Gives memory that the calling thread freed back to the system. mimalloc does so only while a thread allocates, so a
/// worker that has gone idle after a burst would keep the burst's memory.
pub(crate) fn give_back() {
    // SAFETY: has no preconditions; it works on the calling thread's own heap.
    unsafe { mi_collect(false) };
}

/// Has the kernel use pages of 4 KiB throughout. With larger ones it fills the gaps that freed memory has left, minutes after
/// a burst too: 10,000 clients at once then cost an eighth more, and four times as much stays behind when they are gone. Requests
/// and handshakes cost the same either way. A kernel that refuses costs memory and nothing else.
pub(crate) fn small_pages() {
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

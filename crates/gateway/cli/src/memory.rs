//! The global allocator (mimalloc), page size, and return of memory to the system.
#![expect(
    unsafe_code,
    reason = "an allocator is unsafe to write, and mimalloc's own collection has no safe binding"
)]

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys::{
    mi_collect, mi_free, mi_malloc, mi_malloc_aligned, mi_option_set, mi_option_t, mi_realloc,
    mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};

/// mimalloc keeps small blocks in lists per thread and reuses them quickly: connections allocate and free many.
#[global_allocator]
static GLOBAL: Mimalloc = Mimalloc;

/// mimalloc, bound as the crate `mimalloc` does, with one difference: blocks that need no more than mimalloc's own alignment
/// are requested without an alignment. Requests with an alignment take a slower path in mimalloc 3 for most larger sizes, at
/// up to two and a half times the cost.
struct Mimalloc;

/// Alignment of every block of mimalloc, in bytes.
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
        // SAFETY: by the contract of `dealloc`, `block` was allocated by this allocator.
        unsafe { mi_free(block.cast()) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (block, align) = (block.cast(), layout.align());
        // SAFETY: by the contract of `realloc`, `block` was allocated by this allocator.
        unsafe {
            if align <= ALIGNED { mi_realloc(block, size) } else { mi_realloc_aligned(block, size, align) }
        }
        .cast()
    }
}

/// Returns the memory that the calling thread has freed to the system (`mi_collect`). mimalloc does this only during
/// allocations, so a worker that is idle after a burst would otherwise keep the memory of the burst.
pub(crate) fn give_back() {
    // SAFETY: `mi_collect` has no preconditions; it works on the heap of the calling thread.
    unsafe { mi_collect(false) };
}

/// `mi_option_purge_delay` of mimalloc 2 and 3, which the bindings do not name.
const PURGE_DELAY: mi_option_t = 15;

/// Time in milliseconds after which freed pages return to the system. Under the attacks of `make worst` the process has 28 MiB
/// less than with mimalloc's default of a second.
const PURGED_AFTER: std::ffi::c_long = 100;

/// Makes freed pages return to the system sooner than mimalloc does by default.
pub(crate) fn purge_soon() {
    // SAFETY: the option exists, and any number of milliseconds is valid.
    unsafe { mi_option_set(PURGE_DELAY, PURGED_AFTER) };
}

/// Disables transparent huge pages (`PR_SET_THP_DISABLE`). With them the kernel fills the gaps of freed memory, even minutes
/// after a burst: 10,000 concurrent clients then cost an eighth more memory, and four times as much remains after they have
/// left. Requests and handshakes cost the same either way. A refusal by the kernel costs memory only, and is ignored.
pub(crate) fn small_pages() {
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

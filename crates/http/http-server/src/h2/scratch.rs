//! Output buffers between turns. A worker keeps one, so that idle connections have none.

use std::cell::Cell;

/// Maximum capacity, in bytes, of a kept buffer; a larger one is freed.
const LARGEST: usize = 512 << 10;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Returns the spare buffer of this worker, or a new one. The buffer is empty.
pub(super) fn take() -> Vec<u8> {
    SPARE.take()
}

/// Keeps an empty `buffer` of at most [`LARGEST`] bytes for the next turn of any connection of this worker.
pub(super) fn give_back(buffer: Vec<u8>) {
    if buffer.capacity() <= LARGEST {
        SPARE.set(buffer);
    }
}

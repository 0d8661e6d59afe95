//! Output buffers between turns: a worker keeps one, so that an idle connection has none.

use std::cell::Cell;

/// A buffer that has grown beyond this is given up.
const LARGEST: usize = 512 << 10;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// An empty buffer, the one that was given back last if there is one.
pub(super) fn take() -> Vec<u8> {
    SPARE.take()
}

/// Keeps an empty buffer for the next turn of any connection.
pub(super) fn give_back(buffer: Vec<u8>) {
    if buffer.capacity() <= LARGEST {
        SPARE.set(buffer);
    }
}

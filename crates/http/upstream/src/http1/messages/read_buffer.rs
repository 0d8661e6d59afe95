//! Memory for reads of short responses, which the connections of a worker share: while a server sends nothing, its connection has
//! none.

use std::cell::{Cell, RefCell};

use bytes::BytesMut;

use super::READ_FIRST;

thread_local! {
    static SPARE: Cell<Option<BytesMut>> = const { Cell::new(None) };
    static COPIES: RefCell<BytesMut> = RefCell::new(BytesMut::with_capacity(READ_FIRST));
}

/// An empty buffer for a read of [`READ_FIRST`] bytes.
pub(super) fn take() -> BytesMut {
    SPARE.take().unwrap_or_else(|| BytesMut::with_capacity(READ_FIRST))
}

/// Keeps a buffer from [`take`], of which nothing was split off, for the next read. Its contents are lost.
pub(super) fn give_back(mut buffer: BytesMut) {
    buffer.clear();
    SPARE.set(Some(buffer));
}

/// A copy of at most [`READ_FIRST`] `bytes`. Successive copies share a buffer of this size, so a copy that is held long keeps no
/// more memory than a read into a buffer of its own.
pub(super) fn copy(bytes: &[u8]) -> BytesMut {
    debug_assert!(bytes.len() <= READ_FIRST, "a copy fits the shared buffer");
    COPIES.with_borrow_mut(|shared| {
        // A full buffer is begun anew in its place if all copies in it are gone; otherwise they keep it, and another one begins.
        shared.extend_from_slice(bytes);
        shared.split()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successive_copies_share_memory_and_leave_their_bytes_unchanged() {
        let copies: Vec<_> = (0..10_000_u32).map(|number| copy(&number.to_be_bytes())).collect();
        assert!(copies.iter().zip(0_u32..).all(|(copy, number)| **copy == number.to_be_bytes()));
        assert_eq!(copies[0].as_ptr().addr() + 4, copies[1].as_ptr().addr());
        drop(copies);
        let places: Vec<_> = (0..100).map(|_| copy(&[0; READ_FIRST / 2]).as_ptr().addr()).collect();
        assert!(places[90..].iter().all(|place| places[80..90].contains(place)), "memory of dropped copies");
    }

    #[test]
    fn a_buffer_is_used_again_without_its_contents() {
        let mut buffer = take();
        buffer.extend_from_slice(b"response");
        let place = buffer.as_ptr();
        give_back(buffer);
        let again = take();
        assert!(again.is_empty() && again.as_ptr() == place && again.capacity() >= READ_FIRST);
    }
}

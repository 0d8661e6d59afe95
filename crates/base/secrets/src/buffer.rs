//! Buffers of bytes on their way to a peer, of which some may be secret: no copy remains after they were sent.
//!
//! [`BytesMut`] leaves sent bytes in place until it reuses their space, and copies all bytes into a larger allocation without
//! wiping the smaller one. These functions replace its methods of the same names.

use bytes::{Buf, BytesMut};
use zeroize::Zeroize;

/// Reserves room for `additional` bytes like [`BytesMut::reserve`], and wipes an allocation that was too small.
pub fn reserve(buffer: &mut BytesMut, additional: usize) {
    if buffer.is_empty() {
        // Nothing to copy: `advance` has wiped all bytes.
        buffer.reserve(additional);
    } else if buffer.capacity() - buffer.len() < additional {
        // Doubled, as `BytesMut` does, so that the cost of a byte is constant.
        let mut larger = BytesMut::with_capacity(2 * (buffer.len() + additional));
        larger.extend_from_slice(buffer);
        wipe(buffer);
        *buffer = larger;
    }
}

/// Removes `count` bytes from the front like [`Buf::advance`], and wipes them.
///
/// # Panics
///
/// There are fewer bytes.
pub fn advance(buffer: &mut BytesMut, count: usize) {
    buffer[..count].zeroize();
    buffer.advance(count);
}

/// Replaces all bytes by zeros, before the buffer is dropped.
pub fn wipe(buffer: &mut BytesMut) {
    buffer[..].zeroize();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_removed_from_the_front_or_replaced_by_zeros() {
        let mut buffer = BytesMut::from(&b"secret, and more"[..]);
        let mut tail = buffer.split_off(8);
        advance(&mut tail, 4);
        assert_eq!(&tail[..], b"more");
        wipe(&mut buffer);
        assert_eq!(&buffer[..], [0; 8]);
    }

    #[test]
    fn a_buffer_that_grows_keeps_its_bytes_and_needs_no_more_than_twice_their_room() {
        let mut buffer = BytesMut::new();
        for number in 0..100_u8 {
            reserve(&mut buffer, 3);
            assert!(buffer.capacity() - buffer.len() >= 3);
            buffer.extend_from_slice(&[number; 3]);
            if number % 3 == 0 {
                advance(&mut buffer, 3);
            }
        }
        let left: Vec<u8> = (34..100).flat_map(|number| [number; 3]).collect();
        assert_eq!(&buffer[..], &left);
        assert!(buffer.capacity() <= 2 * (buffer.len() + 3), "{}", buffer.capacity());
    }
}

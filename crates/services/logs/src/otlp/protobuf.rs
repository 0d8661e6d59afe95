//! Protocol Buffers: the encoding of the fields that OTLP needs, into a vector that the caller keeps.
//!
//! Messages are appended to the buffer of a worker without an allocation, which the generated types of a library need for every
//! string and list. The test with the official definitions is `otlp` of the behaviour tests.

/// Wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

/// Appends an integer with a variable number of bytes.
pub(super) fn varint(buffer: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        buffer.push(value as u8 | 0x80);
        value >>= 7;
    }
    buffer.push(value as u8);
}

/// Reads an integer at the start of `bytes`. Returns it with the number of its bytes.
pub(super) fn read_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    // 64 bits need at most ten bytes; a longer integer is malformed.
    for (place, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some((value, place + 1));
        }
    }
    None
}

fn tag(buffer: &mut Vec<u8>, field: u64, kind: u64) {
    varint(buffer, field << 3 | kind);
}

/// An integer or an enumeration.
pub(super) fn number(buffer: &mut Vec<u8>, field: u64, value: u64) {
    tag(buffer, field, VARINT);
    varint(buffer, value);
}

/// An integer of 32 bits with a fixed length.
pub(super) fn fixed32(buffer: &mut Vec<u8>, field: u64, value: u32) {
    tag(buffer, field, FIXED32);
    buffer.extend_from_slice(&value.to_le_bytes());
}

/// An integer of 64 bits with a fixed length.
pub(super) fn fixed64(buffer: &mut Vec<u8>, field: u64, value: u64) {
    tag(buffer, field, FIXED64);
    buffer.extend_from_slice(&value.to_le_bytes());
}

/// Bytes or a string.
pub(super) fn bytes(buffer: &mut Vec<u8>, field: u64, value: &[u8]) {
    tag(buffer, field, LENGTH);
    varint(buffer, value.len() as u64);
    buffer.extend_from_slice(value);
}

/// A message whose fields `content` appends.
pub(super) fn message(buffer: &mut Vec<u8>, field: u64, content: impl FnOnce(&mut Vec<u8>)) {
    tag(buffer, field, LENGTH);
    let place = buffer.len();
    // Most messages are shorter than 128 bytes, so that one byte is enough for the length.
    buffer.push(0);
    content(buffer);
    let length = (buffer.len() - place - 1) as u64;
    if length < 0x80 {
        buffer[place] = length as u8;
    } else {
        let mut prefix = Vec::new();
        varint(&mut prefix, length);
        // The content moves by a few bytes. A reserved length of fixed size would make every short message
        // longer.
        buffer.splice(place..=place, prefix);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_seven_bits_in_each_byte() {
        for (value, bytes) in [(0, &[0][..]), (1, &[1]), (127, &[127]), (128, &[128, 1]), (300, &[0xac, 2])] {
            let mut buffer = Vec::new();
            varint(&mut buffer, value);
            assert_eq!(buffer, bytes);
            assert_eq!(read_varint(&buffer), Some((value, bytes.len())));
        }
        let mut buffer = Vec::new();
        varint(&mut buffer, u64::MAX);
        assert_eq!(read_varint(&buffer), Some((u64::MAX, 10)));
        assert_eq!(read_varint(&buffer[..9]), None);
        assert_eq!(read_varint(&[0x80; 20]), None);
    }

    #[test]
    fn messages_of_any_length_have_their_length() {
        for length in [0, 1, 127, 128, 20_000] {
            let mut buffer = Vec::new();
            message(&mut buffer, 2, |buffer| buffer.resize(buffer.len() + length, b'x'));
            assert_eq!(buffer[0], 2 << 3 | 2);
            let (read, size) = read_varint(&buffer[1..]).expect("a length");
            assert_eq!((read as usize, buffer.len()), (length, 1 + size + length));
        }
    }
}

//! Padding of random length for `gzip` content, which hides the exact length of the compressed text.
//!
//! The padding is a field of the header (FEXTRA, RFC 1952 section 2.3.1.1), so that every decoder skips it. Its length is
//! the sum of four random bytes. Near both ends of its range such a sum is rare, so a shortest or longest length reveals
//! as little as a mean. `tests/breach.rs` bounds the knowledge that any number of lengths gives to an observer.

/// Length of the `gzip` header that [`Encoder`](crate::Encoder) writes.
const HEADER: usize = 10;

/// Position of the flags in the header.
const FLAGS: usize = 3;

/// Flag of a header with an extra field.
const FEXTRA: u8 = 1 << 2;

/// Identifier of the subfield that contains the padding.
const SUBFIELD: [u8; 2] = *b"bk";

/// The length of a padding in bytes, from a `random` number that an observer cannot predict. Between 0 and 1,020, on
/// average 510, with a standard deviation of 148.
pub fn padding_length(random: u32) -> u16 {
    random.to_le_bytes().into_iter().map(u16::from).sum()
}

/// Adds `length` bytes of padding and 6 bytes of framing to complete output of an [`Encoder`](crate::Encoder) for
/// `gzip`. Moves the bytes after the header once.
pub fn pad_gzip(content: &mut Vec<u8>, length: u16) {
    debug_assert!(
        content.len() > HEADER && content[FLAGS] == 0,
        "the header of an encoder has no optional fields"
    );
    content[FLAGS] |= FEXTRA;
    // RFC 1952 section 2.3.1.1: the length of the field, then the identifier and the length of the
    // subfield, each little-endian.
    let subfield = SUBFIELD.into_iter().chain(length.to_le_bytes());
    let field = subfield.chain(std::iter::repeat_n(0, length.into()));
    content.splice(HEADER..HEADER, (length + 4).to_le_bytes().into_iter().chain(field));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Coding, Decoder, Encoder};

    #[test]
    fn padded_content_has_the_length_of_its_padding_and_the_same_text() {
        let text = b"a text with a text ".repeat(40);
        for random in [0, 0x0102_0304, u32::MAX] {
            let mut content = Vec::new();
            Encoder::new(Coding::Gzip, 6).write_whole(&text, &mut content).expect("an encoder");
            let plain = content.len();
            let length = padding_length(random);
            pad_gzip(&mut content, length);
            assert_eq!(content.len(), plain + 6 + usize::from(length));
            let (mut decoder, mut decoded) = (Decoder::new(Coding::Gzip), Vec::new());
            let progress = decoder.write(&content, &mut decoded).expect("valid content");
            assert_eq!(progress.taken, content.len());
            decoder.finish().expect("complete content");
            assert_eq!(decoded, text);
        }
        assert_eq!((padding_length(0), padding_length(u32::MAX)), (0, 1020));
    }
}

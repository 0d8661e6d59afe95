//! Fuzz target for the decoders.
//!
//! Invariants: the division of the input into pieces does not matter, no call exceeds its output limit, and decoding
//! inverts encoding.

use crate::decoder::ROOM;
use crate::{Coding, Decoder, DecoderError, Encoder};

/// Number of output bytes that are compared; decompression bombs produce more.
const ENOUGH: usize = 1 << 20;

/// Runs the target. The first two bytes select the coding and the length of pieces; the remainder is used as encoded
/// content and as plain text.
pub fn decoding(bytes: &[u8]) {
    let Some((&[choice, step], message)) = bytes.split_first_chunk::<2>() else { return };
    let coding = Coding::ALL[usize::from(choice) % Coding::ALL.len()];
    let pieces = |message: &[u8]| -> Vec<Vec<u8>> {
        message.chunks(usize::from(step % 61) + 1).map(<[u8]>::to_vec).collect()
    };
    let whole = decoded(coding, &[message.to_vec()]);
    assert_eq!(decoded(coding, &pieces(message)), whole, "pieces make a difference");

    let mut encoded = Vec::new();
    Encoder::new(coding, 1).write_whole(message, &mut encoded).expect("a text is encoded");
    let expected = (message.to_vec(), None);
    assert_eq!(decoded(coding, &[encoded.clone()]), expected, "what was encoded comes back");
    assert_eq!(decoded(coding, &pieces(&encoded)), expected, "what was encoded comes back from pieces");
}

/// The decoded content, and the error if there is one. The content is empty after an error, because its length would
/// depend on the pieces.
fn decoded(coding: Coding, pieces: &[Vec<u8>]) -> (Vec<u8>, Option<DecoderError>) {
    let (mut decoder, mut output) = (Decoder::new(coding), Vec::new());
    for piece in pieces {
        let mut rest = &piece[..];
        loop {
            let before = output.len();
            let decoded = match decoder.write(rest, &mut output) {
                Ok(decoded) => decoded,
                Err(error) => return (Vec::new(), Some(error)),
            };
            let made = output.len() - before;
            assert!(made <= ROOM && decoded.taken <= rest.len(), "a step has its bounds");
            rest = &rest[decoded.taken..];
            if output.len() > ENOUGH {
                output.truncate(ENOUGH);
                return (output, None);
            }
            assert!(made > 0 || decoded.taken > 0 || rest.is_empty(), "a step gets on");
            if rest.is_empty() && !decoded.has_more {
                break;
            }
        }
    }
    match decoder.finish() {
        Ok(()) => (output, None),
        Err(error) => (Vec::new(), Some(error)),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_decoding() {
        let words: &[&[u8]] = &[
            b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
            b"\x28\xb5\x2f\xfd",
            b"\x28\xb5\x2f\xfd\x24\x00\x01\x00\x00",
            b"\x50\x2a\x4d\x18\x00\x00\x00\x00",
            b"\x5b\xff\xff\x03",
            b"\x00\x00\xff\xff",
            b"<p>text</p>",
        ];
        brisk_testkit::fuzz::drive("decoding", words, super::decoding);
    }
}

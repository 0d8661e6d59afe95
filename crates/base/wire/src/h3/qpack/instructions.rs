//! Instructions of a peer on its encoder and decoder streams (RFC 9204 sections 4.3 and 4.4), read by a side without a dynamic
//! table: few instructions are valid, and none has an effect.

use crate::h3::error::Code;

/// `Set Dynamic Table Capacity` to 0.
const CAPACITY_0: u8 = 0x20;

/// Reads bytes of the peer's encoder stream. Returns the number of instructions.
///
/// RFC 9204 sections 4.3.1 and 3.2.3: with a maximum capacity of 0, the capacity must not be changed to another value, and
/// nothing can be inserted or duplicated.
pub fn encoder(bytes: &[u8]) -> Result<u64, Code> {
    // No state between calls: the only valid instruction has one byte.
    if bytes.iter().all(|byte| *byte == CAPACITY_0) {
        Ok(bytes.len() as u64)
    } else {
        Err(Code::QPACK_ENCODER_STREAM_ERROR)
    }
}

/// Maximum number of bytes of a number after its prefix: 62 bits (RFC 9204 section 4.1.1).
const LONGEST: u8 = 9;

/// Reader of the peer's decoder stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct DecoderStream {
    /// Bytes of an incomplete stream ID after its prefix, plus one; 0 between two instructions.
    within: u8,
}

impl DecoderStream {
    /// Reads the next bytes. Returns the number of instructions that began in them.
    ///
    /// Only `Stream Cancellation` is valid: no field section of this side can be acknowledged (RFC 9204 section 4.4.1), and
    /// the insert count cannot be increased (section 4.4.3).
    pub fn read(&mut self, bytes: &[u8]) -> Result<u64, Code> {
        let mut instructions = 0;
        for byte in bytes {
            self.within = match (self.within, byte) {
                (0, 0x40..0x80) => {
                    instructions += 1;
                    u8::from(*byte == 0x7f)
                }
                (1.., 0..0x80) => 0,
                (1..LONGEST, _) => self.within + 1,
                _ => return Err(Code::QPACK_DECODER_STREAM_ERROR),
            };
        }
        Ok(instructions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoder_stream_inserts_nothing() {
        assert_eq!((encoder(b""), encoder(&[0x20, 0x20])), (Ok(0), Ok(2)));
        // RFC 9204 sections 4.3.1 to 4.3.4: capacity of 1 and more, name references, literal names, duplicates.
        for wrong in
            [&[0x21][..], &[0x3f, 0xe1, 0x1f], &[0xc0, 0], &[0x80, 0], &[0x41, b'a', 0], &[0], &[0x20, 0]]
        {
            assert_eq!(encoder(wrong), Err(Code::QPACK_ENCODER_STREAM_ERROR), "{wrong:x?}");
        }
    }

    #[test]
    fn a_decoder_stream_only_cancels_streams() {
        let read = |bytes: &[u8]| DecoderStream::default().read(bytes);
        assert_eq!((read(&[0x40, 0x44]), read(&[0x7f, 0x80, 1, 0x48])), (Ok(2), Ok(2)));
        // RFC 9204 section 4.4.1: a section acknowledgement for a stream without unacknowledged sections.
        assert_eq!(read(&[0x84]), Err(Code::QPACK_DECODER_STREAM_ERROR));
        // Section 4.4.3: an increment of 0, and one beyond the number of insertions.
        for wrong in [0, 1] {
            assert_eq!(read(&[wrong]), Err(Code::QPACK_DECODER_STREAM_ERROR));
        }
        // Section 4.1.1: more than 62 bits.
        let longest = [&[0x7f][..], &[0x80; 8], &[1]].concat();
        assert_eq!(read(&longest), Ok(1));
        assert_eq!(read(&[&[0x7f][..], &[0x80; 9]].concat()), Err(Code::QPACK_DECODER_STREAM_ERROR));
    }

    #[test]
    fn instructions_are_read_however_they_are_split() {
        let bytes = [0x40, 0x7f, 0x80, 1, 0x7f, 0, 0x41];
        for size in 1..=bytes.len() {
            let mut stream = DecoderStream::default();
            let counts = bytes.chunks(size).map(|piece| stream.read(piece).expect("instructions"));
            assert_eq!(counts.sum::<u64>(), 4);
        }
    }
}

//! Variable-length integers (RFC 9000 section 16).

/// Largest number that a variable-length integer can hold.
pub const LARGEST: u64 = (1 << 62) - 1;

/// Maximum number of bytes of a variable-length integer.
pub const LONGEST: usize = 8;

/// Number of bytes of the integer that begins with `first`.
pub fn length(first: u8) -> usize {
    1 << (first >> 6)
}

/// Splits an integer from the start of `bytes`; `None` if the integer is incomplete. HTTP/3 permits encodings that are
/// longer than necessary.
pub fn split(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (encoded, rest) = bytes.split_at_checked(length(*bytes.first()?))?;
    let first = u64::from(encoded[0] & 0x3f);
    Some((encoded[1..].iter().fold(first, |number, byte| number << 8 | u64::from(*byte)), rest))
}

/// Reads `bytes` that consist of exactly one integer.
pub fn whole(bytes: &[u8]) -> Option<u64> {
    split(bytes).filter(|(_, rest)| rest.is_empty()).map(|(number, _)| number)
}

/// Appends `number`, which is at most [`LARGEST`], in its shortest encoding.
pub fn write(number: u64, out: &mut Vec<u8>) {
    debug_assert!(number <= LARGEST, "{number} has more than 62 bits");
    match number {
        0..0x40 => out.push(number as u8),
        0x40..0x4000 => out.extend_from_slice(&(number as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(number as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(number | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// An integer whose bytes arrive in several reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Partial {
    bytes: [u8; LONGEST],
    length: u8,
}

impl Partial {
    /// Takes bytes from the start of `input` until the integer is complete. Returns the integer, and begins another one.
    pub fn read(&mut self, input: &mut &[u8]) -> Option<u64> {
        if self.length == 0 {
            // The usual case: no copy.
            if let Some((number, rest)) = split(input) {
                *input = rest;
                return Some(number);
            }
        }
        while let Some((byte, rest)) = input.split_first() {
            // In range: `whole` succeeds after 8 bytes at the latest, for each first byte.
            self.bytes[usize::from(self.length)] = *byte;
            self.length += 1;
            *input = rest;
            if let Some(number) = whole(&self.bytes[..self.length.into()]) {
                self.length = 0;
                return Some(number);
            }
        }
        None
    }

    /// Whether no byte of an incomplete integer has been read.
    pub fn is_empty(self) -> bool {
        self.length == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_the_rfc_are_read() {
        // RFC 9000 appendix A.1
        for (bytes, number) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            assert_eq!(whole(bytes), Some(number));
            let mut out = Vec::new();
            write(number, &mut out);
            assert_eq!(out, bytes);
        }
        assert_eq!(whole(&[0x40, 0x25]), Some(37), "longer than necessary");
    }

    #[test]
    fn numbers_of_every_length_come_back_however_they_are_split() {
        for number in [0, 0x3f, 0x40, 0x3fff, 0x4000, 0x3fff_ffff, 0x4000_0000, LARGEST] {
            let mut out = Vec::new();
            write(number, &mut out);
            out.push(9);
            assert_eq!(split(&out), Some((number, &[9][..])));
            for size in 1..=out.len() {
                let mut partial = Partial::default();
                let mut found = None;
                let mut rest = &out[..];
                while found.is_none() {
                    let (mut piece, after) = rest.split_at(size.min(rest.len()));
                    found = partial.read(&mut piece);
                    assert_eq!(found.is_none(), piece.is_empty() && !after.is_empty() && !partial.is_empty());
                    rest = after;
                }
                assert_eq!((found, partial.is_empty()), (Some(number), true));
            }
        }
    }

    #[test]
    fn incomplete_numbers_are_none() {
        for bytes in [&[][..], &[0x40], &[0x80, 0, 0], &[0xc0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!((split(bytes), whole(bytes)), (None, None));
        }
        assert_eq!(whole(&[0, 0]), None);
    }
}

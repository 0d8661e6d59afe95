//! The Huffman code of RFC 7541 appendix B.
//!
//! The code is canonical: codes of one length follow each other in the order of their bytes, and longer codes follow
//! shorter ones. So the lengths determine the code, and all tables are computed from them at compile time.

/// Bits of the code of each byte.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26,
];

/// Bits of the longest code.
const LONGEST: usize = 30;
/// Codes up to this length are decoded in one step: all except those of rare bytes.
const SHORT: u32 = 8;

/// The code of each byte.
const CODES: [u32; 256] = TABLES.codes;

static DECODING: Tables = TABLES;

const TABLES: Tables = Tables::new();

struct Tables {
    codes: [u32; 256],
    /// By the next [`SHORT`] bits: a byte and the length of its code, 0 if that is longer.
    short: [(u8, u8); 1 << SHORT],
    /// The bytes in the order of their codes.
    ordered: [u8; 256],
    /// For each length the first code that is longer, with 32 bits.
    ends: [u32; LONGEST + 1],
    /// For each length, the index in `ordered` that a code of zero would have.
    offsets: [i32; LONGEST + 1],
}

impl Tables {
    const fn new() -> Self {
        let mut tables = Self {
            codes: [0; 256],
            short: [(0, 0); 1 << SHORT],
            ordered: [0; 256],
            ends: [0; LONGEST + 1],
            offsets: [0; LONGEST + 1],
        };
        let (mut code, mut length, mut place) = (0_u64, 1, 0);
        // `while`, because iterators are not available in constants.
        while length <= LONGEST {
            code <<= 1;
            tables.offsets[length] = place - code as i32;
            let mut byte = 0;
            while byte < 256 {
                if LENGTHS[byte] as usize == length {
                    tables.codes[byte] = code as u32;
                    tables.ordered[place as usize] = byte as u8;
                    tables.add_short(code as usize, length as u32, byte as u8);
                    place += 1;
                    code += 1;
                }
                byte += 1;
            }
            // The code of the longest length that remains is that of the end of a string.
            tables.ends[length] = (code << (32 - length)) as u32;
            length += 1;
        }
        tables
    }

    const fn add_short(&mut self, code: usize, length: u32, byte: u8) {
        if length > SHORT {
            return;
        }
        let free = SHORT - length;
        let mut rest = 0;
        while rest < 1 << free {
            self.short[(code << free) | rest] = (byte, length as u8);
            rest += 1;
        }
    }
}

/// Appends the decoded bytes of `coded`; `None` if the code contains the end of a string, or the padding is longer than
/// seven bits or differs from the begin of that code (RFC 7541 section 5.2).
pub(crate) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Option<()> {
    // No code is shorter than 5 bits.
    out.reserve(coded.len() * 8 / 5);
    // The next bits, from the highest on, and how many of them are there.
    let (mut bits, mut count) = (0_u64, 0_u32);
    let mut rest = coded;
    loop {
        if count <= 32 {
            // 32 bits at a time, so that the loop for single bytes runs only at the end of the string.
            if let Some((word, after)) = rest.split_first_chunk::<4>() {
                bits |= u64::from(u32::from_be_bytes(*word)) << (32 - count);
                count += 32;
                rest = after;
            } else {
                while let Some((byte, after)) = rest.split_first() {
                    bits |= u64::from(*byte) << (56 - count);
                    count += 8;
                    rest = after;
                }
            }
        }
        let (byte, length) = next((bits >> 32) as u32);
        if length > count {
            break;
        }
        // Nothing is left, or the code of the end.
        if length == 0 {
            return None;
        }
        out.push(byte);
        bits <<= length;
        count -= length;
    }
    let padding = u64::MAX.checked_shl(64 - count).filter(|_| count > 0).unwrap_or(0);
    (count < 8 && bits == padding).then_some(())
}

/// The byte whose code `bits` begin with, and the length of that code: 0 for the end of a string.
fn next(bits: u32) -> (u8, u32) {
    let (byte, length) = DECODING.short[(bits >> (32 - SHORT)) as usize];
    if length > 0 { (byte, length.into()) } else { next_long(bits) }
}

#[cold]
fn next_long(bits: u32) -> (u8, u32) {
    // A loop over the lengths: a table for 30 bits would be too large, and the bytes with long codes are
    // rare.
    for length in SHORT as usize + 1..=LONGEST {
        if bits < DECODING.ends[length] {
            let code = (bits >> (32 - length)).cast_signed();
            let place = DECODING.offsets[length] + code;
            return (DECODING.ordered[place as usize], length as u32);
        }
    }
    (0, 0)
}

/// Bytes that `plain` takes when it is coded.
pub(crate) fn coded_length(plain: &[u8]) -> usize {
    let bits: usize = plain.iter().map(|byte| usize::from(LENGTHS[usize::from(*byte)])).sum();
    bits.div_ceil(8)
}

/// Appends `plain` in code.
pub(crate) fn encode(plain: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0_u64, 0_u32);
    for byte in plain {
        let length = u32::from(LENGTHS[usize::from(*byte)]);
        // Bits that were written leave at the top; at most 37 are in use.
        bits = bits << length | u64::from(CODES[usize::from(*byte)]);
        count += length;
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        // The code of the end consists of ones.
        out.push(((bits << (8 - count)) as u8) | (0xff >> count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(coded, &mut out).map(|()| out)
    }

    #[test]
    fn every_byte_in_every_place_comes_back() {
        for byte in 0..=u8::MAX {
            for before in 0..9 {
                let plain = [&b"0aE\xff/:"[..before.min(6)], &[byte], &b"e"[..before % 2]].concat();
                let mut coded = Vec::new();
                encode(&plain, &mut coded);
                assert_eq!(coded.len(), coded_length(&plain));
                assert_eq!(decoded(&coded), Some(plain));
            }
        }
        assert_eq!(decoded(&[]), Some(Vec::new()));
    }

    #[test]
    fn codes_are_those_of_the_rfc() {
        for (byte, code) in [
            (b'0', 0),
            (b'z', 0x7b),
            (b'&', 0xf8),
            (b'X', 0xfc),
            (b'!', 0x3f8),
            (b'\\', 0x7_fff0),
            (0, 0x1ff8),
            (255, 0x3ff_ffee),
            (10, 0x3fff_fffc),
            (22, 0x3fff_fffe),
        ] {
            assert_eq!(CODES[usize::from(byte)], code, "{byte}");
        }
    }

    #[test]
    fn ends_and_wrong_padding_are_refused() {
        // Codes of the end, alone and behind a byte.
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(decoded(&[0b0001_1111, 0xff, 0xff, 0xff, 0xff]), None);
        // Eight bits of padding, and zeros for padding.
        assert_eq!(decoded(&[0b0001_1111, 0xff]), None);
        assert_eq!(decoded(&[0xff]), None);
        assert_eq!(decoded(&[0b0001_1000]), None);
        assert_eq!(decoded(&[0b0001_1111]), Some(b"a".to_vec()));
    }
}

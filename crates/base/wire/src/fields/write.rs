//! Numbers and strings of field blocks that are encoded.

use super::huffman;

/// Whether a field must not be added to a table, neither here nor by intermediaries (RFC 7541 section 7.1.3, RFC 9204 section
/// 7.1.3).
pub(crate) fn is_secret(name: &[u8]) -> bool {
    matches!(
        name,
        b"set-cookie" | b"authorization" | b"proxy-authorization" | b"cookie" | b"authentication-info"
    )
}

/// A string, in Huffman code where that is shorter. Its length has a prefix of `prefix` bits, below the bit for Huffman code
/// and `pattern`.
pub(crate) fn text(pattern: u8, prefix: u32, plain: &[u8], out: &mut Vec<u8>) {
    // Measured first, because the length precedes the text and has a variable size itself.
    let coded = huffman::coded_length(plain);
    if coded < plain.len() {
        number(pattern | 1 << prefix, prefix, coded, out);
        huffman::encode(plain, out);
    } else {
        number(pattern, prefix, plain.len(), out);
        out.extend_from_slice(plain);
    }
}

/// A number in a prefix of `prefix` bits below `pattern`, and behind it (RFC 7541 section 5.1).
pub(crate) fn number(pattern: u8, prefix: u32, number: usize, out: &mut Vec<u8>) {
    let mask = (1_usize << prefix) - 1;
    if number < mask {
        out.push(pattern | number as u8);
        return;
    }
    out.push(pattern | mask as u8);
    let mut rest = number - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

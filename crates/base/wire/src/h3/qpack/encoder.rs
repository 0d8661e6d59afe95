//! Fields into field sections.

use super::constants::{Position, position};
use crate::fields::write::{is_secret, number, text};

/// Begins a field section: no insert count, and base 0 (RFC 9204 section 4.5.1).
pub fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0]);
}

/// Writes `:status`, a number of three digits.
pub fn status(status: u16, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 3];
    for (digit, scale) in digits.iter_mut().zip([100, 10, 1]) {
        *digit += (status / scale % 10) as u8;
    }
    field(b":status", &digits, out);
}

/// Writes a field. Its name is in lower case. Intermediaries must not add secrets to a dynamic table.
pub fn field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let is_secret = is_secret(name);
    match position(name, value) {
        // RFC 9204 section 4.5.2
        Position::Field(index) => return number(0xc0, 6, index, out),
        // Section 4.5.4; the bit 0x20 forbids a dynamic table.
        Position::Name(index) => number(if is_secret { 0x70 } else { 0x50 }, 4, index, out),
        // Section 4.5.6; the bit 0x10 forbids a dynamic table.
        Position::None => text(if is_secret { 0x30 } else { 0x20 }, 3, name, out),
    }
    text(0, 7, value, out);
}

//! Base64 (RFC 4648) of secrets, in a time that does not depend on them.

use base64ct::{Base64, Base64Unpadded, Base64UrlUnpadded, Encoding};
use zeroize::Zeroizing;

/// Decodes base64; white space is ignored, padding optional. `None` for other text and for an empty one. The bytes are wiped on
/// drop ([`Zeroizing`]).
pub fn decode(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    decode_as::<Base64Unpadded>(text)
}

/// Decodes base64url (RFC 4648 section 5) like [`decode`].
pub fn decode_url(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    decode_as::<Base64UrlUnpadded>(text)
}

/// Encodes `data` in lines of `width` characters, each with a line feed.
pub(crate) fn encode_lines(data: &[u8], width: usize, text: &mut Zeroizing<String>) {
    let mut line = Zeroizing::new(vec![0; width]);
    for data in data.chunks(width / 4 * 3) {
        let line = Base64::encode(data, &mut line).expect("a line has room for its data");
        text.push_str(line);
        text.push('\n');
    }
}

// `base64ct` has no look-up tables, whose access times depend on the secret. The crate `base64` has them.
fn decode_as<Alphabet: Encoding>(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    // Room for the whole text: a `Vec` that grows would leave a copy of the secret behind.
    let mut digits = Zeroizing::new(Vec::with_capacity(text.len()));
    digits.extend(text.iter().filter(|byte| !byte.is_ascii_whitespace()));
    let padding = digits.iter().rev().take_while(|byte| **byte == b'=').count();
    // RFC 4648 section 4: at most two pad characters, which complete a group of four digits.
    if padding > 2 || (padding > 0 && digits.len() % 4 != 0) {
        return None;
    }
    let digits = &digits[..digits.len() - padding];
    // Two bytes more than whole groups have: a rest of two or three digits is one or two bytes.
    let mut data = Zeroizing::new(vec![0; digits.len() / 4 * 3 + 2]);
    let length = Alphabet::decode(digits, &mut data).ok()?.len();
    data.truncate(length);
    (length > 0).then_some(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_alphabets_are_decoded_with_and_without_padding_and_line_ends() {
        for text in ["+/8=", "+/8", " +/\r\n8=\n"] {
            assert_eq!(**decode(text.as_bytes()).unwrap(), [0xfb, 0xff]);
        }
        assert_eq!(**decode_url(b"-_8").unwrap(), [0xfb, 0xff]);
        assert_eq!(**decode_url(b"-_8=\n").unwrap(), [0xfb, 0xff]);
        for length in 1..100 {
            let data: Vec<u8> = (0..length).collect();
            let mut text = Zeroizing::new(String::new());
            encode_lines(&data, 64, &mut text);
            assert!(text.lines().all(|line| line.len() <= 64));
            assert_eq!(**decode(text.as_bytes()).unwrap(), data);
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in
            ["", "\n", "=", "A", "AA===", "AAA==", "A=AA", "AA=A", "-_8=", "AB==C", "AAAA====", "A\0AA"]
        {
            assert!(decode(text.as_bytes()).is_none(), "{text:?}");
        }
        assert!(decode_url(b"+/8=").is_none());
    }
}

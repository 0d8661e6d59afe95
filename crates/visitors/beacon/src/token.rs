//! Ids of page views: random, so that an invented one matches none.

use std::cell::RefCell;
use std::fmt;

use aws_lc_rs::rand;

/// Ids that a thread makes at once: a few random bytes cost as much as many.
const AT_ONCE: usize = 32;

thread_local! {
    static MADE: RefCell<Vec<Token>> = const { RefCell::new(Vec::new()) };
}

/// The id of one page view, 128 random bits. Displays as 32 hexadecimal digits. It names neither a client nor a visitor: each
/// page view has another one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token(u128);

impl Token {
    /// A new [`Token`] from the generator of AWS-LC.
    pub fn random() -> Self {
        MADE.with_borrow_mut(|made| {
            if made.is_empty() {
                let mut bytes = [[0; 16]; AT_ONCE];
                rand::fill(bytes.as_flattened_mut())
                    .expect("aws-lc ends the process when the system has no randomness");
                made.extend(bytes.map(|bytes| Self(u128::from_le_bytes(bytes))));
            }
            made.pop().expect("ids were made")
        })
    }

    /// Parses the output of [`digits`](Self::digits); `None` for any other text.
    pub fn read(text: &[u8]) -> Option<Self> {
        // One spelling of each id: upper-case digits and other lengths are malformed.
        let digits: &[u8; 32] = text.try_into().ok()?;
        digits
            .iter()
            .try_fold(0, |number: u128, digit| {
                let value = match digit {
                    b'0'..=b'9' => digit - b'0',
                    b'a'..=b'f' => digit - b'a' + 10,
                    _ => return None,
                };
                Some(number << 4 | u128::from(value))
            })
            .map(Self)
    }

    /// The 32 hexadecimal digits, in lower case.
    pub fn digits(self) -> [u8; 32] {
        std::array::from_fn(|index| b"0123456789abcdef"[(self.0 >> (124 - 4 * index)) as usize & 0xf])
    }

    /// A number below `places`, the same each time for one `Token`.
    pub(crate) fn place(self, places: usize) -> usize {
        self.0 as usize % places
    }
}

impl fmt::Debug for Token {
    /// Omits the value: its holder can send the beacon.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let token = Token(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        assert_eq!(token.digits(), *b"0123456789abcdef0011223344556677");
        assert_eq!(Token::read(&token.digits()), Some(token));
        for wrong in [
            "",
            "0123456789abcdef001122334455667",
            "0123456789ABCDEF0011223344556677",
            "0123456789abcdef00112233445566778",
        ] {
            assert_eq!(Token::read(wrong.as_bytes()), None, "{wrong}");
        }
        assert_ne!(Token::random(), Token::random());
    }
}

//! Length of a body, as far as its head states one.

use http::HeaderValue;

/// Parses the value of `Content-Length`; `None` if it is not a number of digits.
pub fn length(value: &HeaderValue) -> Option<u64> {
    // `parse` alone would accept a sign.
    let text = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok()
}

/// Bytes that are missing of a body. A message whose body has another length than its head states is malformed (RFC 9113
/// section 8.1.1, RFC 9114 section 4.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyLeft(Option<u64>);

impl BodyLeft {
    /// A body of `length` bytes; of any length if the head states none.
    pub fn new(length: Option<u64>) -> Self {
        Self(length)
    }

    /// Number of missing bytes; `None` if the head states no length.
    pub fn bytes(self) -> Option<u64> {
        self.0
    }

    /// Counts `bytes` of the body. Returns whether the body is not longer than stated.
    #[must_use]
    pub fn receive(&mut self, bytes: usize) -> bool {
        let Some(left) = self.0 else { return true };
        left.checked_sub(bytes as u64).map(|left| self.0 = Some(left)).is_some()
    }

    /// Whether the body may end.
    pub fn may_end(self) -> bool {
        self.0.unwrap_or(0) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_digits() {
        let read = |text: &'static str| length(&HeaderValue::from_static(text));
        assert_eq!((read("0"), read("12")), (Some(0), Some(12)));
        for wrong in ["", "+1", "1 2", "-1", "0x1", "99999999999999999999"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_body_has_the_stated_length() {
        let mut left = BodyLeft::new(Some(5));
        assert!(left.receive(3) && !left.may_end());
        assert!(!left.receive(3));
        assert!(left.receive(2) && left.may_end() && !left.receive(1));
        let mut left = BodyLeft::new(None);
        assert!(left.may_end() && left.receive(usize::MAX) && left.may_end());
    }
}

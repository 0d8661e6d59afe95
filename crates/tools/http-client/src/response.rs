//! Responses, independent of the protocol version.

use std::str::FromStr;
use std::time::Instant;

/// A response, filled while it arrives: after a failure it contains the part before.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// ALPN name of the protocol.
    pub protocol: String,
    /// Status; `0` before the head.
    pub status: u16,
    /// Header fields with names in lower case, printable.
    pub headers: Vec<(String, String)>,
    /// Size of the head in bytes as transmitted.
    pub head_bytes: usize,
    /// Size of the body in bytes, without framing.
    pub body_bytes: u64,
    /// Number of `1xx` responses before this one.
    pub interim: u32,
    /// The server closes the connection after this response.
    pub is_last: bool,
    /// Arrival of the first byte, of an interim response if there is one.
    pub first_byte_at: Option<Instant>,
    /// Arrival of the complete head.
    pub head_at: Option<Instant>,
    /// Arrival of the last byte.
    pub done_at: Option<Instant>,
}

impl Response {
    /// Sets `done_at`. The error is a sentence about a body that does not have `length` bytes (RFC 9113 section 8.1.1, RFC 9114
    /// section 4.1.2); `None` permits any length.
    pub(crate) fn end(&mut self, length: Option<u64>) -> Result<(), String> {
        let bytes = self.body_bytes;
        // RFC 9110 section 8.6: these responses have no body; 304 may state the length of another response.
        let length = length.filter(|length| *length != bytes && !matches!(self.status, 204 | 304));
        if let Some(length) = length {
            return Err(format!("its body has {bytes} of {length} bytes"));
        }
        self.done_at = Some(Instant::now());
        Ok(())
    }

    /// Value of the first header field with this name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// The number of decimal digits only, without a sign; `None` for other text or an overflow.
pub fn number<T: FromStr>(digits: &[u8]) -> Option<T> {
    // `parse` alone accepts a plus sign.
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

//! The answer to the request, whatever the protocol.

use std::time::Instant;

/// An answer. Times are set as far as it came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// As ALPN names it.
    pub(crate) protocol: String,
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// Bytes of the head on the wire.
    pub(crate) head_bytes: usize,
    pub(crate) body_bytes: u64,
    /// Answers 1xx before it.
    pub(crate) interim: u32,
    /// The server closes the connection after it.
    pub(crate) is_last: bool,
    pub(crate) head_at: Option<Instant>,
    pub(crate) done_at: Option<Instant>,
}

impl Answer {
    /// The value of the first header of this name, which is in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

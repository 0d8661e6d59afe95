//! Limit on interim responses (1xx) before one response, for HTTP/1.1 and HTTP/2 alike.
//!
//! brisk reads interim responses, and forwards only the links of 103. A server that sends them without end would occupy
//! the worker until the timeout of the response.

/// Maximum number of interim responses before a response. A server that sends 102 every second exceeds it after the
/// default timeout of a head.
const NUMBER: u32 = 100;

/// Maximum size in bytes of their heads together.
const SIZE: usize = 64 << 10;

/// Interim responses to one request so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InterimCount {
    number: u32,
    size: usize,
}

impl InterimCount {
    /// Counts an interim response with a head of `size` bytes. Returns whether the limit is exceeded.
    pub(crate) fn exceeds(&mut self, size: usize) -> bool {
        self.number += 1;
        self.size = self.size.saturating_add(size);
        self.number > NUMBER || self.size > SIZE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_interim_responses_and_64_kib_are_allowed() {
        let mut count = InterimCount::default();
        assert!((0..100).all(|_| !count.exceeds(655)));
        assert!(count.exceeds(0));
        let mut count = InterimCount::default();
        assert!(!count.exceeds(64 << 10));
        assert!(count.exceeds(1));
    }
}

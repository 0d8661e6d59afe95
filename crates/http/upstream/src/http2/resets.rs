//! Limit on the streams that one connection resets, so that clients that cancel many requests do not end it for others.
//!
//! Since CVE-2023-44487 ("Rapid Reset"), servers close connections on which many streams are reset: Netty above 200 within
//! 30 s, nghttp2 above 1000 and 33 a second, Envoy if half of 500 requests were reset early, brisk above 200 and one a
//! second. A connection carries requests of many clients, so it stays well below: beyond a burst, canceled streams are
//! abandoned, which means that their windows stay closed, arriving data is discarded, and the reset follows when the rate
//! permits it. A connection with many resets or abandoned streams gets no further requests unless no other can be opened,
//! and closes when it has none.

use std::collections::VecDeque;
use std::time::Duration;

/// Number of streams that a connection may reset at once. Each second permits one more, up to [`BURST`].
pub(super) const BURST: u32 = 32;

/// Number of resets in the lifetime of a connection after which it gets no further requests.
pub(super) const TOTAL: u32 = 80;

/// Number of abandoned streams up to which a connection gets further requests.
pub(super) const ABANDONED: usize = 16;

/// `RST_STREAM` frames of a connection, sent and due.
#[derive(Debug)]
pub(super) struct Resets {
    left: u32,
    /// Time up to which resets were earned, from any fixed instant.
    until: Duration,
    total: u32,
    /// Numbers of the abandoned streams, all open, in order.
    abandoned: VecDeque<u32>,
}

impl Default for Resets {
    fn default() -> Self {
        Self { left: BURST, until: Duration::ZERO, total: 0, abandoned: VecDeque::new() }
    }
}

impl Resets {
    /// Whether a stream may be reset now; otherwise it is [abandoned](Self::abandon).
    pub(super) fn may_reset(&self) -> bool {
        self.left > 0
    }

    /// Counts an `RST_STREAM` that is sent.
    pub(super) fn sent(&mut self) {
        self.left = self.left.saturating_sub(1);
        self.total = self.total.saturating_add(1);
        self.note_end(self.total == TOTAL);
    }

    /// Earns one reset per second up to `now`.
    pub(super) fn tick(&mut self, now: Duration) {
        let seconds = now.saturating_sub(self.until).as_secs();
        if seconds > 0 {
            self.until = now;
            // A long time without resets is no credit for more than a burst.
            self.left = self.left.saturating_add(u32::try_from(seconds).unwrap_or(BURST)).min(BURST);
        }
    }

    /// Adds an abandoned stream.
    pub(super) fn abandon(&mut self, number: u32) {
        self.abandoned.push_back(number);
        self.note_end(self.abandoned.len() == ABANDONED + 1);
    }

    /// Removes an abandoned stream, which is closed.
    pub(super) fn closed(&mut self, number: u32) {
        self.abandoned.retain(|other| *other != number);
    }

    /// The abandoned stream to reset next, if the rate permits it.
    pub(super) fn due(&self) -> Option<u32> {
        self.abandoned.front().copied().filter(|_| self.may_reset())
    }

    /// Number of abandoned streams.
    pub(super) fn abandoned(&self) -> usize {
        self.abandoned.len()
    }

    /// Whether the connection may get no further requests: after [`TOTAL`] resets, or with more than [`ABANDONED`]
    /// abandoned streams.
    pub(super) fn are_used_up(&self) -> bool {
        self.total >= TOTAL || self.abandoned.len() > ABANDONED
    }

    fn note_end(&self, ends: bool) {
        if ends {
            let (total, abandoned) = (self.total, self.abandoned.len());
            tracing::debug!(
                total,
                abandoned,
                "clients canceled many requests: an upstream connection gets no more"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_one_reset_per_second_are_allowed() {
        let mut resets = Resets::default();
        resets.tick(Duration::from_secs(1000));
        for _ in 0..BURST {
            assert!(resets.may_reset());
            resets.sent();
        }
        assert!(!resets.may_reset());
        resets.tick(Duration::from_millis(1_000_900));
        assert!(!resets.may_reset());
        resets.tick(Duration::from_secs(1001));
        resets.sent();
        assert!(!resets.may_reset() && !resets.are_used_up());
        resets.tick(Duration::from_secs(1100));
        for _ in 0..TOTAL - BURST - 1 {
            assert!(!resets.are_used_up());
            resets.sent();
        }
        assert!(resets.are_used_up());
    }

    #[test]
    fn a_few_streams_may_be_abandoned() {
        let mut resets = Resets::default();
        for number in 0..=ABANDONED as u32 {
            assert!(!resets.are_used_up());
            resets.abandon(number);
        }
        assert!(resets.are_used_up());
        assert_eq!(resets.due(), Some(0));
        resets.closed(0);
        assert_eq!((resets.due(), resets.are_used_up()), (Some(1), false));
        (0..BURST).for_each(|_| resets.sent());
        assert_eq!(resets.due(), None);
    }
}

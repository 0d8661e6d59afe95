//! Minimum rate at which a client reads, measured while data waits for it.

use std::time::Duration;

/// Minimum rate of reading.
#[derive(Clone, Copy, Debug)]
pub struct ReadRate {
    /// Bytes per second; 0 for no minimum.
    pub bytes: u64,
    /// Time by which a client may fall behind the rate.
    pub pause: Duration,
}

/// Time by which a client is behind a [`ReadRate`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadPace {
    behind: Duration,
}

impl ReadPace {
    /// Accounts `waited`, a time during which data waited for the client, and the `bytes` that it has read since the last
    /// call. Returns whether the client is too slow.
    ///
    /// Fast reading earns no time in advance: a client could otherwise read a large part quickly, and then hold the
    /// response for hours.
    #[must_use]
    pub fn is_too_slow(&mut self, waited: Duration, bytes: u64, rate: ReadRate) -> bool {
        // Milliseconds, because whole seconds would not count a round with less than one second of the rate.
        let Some(earned) = bytes.saturating_mul(1000).checked_div(rate.bytes) else { return false };
        self.behind = (self.behind + waited).saturating_sub(Duration::from_millis(earned));
        self.behind >= rate.pause
    }

    /// Forgets the past: the client has read all data.
    pub fn reset(&mut self) {
        self.behind = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: ReadRate = ReadRate { bytes: 240, pause: Duration::from_secs(30) };
    const ROUND: Duration = Duration::from_secs(2);

    /// Number of rounds until a reader of `bytes` per round is too slow, up to 1000.
    fn rounds(bytes: u64, rate: ReadRate) -> usize {
        let mut pace = ReadPace::default();
        (1..1000).find(|_| pace.is_too_slow(ROUND, bytes, rate)).unwrap_or(1000)
    }

    #[test]
    fn only_a_reader_below_the_rate_is_too_slow() {
        assert_eq!((rounds(0, RATE), rounds(4, RATE), rounds(240, RATE)), (15, 16, 30));
        assert_eq!(rounds(480, RATE), 1000);
        assert_eq!(rounds(0, ReadRate { bytes: 0, ..RATE }), 1000);
    }

    #[test]
    fn bytes_read_early_earn_no_time_and_a_pause_is_made_up_for() {
        let mut pace = ReadPace::default();
        assert!(!pace.is_too_slow(ROUND, 1 << 30, RATE));
        assert!((0..14).all(|_| !pace.is_too_slow(ROUND, 0, RATE)));
        assert!(!pace.is_too_slow(ROUND, 10_000, RATE));
        assert!((0..14).all(|_| !pace.is_too_slow(ROUND, 0, RATE)));
        assert!(pace.is_too_slow(ROUND, 0, RATE));
    }

    #[test]
    fn who_has_read_all_begins_anew() {
        let mut pace = ReadPace::default();
        for _ in 0..100 {
            assert!((0..14).all(|_| !pace.is_too_slow(ROUND, 0, RATE)));
            pace.reset();
        }
    }
}

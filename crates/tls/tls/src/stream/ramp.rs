//! Size of records: small at the beginning of a response, so that the first round trip transfers complete ones, and
//! full soon after.
//!
//! No byte of a record can be decrypted before the whole record has arrived, and a full one is longer than the initial
//! ten segments of a server (RFC 6928). Small records cost processor time, so they are used again only after a pause,
//! like the kernel's initial congestion window.

use std::time::{Duration, Instant};

use brisk_tls_base::record::PLAINTEXT;

use crate::settings::Records;

/// Plaintext of the first record in bytes: with its overhead it fits one segment, also over IPv6, with options, and in a
/// tunnel.
pub(super) const FIRST: usize = 1369;

/// Plaintext of the next three records: three segments each.
const EARLY: usize = 4229;

/// Plaintext in small records: as much as fits the initial congestion window of ten segments.
const EARLY_BYTES: usize = FIRST + 3 * EARLY;

/// After a pause of this length records are small again.
const IDLE: Duration = Duration::from_secs(1);

/// Amount that a connection has sent since it was idle for [`IDLE`].
#[derive(Debug)]
pub(super) struct Ramp {
    records: Records,
    /// Plaintext, without responses that fit a single record.
    sealed: usize,
    /// Last time at which more than one record had to be sent.
    last: Option<Instant>,
}

impl Ramp {
    pub(super) fn new(records: Records) -> Self {
        Self { records, sealed: 0, last: None }
    }

    /// Called before more than [`FIRST`] bytes are sent.
    pub(super) fn begin(&mut self, now: Instant) {
        if self.last.replace(now).is_some_and(|last| now.duration_since(last) >= IDLE) {
            self.sealed = 0;
        }
    }

    /// Maximum plaintext of the next record: [`FIRST`], [`EARLY`] or [`PLAINTEXT`].
    pub(super) fn limit(&self) -> usize {
        match self.sealed {
            _ if self.records == Records::Full => PLAINTEXT,
            0 => FIRST,
            1..EARLY_BYTES => EARLY,
            _ => PLAINTEXT,
        }
    }

    /// Called after a record was sealed.
    pub(super) fn sealed(&mut self, length: usize) {
        if length >= FIRST && self.sealed < EARLY_BYTES {
            self.sealed += length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(ramp: &mut Ramp, mut bytes: usize) -> Vec<usize> {
        let mut lengths = Vec::new();
        while bytes > 0 {
            let length = bytes.min(ramp.limit());
            ramp.sealed(length);
            lengths.push(length);
            bytes -= length;
        }
        lengths
    }

    #[test]
    fn records_grow_and_are_small_again_after_a_pause() {
        let (mut ramp, start) = (Ramp::new(Records::Growing), Instant::now());
        ramp.begin(start);
        assert_eq!(lengths(&mut ramp, 40_000), [FIRST, EARLY, EARLY, EARLY, PLAINTEXT, 9560]);
        ramp.begin(start + IDLE / 2);
        assert_eq!(lengths(&mut ramp, 20_000), [PLAINTEXT, 3616]);
        ramp.begin(start + IDLE / 2 + IDLE);
        assert_eq!(lengths(&mut ramp, 2000), [FIRST, 631]);
    }

    #[test]
    fn short_answers_leave_the_first_record_small() {
        let mut ramp = Ramp::new(Records::Growing);
        for _ in 0..100 {
            assert_eq!(lengths(&mut ramp, 1000), [1000]);
        }
        assert_eq!(ramp.limit(), FIRST);
    }

    #[test]
    fn records_are_full_from_the_first_on_where_the_settings_say_so() {
        let mut ramp = Ramp::new(Records::Full);
        ramp.begin(Instant::now());
        assert_eq!(lengths(&mut ramp, 40_000), [PLAINTEXT, PLAINTEXT, 7232]);
    }

    #[test]
    fn small_records_fit_the_initial_congestion_window() {
        let overhead = 4 * (5 + 1 + 16);
        assert!(EARLY_BYTES + overhead <= 10 * 1448);
    }
}

//! Budget of an HTTP/2 or HTTP/3 connection for frames that cost the server work and bring the client nothing.
//!
//! Points are charged for streams reset by the client (CVE-2023-44487, "Rapid Reset"), streams that the client makes the server
//! reset (CVE-2025-8671), and control frames (CVE-2019-9512 and related). Each protocol has a table of prices. Responses, data
//! and time earn points.

mod metrics;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use brisk_http_connection::streams::RESET;

pub(crate) use metrics::Flood;
pub use metrics::FloodMetrics;

/// Points charged per KiB of header fields beyond the size that their blocks explain. Browsers never cause this: the tables
/// of HPACK and short names explain 8 KiB per head, which are free.
const HEAD_KIB: u32 = RESET;
/// Points earned per second.
const SECOND: u32 = RESET;
/// Points earned per `DATA` frame of a response: the client has to send window updates for the stream and the connection,
/// and may measure the path with a `PING`.
const ANSWER_DATA: u32 = 3;
/// Minimum length, in bytes, of a `DATA` frame that earns points: a client could otherwise cause one frame per byte of its
/// window (CVE-2019-9511).
const DATA_WORTH: usize = 256;

/// Reason and price, in points, of a frame from the client; `None` if the frame is free.
pub(super) type Price = Option<(Flood, u32)>;

/// Accounts the frames of one connection. Clones share the [`Tally`].
#[derive(Clone, Debug)]
pub(super) struct FloodWatch(Rc<RefCell<Tally>>);

/// Account of a connection.
#[derive(Debug)]
struct Tally {
    budget: Budget,
    /// Received bytes of header blocks.
    blocks: u64,
    /// KiB of long heads already charged.
    heads_charged: u64,
}

/// Points left, and points spent by reason.
#[derive(Debug)]
struct Budget {
    full: u32,
    left: u32,
    earned_until: Instant,
    spent: [u64; Flood::ALL.len()],
    exhausted: bool,
}

impl FloodWatch {
    /// Creates an account with a budget for a burst of `resets` reset streams: `limits.h2_resets`.
    pub(super) fn new(resets: usize) -> Self {
        let full = u32::try_from(resets).unwrap_or(u32::MAX).saturating_mul(RESET);
        let budget = Budget::new(full, Instant::now());
        Self(Rc::new(RefCell::new(Tally { budget, blocks: 0, heads_charged: 0 })))
    }

    /// Adds `points`, up to the full budget.
    pub(super) fn earn(&self, points: u32) {
        self.0.borrow_mut().budget.earn(points);
    }

    /// Charges for header fields far larger than the blocks that encode them: HPACK can repeat a field of 4 KiB with one
    /// byte, and QPACK a field of its static table. `long` is the total size of all long heads of the connection (see [`Connection::long_heads`]).
    ///
    /// [`Connection::long_heads`]: brisk_http_connection::Connection::long_heads
    pub(super) fn heads(&self, long: u64) {
        if long == 0 {
            return;
        }
        let Tally { budget, blocks, heads_charged, .. } = &mut *self.0.borrow_mut();
        // Factor 2: Huffman coding (RFC 7541 appendix B) shortens a field to 5/8 at best.
        let excess = long.saturating_sub(2 * *blocks) / 1024;
        if let Some(due @ 1..) = excess.checked_sub(*heads_charged) {
            *heads_charged = excess;
            let due = u32::try_from(due).unwrap_or(u32::MAX);
            budget.spend(Flood::HeaderSize, due.saturating_mul(HEAD_KIB));
        }
    }

    /// Reason with the highest cost, once the budget is exhausted; `None` before.
    pub(super) fn exhausted_by(&self) -> Option<Flood> {
        let budget = &self.0.borrow().budget;
        budget.exhausted.then(|| budget.most_spent())
    }

    /// Accounts the encoded fields of a frame from the client: `bytes` of its payload.
    pub(super) fn block_received(&self, bytes: u64) {
        self.0.borrow_mut().blocks += bytes;
    }

    /// Charges the price of a frame from the client.
    pub(super) fn charge(&self, price: Price) {
        if let Some((reason, points)) = price {
            self.0.borrow_mut().budget.spend(reason, points);
        }
    }

    /// Accounts a `DATA` frame of `length` bytes to the client, which earns points from [`DATA_WORTH`] on.
    pub(super) fn data_sent(&self, length: usize) {
        if length >= DATA_WORTH {
            self.earn(ANSWER_DATA);
        }
    }

    /// Charges one point for a header block that was decoded and ignored.
    pub(super) fn ignored(&self) {
        self.charge(Some((Flood::OtherFrame, 1)));
    }
}

impl Budget {
    fn new(full: u32, now: Instant) -> Self {
        Self { full, left: full, earned_until: now, spent: [0; _], exhausted: false }
    }

    fn earn(&mut self, points: u32) {
        self.left = self.left.saturating_add(points).min(self.full);
    }

    fn spend(&mut self, reason: Flood, points: u32) {
        self.spent[reason as usize] += u64::from(points);
        if self.left < points {
            self.earn_by_time(Instant::now());
        }
        match self.left.checked_sub(points) {
            Some(left) => self.left = left,
            None => self.exhausted = true,
        }
    }

    /// Earns [`SECOND`] points for each second. Called only when points are short, so that frames normally cost no system call
    /// for the time.
    fn earn_by_time(&mut self, now: Instant) {
        let seconds = now.duration_since(self.earned_until).as_secs();
        if seconds > 0 {
            self.earned_until = now;
            self.earn(u32::try_from(seconds).unwrap_or(u32::MAX).saturating_mul(SECOND));
        }
    }

    fn most_spent(&self) -> Flood {
        let most = Flood::ALL.iter().max_by_key(|reason| self.spent[**reason as usize]);
        most.copied().unwrap_or(Flood::Reset)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use brisk_http_connection::streams::ANSWER;

    const RESETS: Price = Some((Flood::Reset, RESET));
    const UPDATE: Price = Some((Flood::WindowUpdate, 1));

    #[test]
    fn resets_beyond_the_budget_exhaust_it() {
        let watch = FloodWatch::new(3);
        for _ in 0..3 {
            watch.charge(RESETS);
        }
        assert_eq!(watch.exhausted_by(), None);
        watch.charge(RESETS);
        assert_eq!(watch.exhausted_by(), Some(Flood::Reset));
    }

    #[test]
    fn two_answers_earn_a_reset() {
        let watch = FloodWatch::new(1);
        for _ in 0..100 {
            watch.charge(RESETS);
            watch.earn(ANSWER);
            watch.earn(ANSWER);
        }
        assert_eq!(watch.exhausted_by(), None);
    }

    #[test]
    fn window_updates_are_paid_for_by_data() {
        let watch = FloodWatch::new(1);
        for _ in 0..100 {
            watch.data_sent(256);
            watch.charge(UPDATE);
            watch.charge(UPDATE);
        }
        assert_eq!(watch.exhausted_by(), None);
        for _ in 0..11 {
            watch.data_sent(255);
            watch.charge(UPDATE);
        }
        assert_eq!(watch.exhausted_by(), Some(Flood::WindowUpdate));
    }

    #[test]
    fn heads_cost_what_they_are_longer_than_their_blocks() {
        let watch = FloodWatch::new(1);
        let mut long = 0;
        for _ in 0..100 {
            watch.block_received(0x2000);
            long += 0x3000;
            watch.heads(long);
        }
        assert_eq!(watch.exhausted_by(), None);
        watch.heads(long + 100 * 0x1000 + 1024);
        assert_eq!(watch.exhausted_by(), None);
        watch.heads(long + 100 * 0x1000 + 2048);
        assert_eq!(watch.exhausted_by(), Some(Flood::HeaderSize));
    }

    #[test]
    fn a_second_earns_a_reset() {
        let start = Instant::now();
        let mut budget = Budget::new(30, start);
        budget.left = 0;
        budget.earn_by_time(start + Duration::from_millis(900));
        assert_eq!(budget.left, 0);
        budget.earn_by_time(start + Duration::from_millis(2100));
        assert_eq!(budget.left, 20);
        budget.earn_by_time(start + Duration::from_mins(1));
        assert_eq!(budget.left, 30);
    }
}

//! Rates by key: the generic cell rate algorithm (GCRA) in a table of fixed size.
//!
//! A `Cell` of the table is the time at which the bucket of a key is full again, so a bucket that is full needs no cell.
//! A new key takes the cell of a full bucket in its `Set`. If there is none, it competes with the cell of the lightest key,
//! as in `HeavyKeeper` (Yang et al., USENIX ATC 2018): each refusal adds weight, and a competitor removes one unit with the
//! probability `DECAY` to the power of minus the weight. Keys that are seen once displace each other, and a key that is being
//! limited remains.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use brisk_net::rates::Rate;

/// Possible values of [`LimitSettings::keys`](crate::LimitSettings::keys); a key takes 16 bytes.
pub const KEYS: RangeInclusive<u32> = 1 << 10..=1 << 24;

/// Number of [`Cell`]s in a [`Set`]: two cache lines.
const WAYS: usize = 8;

/// Bits of a `tag` that are the weight of its key.
const WEIGHT_BITS: u32 = 8;
const HEAVIEST: u64 = (1 << WEIGHT_BITS) - 1;

/// Factor by which the probability of a loss falls with each unit of weight.
const DECAY: f64 = 1.08;

/// The buckets of all keys.
#[derive(Debug)]
pub(crate) struct RateTable {
    interval: u64,
    /// Debt in nanoseconds beyond which a key is refused: `interval` times one less than [`Rate::burst`].
    tolerance: u64,
    sets: Box<[Set]>,
}

// 128 bytes, so that the search of a set reads two cache lines and no third.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Set([Cell; WAYS]);

/// One bucket of 16 bytes.
#[derive(Debug, Default)]
struct Cell {
    /// Hash of the key, and its weight in the lowest bits; 0 for a cell that was never used.
    tag: AtomicU64,
    /// Time at which the bucket is full, in nanoseconds since `Limit::started`.
    full_at: AtomicU64,
}

impl RateTable {
    /// Full buckets, of which at least `keys` are remembered once they are used.
    pub(crate) fn new(rate: Rate, keys: u32) -> Self {
        let sets = (keys as usize).div_ceil(WAYS);
        let interval = nanoseconds(rate.interval).max(1);
        Self {
            interval,
            tolerance: interval.saturating_mul(u64::from(rate.burst.saturating_sub(1))),
            sets: (0..sets).map(|_| Set::default()).collect(),
        }
    }

    /// Takes a token of the key with this hash at `now`. `Err` is the time until the next token. A key without a cell passes.
    pub(crate) fn take(&self, now: u64, hash: u64) -> Result<(), Duration> {
        // Memory is bounded, so a key without a cell passes. A key that exceeds its rate gains weight and keeps its cell.
        let Some(cell) = self.cell(now, hash) else { return Ok(()) };
        // Relaxed: a cell guards no other memory.
        let mut before = cell.full_at.load(Ordering::Relaxed);
        loop {
            let full_at = before.max(now);
            let wait = (full_at - now).saturating_sub(self.tolerance);
            if wait > 0 {
                cell.gain_weight();
                return Err(Duration::from_nanos(wait));
            }
            let after = full_at.saturating_add(self.interval);
            match cell.full_at.compare_exchange_weak(before, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => before = other,
            }
        }
    }

    /// Empties the bucket of a key, so that its next token is available after `wait`. Never shortens a longer wait.
    pub(crate) fn block(&self, now: u64, hash: u64, wait: Duration) {
        if let Some(cell) = self.cell(now, hash) {
            // `take` permits a debt up to `tolerance`, so the debt of a blocked key exceeds it by `wait`.
            let full_at = now.saturating_add(nanoseconds(wait)).saturating_add(self.tolerance);
            cell.full_at.fetch_max(full_at, Ordering::Relaxed);
        }
    }

    /// Returns a token that was taken for a request which another limit has refused.
    pub(crate) fn give_back(&self, hash: u64) {
        if let Some(cell) = self.set(hash).find(hash) {
            // The error is ignored: a bucket that another key has taken over since is younger than the interval.
            let _ = cell.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
                Some(full_at.saturating_sub(self.interval))
            });
        }
    }

    /// The [`Cell`] of a key; `None` if the key found no cell in its [`Set`].
    fn cell(&self, now: u64, hash: u64) -> Option<&Cell> {
        let set = self.set(hash);
        set.find(hash).or_else(|| set.replace(now, hash))
    }

    fn set(&self, hash: u64) -> &Set {
        // The lowest bits of the hash are not part of the tag.
        // The high half of the product is uniform for any number of sets, without a division.
        let index = (u128::from(hash.rotate_right(WEIGHT_BITS)) * self.sets.len() as u128) >> 64;
        &self.sets[usize::try_from(index).expect("less than the number of sets")]
    }
}

impl Set {
    fn find(&self, hash: u64) -> Option<&Cell> {
        self.0.iter().find(|cell| cell.tag.load(Ordering::Relaxed) & !HEAVIEST == tag(hash))
    }

    /// Gives a [`Cell`] to a new key; `None` if the key loses to the lightest one. Two workers that replace a cell at the same
    /// time may charge one request to the other key.
    fn replace(&self, now: u64, hash: u64) -> Option<&Cell> {
        let cost = |cell: &&Cell| {
            let full_at = cell.full_at.load(Ordering::Relaxed);
            // A full bucket costs nothing.
            if full_at <= now { (0, 0) } else { (1 + cell.weight(), full_at) }
        };
        let cell = self.0.iter().min_by_key(cost).expect("a set has cells");
        let before = cell.tag.load(Ordering::Relaxed);
        let weight = before & HEAVIEST;
        // A key without a refusal has no weight and yields at once: keys that are
        // seen once must not fill the table.
        if weight > 0 && cell.full_at.load(Ordering::Relaxed) > now {
            if fastrand::f64() < DECAY.powf(-(weight as f64)) {
                // The error is ignored: another worker has changed the weight.
                let _ = cell.tag.compare_exchange(before, before - 1, Ordering::Relaxed, Ordering::Relaxed);
            }
            return None;
        }
        cell.tag.compare_exchange(before, tag(hash), Ordering::Relaxed, Ordering::Relaxed).ok()?;
        cell.full_at.store(0, Ordering::Relaxed);
        Some(cell)
    }
}

impl Cell {
    fn weight(&self) -> u64 {
        self.tag.load(Ordering::Relaxed) & HEAVIEST
    }

    fn gain_weight(&self) {
        let before = self.tag.load(Ordering::Relaxed);
        if before & HEAVIEST < HEAVIEST {
            // The error is ignored: another worker has changed the weight.
            let _ = self.tag.compare_exchange(before, before + 1, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// The part of a hash that identifies a key within its [`Set`]. Never 0, which is the `tag` of an unused [`Cell`].
fn tag(hash: u64) -> u64 {
    (hash & !HEAVIEST).max(1 << WEIGHT_BITS)
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn table(burst: u32, keys: u32) -> RateTable {
        RateTable::new(Rate { interval: Duration::from_secs(1), burst }, keys)
    }

    /// A hash whose bits are spread like those of a real one.
    fn hash(number: u64) -> u64 {
        number
            .wrapping_add(1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    #[test]
    fn a_burst_passes_and_then_one_per_interval() {
        let table = table(3, 1024);
        for _ in 0..3 {
            assert_eq!(table.take(0, hash(1)), Ok(()));
        }
        assert_eq!(table.take(0, hash(1)), Err(Duration::from_secs(1)));
        assert_eq!(table.take(SECOND / 4, hash(1)), Err(Duration::from_millis(750)));
        assert_eq!(table.take(SECOND, hash(1)), Ok(()));
        assert!(table.take(SECOND, hash(1)).is_err());
        assert!(table.take(SECOND, hash(2)).is_ok(), "another key");
        for _ in 0..3 {
            assert_eq!(table.take(100 * SECOND, hash(1)), Ok(()), "after a pause");
        }
        assert!(table.take(100 * SECOND, hash(1)).is_err());
    }

    #[test]
    fn a_token_that_is_given_back_can_be_taken_again() {
        let table = table(2, 1024);
        for _ in 0..10 {
            assert!(table.take(0, hash(1)).is_ok());
            table.give_back(hash(1));
        }
        assert!(table.take(0, hash(1)).is_ok());
        assert!(table.take(0, hash(1)).is_ok());
        assert!(table.take(0, hash(1)).is_err());
    }

    #[test]
    fn a_blocked_key_waits_for_its_next_token() {
        let table = table(3, 1024);
        assert!(table.take(0, hash(1)).is_ok());
        table.block(0, hash(1), Duration::from_secs(5));
        assert_eq!(table.take(0, hash(1)), Err(Duration::from_secs(5)));
        assert!(table.take(5 * SECOND, hash(1)).is_ok());
        assert!(table.take(5 * SECOND, hash(1)).is_err());
    }

    #[test]
    fn threads_share_one_bucket() {
        let table = table(1000, 1024);
        let passed: usize = std::thread::scope(|scope| {
            let take = || (0..1000).filter(|_| table.take(0, hash(1)).is_ok()).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread")).sum()
        });
        assert_eq!(passed, 1000);
    }

    /// One million keys, each seen once, surround keys that exceed their rate, even without a burst.
    #[test]
    fn heavy_hitters_remain_limited_among_a_million_keys_in_bounded_memory() {
        let table = table(1, 65_536);
        assert_eq!(size_of_val(&*table.sets), 1 << 20, "16 bytes for each of 65,536 keys");
        let heavy = 0..50_u64;
        let mut passed = 0;
        for round in 0..1_000_u64 {
            // A millisecond per round: within one second, the heavy keys have one token each.
            let now = SECOND * 10 + round * SECOND / 1000;
            for stranger in 0..1_000 {
                let _ = table.take(now, hash(1_000_000 + round * 1_000 + stranger));
            }
            passed += heavy.clone().filter(|key| table.take(now, hash(*key)).is_ok()).count();
        }
        // A key may lose its cell once, before its first refusal.
        assert!((50..=55).contains(&passed), "{passed} of 50,000 requests passed");
    }

    #[test]
    fn keys_that_are_limited_are_not_displaced_by_newer_ones() {
        let table = table(1, 1024);
        let limited: Vec<_> = (0..1024).map(hash).collect();
        for _ in 0..100 {
            for key in &limited {
                let _ = table.take(0, *key);
            }
        }
        let is_limited = |key: &&u64| table.take(0, **key).is_err();
        let before = limited.iter().filter(is_limited).count();
        for number in 0..10_000 {
            let _ = table.take(0, hash(10_000 + number));
        }
        let after = limited.iter().filter(is_limited).count();
        assert!(before > 700, "{before} keys fit into their sets");
        assert!(after * 20 >= before * 19, "{after} of {before}");
    }

    #[test]
    fn a_key_that_has_gone_gives_way() {
        let table = table(1, 1024);
        for number in 0..5_000 {
            for _ in 0..300 {
                let _ = table.take(0, hash(number));
            }
        }
        let key = hash(9_999);
        assert!(table.take(2 * SECOND, key).is_ok());
        assert!(table.take(2 * SECOND, key).is_err(), "it has a cell");
    }
}

//! Rate limits per client: token buckets in a table of fixed size.
//!
//! The table is a set-associative cache without locks: a client is looked up in one set of slots, and a new client
//! replaces the one with the fullest buckets, whose loss matters least. Two workers that change one slot at the same
//! time may lose an event.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::limits::client_of;

/// Number of [`ClientBuckets`], 40 bytes each.
const CLIENTS: usize = 1 << 16;
/// Slots per set of the table.
const WAYS: usize = 8;
const EVENTS: usize = Event::ALL.len();

/// Events that [`Rates`] count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A new connection.
    Connection,
    /// A key operation, that is, a handshake that resumes no session.
    Handshake,
    /// A request.
    Request,
    /// A connection whose client violated the protocol.
    Error,
}

impl Event {
    /// All events.
    pub const ALL: [Self; 4] = [Self::Connection, Self::Handshake, Self::Request, Self::Error];
}

/// A token bucket: a burst of events, then one per interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Time in which the bucket gains a token.
    pub interval: Duration,
    /// Maximum number of tokens; at least one.
    pub burst: u32,
}

/// The rates of one client, an IPv4 address or an IPv6 /64. Events without a rate are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// New connections.
    pub connections: Option<Rate>,
    /// Full handshakes.
    pub handshakes: Option<Rate>,
    /// Requests.
    pub requests: Option<Rate>,
    /// Connections that violated the protocol.
    pub errors: Option<Rate>,
}

impl RateLimits {
    /// Whether nothing is limited: each rate is `None`.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn of(&self, event: Event) -> Option<Rate> {
        match event {
            Event::Connection => self.connections,
            Event::Handshake => self.handshakes,
            Event::Request => self.requests,
            Event::Error => self.errors,
        }
    }
}

/// Numbers of refusals by [`Event`]. Outlives the tables that count into it.
#[derive(Debug, Default)]
pub struct Refusals([AtomicU64; EVENTS]);

impl Refusals {
    /// Number of refusals of `event`.
    pub fn of(&self, event: Event) -> u64 {
        self.0[event as usize].load(Ordering::Relaxed)
    }
}

/// The buckets of all clients, shared by all threads. An event costs one hash and a search of eight slots.
#[derive(Debug)]
pub struct Rates {
    limits: RateLimits,
    refused: Arc<Refusals>,
    hasher: RandomState,
    started: Instant,
    sets: Box<[[ClientBuckets; WAYS]]>,
}

/// One client. A bucket is represented by the time at which it is full again, in nanoseconds since the start.
#[derive(Debug, Default)]
struct ClientBuckets {
    /// Hash of the client; 0 for an unused slot.
    client: AtomicU64,
    full_at: [AtomicU64; EVENTS],
}

impl Rates {
    /// Creates a table in which every bucket is full.
    pub fn new(limits: RateLimits, refused: Arc<Refusals>) -> Self {
        let sets = (0..CLIENTS / WAYS).map(|_| std::array::from_fn(|_| ClientBuckets::default())).collect();
        Self { limits, refused, hasher: RandomState::new(), started: Instant::now(), sets }
    }

    /// The [`RateLimits`] of the table.
    pub fn limits(&self) -> &RateLimits {
        &self.limits
    }

    /// Takes a token of `client` for `event`. If there is none, returns the time until the next one, and counts a
    /// refusal.
    pub fn take(&self, client: IpAddr, event: Event) -> Result<(), Duration> {
        let Some(rate) = self.limits.of(event) else { return Ok(()) };
        self.take_at(self.now(), client, event, rate)
    }

    /// Takes a token of `client` for an `event` that has already happened, if there is one.
    pub fn charge(&self, client: IpAddr, event: Event) {
        let Some(rate) = self.limits.of(event) else { return };
        let (now, bucket) = (self.now(), self.bucket(client, event));
        let interval = nanoseconds(rate.interval);
        let full_at = bucket.load(Ordering::Relaxed).max(now).saturating_add(interval);
        // Not beyond an empty bucket: events above the rate must not make the refusal longer and longer.
        let empty = now.saturating_add(interval.saturating_mul(rate.burst.into()));
        bucket.store(full_at.min(empty), Ordering::Relaxed);
    }

    /// Like [`take`](Self::take), but leaves the token in the bucket.
    pub fn check(&self, client: IpAddr, event: Event) -> Result<(), Duration> {
        let Some(rate) = self.limits.of(event) else { return Ok(()) };
        let (now, bucket) = (self.now(), self.bucket(client, event));
        self.check_bucket(bucket.load(Ordering::Relaxed).max(now), now, event, rate)
    }

    fn take_at(&self, now: u64, client: IpAddr, event: Event, rate: Rate) -> Result<(), Duration> {
        let bucket = self.bucket(client, event);
        let before = bucket.load(Ordering::Relaxed);
        let full_at = before.max(now);
        self.check_bucket(full_at, now, event, rate)?;
        let later = full_at.saturating_add(nanoseconds(rate.interval));
        // Fails if another worker changed the same bucket; one event is then not counted.
        let _ = bucket.compare_exchange(before, later, Ordering::Relaxed, Ordering::Relaxed);
        Ok(())
    }

    /// Checks a bucket that is full at `full_at`: until then it lacks one token per interval.
    fn check_bucket(&self, full_at: u64, now: u64, event: Event, rate: Rate) -> Result<(), Duration> {
        let interval = nanoseconds(rate.interval);
        let spared = interval.saturating_mul(u64::from(rate.burst.saturating_sub(1)));
        let wait = (full_at - now).saturating_sub(spared);
        if wait == 0 {
            return Ok(());
        }
        // The bucket stays as it is: if refusals took tokens, a client that continues to try
        // would never be admitted again.
        self.refused.0[event as usize].fetch_add(1, Ordering::Relaxed);
        Err(Duration::from_nanos(wait))
    }

    fn bucket(&self, client: IpAddr, event: Event) -> &AtomicU64 {
        &self.entry(client).full_at[event as usize]
    }

    fn entry(&self, client: IpAddr) -> &ClientBuckets {
        // Never 0, which marks an unused slot.
        let hash = self.hasher.hash_one(client_of(client)) | 1;
        let set = &self.sets[(hash >> 32) as usize % self.sets.len()];
        if let Some(entry) = set.iter().find(|entry| entry.client.load(Ordering::Relaxed) == hash) {
            return entry;
        }
        let entry = set.iter().min_by_key(|entry| entry.last_full()).expect("a set has entries");
        entry.client.store(hash, Ordering::Relaxed);
        for bucket in &entry.full_at {
            bucket.store(0, Ordering::Relaxed);
        }
        entry
    }

    fn now(&self) -> u64 {
        nanoseconds(self.started.elapsed())
    }
}

impl ClientBuckets {
    fn last_full(&self) -> u64 {
        self.full_at.iter().map(|bucket| bucket.load(Ordering::Relaxed)).max().unwrap_or(0)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn rates(burst: u32) -> (Rates, Rate) {
        let rate = Rate { interval: Duration::from_secs(1), burst };
        let limits = RateLimits { requests: Some(rate), ..RateLimits::default() };
        (Rates::new(limits, Arc::default()), rate)
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_burst_passes_and_then_one_per_interval() {
        let (rates, rate) = rates(3);
        let take = |now| rates.take_at(now, address("192.0.2.1"), Event::Request, rate);
        for _ in 0..3 {
            assert_eq!(take(0), Ok(()));
        }
        assert_eq!(take(0), Err(Duration::from_secs(1)));
        assert_eq!(take(SECOND / 4), Err(Duration::from_millis(750)));
        assert_eq!(take(SECOND), Ok(()));
        assert!(take(SECOND).is_err());
        assert_eq!(take(100 * SECOND), Ok(()), "after a pause");
        assert_eq!(rates.refused.of(Event::Request), 3);
    }

    #[test]
    fn clients_and_events_have_buckets_of_their_own() {
        let (rates, rate) = rates(1);
        let take = |client| rates.take_at(0, address(client), Event::Request, rate);
        assert!(take("192.0.2.1").is_ok());
        assert!(take("192.0.2.1").is_err());
        assert!(take("192.0.2.2").is_ok());
        assert!(take("2001:db8::1").is_ok());
        assert!(take("2001:db8::2").is_err(), "the same /64");
        assert_eq!(rates.take(address("192.0.2.1"), Event::Connection), Ok(()), "not limited");
    }

    #[test]
    fn looking_takes_nothing() {
        let (rates, _) = rates(1);
        let client = address("192.0.2.1");
        assert!(rates.check(client, Event::Request).is_ok());
        assert!(rates.take(client, Event::Request).is_ok());
        assert!(rates.check(client, Event::Request).is_err());
    }

    #[test]
    fn what_has_happened_is_charged_up_to_an_empty_bucket() {
        let (rates, _) = rates(2);
        let client = address("192.0.2.1");
        rates.charge(client, Event::Request);
        assert!(rates.check(client, Event::Request).is_ok());
        for _ in 0..10 {
            rates.charge(client, Event::Request);
        }
        let wait = rates.check(client, Event::Request).expect_err("an empty bucket");
        assert!(wait <= Duration::from_secs(1), "{wait:?}");
    }

    #[test]
    fn the_table_is_bounded_and_forgets_full_buckets_first() {
        let (rates, rate) = rates(1000);
        let debtor = address("192.0.2.1");
        for _ in 0..1000 {
            rates.take_at(0, debtor, Event::Request, rate).expect("a token");
        }
        for number in 0..4 * CLIENTS as u32 {
            let client = IpAddr::from((0x0a00_0000 + number).to_be_bytes());
            rates.take_at(0, client, Event::Request, rate).expect("a token");
        }
        assert!(rates.take_at(0, debtor, Event::Request, rate).is_err(), "who owes most is remembered");
    }
}

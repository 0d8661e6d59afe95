//! Admission of beacons: limits of rate, per client and in total.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brisk_net::rates::{Event, Rate, RateLimits, Rates};

use crate::Refusal;

/// The most bytes of a beacon; a longer one is [`Refusal::TooLarge`].
pub const LARGEST: usize = 64 << 10;

/// Limit per client on measured page views, and on beacons: enough for visitors who share an address.
const OF_CLIENT: Rate = Rate { interval: Duration::from_millis(500), burst: 60 };

/// Limit per client on reported events, since a client can invent them.
const REPORTED: Rate = Rate { interval: Duration::from_secs(6), burst: 10 };

/// Limit per client on visits that count in experiments: enough to represent the visitors of an address, too few for
/// a client to decide an experiment.
const COMPARED: Rate = Rate { interval: Duration::from_mins(10), burst: 1 };

/// Limit per client on pages that no other visit had: enough for a first visitor, too few to fill the table of names.
const ADDED_PAGES: Rate = Rate { interval: Duration::from_hours(1), burst: 32 };

/// Limit of all clients: beacons per second, and in a burst.
const IN_SECOND: u64 = 1000;
const AT_ONCE: u64 = 2000;

/// The limits.
#[derive(Debug)]
pub(crate) struct Admission {
    rates: Rates,
    added_pages: Rates,
    all: Bucket,
}

impl Admission {
    pub(crate) fn new() -> Self {
        // The table has fixed kinds of events: here connections are page views, requests are beacons, handshakes are
        // reported events, and errors are visits in experiments.
        let limits = RateLimits {
            connections: Some(OF_CLIENT),
            requests: Some(OF_CLIENT),
            handshakes: Some(REPORTED),
            errors: Some(COMPARED),
        };
        let added_pages = RateLimits { requests: Some(ADDED_PAGES), ..RateLimits::default() };
        Self {
            rates: Rates::new(limits, Arc::default()),
            added_pages: Rates::new(added_pages, Arc::default()),
            all: Bucket::new(),
        }
    }

    /// Whether one more page view of `client` may be measured; `None` is many clients.
    pub(crate) fn may_measure(&self, client: Option<IpAddr>) -> bool {
        client.is_none_or(|client| self.rates.take(client, Event::Connection).is_ok())
    }

    /// Whether another beacon of `client` may be read; `None` represents many clients. A refused beacon does not
    /// count against the limit of all clients.
    pub(crate) fn may_read(&self, client: Option<IpAddr>) -> Result<(), Refusal> {
        if client.is_some_and(|client| self.rates.take(client, Event::Request).is_err()) {
            return Err(Refusal::ClientRate);
        }
        if self.all.take() { Ok(()) } else { Err(Refusal::Rate) }
    }

    /// Whether `client` may add a page that no other visit had; `None` represents many clients, which have the share of
    /// the host only.
    pub(crate) fn may_add_page(&self, client: Option<IpAddr>) -> bool {
        client.is_none_or(|client| self.added_pages.take(client, Event::Request).is_ok())
    }

    /// Whether one more event that `client` reports is counted; `None` is many clients.
    pub(crate) fn may_report(&self, client: Option<IpAddr>) -> bool {
        client.is_none_or(|client| self.rates.take(client, Event::Handshake).is_ok())
    }

    /// Whether another visit of `client` counts in experiments; `None` represents many clients that cannot be
    /// distinguished.
    pub(crate) fn may_compare(&self, client: Option<IpAddr>) -> bool {
        client.is_some_and(|client| self.rates.take(client, Event::Error).is_ok())
    }
}

/// A token bucket for all clients: the time, in nanoseconds after the start, at which it is full again.
#[derive(Debug)]
struct Bucket {
    started: Instant,
    full_at: AtomicU64,
}

impl Bucket {
    fn new() -> Self {
        Self { started: Instant::now(), full_at: AtomicU64::new(0) }
    }

    fn take(&self) -> bool {
        self.take_at(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn take_at(&self, now: u64) -> bool {
        // One atomic time instead of a count and a time, so that all workers share the bucket without a lock.
        const INTERVAL: u64 = 1_000_000_000 / IN_SECOND;
        // Relaxed order: no other data depends on the time.
        let taken = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            let later = full_at.max(now).saturating_add(INTERVAL);
            (later - now <= AT_ONCE * INTERVAL).then_some(later)
        });
        taken.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_clients_share_a_bucket() {
        let bucket = Bucket::new();
        assert_eq!((0..2 * AT_ONCE).filter(|_| bucket.take_at(0)).count() as u64, AT_ONCE);
        assert_eq!((0..10).filter(|_| bucket.take_at(5_000_000)).count(), 5, "five more after 5 ms");
    }

    #[test]
    fn one_client_cannot_take_what_all_share() {
        let admission = Admission::new();
        let client = |number: u32| Some(IpAddr::from((0x0a00_0000 + number).to_be_bytes()));
        let read = (0..10_000).filter(|_| admission.may_read(client(1)).is_ok()).count();
        assert!(read < 200, "{read}");
        assert_eq!(admission.may_read(client(1)), Err(Refusal::ClientRate));
        assert_eq!(admission.may_read(client(2)), Ok(()));
        assert!(admission.may_measure(client(1)) && admission.may_measure(None));
    }
}

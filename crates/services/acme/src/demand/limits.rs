//! Rate limits of on-demand names.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use tokio::time::Instant;

use super::OrderRate;

/// Limit of requests to the operator's server about new names: of all clients together, and of each client within
/// [`WINDOW`].
const ALL: OrderRate = OrderRate { interval: Duration::from_millis(100), burst: 100 };
const EACH: u32 = 30;

/// Window in which a client may introduce [`EACH`] names.
const WINDOW: Duration = Duration::from_mins(1);

/// A token bucket, stored as the time at which it is full again.
#[derive(Debug)]
pub(super) struct Bucket {
    pace: OrderRate,
    /// Time at which the bucket is full again.
    full_at: Instant,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(pace: OrderRate, now: Instant) -> Self {
        Self { pace, full_at: now }
    }

    /// Takes a token.
    ///
    /// # Errors
    ///
    /// The time until a token is available.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let full_at = self.full_at.max(now) + self.pace.interval;
        let most = self.pace.interval * self.pace.burst.max(1);
        if let Some(over) = (full_at - now).checked_sub(most).filter(|over| !over.is_zero()) {
            return Err(over);
        }
        self.full_at = full_at;
        Ok(())
    }

    /// Returns an unused token.
    pub(super) fn give_back(&mut self) {
        // `full_at` before the present counts as full.
        self.full_at = self.full_at.checked_sub(self.pace.interval).unwrap_or(self.full_at);
    }
}

/// Limits requests about new names, so that a client that invents names leaves most of the limit to others.
#[derive(Debug)]
pub(super) struct QueryLimit {
    all: Bucket,
    /// Requests of each client in the present window. The total limit bounds the number of entries.
    clients: HashMap<IpAddr, u32>,
    since: Instant,
}

impl QueryLimit {
    pub(super) fn new(now: Instant) -> Self {
        Self { all: Bucket::new(ALL, now), clients: HashMap::new(), since: now }
    }

    /// Counts a new name of `client` and returns whether it may be looked up now.
    pub(super) fn allows(&mut self, client: Option<IpAddr>, now: Instant) -> bool {
        if now.duration_since(self.since) >= WINDOW {
            self.clients.clear();
            self.since = now;
        }
        let client = client.map(of_one);
        let asked = client.and_then(|client| self.clients.get(&client)).copied().unwrap_or_default();
        // In this order: a client beyond its own limit must not use the tokens of all.
        if asked >= EACH || self.all.take(now).is_err() {
            return false;
        }
        if let Some(client) = client {
            self.clients.insert(client, asked + 1);
        }
        true
    }
}

/// The unit that counts as one client: an IPv4 address, or the /64 network of an IPv6 address.
fn of_one(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_a_burst_and_then_one_for_each_interval() {
        let start = Instant::now();
        let pace = OrderRate { interval: Duration::from_secs(6), burst: 3 };
        let mut bucket = Bucket::new(pace, start);
        for _ in 0..3 {
            assert_eq!(bucket.take(start), Ok(()));
        }
        assert_eq!(bucket.take(start), Err(Duration::from_secs(6)));
        bucket.give_back();
        assert_eq!(bucket.take(start), Ok(()));
        assert_eq!(bucket.take(start), Err(Duration::from_secs(6)));
        let later = start + Duration::from_secs(6);
        assert_eq!(bucket.take(later), Ok(()));
        assert!(bucket.take(later).is_err());
        assert_eq!(bucket.take(start + Duration::from_hours(9)), Ok(()));
    }

    #[test]
    fn a_client_that_invents_names_leaves_the_rest_to_others() {
        let start = Instant::now();
        let mut asking = QueryLimit::new(start);
        let client = |text: &str| Some(text.parse().unwrap());
        let asked = (0..1000).filter(|_| asking.allows(client("192.0.2.1"), start)).count();
        assert_eq!(asked, EACH as usize);
        assert!(asking.allows(client("192.0.2.2"), start));
        // Addresses of one /64 network count as one client.
        let own = |last: u32| client(&format!("2001:db8::{last:x}"));
        let asked = (1..1000).filter(|last| asking.allows(own(*last), start)).count();
        assert_eq!(asked, EACH as usize);
        let all = (0..1000).filter(|_| asking.allows(None, start)).count();
        assert!(all <= ALL.burst as usize - 61, "{all}");
        assert!(!asking.allows(client("192.0.2.3"), start));
        let later = start + WINDOW;
        assert!(asking.allows(client("192.0.2.1"), later));
    }
}

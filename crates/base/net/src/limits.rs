//! Limits of open connections, in total and per client.
//!
//! Both limits are shared by all workers and refuse at once: a connection over the limit costs one accept and one
//! close.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of locks for client addresses in [`AddressLimit`], so that workers rarely contend.
const SHARDS: usize = 32;

/// Maximum number of open connections. Clones share one count.
#[derive(Clone, Debug)]
pub struct ConnectionLimit {
    shared: Arc<Count>,
}

#[derive(Debug)]
struct Count {
    open: AtomicUsize,
    limit: usize,
}

/// One open connection, until it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    shared: Arc<Count>,
}

impl ConnectionLimit {
    /// Permits at most `limit` open connections.
    pub fn new(limit: usize) -> Self {
        Self { shared: Arc::new(Count { open: AtomicUsize::new(0), limit }) }
    }

    /// Counts one more connection until the [`ConnectionPermit`] is dropped; `None` if the limit is reached. Never waits.
    pub fn try_acquire(&self) -> Option<ConnectionPermit> {
        // Relaxed order suffices: no other memory depends on the count. A refused connection counts until the
        // drop below and may refuse another needlessly, but no more than `limit` are admitted.
        let open = self.shared.open.fetch_add(1, Ordering::Relaxed);
        // Created before the check, so that its drop reverts the count on refusal.
        let permit = ConnectionPermit { shared: Arc::clone(&self.shared) };
        (open < self.shared.limit).then_some(permit)
    }

    /// Number of open connections.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Maximum number of open connections.
    pub fn limit(&self) -> usize {
        self.shared.limit
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Maximum number of open connections per client. Clones share the counts.
///
/// A client is an IPv4 address or an IPv6 /64, the usual allocation of one customer. Memory is bounded by the number of
/// open connections, because clients without any are removed.
#[derive(Clone, Debug)]
pub struct AddressLimit {
    shared: Arc<AddressCounts>,
}

#[derive(Debug)]
struct AddressCounts {
    shards: [Mutex<HashMap<IpAddr, usize>>; SHARDS],
    hasher: RandomState,
    limit: usize,
}

/// One open connection of a client, until it is dropped.
#[derive(Debug)]
pub struct AddressPermit {
    shared: Arc<AddressCounts>,
    client: IpAddr,
}

impl AddressLimit {
    /// Permits each client at most `limit` open connections.
    pub fn new(limit: usize) -> Self {
        let shared = AddressCounts {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            limit,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Counts one more connection of `address` until the [`AddressPermit`] is dropped; `None` if its limit is reached.
    pub fn try_acquire(&self, address: IpAddr) -> Option<AddressPermit> {
        self.try_acquire_below(address, self.shared.limit)
    }

    /// Like [`try_acquire`](Self::try_acquire), with another limit for this call.
    pub(crate) fn try_acquire_below(&self, address: IpAddr, limit: usize) -> Option<AddressPermit> {
        let client = client_of(address);
        let mut counts = self.shared.lock(client);
        let open = counts.get(&client).copied().unwrap_or_default();
        if open >= limit {
            return None;
        }
        counts.insert(client, open + 1);
        drop(counts);
        Some(AddressPermit { shared: Arc::clone(&self.shared), client })
    }
}

impl AddressCounts {
    fn lock(&self, client: IpAddr) -> std::sync::MutexGuard<'_, HashMap<IpAddr, usize>> {
        // `hasher` has a random key: clients with many networks cannot choose those that share one lock.
        let shard = self.hasher.hash_one(client) as usize % SHARDS;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut counts = self.shared.lock(self.client);
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                // Clients without connections are removed, so that the table cannot grow without bound.
                counts.remove(&self.client);
            }
        }
    }
}

/// The network that counts as one client: an IPv4 address or an IPv6 /64.
pub fn client_of(address: IpAddr) -> IpAddr {
    // An IPv4-mapped IPv6 address counts as the IPv4 address.
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let prefix = u128::from(v6) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(prefix))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn the_limit_refuses_and_a_dropped_permit_makes_room() {
        let limit = ConnectionLimit::new(2);
        let first = limit.try_acquire().expect("first");
        let _second = limit.clone().try_acquire().expect("second");
        assert!(limit.try_acquire().is_none());
        assert_eq!(limit.open(), 2, "a refused connection is not counted");
        drop(first);
        assert!(limit.try_acquire().is_some());
    }

    #[test]
    fn each_client_has_its_own_count() {
        let limit = AddressLimit::new(1);
        let first = limit.try_acquire(address("192.0.2.1")).expect("first");
        assert!(limit.try_acquire(address("192.0.2.1")).is_none());
        assert!(limit.try_acquire(address("::ffff:192.0.2.1")).is_none(), "the same client, mapped");
        let _other = limit.try_acquire(address("192.0.2.2")).expect("another client");
        drop(first);
        assert!(limit.try_acquire(address("192.0.2.1")).is_some());
    }

    #[test]
    fn ipv6_clients_are_counted_by_their_64_bit_prefix() {
        let limit = AddressLimit::new(1);
        let _first = limit.try_acquire(address("2001:db8:0:1::1")).expect("first");
        assert!(limit.try_acquire(address("2001:db8:0:1:ffff::2")).is_none());
        assert!(limit.try_acquire(address("2001:db8:0:2::1")).is_some());
    }

    #[test]
    fn clients_without_connections_are_forgotten() {
        let limit = AddressLimit::new(1);
        let refused = AddressLimit::new(0);
        drop(limit.try_acquire(address("192.0.2.1")));
        assert!(refused.try_acquire(address("192.0.2.1")).is_none());
        for shard in limit.shared.shards.iter().chain(&refused.shared.shards) {
            assert!(shard.lock().expect("lock").is_empty());
        }
    }
}

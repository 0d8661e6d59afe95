//! Clients that cancel many requests. Their further requests use connections apart from those of other clients.
//!
//! A shared connection limits the streams that it resets (see [`resets`](super::resets)), but canceled requests still use up
//! that limit for all clients of the connection. Clients above a rate therefore share connections with each other only. The
//! numbers stay below those of one connection, so that a single client leaves half of its resets to the others.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use brisk_net::limits::client_of;

/// Number of requests that a client may cancel at once. Each second permits one more.
const BURST: u32 = 16;

/// Maximum time for which a client counts after its last canceled request.
const LONGEST: Duration = Duration::from_mins(2);

/// Number of clients that [`Cancels`] remembers. Beyond it, the client that counts for the shortest time is forgotten.
const CLIENTS: usize = 256;

/// Canceled requests by client, an IPv4 address or an IPv6 /64.
///
/// Each canceled request adds one second to the time up to which a client counts. A client that counts for more than
/// [`BURST`] seconds has canceled many. Clients that cancel nothing cost nothing.
#[derive(Debug, Default)]
pub(super) struct Cancels(RefCell<HashMap<IpAddr, Instant>>);

impl Cancels {
    /// Whether `client` has canceled many requests. `None` is an address of many clients, which are not distinguished.
    pub(super) fn are_many(&self, client: Option<IpAddr>, now: impl FnOnce() -> Instant) -> bool {
        let clients = self.0.borrow();
        let until = client.filter(|_| !clients.is_empty()).and_then(|client| clients.get(&client_of(client)));
        until.is_some_and(|until| is_above(*until, now()))
    }

    /// Counts a canceled request of `client`; `None`, an address of many clients, is not counted.
    pub(super) fn add(&self, client: Option<IpAddr>, now: Instant) {
        let Some(client) = client.map(client_of) else { return };
        let mut clients = self.0.borrow_mut();
        // Never before `now`: time without canceled requests is no credit for more than `BURST` of them.
        let before = clients.get(&client).map_or(now, |until| (*until).max(now));
        let until = (before + Duration::from_secs(1)).min(now + LONGEST);
        if is_above(until, now) && !is_above(before, now) {
            tracing::debug!(%client, "a client canceled many requests: upstream connections apart serve it");
        }
        clients.insert(client, until);
        if clients.len() > CLIENTS {
            // Only when the table is full, so that no timer has to remove clients.
            clients.retain(|_, until| *until > now);
        }
        if clients.len() > CLIENTS
            && let Some(least) = clients.iter().min_by_key(|(_, until)| **until).map(|(client, _)| *client)
        {
            clients.remove(&least);
        }
    }
}

fn is_above(until: Instant, now: Instant) -> bool {
    until.saturating_duration_since(now) > Duration::from_secs(BURST.into())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from(number).into()
    }

    #[test]
    fn a_client_above_the_burst_counts_until_its_time_is_over() {
        let (cancels, start) = (Cancels::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for _ in 0..BURST {
            cancels.add(Some(address(1)), start);
        }
        assert!(!cancels.are_many(Some(address(1)), || start));
        cancels.add(Some(address(1)), start);
        assert!(cancels.are_many(Some(address(1)), || start));
        assert!(!cancels.are_many(Some(address(2)), || start) && !cancels.are_many(None, || start));
        assert!(!cancels.are_many(Some(address(1)), || at(1)));
        for _ in 0..1000 {
            cancels.add(Some(address(1)), at(1));
        }
        assert!(cancels.are_many(Some(address(1)), || at(104)));
        assert!(!cancels.are_many(Some(address(1)), || at(105)));
    }

    #[test]
    fn one_request_per_second_is_not_many() {
        let (cancels, start) = (Cancels::default(), Instant::now());
        for second in 0..1000 {
            cancels.add(Some(address(1)), start + Duration::from_secs(second));
        }
        assert!(!cancels.are_many(Some(address(1)), || start + Duration::from_secs(999)));
    }

    #[test]
    fn addresses_of_one_network_are_one_client_and_an_address_of_many_is_none() {
        let (cancels, now) = (Cancels::default(), Instant::now());
        let in_network = |host| Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host).into());
        for host in 0..=BURST as u16 {
            cancels.add(in_network(host), now);
            cancels.add(None, now);
        }
        assert!(cancels.are_many(in_network(0xffff), || now));
        assert!(!cancels.are_many(None, || now));
    }

    #[test]
    fn invented_clients_do_not_displace_one_that_cancels_many() {
        let (cancels, now) = (Cancels::default(), Instant::now());
        for _ in 0..=BURST {
            cancels.add(Some(address(1)), now);
        }
        for number in 2..10_000 {
            cancels.add(Some(address(number)), now);
        }
        assert!(cancels.are_many(Some(address(1)), || now));
        assert_eq!(cancels.0.borrow().len(), CLIENTS);
    }
}

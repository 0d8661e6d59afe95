//! Shares the places of one queue between clients, so that none of them fills it.

use std::net::IpAddr;

use crate::limits::{AddressLimit, AddressPermit, ConnectionLimit, ConnectionPermit};

/// Places that clients share. A client may take one more while it has fewer than there are free: alone it gets half of
/// them, with another one a third, and there is always room for one who has none. Clones share the places.
#[derive(Clone, Debug)]
pub struct FairShare {
    places: usize,
    taken: ConnectionLimit,
    clients: AddressLimit,
}

/// One place, free again when it is dropped.
#[derive(Debug)]
pub struct SharePermit {
    _place: ConnectionPermit,
    _client: AddressPermit,
}

impl FairShare {
    /// Shares `places`.
    pub fn new(places: usize) -> Self {
        Self { places, taken: ConnectionLimit::new(places), clients: AddressLimit::new(places) }
    }

    /// A place for `client`, an IPv4 address or an IPv6 /64, or `None` when it has its share. Never waits; two locks that
    /// workers seldom meet at.
    pub fn try_acquire(&self, client: IpAddr) -> Option<SharePermit> {
        let free = self.places.saturating_sub(self.taken.open());
        let place = self.taken.try_acquire()?;
        Some(SharePermit { _place: place, _client: self.clients.try_acquire_below(client, free)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(share: &FairShare, client: &str) -> Vec<SharePermit> {
        let client = client.parse().expect("an address");
        std::iter::from_fn(|| share.try_acquire(client)).collect()
    }

    #[test]
    fn one_client_gets_half_and_leaves_room_for_others() {
        let share = FairShare::new(100);
        let first = take_all(&share, "192.0.2.1");
        assert_eq!(first.len(), 50);
        let second = take_all(&share, "192.0.2.2");
        assert_eq!(second.len(), 25);
        assert!(!take_all(&share, "192.0.2.3").is_empty());
        drop((first, second));
        assert_eq!(take_all(&share, "192.0.2.4").len(), 50, "places are given back");
    }

    #[test]
    fn a_single_place_can_be_had() {
        assert_eq!(take_all(&FairShare::new(1), "192.0.2.1").len(), 1);
    }
}

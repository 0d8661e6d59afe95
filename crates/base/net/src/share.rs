//! [`FairShare`], the fair division of a queue's slots between clients.

use std::net::IpAddr;

use crate::limits::{AddressLimit, AddressPermit, ConnectionLimit, ConnectionPermit};

/// A number of slots shared by clients. A client may take another slot while it has fewer than are free: a single
/// client gets half of them, two clients a third each, and a client without a slot always finds one. Clones share the
/// slots.
#[derive(Clone, Debug)]
pub struct FairShare {
    slots: usize,
    taken: ConnectionLimit,
    clients: AddressLimit,
}

/// One slot of a [`FairShare`], free again when dropped.
#[derive(Debug)]
pub struct SharePermit {
    _slot: ConnectionPermit,
    /// `None` for an address that represents many clients.
    _client: Option<AddressPermit>,
}

impl FairShare {
    /// Shares `slots` slots.
    pub fn new(slots: usize) -> Self {
        Self { slots, taken: ConnectionLimit::new(slots), clients: AddressLimit::new(slots) }
    }

    /// A slot for `client`, an IPv4 address or an IPv6 /64; `None` if it has its share. Never waits; takes two locks
    /// that are rarely contended.
    pub fn try_acquire(&self, client: IpAddr) -> Option<SharePermit> {
        self.try_acquire_of(client, self.slots)
    }

    /// Like [`try_acquire`](Self::try_acquire), with another number of slots for this call, at most that of [`new`](Self::new).
    pub fn try_acquire_of(&self, client: IpAddr, slots: usize) -> Option<SharePermit> {
        // Read before the slot is taken, so that the last free slot still counts for a client that has none.
        let free = slots.saturating_sub(self.taken.open());
        let slot = self.taken.try_acquire()?;
        Some(SharePermit { _slot: slot, _client: Some(self.clients.try_acquire_below(client, free)?) })
    }

    /// Like [`try_acquire`](Self::try_acquire); `None` is an address that represents many clients, which has no share.
    pub fn try_acquire_any(&self, client: Option<IpAddr>) -> Option<SharePermit> {
        match client {
            Some(client) => self.try_acquire(client),
            None => Some(SharePermit { _slot: self.taken.try_acquire()?, _client: None }),
        }
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
    fn slots_that_are_taken_count_for_another_number_of_slots() {
        let (share, client) = (FairShare::new(usize::MAX), "192.0.2.1".parse().expect("an address"));
        let taken: Vec<_> = std::iter::from_fn(|| share.try_acquire_of(client, 8)).collect();
        assert_eq!(taken.len(), 4);
        assert!(share.try_acquire_of(client, 4).is_none());
        assert!(
            share.try_acquire_of("192.0.2.2".parse().expect("an address"), 4).is_none(),
            "no slot is free"
        );
        assert!(share.try_acquire_of(client, 10).is_some());
    }

    #[test]
    fn a_single_place_can_be_had() {
        assert_eq!(take_all(&FairShare::new(1), "192.0.2.1").len(), 1);
    }
}

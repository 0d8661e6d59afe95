//! Slots for reading folders, divided among clients.
//!
//! Each reader occupies a thread. A client that requests many lists gets half of the free slots, so that the list of another
//! client need not wait for all of them.

use std::net::IpAddr;
use std::sync::Arc;

use brisk_net::{FairShare, SharePermit};
use tokio::sync::Notify;

/// The slots of the process.
pub(super) struct Readers {
    slots: FairShare,
    /// Requests that wait for a slot or have one.
    places: FairShare,
    freed: Arc<Notify>,
}

/// A slot, free again when dropped.
pub(super) struct Reader {
    /// `None` while it is dropped.
    slot: Option<SharePermit>,
    _place: SharePermit,
    freed: Arc<Notify>,
}

impl Readers {
    /// Slots for `slots` readers, and places for `places` requests, of which one client gets half each.
    pub(super) fn new(slots: usize, places: usize) -> Self {
        Self { slots: FairShare::new(slots), places: FairShare::new(places), freed: Arc::default() }
    }

    /// Waits for a slot for `client`; `None` for many clients behind one address. Returns `None` if too many requests wait.
    pub(super) async fn acquire(&self, client: Option<IpAddr>) -> Option<Reader> {
        let place = self.places.try_acquire_any(client)?;
        loop {
            // Before the attempt: `notify_waiters` wakes only futures that exist already.
            let freed = self.freed.notified();
            if let Some(slot) = self.slots.try_acquire_any(client) {
                return Some(Reader { slot: Some(slot), _place: place, freed: Arc::clone(&self.freed) });
            }
            freed.await;
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Free before those that wait look for it. All look, because the next one in the queue may have its share.
        self.slot = None;
        self.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use futures_util::FutureExt as _;

    use super::*;

    type Waiting<'r> = Pin<Box<dyn Future<Output = Option<Reader>> + 'r>>;

    #[expect(clippy::unnecessary_wraps, reason = "the address of a client may be unknown")]
    fn client(number: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, number]))
    }

    /// The readers whose turn it is.
    fn poll(waiting: &mut Vec<Waiting<'_>>) -> Vec<Reader> {
        let mut ready = Vec::new();
        waiting.retain_mut(|task| match task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reader) => {
                ready.extend(reader);
                false
            }
            Poll::Pending => true,
        });
        ready
    }

    #[test]
    fn many_requests_of_one_client_leave_a_slot_for_another() {
        let readers = Readers::new(4, 64);
        let mut waiting: Vec<Waiting<'_>> =
            (0..20).map(|_| Box::pin(readers.acquire(client(1))) as Waiting<'_>).collect();
        let held = poll(&mut waiting);
        assert_eq!((held.len(), waiting.len()), (2, 18));
        let other = readers.acquire(client(2)).now_or_never();
        assert!(other.flatten().is_some(), "no wait behind the first client");
        drop(held);
        assert_eq!(poll(&mut waiting).len(), 2);
    }

    #[test]
    fn requests_beyond_the_places_are_refused() {
        let readers = Readers::new(1, 4);
        let first = readers.acquire(client(1)).now_or_never().flatten().expect("a slot");
        let mut waiting = vec![Box::pin(readers.acquire(client(1))) as Waiting<'_>];
        assert!(poll(&mut waiting).is_empty());
        assert!(readers.acquire(client(1)).now_or_never().expect("a refusal").is_none());
        assert!(readers.acquire(client(2)).now_or_never().is_none(), "another client may wait");
        drop(first);
        assert_eq!(poll(&mut waiting).len(), 1);
    }
}

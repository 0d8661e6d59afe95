//! Limit of connections to the listeners for operators: at the limit, silent connections give way to new ones.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::limits::client_of;

/// Maximum number of open connections, in total and per client. Clones share the count.
///
/// A connection is silent until it has sent a complete request head. At a limit, the connection that has been silent
/// longest is closed for a new one, so silent connections keep no client out.
#[derive(Clone, Debug)]
pub struct SilentLimit {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: usize,
    limit_of_client: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// By number, so that the oldest [`Open`] is the first.
    open: BTreeMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    client: IpAddr,
    is_silent: bool,
    closes: Arc<Notify>,
}

/// One open connection, until it is dropped.
#[derive(Debug)]
pub struct SilentPermit {
    shared: Arc<Shared>,
    number: u64,
    closes: Arc<Notify>,
}

impl SilentLimit {
    /// Permits `limit` open connections, of which each client may have `limit_of_client`. A client is an IPv4 address or an
    /// IPv6 /64.
    pub fn new(limit: usize, limit_of_client: usize) -> Self {
        Self { shared: Arc::new(Shared { limit, limit_of_client, state: Mutex::default() }) }
    }

    /// Counts one more connection of `address`. At a limit, a silent connection is closed for it; `None` if there is none.
    pub fn try_acquire(&self, address: IpAddr) -> Option<SilentPermit> {
        let client = client_of(address);
        let mut state = self.shared.lock();
        // A scan and no count per client: both users of the type permit a few hundred connections.
        let own = state.open.values().filter(|open| open.client == client).count();
        if own >= self.shared.limit_of_client {
            state.close_silent(|open| open.client == client)?;
        } else if state.open.len() >= self.shared.limit {
            state.close_silent(|_| true)?;
        }
        let (number, closes) = (state.next, Arc::new(Notify::new()));
        state.next += 1;
        state.open.insert(number, Open { client, is_silent: true, closes: Arc::clone(&closes) });
        drop(state);
        Some(SilentPermit { shared: Arc::clone(&self.shared), number, closes })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Closes the connection that has been silent longest among those that `may_close`.
    fn close_silent(&mut self, may_close: impl Fn(&Open) -> bool) -> Option<()> {
        let mut silent = self.open.iter().filter(|(_, open)| open.is_silent && may_close(open));
        let number = *silent.next()?.0;
        // Removed here and not when its permit is dropped: the new connection needs the slot at once.
        self.open.remove(&number)?.closes.notify_one();
        Some(())
    }
}

impl SilentPermit {
    /// Records that the connection has sent a complete request head, so that it is no longer closed for others.
    pub fn head_received(&self) {
        if let Some(open) = self.shared.lock().open.get_mut(&self.number) {
            open.is_silent = false;
        }
    }

    /// Runs `connection`; `None` if it is closed for another connection.
    pub async fn run<T>(&self, connection: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            served = connection => Some(served),
            () = self.closes.notified() => None,
        }
    }
}

impl Drop for SilentPermit {
    fn drop(&mut self) {
        self.shared.lock().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[tokio::test]
    async fn the_longest_silent_connection_gives_way_and_others_stay() {
        let limit = SilentLimit::new(3, 3);
        let [heard, silent, later] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
            .map(|client| limit.try_acquire(address(client)).expect("a permit"));
        heard.head_received();
        let _new = limit.try_acquire(address("192.0.2.4")).expect("a permit");
        assert_eq!(silent.run(pending::<()>()).await, None);
        assert_eq!((heard.run(ready(1)).await, later.run(ready(2)).await), (Some(1), Some(2)));
        drop(silent);
        later.head_received();
        let new = limit.try_acquire(address("192.0.2.5")).expect("a permit");
        new.head_received();
        assert!(limit.try_acquire(address("192.0.2.6")).is_none(), "all have sent requests");
        drop(heard);
        assert!(limit.try_acquire(address("192.0.2.6")).is_some());
    }

    #[tokio::test]
    async fn a_client_at_its_limit_closes_its_own_connection() {
        let limit = SilentLimit::new(3, 1);
        let other = limit.try_acquire(address("192.0.2.1")).expect("a permit");
        let own = limit.try_acquire(address("192.0.2.2")).expect("a permit");
        let _new = limit.try_acquire(address("192.0.2.2")).expect("a permit");
        assert_eq!(own.run(pending::<()>()).await, None);
        assert_eq!(other.run(ready(1)).await, Some(1));
    }
}

//! [`Budget`], one limit of bytes, divided between the clients that need them at the same time.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use brisk_net::limits::client_of;
use brisk_telemetry::Throttle;

/// Number of locks for clients, so that workers rarely contend.
const SHARDS: usize = 32;

/// Minimum interval between two warnings of [`Budget::reserve`]: clients can cause refusals.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Time for which [`Budget::must_yield`] reports a shortage after the budget refused a client that [is
/// small](Budget::is_small).
const SHORTAGE: Duration = Duration::from_secs(5);

/// Divisor of the limit for the part below which the free bytes are a shortage, before a client that holds little is refused.
const SPARE: u64 = 8;

/// A number of bytes that clients share. Clones share the bytes.
///
/// A client, which is an IPv4 address or an IPv6 /64, may reserve bytes if it then holds at most as much as was free
/// before: a single client gets half of the bytes, and at most one reservation more; two clients get a third each. An
/// address that represents many clients has no share of its own, so only the limit applies to it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: AtomicU64,
    held: AtomicU64,
    /// Number of clients that hold bytes.
    clients: AtomicUsize,
    /// Bytes by client. Clients without bytes are removed, so the table is as small as the number of reservations.
    shards: [Mutex<HashMap<IpAddr, u64>>; SHARDS],
    hasher: RandomState,
    started: Instant,
    /// Identity in the log: name, and setting with the limit.
    label: Label,
    refused: AtomicU64,
    warnings: Throttle,
    /// End of the latest shortage, in milliseconds after `started`; 0 before the first one.
    short_until: AtomicU64,
}

/// Identity of a [`Budget`] in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label {
    pub(crate) name: &'static str,
    /// Setting with the limit.
    pub(crate) setting: &'static str,
}

/// The bytes could not be reserved; see [`Budget::reserve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Bytes reserved by [`Budget::reserve`], free again when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    client: Option<IpAddr>,
    bytes: u64,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub(crate) fn new(label: Label, limit: u64) -> Self {
        Self(Arc::new(Shared {
            label,
            refused: AtomicU64::new(0),
            warnings: Throttle::new(WARNING_INTERVAL),
            limit: AtomicU64::new(limit),
            held: AtomicU64::new(0),
            clients: AtomicUsize::new(0),
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            started: Instant::now(),
            short_until: AtomicU64::new(0),
        }))
    }

    /// Changes the limit. Reservations above a lower limit remain.
    pub fn set_limit(&self, limit: u64) {
        self.0.limit.store(limit, Ordering::Relaxed);
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// Number of bytes in all [`Reservation`]s.
    pub fn held(&self) -> u64 {
        self.0.held.load(Ordering::Relaxed)
    }

    /// Number of reservations refused with [`Full`].
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Number of clients that hold bytes.
    pub fn clients(&self) -> usize {
        self.0.clients.load(Ordering::Relaxed)
    }

    /// Reserves `bytes` for `client`; `None` is an address that represents many clients. Never waits; takes one lock
    /// that is rarely contended. A refusal is counted, and a warning that names the client is logged, at most one in ten
    /// seconds.
    ///
    /// # Errors
    ///
    /// [`Full`] if the client has its share or the limit is reached.
    pub fn reserve(&self, client: Option<IpAddr>, bytes: u64) -> Result<Reservation, Full> {
        // Empty first, so that the drop of a refused reservation returns nothing.
        let mut reservation = Reservation { budget: self.clone(), client: client.map(client_of), bytes: 0 };
        reservation.grow(bytes)?;
        Ok(reservation)
    }

    /// Whether [`reserve`](Self::reserve) would succeed now.
    pub fn has_room(&self, client: Option<IpAddr>, bytes: u64) -> bool {
        let own = client.map_or(0, |client| self.held_by(client));
        // `saturating_sub`: after a reload with a lower limit, more bytes than the limit may be held.
        own.saturating_add(bytes) <= self.limit().saturating_sub(self.held())
    }

    /// Whether `client` should release its bytes if it makes no progress: less than an eighth is free, or within the last
    /// seconds the budget has refused a client that holds little, and `client` holds at least as much as the average client.
    pub fn must_yield(&self, client: Option<IpAddr>) -> bool {
        // A shared address has no sum of its own, so that each of its holders may be the
        // large one and has to yield.
        self.is_short() && client.is_none_or(|client| self.held_by(client) >= self.average())
    }

    fn is_short(&self) -> bool {
        // The eighth is a shortage before the first refusal: a shortage that began with a refusal delayed the
        // upload of that client until the holders were examined again.
        let (limit, until) = (self.limit(), self.0.short_until.load(Ordering::Relaxed));
        self.held() > limit - limit / SPARE || (until > 0 && self.0.now() < until)
    }

    /// Whether `client` holds nothing, or less than the average client. Its refusals begin a shortage.
    pub fn is_small(&self, client: Option<IpAddr>) -> bool {
        self.is_little(client.map_or(0, |client| self.held_by(client)))
    }

    fn is_little(&self, own: u64) -> bool {
        // While nothing is held the average is 0, and no client would be below it.
        own == 0 || own < self.average()
    }

    fn average(&self) -> u64 {
        // Shared addresses hold bytes without being counted as clients, so that the
        // number of clients may be 0.
        self.held() / self.clients().max(1) as u64
    }

    fn held_by(&self, client: IpAddr) -> u64 {
        let client = client_of(client);
        self.0.lock(client).get(&client).copied().unwrap_or_default()
    }

    /// Takes `bytes` for `client`, which holds `own`.
    fn take(&self, client: Option<IpAddr>, own: u64, bytes: u64) -> Result<(), Full> {
        let shared = &*self.0;
        let limit = self.limit();
        // An exchange instead of an addition that is reverted after a refusal: bytes that were never
        // granted would refuse the reservations of others meanwhile. Relaxed order suffices, because no
        // other memory depends on the counter.
        let fits = |held: u64| {
            let fits = own.checked_add(bytes)? <= limit.saturating_sub(held);
            fits.then_some(held + bytes)
        };
        if shared.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok() {
            return Ok(());
        }
        if self.is_little(own) {
            shared.short_until.store(shared.now() + milliseconds(SHORTAGE), Ordering::Relaxed);
        }
        shared.refused.fetch_add(1, Ordering::Relaxed);
        self.warn(client);
        Err(Full)
    }

    fn warn(&self, client: Option<IpAddr>) {
        let Some(more) = self.0.warnings.pass() else { return };
        let Label { name, setting } = self.0.label;
        let client = client.map_or_else(|| "many".to_owned(), |client| client.to_string());
        tracing::warn!(
            client,
            budget = name,
            setting,
            limit = self.limit(),
            held = self.held(),
            clients = self.clients(),
            more,
            "a client has its share of a memory budget: it gets no more until the client or others release some"
        );
    }
}

impl Shared {
    fn lock(&self, client: IpAddr) -> MutexGuard<'_, HashMap<IpAddr, u64>> {
        // `hasher` has a random key: clients with many networks cannot choose those that share one lock.
        let shard = self.hasher.hash_one(client) as usize % SHARDS;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        milliseconds(self.started.elapsed())
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Reservation {
    /// Number of bytes that this value frees when it is dropped.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reserves `bytes` more.
    ///
    /// # Errors
    ///
    /// [`Full`] as for [`Budget::reserve`]; counted and logged likewise. The reservation stays as it was.
    pub fn grow(&mut self, bytes: u64) -> Result<(), Full> {
        let shared = &*self.budget.0;
        if let Some(client) = self.client {
            let mut shard = shared.lock(client);
            let own = shard.get(&client).copied().unwrap_or_default();
            // Under the lock: two reservations of one client at the same time could otherwise both pass its share.
            self.budget.take(self.client, own, bytes)?;
            // A client without bytes is not entered: `shrink_to` would never remove it, and it
            // would lower the average.
            if bytes > 0 && shard.insert(client, own + bytes).is_none() {
                shared.clients.fetch_add(1, Ordering::Relaxed);
            }
        } else {
            // Without a share, the whole rest may be taken: all clients of a proxy would otherwise share one.
            self.budget.take(None, 0, bytes)?;
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Releases all but `bytes`; without effect on a smaller reservation.
    pub fn shrink_to(&mut self, bytes: u64) {
        let freed = self.bytes.saturating_sub(bytes);
        if freed == 0 {
            return;
        }
        self.bytes -= freed;
        let shared = &*self.budget.0;
        if let Some(client) = self.client {
            let mut shard = shared.lock(client);
            if let Some(own) = shard.get_mut(&client) {
                *own -= freed;
                if *own == 0 {
                    shard.remove(&client);
                    shared.clients.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        shared.held.fetch_sub(freed, Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests;

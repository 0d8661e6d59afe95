//! [`TicketKeyring`], the ticket keys in use, and their rotation.

mod passing;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use arc_swap::{ArcSwap, Guard};

use crate::{
    ForceError, KeyOrigin, KeySource, OpenError, SharedKey, TicketKeyId,
    ring::{Entry, Ring},
    rotation::{Seconds, seconds},
};

/// The session-ticket encryption keys of this process: one seals, several open.
///
/// A key opens tickets before it seals any, and until the last ticket that it sealed has expired. Then it is wiped.
/// Sealing and opening rotate the keys when that is due, and cost one comparison otherwise. A process that may be idle
/// calls [`rotate`](Self::rotate) from time to time, so that expired keys are wiped. A [`KeySource`] provides the keys.
/// Only changes of the keys take a lock.
///
/// The caller provides the clock. It is wall-clock time, since machines may share keys. The opening machine computes
/// the age of a ticket from the time that the sealing machine wrote, so a difference of their clocks changes its
/// lifetime.
pub struct TicketKeyring {
    /// Locked while the [`Ring`] changes.
    source: Mutex<KeySource>,
    ring: ArcSwap<Ring>,
    forced: AtomicBool,
    counts: Counts,
}

impl TicketKeyring {
    /// Creates a keyring with the keys of `source` that are needed at `now`.
    pub fn new(source: KeySource, now: SystemTime) -> Self {
        let ring = Ring::default().turned_to(&source, seconds(now));
        Self {
            source: Mutex::new(source),
            ring: ArcSwap::from_pointee(ring),
            forced: AtomicBool::new(false),
            counts: Counts::default(),
        }
    }

    /// Switches to the keys of `source`, as after a reload. Tickets sealed before can still be opened.
    ///
    /// Keys that the new source does not have stop sealing, and open tickets for one more lifetime; keys from files
    /// open tickets only while their file is configured. Generated keys stay if keys are still generated, with the new
    /// times. The same source changes nothing. A reload does not revoke stolen keys; a restart does.
    pub fn configure(&self, source: KeySource, now: SystemTime) {
        let mut present = self.lock();
        // Under the lock: a rotation in another thread would otherwise restore the keys of the former
        // source.
        self.ring.store(Arc::new(self.ring.load().turned_to(&source, seconds(now))));
        // A rotation that was forced for the former source does not concern the keys of this one, unless the fleet still
        // exchanges its keys: every reload calls this method, and the next exchange may be late.
        if !matches!((&*present, &source), (KeySource::Shared { .. }, KeySource::Shared { .. })) {
            self.forced.store(false, Ordering::Relaxed);
        }
        *present = source;
    }

    /// Lifetime of a ticket from its sealing, for `ticket_lifetime` (RFC 8446 section 4.6.1).
    pub fn lifetime(&self) -> Duration {
        Duration::from_secs(self.ring.load().lifetime())
    }

    /// Seals `session` into a ticket. `None` if the current key has sealed 2^32 tickets, the safe limit of AES-GCM with
    /// random nonces, or if there is no key, as before the first [`install`](Self::install) of shared keys.
    ///
    /// The ticket is 52 bytes longer than the session. One allocation.
    pub fn seal(&self, session: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        let now = seconds(now);
        let ring = self.ring_unless(now, Ring::is_due_for_sealing);
        let ticket = ring.sealing(now)?.key.seal(session, now)?;
        count(&self.counts.sealed);
        Some(ticket)
    }

    /// Opens `ticket` if it was sealed with a key on this ring within the last [`lifetime`](Self::lifetime). One
    /// allocation.
    pub fn open_ticket(&self, ticket: &[u8], now: SystemTime) -> Result<OpenedTicket, OpenError> {
        let opened = self.open_at(ticket, seconds(now));
        count(self.counts.of(&opened));
        opened
    }

    fn open_at(&self, ticket: &[u8], now: Seconds) -> Result<OpenedTicket, OpenError> {
        let ring = self.ring_unless(now, Ring::is_due);
        let key = ring.naming(ticket, now).ok_or(OpenError::UnknownKey)?;
        let (mut session, sealed_at) = key.open(ticket)?;
        // A ticket from the future was sealed by a machine whose clock is ahead. Its age counts as zero, because
        // refusing it would disable resumption between the two machines.
        let age = now.saturating_sub(sealed_at);
        if age >= ring.lifetime() {
            return Err(OpenError::Expired);
        }
        // RFC 5077 section 3.3: renewal is optional. A ticket of the current key is not replaced in the first half of
        // its lifetime.
        let seals = ring.sealing(now).is_some_and(|entry| entry.key.name() == key.name());
        Ok(OpenedTicket {
            session: std::mem::take(&mut *session),
            is_fresh: seals && age < ring.lifetime() / 2,
        })
    }

    /// Creates the keys that are needed at `now` and wipes expired ones. Cheap if neither is due. Does nothing while
    /// another thread rotates.
    pub fn rotate(&self, now: SystemTime) {
        self.rotate_if(seconds(now), Ring::is_due);
    }

    /// Rotates at `now`: a new key seals, and older ones open tickets until these expire.
    ///
    /// Generated keys are replaced at once. Shared keys are replaced by [`TicketKeySync`](crate::TicketKeySync), which
    /// polls [`take_forced`](Self::take_forced). Other keys have to be replaced by the operator.
    pub fn force_rotation(&self, now: SystemTime) -> Result<(), ForceError> {
        let source = self.lock();
        match &*source {
            KeySource::Generated(_) => {
                self.ring.store(Arc::new(self.ring.load().forced(&source, seconds(now))));
            }
            // The next round of the exchange publishes a new key, and all gateways seal with it from the same time.
            KeySource::Shared { .. } => self.forced.store(true, Ordering::Relaxed),
            KeySource::Derived { .. } => return Err(ForceError::Derived),
            KeySource::Files { .. } => return Err(ForceError::Files),
        }
        tracing::info!("rotation of ticket keys forced");
        Ok(())
    }

    /// Whether a rotation of shared keys was forced since the last call.
    pub fn take_forced(&self) -> bool {
        self.forced.swap(false, Ordering::Relaxed)
    }

    /// Replaces the shared keys by `keys`, which are all published and unexpired keys.
    ///
    /// If several keys may seal, all gateways choose the one that began last. An installed key that is not among `keys`
    /// stops sealing, and opens tickets until these expire. Does nothing unless the source is [`KeySource::Shared`].
    /// Waits for another thread that changes the keys.
    pub fn install(&self, keys: &[SharedKey], now: SystemTime) {
        let source = self.lock();
        if matches!(*source, KeySource::Shared { .. }) {
            self.ring.store(Arc::new(self.ring.load().with_shared(keys, &source, seconds(now))));
        }
    }

    /// The [`KeyringStatistics`] since the keyring was created.
    pub fn statistics(&self) -> KeyringStatistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        KeyringStatistics {
            keys: self.ring.load().entries().len(),
            sealed: read(&self.counts.sealed),
            opened: read(&self.counts.opened),
            unknown: read(&self.counts.unknown),
            expired: read(&self.counts.expired),
            forged: read(&self.counts.forged),
        }
    }

    /// The keys on the ring at `now`, ordered by the end of sealing, latest first.
    pub fn keys(&self, now: SystemTime) -> Vec<KeyStatistics> {
        let (ring, now) = (self.ring.load(), seconds(now));
        let sealing = ring.sealing(now).map(|entry| entry.key.name());
        let live = ring.entries().iter().filter(|entry| entry.validity.is_live(now));
        live.map(|entry| KeyStatistics::of(entry, sealing == Some(entry.key.name()))).collect()
    }

    /// The current [`Ring`], rotated first if `stale` returns `true` for it.
    fn ring_unless(&self, now: Seconds, stale: fn(&Ring, Seconds) -> bool) -> Guard<Arc<Ring>> {
        let ring = self.ring.load();
        if !stale(&ring, now) {
            return ring;
        }
        drop(ring);
        self.rotate_if(now, stale);
        self.ring.load()
    }

    fn rotate_if(&self, now: Seconds, stale: fn(&Ring, Seconds) -> bool) {
        let source = match self.source.try_lock() {
            Ok(source) => source,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Rotation is due early enough that the current keys remain valid until the other thread has finished.
            Err(TryLockError::WouldBlock) => return,
        };
        let ring = self.ring.load();
        // Again, since another thread may have rotated before this one got the lock.
        if stale(&ring, now) {
            let renewed = ring.renewed(&source, now);
            tracing::debug!(
                keys = renewed.entries().len(),
                next = renewed.next_change(),
                "ticket keys rotated"
            );
            self.ring.store(Arc::new(renewed));
        }
    }

    fn lock(&self) -> MutexGuard<'_, KeySource> {
        // A panic leaves no partial change, because the ring is replaced as a whole.
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TicketKeyring {
    /// Prints IDs and times of the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeyring").field("keys", &self.ring.load().entries()).finish_non_exhaustive()
    }
}

/// Content of a ticket, from [`TicketKeyring::open_ticket`].
#[derive(PartialEq, Eq)]
pub struct OpenedTicket {
    /// The session, as [`TicketKeyring::seal`] got it.
    pub session: Vec<u8>,
    /// Whether the key of the ticket still seals and less than half of the ticket's lifetime is over. A new ticket
    /// would then have no benefit.
    pub is_fresh: bool,
}

impl fmt::Debug for OpenedTicket {
    /// Omits the session.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedTicket").field("is_fresh", &self.is_fresh).finish_non_exhaustive()
    }
}

/// A key on the ring of a [`TicketKeyring`], with its statistics in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStatistics {
    /// ID of the key.
    pub id: TicketKeyId,
    /// Source of the key.
    pub origin: KeyOrigin,
    /// Whether the key seals tickets now.
    pub seals: bool,
    /// Time at which the key was added to this ring.
    pub added: SystemTime,
    /// Start of sealing; in the future for a key that other gateways have to read first. `None` for keys from files.
    pub seals_from: Option<SystemTime>,
    /// End of sealing; `None` if a reload determines it.
    pub seals_until: Option<SystemTime>,
    /// Time at which the last ticket expires and the key is wiped; `None` if a reload determines it.
    pub opens_until: Option<SystemTime>,
    /// Tickets sealed with the key.
    pub sealed: u64,
    /// Tickets opened with the key, including those that are [`OpenError::Expired`].
    pub opened: u64,
}

impl KeyStatistics {
    fn of(entry: &Entry, seals: bool) -> Self {
        let time = |seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        let known =
            |seconds: Seconds| (seconds != 0 && seconds != Seconds::MAX).then(|| time(seconds)).flatten();
        Self {
            id: entry.key.id(),
            origin: entry.origin,
            seals,
            added: time(entry.added).unwrap_or(SystemTime::UNIX_EPOCH),
            seals_from: known(entry.validity.seals_from),
            seals_until: known(entry.validity.seals_until),
            opens_until: known(entry.validity.opens_until),
            sealed: entry.key.sealed(),
            opened: entry.key.opened(),
        }
    }
}

/// Statistics of a [`TicketKeyring`]. Counters count from its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyringStatistics {
    /// Keys on the ring now.
    pub keys: usize,
    /// Tickets sealed.
    pub sealed: u64,
    /// Tickets opened.
    pub opened: u64,
    /// Tickets refused with [`OpenError::UnknownKey`].
    pub unknown: u64,
    /// Tickets refused with [`OpenError::Expired`].
    pub expired: u64,
    /// Tickets refused with [`OpenError::Forged`].
    pub forged: u64,
}

/// Aligned so that these counters, which all threads write, do not share a cache line with the ring, which they read.
#[derive(Default)]
#[repr(align(128))]
struct Counts {
    sealed: AtomicU64,
    opened: AtomicU64,
    unknown: AtomicU64,
    expired: AtomicU64,
    forged: AtomicU64,
}

impl Counts {
    const fn of<T>(&self, opened: &Result<T, OpenError>) -> &AtomicU64 {
        match opened {
            Ok(_) => &self.opened,
            Err(OpenError::UnknownKey) => &self.unknown,
            Err(OpenError::Expired) => &self.expired,
            Err(OpenError::Forged) => &self.forged,
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    mod simulation;

    use super::*;
    use crate::{RotationSettings, TicketKeyFile};

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + SECOND * 1_000_000 + Duration::from_secs(seconds)
    }

    /// Tickets live 120 s; keys seal for 60 s and are created 10 s before that.
    fn keyring() -> TicketKeyring {
        let settings = RotationSettings::new(SECOND * 120, SECOND * 60, SECOND * 10).unwrap();
        TicketKeyring::new(KeySource::Generated(settings), at(0))
    }

    fn opened(keyring: &TicketKeyring, ticket: &[u8], now: SystemTime) -> Result<Vec<u8>, OpenError> {
        keyring.open_ticket(ticket, now).map(|opened| opened.session)
    }

    /// While Redis could not be reached, every reload cancelled a forced rotation.
    #[test]
    fn a_reload_cancels_a_forced_rotation_only_if_keys_are_no_longer_shared() {
        let rotation = RotationSettings::new(SECOND * 120, SECOND * 60, SECOND * 10).unwrap();
        let shared = || KeySource::Shared { rotation };
        let keyring = TicketKeyring::new(shared(), at(0));
        keyring.force_rotation(at(0)).unwrap();
        keyring.configure(shared(), at(1));
        assert!(keyring.take_forced());
        keyring.force_rotation(at(1)).unwrap();
        keyring.configure(KeySource::Generated(rotation), at(2));
        keyring.configure(shared(), at(3));
        assert!(!keyring.take_forced());
    }

    #[test]
    fn every_kind_of_refusal_is_distinguished_and_counted() {
        let (keyring, other) = (keyring(), keyring());
        let ticket = keyring.seal(b"session", at(0)).unwrap();
        let mut forged = ticket.clone();
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(opened(&keyring, &ticket, at(119)).as_deref(), Ok(&b"session"[..]));
        assert_eq!(opened(&keyring, &forged, at(1)), Err(OpenError::Forged));
        assert_eq!(opened(&keyring, &ticket, at(120)), Err(OpenError::Expired));
        assert_eq!(opened(&other, &ticket, at(1)), Err(OpenError::UnknownKey));
        assert_eq!(opened(&keyring, b"", at(1)), Err(OpenError::UnknownKey));
        let statistics = keyring.statistics();
        let refused = (statistics.forged, statistics.expired, statistics.unknown);
        assert_eq!((statistics.sealed, statistics.opened, refused), (1, 1, (1, 1, 1)));
    }

    #[test]
    fn a_ticket_is_fresh_while_its_key_seals_and_it_is_young() {
        let keyring = keyring();
        let ticket = keyring.seal(b"session", at(10)).unwrap();
        let is_fresh = |now| keyring.open_ticket(&ticket, at(now)).unwrap().is_fresh;
        assert!(is_fresh(10) && is_fresh(59));
        assert!(!is_fresh(60), "another key seals now");
        let files = KeySource::Files {
            keys: vec![TicketKeyFile::from_bytes(&[7; 80]).unwrap()],
            lifetime: SECOND * 120,
        };
        let keyring = TicketKeyring::new(files, at(0));
        let ticket = keyring.seal(b"session", at(10)).unwrap();
        let is_fresh = |now| keyring.open_ticket(&ticket, at(now)).unwrap().is_fresh;
        assert!(is_fresh(69) && !is_fresh(70), "half of its lifetime is over");
    }

    #[test]
    fn the_next_key_is_on_the_ring_before_it_seals() {
        let keyring = keyring();
        let name = |now| keyring.seal(b"", at(now)).unwrap()[..16].to_vec();
        let first = name(0);
        assert_eq!(name(49), first);
        assert_eq!(keyring.statistics().keys, 1);
        assert_eq!(name(50), first);
        assert_eq!(keyring.statistics().keys, 2);
        assert_eq!(name(59), first);
        assert_ne!(name(60), first);
        assert_eq!(keyring.statistics().keys, 2, "the successor was there already");
    }

    #[test]
    fn a_ticket_sealed_ahead_of_our_clock_opens() {
        let keyring = keyring();
        let ticket = keyring.seal(b"session", at(30)).unwrap();
        assert!(opened(&keyring, &ticket, at(0)).is_ok());
    }

    #[test]
    fn a_keyring_that_is_rotating_elsewhere_still_opens() {
        let keyring = keyring();
        let ticket = keyring.seal(b"session", at(0)).unwrap();
        let _elsewhere = keyring.source.lock().unwrap();
        assert!(opened(&keyring, &ticket, at(55)).is_ok());
        assert_eq!(keyring.statistics().keys, 1);
    }

    #[test]
    fn debug_shows_times_only() {
        let shown = format!("{:?}", keyring());
        assert!(shown.contains("seals_until"), "{shown}");
        assert!(!shown.contains("cipher") && !shown.contains("name"), "{shown}");
    }
}

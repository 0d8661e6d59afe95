//! The session-ticket keys in use: one seals, several open, and they change by themselves.

use std::{
    fmt,
    sync::{
        Arc, Mutex, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use arc_swap::{ArcSwap, Guard};

use crate::{
    OpenError, RotationSettings,
    rotation::{Seconds, Validity, seconds},
    ticket_key::TicketKey,
};

/// The session-ticket encryption keys of this process: one seals, several open.
///
/// A key opens before it seals, and opens as long as the last ticket it sealed lives; after that it is wiped. Sealing
/// and opening rotate when it is time, which is one comparison otherwise; a process that may be idle calls
/// [`rotate`](Self::rotate) now and then, so that keys do not outlive their time. No locks but for the rotation itself.
///
/// The clock is the caller's. It is wall-clock time, since keys may be shared by machines.
pub struct TicketKeyring {
    settings: RotationSettings,
    keys: ArcSwap<KeySet>,
    rotation: Mutex<()>,
    counts: Counts,
}

impl TicketKeyring {
    /// A keyring with a new key that seals from `now`.
    pub fn new(settings: RotationSettings, now: SystemTime) -> Self {
        let keys = KeySet::default().rotated(&settings, seconds(now));
        Self {
            settings,
            keys: ArcSwap::from_pointee(keys),
            rotation: Mutex::new(()),
            counts: Counts::default(),
        }
    }

    /// How long a ticket opens after it was sealed: what to tell the client, RFC 8446 section 4.6.1.
    pub const fn lifetime(&self) -> Duration {
        self.settings.lifetime()
    }

    /// A ticket that holds `session`. Nothing, if the present key has sealed as many as is safe: 2^32.
    ///
    /// The ticket is 52 bytes longer than the session.
    pub fn seal(&self, session: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        let now = seconds(now);
        let keys = self.keys_for_sealing(now);
        let ticket = keys.sealing(now)?.seal(session, now)?;
        count(&self.counts.sealed);
        Some(ticket)
    }

    /// The session that `ticket` holds, if it was sealed here within the last [`lifetime`](Self::lifetime).
    pub fn open(&self, ticket: &[u8], now: SystemTime) -> Result<Vec<u8>, OpenError> {
        let opened = self.open_at(ticket, seconds(now));
        count(self.counts.of(&opened));
        opened
    }

    fn open_at(&self, ticket: &[u8], now: Seconds) -> Result<Vec<u8>, OpenError> {
        let keys = self.keys_for_opening(now);
        let key = keys.naming(ticket, now).ok_or(OpenError::UnknownKey)?;
        let (mut session, sealed_at) = key.open(ticket)?;
        // A ticket from the future comes from a machine whose clock is ahead; it is not old.
        if now.saturating_sub(sealed_at) >= self.settings.lifetime().as_secs() {
            return Err(OpenError::Expired);
        }
        Ok(std::mem::take(&mut *session))
    }

    /// Makes the keys that are needed at `now` and wipes those whose time is over. Costs next to nothing when there
    /// is neither; does nothing while another thread is at it.
    pub fn rotate(&self, now: SystemTime) {
        self.rotate_if(seconds(now), KeySet::is_due);
    }

    /// What the keyring has done since it was made.
    pub fn statistics(&self) -> KeyringStatistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        KeyringStatistics {
            keys: self.keys.load().keys.len(),
            sealed: read(&self.counts.sealed),
            opened: read(&self.counts.opened),
            unknown: read(&self.counts.unknown),
            expired: read(&self.counts.expired),
            forged: read(&self.counts.forged),
        }
    }

    fn keys_for_sealing(&self, now: Seconds) -> Guard<Arc<KeySet>> {
        self.keys_unless(now, |keys, now| keys.is_due(now) || keys.sealing(now).is_none())
    }

    fn keys_for_opening(&self, now: Seconds) -> Guard<Arc<KeySet>> {
        self.keys_unless(now, KeySet::is_due)
    }

    /// The present keys, after a rotation if `stale` says so of them.
    fn keys_unless(&self, now: Seconds, stale: fn(&KeySet, Seconds) -> bool) -> Guard<Arc<KeySet>> {
        let keys = self.keys.load();
        if !stale(&keys, now) {
            return keys;
        }
        drop(keys);
        self.rotate_if(now, stale);
        self.keys.load()
    }

    fn rotate_if(&self, now: Seconds, stale: fn(&KeySet, Seconds) -> bool) {
        let _rotating = match self.rotation.try_lock() {
            Ok(guard) => guard,
            // Nothing is left half done by a thread that panicked: the keys are replaced whole.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // The present keys serve well until the other thread is done.
            Err(TryLockError::WouldBlock) => return,
        };
        let keys = self.keys.load();
        if stale(&keys, now) {
            let rotated = keys.rotated(&self.settings, now);
            tracing::debug!(keys = rotated.keys.len(), next = rotated.next_change, "ticket keys rotated");
            self.keys.store(Arc::new(rotated));
        }
    }
}

impl fmt::Debug for TicketKeyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeyring")
            .field("settings", &self.settings)
            .field("keys", &self.keys.load().keys)
            .finish_non_exhaustive()
    }
}

/// Counts of a [`TicketKeyring`] since it was made, but for `keys`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyringStatistics {
    /// Keys on the ring now.
    pub keys: usize,
    /// Tickets sealed.
    pub sealed: u64,
    /// Tickets opened.
    pub opened: u64,
    /// Tickets refused because no key has their name.
    pub unknown: u64,
    /// Tickets refused because they were too old.
    pub expired: u64,
    /// Tickets refused because they did not authenticate.
    pub forged: u64,
}

#[derive(Default)]
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

/// The keys between two rotations.
#[derive(Default)]
struct KeySet {
    /// The newest first: most tickets are of the newest keys.
    keys: Vec<Arc<TicketKey>>,
    next_change: Seconds,
}

impl KeySet {
    const fn is_due(&self, now: Seconds) -> bool {
        now >= self.next_change
    }

    fn sealing(&self, now: Seconds) -> Option<&TicketKey> {
        self.keys.iter().map(Arc::as_ref).find(|key| key.validity().seals(now))
    }

    /// The key of `ticket`, if its time is not over: a rotation may be late.
    fn naming(&self, ticket: &[u8], now: Seconds) -> Option<&TicketKey> {
        let key = self.keys.iter().find(|key| key.is_named_by(ticket))?;
        key.validity().is_live(now).then_some(key)
    }

    fn rotated(&self, settings: &RotationSettings, now: Seconds) -> Self {
        let validities: Vec<Validity> = self.keys.iter().map(|key| key.validity()).collect();
        let plan = settings.plan(&validities, now);
        let made = plan.create.into_iter().rev().map(|validity| Arc::new(TicketKey::generate(validity)));
        let kept = self.keys.iter().filter(|key| key.validity().is_live(now)).cloned();
        Self { keys: made.chain(kept).collect(), next_change: plan.next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + SECOND * 1_000_000 + Duration::from_secs(seconds)
    }

    /// Tickets live 120 s, keys seal for 60 s and are made 10 s before.
    fn keyring() -> TicketKeyring {
        let settings = RotationSettings::new(SECOND * 120, SECOND * 60, SECOND * 10).unwrap();
        TicketKeyring::new(settings, at(0))
    }

    #[test]
    fn every_kind_of_refusal_is_told_apart_and_counted() {
        let (keyring, other) = (keyring(), keyring());
        let ticket = keyring.seal(b"session", at(0)).unwrap();
        let mut forged = ticket.clone();
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(keyring.open(&ticket, at(119)).as_deref(), Ok(&b"session"[..]));
        assert_eq!(keyring.open(&forged, at(1)), Err(OpenError::Forged));
        assert_eq!(keyring.open(&ticket, at(120)), Err(OpenError::Expired));
        assert_eq!(other.open(&ticket, at(1)), Err(OpenError::UnknownKey));
        assert_eq!(keyring.open(b"", at(1)), Err(OpenError::UnknownKey));
        let statistics = keyring.statistics();
        let refused = (statistics.forged, statistics.expired, statistics.unknown);
        assert_eq!((statistics.sealed, statistics.opened, refused), (1, 1, (1, 1, 1)));
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
        assert!(keyring.open(&ticket, at(0)).is_ok());
    }

    #[test]
    fn a_keyring_that_is_rotating_elsewhere_still_opens() {
        let keyring = keyring();
        let ticket = keyring.seal(b"session", at(0)).unwrap();
        let _elsewhere = keyring.rotation.lock().unwrap();
        assert!(keyring.open(&ticket, at(55)).is_ok());
        assert_eq!(keyring.statistics().keys, 1);
    }

    #[test]
    fn debug_shows_times_only() {
        let shown = format!("{:?}", keyring());
        assert!(shown.contains("seals_until"), "{shown}");
        assert!(!shown.contains("cipher") && !shown.contains("name"), "{shown}");
    }
}

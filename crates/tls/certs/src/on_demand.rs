//! Certificates of names that are decided at run time. The first handshake of a name waits until its certificate has
//! been obtained; later ones find it in memory.
//!
//! The decision and the order are made elsewhere: `brisk-acme` [receives](OnDemand::question) the requests of
//! handshakes and [stores](OnDemand::put) the certificates. A handshake waits at most [`OnDemandSettings::wait`].

mod pattern;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use brisk_keys::Keystore;
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot};
use tokio::time::timeout;

use crate::catalogue::MakeEngine;
use crate::certificate::Certificate;
use crate::resolver::Names;
use crate::slot::Served;

pub use pattern::NamePattern;

/// Capacity of the queue of waiting handshakes. When it is full, further handshakes are refused at once.
const QUESTIONS: usize = 1024;

/// Number of parts of the table. With 10,000 names, a change copies 40.
const PARTS: usize = 256;

/// Maximum number of failed names that are kept: the latest. Clients cannot make the list longer.
const FAILURES: usize = 100;

/// Maximum length of the reason of a failure, in characters. Authorities write the reasons.
const REASON: usize = 500;

/// Settings of a host with names on demand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OnDemandSettings {
    /// First name of the host, for messages.
    pub host: String,
    /// Names that clients may request.
    pub names: Vec<NamePattern>,
    /// Maximum time that a handshake waits for a certificate that is not in memory.
    pub wait: Duration,
}

/// A handshake that waits for a certificate.
#[derive(Debug)]
pub struct NameRequest {
    /// The requested name in lower case. It matches one of the patterns.
    pub name: String,
    /// The client's address, unless it is shared by many clients.
    pub client: Option<IpAddr>,
    /// Receives the certificates; dropped if there are none.
    pub answer: oneshot::Sender<Arc<Vec<Served>>>,
}

/// The certificates of one host whose names are decided at run time.
pub struct OnDemand {
    settings: OnDemandSettings,
    parts: Box<[ArcSwap<Part>]>,
    hasher: RandomState,
    engines: OnceLock<MakeEngine>,
    ask: mpsc::Sender<NameRequest>,
    asked: AsyncMutex<mpsc::Receiver<NameRequest>>,
    shown: AtomicUsize,
    refused: AtomicU64,
    obtained: AtomicU64,
    failures: Mutex<VecDeque<FailedName>>,
}

type Part = HashMap<Box<str>, Arc<LoadedName>>;

/// The certificates of one name.
#[derive(Debug)]
struct LoadedName {
    served: Arc<Vec<Served>>,
    /// Time of the last use, in seconds since [`START`].
    used: AtomicU64,
}

/// A name without a certificate, because its last order failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedName {
    /// The name in lower case.
    pub name: String,
    /// Time of the failure.
    pub at: SystemTime,
    /// Reason of the failure, in at most 500 characters.
    pub reason: String,
}

/// Counters of an [`OnDemand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnDemandStatistics {
    /// Names whose certificates are in memory.
    pub shown: usize,
    /// Handshakes without a certificate, because the name was refused or the wait timed out.
    pub refused: u64,
    /// Certificates obtained since the start.
    pub obtained: u64,
}

/// The open instances of a process, by their settings. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct OnDemandHosts(Arc<Mutex<HashMap<OnDemandSettings, Weak<OnDemand>>>>);

/// Origin of the times in this module.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl OnDemandHosts {
    /// Returns the open instance with these settings, so that a reload keeps its certificates, or creates an empty one.
    pub fn open(&self, settings: OnDemandSettings) -> Arc<OnDemand> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = open.get(&settings).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::new(OnDemand::new(settings.clone()));
        open.retain(|_, known| known.strong_count() > 0);
        open.insert(settings, Arc::downgrade(&new));
        new
    }

    /// The open instances, ordered by host.
    pub fn all(&self) -> Vec<Arc<OnDemand>> {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = open.values().filter_map(Weak::upgrade).collect();
        all.sort_by(|one, other| one.settings.host.cmp(&other.settings.host));
        all
    }
}

impl OnDemand {
    fn new(settings: OnDemandSettings) -> Self {
        let (ask, asked) = mpsc::channel(QUESTIONS);
        Self {
            settings,
            parts: (0..PARTS).map(|_| ArcSwap::default()).collect(),
            // Keyed at random: clients choose the names, and names of one part would make each change copy
            // all of them.
            hasher: RandomState::new(),
            engines: OnceLock::new(),
            ask,
            asked: AsyncMutex::new(asked),
            shown: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            obtained: AtomicU64::new(0),
            failures: Mutex::default(),
        }
    }

    /// Sets the factory of the engines for keys that are stored here. Only the first call has an effect.
    pub fn start(&self, engines: MakeEngine) {
        // Already set: the engines of one process are all the same.
        let _ = self.engines.set(engines);
    }

    /// The settings of the host.
    pub fn settings(&self) -> &OnDemandSettings {
        &self.settings
    }

    /// The certificates for `name` (lower case). If they are not in memory, the handshake of `client` waits for them.
    pub async fn find(&self, name: &str, client: Option<IpAddr>) -> Option<Arc<Vec<Served>>> {
        if let Some(served) = self.shown(name) {
            return Some(served);
        }
        let (answer, answered) = oneshot::channel();
        let asked = self.ask.try_send(NameRequest { name: name.to_owned(), client, answer });
        let found = match asked {
            Ok(()) => timeout(self.settings.wait, answered).await.ok().and_then(Result::ok),
            Err(_) => None,
        };
        if found.is_none() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// The certificates for `name` in memory; updates the time of the last use. Takes no lock.
    pub fn shown(&self, name: &str) -> Option<Arc<Vec<Served>>> {
        let part = self.part(name).load();
        let shown = part.get(name)?;
        let now = START.elapsed().as_secs();
        // Written at most once per second, so that the cache line stays shared by the workers.
        if shown.used.load(Ordering::Relaxed) != now {
            shown.used.store(now, Ordering::Relaxed);
        }
        Some(Arc::clone(&shown.served))
    }

    /// Like [`shown`](Self::shown), without updating the time of the last use.
    pub fn peek(&self, name: &str) -> Option<Arc<Vec<Served>>> {
        self.part(name).load().get(name).map(|shown| Arc::clone(&shown.served))
    }

    /// Waits for the next request of a handshake. Concurrent callers wait for each other.
    pub async fn question(&self) -> Option<NameRequest> {
        // An asynchronous mutex, because its guard is held while the receiver waits.
        self.asked.lock().await.recv().await
    }

    /// Stores `certificates` for `name`; their private keys are in `keys`. Returns `None` before
    /// [`start`](Self::start).
    pub fn put(
        &self,
        name: &str,
        certificates: Vec<Arc<Certificate>>,
        keys: Keystore,
    ) -> Option<Arc<Vec<Served>>> {
        self.show(name, certificates, keys, START.elapsed().as_secs())
    }

    /// Replaces the certificates for `name` without updating the time of the last use. Returns `None` if there are
    /// none.
    pub fn replace(
        &self,
        name: &str,
        certificates: Vec<Arc<Certificate>>,
        keys: Keystore,
    ) -> Option<Arc<Vec<Served>>> {
        let used = self.part(name).load().get(name)?.used.load(Ordering::Relaxed);
        self.show(name, certificates, keys, used)
    }

    fn show(
        &self,
        name: &str,
        certificates: Vec<Arc<Certificate>>,
        keys: Keystore,
        used: u64,
    ) -> Option<Arc<Vec<Served>>> {
        let engine = self.engines.get()?(Arc::new(keys));
        let served = certificates.into_iter().map(|own| Served::new(own, Arc::clone(&engine)));
        let served: Arc<Vec<_>> = Arc::new(served.collect());
        let shown = Arc::new(LoadedName { served: Arc::clone(&served), used: AtomicU64::new(used) });
        self.change(name, |part| drop(part.insert(name.into(), shown)));
        self.failed().retain(|failed| failed.name != name);
        Some(served)
    }

    /// Removes the certificates of `name` from memory.
    pub fn drop_shown(&self, name: &str) {
        self.change(name, |part| drop(part.remove(name)));
    }

    /// Notes that the order for `name` failed.
    pub fn note_failure(&self, name: &str, reason: &str) {
        let reason = reason.chars().take(REASON).collect();
        let mut failures = self.failed();
        failures.retain(|failed| failed.name != name);
        if failures.len() == FAILURES {
            failures.pop_front();
        }
        failures.push_back(FailedName { name: name.to_owned(), at: SystemTime::now(), reason });
    }

    /// The latest 100 names whose last order failed, oldest first. A name leaves the list when its certificate is
    /// presented.
    pub fn failures(&self) -> Vec<FailedName> {
        self.failed().iter().cloned().collect()
    }

    fn failed(&self) -> MutexGuard<'_, VecDeque<FailedName>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an obtained certificate.
    pub fn count_obtained(&self) {
        self.obtained.fetch_add(1, Ordering::Relaxed);
    }

    /// Names whose certificates are in memory, and the time since their last use.
    pub fn in_memory(&self) -> Vec<(String, Duration)> {
        let now = START.elapsed().as_secs();
        let idle = |shown: &LoadedName| now.saturating_sub(shown.used.load(Ordering::Relaxed));
        let mut all = Vec::new();
        for part in &self.parts {
            let part = part.load();
            all.extend(part.iter().map(|(name, shown)| (name.to_string(), Duration::from_secs(idle(shown)))));
        }
        all
    }

    /// Current counters.
    pub fn statistics(&self) -> OnDemandStatistics {
        OnDemandStatistics {
            shown: self.shown.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            obtained: self.obtained.load(Ordering::Relaxed),
        }
    }

    fn part(&self, name: &str) -> &ArcSwap<Part> {
        &self.parts[self.hasher.hash_one(name) as usize % PARTS]
    }

    /// Copies and replaces the part of `name`. Not synchronised: only the receiver of the requests calls it.
    fn change(&self, name: &str, change: impl FnOnce(&mut Part)) {
        let part = self.part(name);
        let mut new = Part::clone(&part.load());
        let before = new.len();
        change(&mut new);
        // Atomic addition wraps, so the wrapped difference subtracts after a removal.
        self.shown.fetch_add(new.len().wrapping_sub(before), Ordering::Relaxed);
        part.store(Arc::new(new));
    }
}

impl Names for OnDemand {
    fn has(&self, name: &str) -> bool {
        self.settings.names.iter().any(|pattern| pattern.fits(name))
    }
}

impl fmt::Debug for OnDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnDemand").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use brisk_keys::{LocalEngine, PrivateKeyEngine};
    use brisk_testkit::ca::TestCa;

    use super::*;
    use crate::load;

    fn open(host: &str, wait: Duration) -> Arc<OnDemand> {
        open_in(&OnDemandHosts::default(), host, wait)
    }

    fn open_in(hosts: &OnDemandHosts, host: &str, wait: Duration) -> Arc<OnDemand> {
        let names = vec!["*".parse().unwrap()];
        let own = hosts.open(OnDemandSettings { host: host.to_owned(), names, wait });
        own.start(Arc::new(|keys| Arc::new(LocalEngine::new(keys)) as Arc<dyn PrivateKeyEngine>));
        own
    }

    fn put(own: &OnDemand, name: &str) -> Arc<Vec<Served>> {
        let leaf = TestCa::new().server(&[name]).issue();
        let mut keys = Keystore::new();
        let loaded = load(&leaf.chain, &leaf.key, &mut keys, SystemTime::now()).unwrap();
        own.put(name, vec![Arc::new(loaded.certificate)], keys).unwrap()
    }

    #[tokio::test]
    async fn a_handshake_waits_for_an_answer_and_the_next_one_does_not() {
        let own = open("answered.test", Duration::from_secs(20));
        let keeper = Arc::clone(&own);
        let answering = tokio::spawn(async move {
            let question = keeper.question().await.unwrap();
            question.answer.send(put(&keeper, &question.name)).unwrap();
        });
        assert!(own.find("a.test", None).await.is_some());
        answering.await.unwrap();
        // No receiver answers from here on.
        assert!(own.find("a.test", None).await.is_some());
        assert_eq!(own.statistics().shown, 1);
        assert_eq!(own.in_memory()[0].0, "a.test");
        own.drop_shown("a.test");
        assert_eq!((own.statistics().shown, own.in_memory()), (0, Vec::new()));
    }

    #[tokio::test]
    async fn no_handshake_waits_for_longer_than_it_may_or_in_a_queue_that_is_full() {
        let own = open("unanswered.test", Duration::from_millis(1));
        for _ in 0..QUESTIONS + 10 {
            assert!(own.find("a.test", None).await.is_none());
        }
        assert_eq!(own.statistics().refused, QUESTIONS as u64 + 10);
        let slow = open("full.test", Duration::from_hours(1));
        for _ in 0..QUESTIONS {
            let (answer, _) = oneshot::channel();
            slow.ask.try_send(NameRequest { name: "a.test".to_owned(), client: None, answer }).unwrap();
        }
        assert!(slow.find("b.test", None).await.is_none(), "at once");
    }

    #[test]
    fn the_latest_failures_are_kept_until_a_certificate_is_presented() {
        let own = open("failed.test", Duration::ZERO);
        for number in 0..=FAILURES {
            own.note_failure(&format!("{number}.test"), &"x".repeat(2 * REASON));
        }
        own.note_failure("7.test", "again");
        put(&own, "9.test");
        let failures = own.failures();
        let names: Vec<_> = failures.iter().map(|failed| failed.name.as_str()).collect();
        assert_eq!((names.len(), names[0], names[98]), (FAILURES - 1, "1.test", "7.test"));
        assert!(!names.contains(&"9.test"));
        assert_eq!((failures[0].reason.len(), failures[98].reason.as_str()), (REASON, "again"));
    }

    #[test]
    fn a_reload_with_the_same_settings_goes_on_with_what_is_in_memory() {
        let hosts = OnDemandHosts::default();
        let open = |wait| open_in(&hosts, "reloaded.test", wait);
        let own = open(Duration::ZERO);
        put(&own, "a.test");
        assert!(Arc::ptr_eq(&own, &open(Duration::ZERO)));
        assert!(!Arc::ptr_eq(&own, &open(Duration::from_secs(1))));
        drop(own);
        assert!(open(Duration::ZERO).shown("a.test").is_none());
    }
}

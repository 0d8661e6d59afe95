//! Certificates of names that are decided at run time: shown from memory, and asked for by the first handshake of a name.
//!
//! What decides whether a name is served, and obtains its certificate, is elsewhere: it [receives](OnDemand::question) what
//! handshakes ask for, and [puts](OnDemand::put) here what there is. A handshake waits no longer than its host allows.

mod pattern;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use brisk_keys::Keystore;
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot};
use tokio::time::timeout;

use crate::catalogue::MakeEngine;
use crate::certificate::Certificate;
use crate::resolver::Names;
use crate::slot::Served;

pub use pattern::NamePattern;

/// Questions of handshakes that may wait to be looked at; of those beyond, the handshakes are refused at once.
const QUESTIONS: usize = 1024;

/// Parts of what is shown: with 10,000 names a change copies 40.
const PARTS: usize = 256;

/// What a host shows on demand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OnDemandSettings {
    /// The first name of the host, for messages.
    pub host: String,
    /// The names that may be asked for.
    pub names: Vec<NamePattern>,
    /// How long a handshake waits for a certificate that is not in memory.
    pub wait: Duration,
}

/// A handshake that waits for a certificate.
#[derive(Debug)]
pub struct Question {
    /// The name, in lower case. It fits one of the patterns.
    pub name: String,
    /// The client, unless its address stands for many.
    pub client: Option<IpAddr>,
    /// Where the answer goes; dropped where there is none.
    pub answer: oneshot::Sender<Arc<Vec<Served>>>,
}

/// The certificates of one host whose names are decided at run time.
pub struct OnDemand {
    settings: OnDemandSettings,
    parts: Box<[ArcSwap<Part>]>,
    hasher: RandomState,
    engines: OnceLock<MakeEngine>,
    ask: mpsc::Sender<Question>,
    asked: AsyncMutex<mpsc::Receiver<Question>>,
    shown: AtomicUsize,
    refused: AtomicU64,
    obtained: AtomicU64,
}

type Part = HashMap<Box<str>, Arc<Shown>>;

/// What is shown for a name.
#[derive(Debug)]
struct Shown {
    served: Arc<Vec<Served>>,
    /// When it was last asked for, in seconds since [`START`].
    used: AtomicU64,
}

/// How names on demand are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnDemandStatistics {
    /// Names whose certificates are in memory.
    pub shown: usize,
    /// Handshakes that got no certificate: the name was refused, or it took too long.
    pub refused: u64,
    /// Certificates that were obtained.
    pub obtained: u64,
}

/// Those in use, by their settings.
static OPEN: LazyLock<Mutex<HashMap<OnDemandSettings, Weak<OnDemand>>>> = LazyLock::new(Mutex::default);

/// Where times are counted from.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl OnDemand {
    /// The one in use with these settings, so that a reload loses nothing, or a new one, which shows nothing yet.
    pub fn open(settings: OnDemandSettings) -> Arc<Self> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = open.get(&settings).and_then(Weak::upgrade) {
            return known;
        }
        let (ask, asked) = mpsc::channel(QUESTIONS);
        let new = Arc::new(Self {
            settings: settings.clone(),
            parts: (0..PARTS).map(|_| ArcSwap::default()).collect(),
            hasher: RandomState::new(),
            engines: OnceLock::new(),
            ask,
            asked: AsyncMutex::new(asked),
            shown: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            obtained: AtomicU64::new(0),
        });
        open.retain(|_, known| known.strong_count() > 0);
        open.insert(settings, Arc::downgrade(&new));
        new
    }

    /// All in use, by host.
    pub fn all() -> Vec<Arc<Self>> {
        let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = open.values().filter_map(Weak::upgrade).collect();
        all.sort_by(|one, other| one.settings.host.cmp(&other.settings.host));
        all
    }

    /// Has the keys of what is put here in engines that `engines` makes. Later calls change nothing.
    pub fn start(&self, engines: MakeEngine) {
        // The engines of one process are the same.
        let _ = self.engines.set(engines);
    }

    /// The settings.
    pub fn settings(&self) -> &OnDemandSettings {
        &self.settings
    }

    /// The certificates for `name`, in lower case, for a handshake of `client`, which waits for them if they are not in memory.
    pub async fn find(&self, name: &str, client: Option<IpAddr>) -> Option<Arc<Vec<Served>>> {
        if let Some(served) = self.shown(name) {
            return Some(served);
        }
        let (answer, answered) = oneshot::channel();
        let asked = self.ask.try_send(Question { name: name.to_owned(), client, answer });
        let found = match asked {
            Ok(()) => timeout(self.settings.wait, answered).await.ok().and_then(Result::ok),
            Err(_) => None,
        };
        if found.is_none() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// The certificates for `name` that are in memory, which are in use from now on. Takes no lock.
    pub fn shown(&self, name: &str) -> Option<Arc<Vec<Served>>> {
        let part = self.part(name).load();
        let shown = part.get(name)?;
        let now = START.elapsed().as_secs();
        if shown.used.load(Ordering::Relaxed) != now {
            shown.used.store(now, Ordering::Relaxed);
        }
        Some(Arc::clone(&shown.served))
    }

    /// The same, which does not count as a use.
    pub fn peek(&self, name: &str) -> Option<Arc<Vec<Served>>> {
        self.part(name).load().get(name).map(|shown| Arc::clone(&shown.served))
    }

    /// The next handshake that waits. For one caller: another waits until the first is dropped.
    pub async fn question(&self) -> Option<Question> {
        self.asked.lock().await.recv().await
    }

    /// Shows `certificates` for `name` from now on, whose keys are in `keys`. `None` before the [start](Self::start).
    pub fn put(
        &self,
        name: &str,
        certificates: Vec<Arc<Certificate>>,
        keys: Keystore,
    ) -> Option<Arc<Vec<Served>>> {
        self.show(name, certificates, keys, START.elapsed().as_secs())
    }

    /// The same in the place of what is shown, which does not count as a use. `None` if nothing is.
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
        let shown = Arc::new(Shown { served: Arc::clone(&served), used: AtomicU64::new(used) });
        self.change(name, |part| drop(part.insert(name.into(), shown)));
        Some(served)
    }

    /// Drops what is in memory for `name`.
    pub fn drop_shown(&self, name: &str) {
        self.change(name, |part| drop(part.remove(name)));
    }

    /// Notes that a certificate was obtained, for the statistics.
    pub fn count_obtained(&self) {
        self.obtained.fetch_add(1, Ordering::Relaxed);
    }

    /// The names whose certificates are in memory, each with the time since a handshake asked for it.
    pub fn in_memory(&self) -> Vec<(String, Duration)> {
        let now = START.elapsed().as_secs();
        let idle = |shown: &Shown| now.saturating_sub(shown.used.load(Ordering::Relaxed));
        let mut all = Vec::new();
        for part in &self.parts {
            let part = part.load();
            all.extend(part.iter().map(|(name, shown)| (name.to_string(), Duration::from_secs(idle(shown)))));
        }
        all
    }

    /// How it is used.
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

    /// Only what receives the questions changes anything.
    fn change(&self, name: &str, change: impl FnOnce(&mut Part)) {
        let part = self.part(name);
        let mut new = Part::clone(&part.load());
        let before = new.len();
        change(&mut new);
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
        let names = vec!["*".parse().unwrap()];
        let own = OnDemand::open(OnDemandSettings { host: host.to_owned(), names, wait });
        own.start(Arc::new(|keys| Arc::new(LocalEngine::new(keys)) as Arc<dyn PrivateKeyEngine>));
        own
    }

    fn put(own: &OnDemand, name: &str) -> Arc<Vec<Served>> {
        let leaf = TestCa::new().server(&[name]).issue();
        let mut keys = Keystore::new();
        let loaded = load(&leaf.chain, &leaf.key, &mut keys, std::time::SystemTime::now()).unwrap();
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
        // No answer comes any more.
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
            slow.ask.try_send(Question { name: "a.test".to_owned(), client: None, answer }).unwrap();
        }
        assert!(slow.find("b.test", None).await.is_none(), "at once");
    }

    #[test]
    fn a_reload_with_the_same_settings_goes_on_with_what_is_in_memory() {
        let own = open("reloaded.test", Duration::ZERO);
        put(&own, "a.test");
        assert!(Arc::ptr_eq(&own, &open("reloaded.test", Duration::ZERO)));
        assert!(!Arc::ptr_eq(&own, &open("reloaded.test", Duration::from_secs(1))));
        drop(own);
        assert!(open("reloaded.test", Duration::ZERO).shown("a.test").is_none());
    }
}

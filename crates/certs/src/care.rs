//! Looks after the certificates that hosts show: completes their chains, keeps their staples, watches whether they are
//! revoked. All of it happens on a thread of its own; handshakes find in the slots whatever there is at the moment, and
//! never wait.
//!
//! What was fetched is kept in the store, so that a restart has it at once.

mod fleet;
mod issuers;
mod lists;
mod places;
mod schedule;
mod showing;
mod staples;
mod thread;
mod ward;

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use brisk_keys::PrivateKeyEngine;
use tokio::runtime::Builder;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};

use crate::certificate::{Certificate, Fingerprint};
use crate::error::CertError;
use crate::ocsp::Staple;
use crate::slot::{Served, Slot};
use crate::store::Store;
use showing::{Showing, is_tended};
pub use ward::{Failures, Report};
use ward::{Origin, Ward};

/// What is done for certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CareSettings {
    /// Keep staples for certificates that name a responder. Default: yes.
    pub staples: bool,
    /// Watch the revocation lists that certificates name. Default: yes.
    pub watches: bool,
    /// Fetch intermediates that chain files lack. Default: yes.
    pub completes: bool,
    /// The most time that the start and a reload wait for the first staples of new certificates. Default: 2 s.
    pub wait: Duration,
}

impl Default for CareSettings {
    fn default() -> Self {
        Self { staples: true, watches: true, completes: true, wait: Duration::from_secs(2) }
    }
}

/// What came for an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The body.
    pub body: Vec<u8>,
    /// How long it may be kept, if the server says so.
    pub max_age: Option<Duration>,
}

/// The future of a fetch. The error is for the operator.
pub type Fetching<'a> = Pin<Box<dyn Future<Output = Result<Fetched, String>> + Send + 'a>>;

/// Fetches by HTTP. This crate knows no HTTP.
pub trait Fetch: fmt::Debug + Send + Sync + 'static {
    /// Gets what is at `url`, at most `limit` bytes, in a time that the implementation bounds. Redirects are followed;
    /// any status but 200 is an error.
    fn get<'a>(&'a self, url: &'a str, limit: usize) -> Fetching<'a>;
}

/// A function that is called with a certificate that was revoked.
type OnRevoked = Box<dyn Fn(&Certificate) + Send + Sync>;

type Wards = HashMap<Fingerprint, Arc<Ward>>;

/// Looks after certificates until it is dropped.
pub struct Care {
    shared: Arc<Shared>,
    _alive: watch::Sender<()>,
}

struct Shared {
    fetch: Arc<dyn Fetch>,
    store: Option<Arc<dyn Store>>,
    fleet: fleet::Fleet,
    settings: Mutex<CareSettings>,
    wards: Mutex<Wards>,
    /// Signalled whenever a ward was tried.
    tried: Condvar,
    /// The same for tasks.
    tried_tasks: watch::Sender<()>,
    slots: Mutex<Vec<Arc<Slot>>>,
    /// Slots of names of folders, for as long as they are in memory.
    names: Mutex<Vec<Weak<Slot>>>,
    /// Wards of names, on their way to the thread.
    loaded: mpsc::UnboundedSender<Arc<Ward>>,
    handle: Handle,
    showing: Mutex<Showing>,
    on_revoked: Mutex<Vec<OnRevoked>>,
    lists: lists::Lists,
    places: places::Places,
    wake: Notify,
    /// Settings have changed: everything is to be done again.
    starts_anew: AtomicBool,
}

impl Care {
    /// Starts the thread, which has nothing to do yet. What is fetched is kept in `store`, if there is one. Of gateways that
    /// share `fleet` one asks for each staple.
    pub fn start(
        settings: CareSettings,
        fetch: Arc<dyn Fetch>,
        store: Option<Arc<dyn Store>>,
        fleet: Option<Arc<dyn Store>>,
    ) -> Result<Self, CertError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(CertError::Care)?;
        // At most one for each name that is loaded, which are limited, and the thread takes them at once.
        let (loaded, wards) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            fetch,
            store,
            fleet: fleet::Fleet::new(fleet),
            settings: Mutex::new(settings),
            wards: Mutex::default(),
            tried: Condvar::new(),
            tried_tasks: watch::Sender::new(()),
            slots: Mutex::default(),
            names: Mutex::default(),
            loaded,
            handle: runtime.handle().clone(),
            showing: Mutex::default(),
            on_revoked: Mutex::default(),
            lists: lists::Lists::default(),
            places: places::Places::default(),
            wake: Notify::new(),
            starts_anew: AtomicBool::new(false),
        });
        let (alive, dropped) = watch::channel(());
        let own = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("certificates".to_owned())
            .spawn(move || runtime.block_on(thread::run(own, wards, dropped)))
            .map_err(CertError::Care)?;
        Ok(Self { shared, _alive: alive })
    }

    /// Has `call` called, on the thread of this, with each certificate that turns out to be revoked.
    pub fn on_revoked(&self, call: impl Fn(&Certificate) + Send + Sync + 'static) {
        lock(&self.shared.on_revoked).push(Box::new(call));
    }

    /// Begins to look after `certificates`, which are about to be published, under `settings`. Returns when what was
    /// kept or fetched has given each its staple, as far as it names a responder, or after `settings.wait`.
    ///
    /// Blocks, and reads the store.
    pub fn prepare(&self, certificates: &[Arc<Certificate>], settings: CareSettings) {
        let before = std::mem::replace(&mut *lock(&self.shared.settings), settings);
        if (CareSettings { wait: settings.wait, ..before }) != settings {
            self.shared.starts_anew.store(true, Ordering::Relaxed);
        }
        self.prepare_more(certificates);
    }

    /// The same for certificates that come from elsewhere than the settings.
    pub fn prepare_more(&self, certificates: &[Arc<Certificate>]) {
        for certificate in certificates {
            self.shared.ward_of_load(certificate, Origin::Host);
        }
        self.shared.wake.notify_one();
        let until = Instant::now() + self.shared.settings().wait;
        let mut all = lock(&self.shared.wards);
        // Two of them may be one certificate, and the second ward in the place of the first.
        let is_tried =
            |all: &Wards, one: &Certificate| all.get(&one.fingerprint).is_none_or(|own| own.is_tried());
        while certificates.iter().any(|certificate| !is_tried(&all, certificate)) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.tried.wait_timeout(all, left);
            all = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// `certificate` as it is best shown now: its chain completed, with its staple.
    pub fn served(&self, certificate: &Arc<Certificate>, engine: &Arc<dyn PrivateKeyEngine>) -> Served {
        self.shared.served(certificate, engine)
    }

    /// The staple of `certificate` that is shown now.
    pub fn staple(&self, certificate: &Arc<Certificate>) -> Option<Arc<Staple>> {
        self.shared.staple(certificate)
    }

    /// Looks after what is in `slots` from now on, and after nothing else. Whatever they come to show is noticed within
    /// ten seconds.
    pub fn follow(&self, slots: Vec<Arc<Slot>>) {
        *lock(&self.shared.slots) = slots;
        drop(self.shared.survey());
        self.shared.wake.notify_one();
    }

    /// Looks at `slot`, one of those that are followed, for what was published there.
    pub fn look(&self, slot: &Slot) {
        self.shared.refresh(slot);
        self.shared.wake.notify_one();
    }

    /// Looks after what `slot` of a name of a folder shows, for as long as others keep the slot: its staples, and
    /// intermediates for them. Whether it may be shown at once: a certificate that clients refuse without a staple should
    /// wait for it, see [`when_stapled`](Self::when_stapled).
    ///
    /// Reads the store.
    pub(crate) fn tend(&self, slot: &Arc<Slot>) -> bool {
        self.shared.tend(slot)
    }

    /// Calls `then`, on the thread of this, when the certificates in `slot` have staples, or it is known that there are none
    /// now, or after the time of the settings. `then` must not block.
    pub(crate) fn when_stapled(&self, slot: &Arc<Slot>, then: impl FnOnce() + Send + 'static) {
        let (shared, slot) = (Arc::clone(&self.shared), Arc::clone(slot));
        self.shared.handle.spawn(async move {
            let wait = shared.settings().wait;
            // After the time it is shown as it is.
            let _ = tokio::time::timeout(wait, shared.until_stapled(&slot)).await;
            shared.refresh(&slot);
            then();
        });
    }

    /// Whether staples are kept.
    pub(crate) fn keeps_staples(&self) -> bool {
        self.shared.settings().staples
    }

    /// What is known of each certificate, by the end of its validity.
    pub fn report(&self) -> Vec<Report> {
        let now = SystemTime::now();
        let wards: Vec<_> = lock(&self.shared.wards).values().cloned().collect();
        let mut reports: Vec<_> = wards.iter().map(|ward| ward.report(now)).collect();
        reports.sort_by(|one, other| (one.not_after, &one.title).cmp(&(other.not_after, &other.title)));
        reports
    }
}

impl fmt::Debug for Care {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Care").finish_non_exhaustive()
    }
}

impl Shared {
    fn settings(&self) -> CareSettings {
        *lock(&self.settings)
    }

    /// Looks after `certificate`, which a look found, with what the store has for it if it is new.
    fn found(&self, certificate: &Arc<Certificate>, origin: Origin) {
        let is_new = !lock(&self.wards).contains_key(&certificate.fingerprint);
        if is_new && (origin == Origin::Host || is_tended(self.settings(), certificate)) {
            let ward = Arc::new(Ward::new(Arc::clone(certificate), origin));
            self.recall(&ward);
            lock(&self.wards).entry(certificate.fingerprint).or_insert(ward);
        }
    }

    /// The ward of `certificate` as it was loaded now: its chain or its staple file may be another.
    fn ward_of_load(&self, certificate: &Arc<Certificate>, origin: Origin) -> Arc<Ward> {
        let before = lock(&self.wards).get(&certificate.fingerprint).cloned();
        let new = match before {
            // What a host shows is looked after more closely, whatever a folder has too.
            Some(ward) if ward.is_of(certificate) && ward.origin() >= origin => return ward,
            Some(ward) if ward.origin() > origin => return ward,
            Some(ward) => ward.again(Arc::clone(certificate), origin),
            None => Ward::new(Arc::clone(certificate), origin),
        };
        let new = Arc::new(new);
        self.recall(&new);
        lock(&self.wards).insert(certificate.fingerprint, Arc::clone(&new));
        new
    }

    fn recall(&self, ward: &Ward) {
        issuers::recall(self, ward);
        staples::recall(self, ward);
    }

    fn served(&self, certificate: &Arc<Certificate>, engine: &Arc<dyn PrivateKeyEngine>) -> Served {
        let staple = self.staple(certificate);
        let ward = lock(&self.wards).get(&certificate.fingerprint).cloned();
        let completed = ward.and_then(|ward| ward.completed()).filter(|_| !certificate.is_complete);
        let certificate = completed.unwrap_or_else(|| Arc::clone(certificate));
        Served { certificate, engine: Arc::clone(engine), staple }
    }

    fn staple(&self, certificate: &Certificate) -> Option<Arc<Staple>> {
        let ward = lock(&self.wards).get(&certificate.fingerprint).cloned();
        if ward.as_ref().is_some_and(|ward| ward.is_revoked()) {
            return None;
        }
        let fetched = ward.filter(|_| self.settings().staples).and_then(|ward| ward.staple());
        let staple = certificate.staple.clone().or(fetched);
        staple.filter(|staple| staple.is_fresh(SystemTime::now()))
    }

    async fn fetch(&self, url: &str, limit: usize) -> Result<Fetched, String> {
        let _place = self.places.of(url).await;
        self.fetch.get(url, limit).await
    }

    fn notify_tried(&self) {
        // Held, so that no waiter is between its look and its wait.
        let _wards = lock(&self.wards);
        self.tried.notify_all();
        self.tried_tasks.send_replace(());
    }

    fn alarm(&self, certificate: &Certificate) {
        lock(&self.on_revoked).iter().for_each(|call| call(certificate));
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

//! Looks after the certificates that hosts show: completes their chains, keeps their staples, watches whether they are
//! revoked. All of it happens on a thread of its own; handshakes find in the slots whatever there is at the moment, and
//! never wait.
//!
//! What was fetched is kept in the store, so that a restart has it at once.

mod issuers;
mod lists;
mod schedule;
mod staples;
mod ward;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use brisk_keys::PrivateKeyEngine;
use tokio::runtime::Builder;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;

use crate::certificate::{Certificate, Fingerprint};
use crate::error::CertError;
use crate::ocsp::Staple;
use crate::slot::{Served, Slot};
use crate::store::Store;
use ward::Ward;
pub use ward::{Failures, Report};

/// How often the slots are looked at for certificates that others than the configuration published.
const LOOK: Duration = Duration::from_secs(10);

/// Fetches at a time.
const FETCHES: usize = 32;

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

/// Looks after certificates until it is dropped.
pub struct Care {
    shared: Arc<Shared>,
    _alive: watch::Sender<()>,
}

struct Shared {
    fetch: Arc<dyn Fetch>,
    store: Option<Arc<dyn Store>>,
    settings: Mutex<CareSettings>,
    wards: Mutex<HashMap<Fingerprint, Arc<Ward>>>,
    /// Signalled whenever a ward was tried.
    tried: Condvar,
    slots: Mutex<Vec<Arc<Slot>>>,
    on_revoked: Mutex<Vec<OnRevoked>>,
    lists: lists::Lists,
    places: Semaphore,
    wake: Notify,
    /// Settings have changed: everything is to be done again.
    starts_anew: AtomicBool,
}

impl Care {
    /// Starts the thread, which has nothing to do yet. What is fetched is kept in `store`, if there is one.
    pub fn start(
        settings: CareSettings,
        fetch: Arc<dyn Fetch>,
        store: Option<Arc<dyn Store>>,
    ) -> Result<Self, CertError> {
        let shared = Arc::new(Shared {
            fetch,
            store,
            settings: Mutex::new(settings),
            wards: Mutex::default(),
            tried: Condvar::new(),
            slots: Mutex::default(),
            on_revoked: Mutex::default(),
            lists: lists::Lists::default(),
            places: Semaphore::new(FETCHES),
            wake: Notify::new(),
            starts_anew: AtomicBool::new(false),
        });
        let (alive, dropped) = watch::channel(());
        let runtime = Builder::new_current_thread().enable_all().build().map_err(CertError::Care)?;
        let own = Arc::clone(&shared);
        thread::Builder::new()
            .name("certificates".to_owned())
            .spawn(move || runtime.block_on(run(own, dropped)))
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
        let wards: Vec<_> = certificates.iter().map(|certificate| self.shared.ward(certificate)).collect();
        self.shared.wake.notify_one();
        let until = Instant::now() + self.shared.settings().wait;
        let mut all = lock(&self.shared.wards);
        while wards.iter().any(|ward| !ward.is_tried()) {
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
        self.look();
    }

    /// Looks at the slots now, for what was published there.
    pub fn look(&self) {
        self.shared.apply(|_| true);
        self.shared.wake.notify_one();
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

    /// The ward of `certificate`, with what the store has for it if it is new.
    fn ward(&self, certificate: &Arc<Certificate>) -> Arc<Ward> {
        if let Some(ward) = lock(&self.wards).get(&certificate.fingerprint) {
            return Arc::clone(ward);
        }
        let ward = Arc::new(Ward::new(Arc::clone(certificate)));
        issuers::recall(self, &ward);
        staples::recall(self, &ward);
        Arc::clone(lock(&self.wards).entry(certificate.fingerprint).or_insert(ward))
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

    /// Brings what the slots show of certificates that `concerns` up to date.
    fn apply(&self, concerns: impl Fn(&Fingerprint) -> bool) {
        let slots = lock(&self.slots).clone();
        for slot in slots {
            slot.update(|shown| {
                if !concerns(&shown.certificate.fingerprint) {
                    return None;
                }
                let best = self.served(&shown.certificate, &shown.engine);
                let same = best.staple == shown.staple && best.certificate.chain == shown.certificate.chain;
                (!same).then_some(best)
            });
        }
    }

    /// The certificates that the slots show.
    fn shown(&self) -> Vec<Arc<Certificate>> {
        let slots = lock(&self.slots).clone();
        let mut found = HashMap::new();
        for slot in slots {
            for served in slot.load().iter() {
                found.insert(served.certificate.fingerprint, Arc::clone(&served.certificate));
            }
        }
        found.into_values().collect()
    }

    async fn fetch(&self, url: &str, limit: usize) -> Result<Fetched, String> {
        let _place = self.places.acquire().await.map_err(|error| error.to_string())?;
        self.fetch.get(url, limit).await
    }

    fn notify_tried(&self) {
        // Held, so that no waiter is between its look and its wait.
        let _wards = lock(&self.wards);
        self.tried.notify_all();
    }

    fn alarm(&self, certificate: &Certificate) {
        lock(&self.on_revoked).iter().for_each(|call| call(certificate));
    }
}

/// The thread.
async fn run(shared: Arc<Shared>, mut dropped: watch::Receiver<()>) {
    let mut tasks: HashMap<Fingerprint, JoinHandle<()>> = HashMap::new();
    let mut last = HashSet::new();
    loop {
        let shown = shared.shown();
        for certificate in &shown {
            drop(shared.ward(certificate));
        }
        forget(&shared, &mut tasks, &shown, &mut last);
        if shared.starts_anew.swap(false, Ordering::Relaxed) {
            for (_, task) in tasks.drain() {
                task.abort();
            }
        }
        let wards: Vec<_> = lock(&shared.wards).values().cloned().collect();
        for ward in wards {
            tasks
                .entry(ward.certificate().fingerprint)
                .or_insert_with(|| tokio::spawn(look_after(Arc::clone(&shared), ward)));
        }
        tokio::select! {
            () = shared.wake.notified() => {}
            () = tokio::time::sleep(LOOK) => {}
            _ = dropped.changed() => return,
        }
    }
}

/// Ends what is done for certificates that were shown at the look before this one and are not any more. Those that are
/// about to be shown stay.
fn forget(
    shared: &Shared,
    tasks: &mut HashMap<Fingerprint, JoinHandle<()>>,
    shown: &[Arc<Certificate>],
    last: &mut HashSet<Fingerprint>,
) {
    let now: HashSet<_> = shown.iter().map(|certificate| certificate.fingerprint).collect();
    for gone in last.difference(&now) {
        lock(&shared.wards).remove(gone);
        if let Some(task) = tasks.remove(gone) {
            task.abort();
        }
        staples::forget(shared, *gone);
    }
    *last = now;
}

async fn look_after(shared: Arc<Shared>, ward: Arc<Ward>) {
    let Some(issuer) = issuers::complete(&shared, &ward).await else {
        staples::complain_of_issuer(&shared, &ward);
        ward.set_tried();
        shared.notify_tried();
        return;
    };
    tokio::join!(staples::keep(&shared, &ward, &issuer), lists::watch(&shared, &ward, &issuer));
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

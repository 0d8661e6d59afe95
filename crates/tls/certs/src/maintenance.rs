//! Background maintenance of the certificates that hosts present: completing their chains, fetching staples, watching
//! for revocation. [`Maintenance`] runs it on one thread of its own and publishes the results into the [`Slot`]s, so a
//! handshake never waits for it.
//!
//! Fetched data is kept in a [`Store`], so that it is available right after a restart.

mod fleet;
mod issuers;
mod lists;
mod maintained;
mod permits;
mod responders;
mod schedule;
mod slot_index;
mod staples;
mod thread;

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use brisk_keys::PrivateKeyEngine;
use thiserror::Error;
use tokio::runtime::Builder;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};

use crate::certificate::{Certificate, Fingerprint};
use crate::error::CertError;
use crate::ocsp::Staple;
use crate::slot::{Served, Slot};
use crate::store::Store;
pub use maintained::{Failures, Report};
use maintained::{MaintainedCertificate, Origin};
use slot_index::{SlotIndex, needs_maintenance};

/// Which maintenance [`Maintenance`] performs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaintenanceSettings {
    /// Fetch staples for certificates that name an OCSP responder. Default: yes.
    pub staples: bool,
    /// Fetch the revocation lists that certificates name. Default: yes.
    pub watches: bool,
    /// Fetch intermediates that are missing from chain files. Default: yes.
    pub completes: bool,
    /// Maximum time that a start or a reload waits for the first staples of new certificates. Default: 2 s.
    pub wait: Duration,
}

impl Default for MaintenanceSettings {
    fn default() -> Self {
        Self { staples: true, watches: true, completes: true, wait: Duration::from_secs(2) }
    }
}

/// Response to a [`Fetch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The body of the response.
    pub body: Vec<u8>,
    /// How long the server permits caching; `None` if it does not state a time.
    pub max_age: Option<Duration>,
}

/// Reason for which nothing was fetched, as a message for the operator.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FetchFailure {
    /// No complete response has arrived.
    #[error("{0}")]
    Unreachable(String),
    /// The response is too long, leads nowhere, or has another status than 200.
    #[error("{0}")]
    Response(String),
}

/// Future returned by [`Fetch`].
pub type Fetching<'a> = Pin<Box<dyn Future<Output = Result<Fetched, FetchFailure>> + Send + 'a>>;

/// An HTTP client. A trait, because this crate does not depend on an HTTP implementation.
pub trait Fetch: fmt::Debug + Send + Sync + 'static {
    /// Returns the body at `url`.
    ///
    /// The implementation bounds the time and follows redirects. A longer body than `limit` bytes is an error, and so is
    /// any status other than 200.
    fn get<'a>(&'a self, url: &'a str, limit: usize) -> Fetching<'a>;

    /// Sends `body` to `url` and returns the body of the response, with the same limits. Redirects are not followed.
    fn post<'a>(
        &'a self,
        url: &'a str,
        content_type: &'static str,
        body: Vec<u8>,
        limit: usize,
    ) -> Fetching<'a>;
}

/// Callback for a certificate that was found to be revoked.
type OnRevoked = Box<dyn Fn(&Certificate) + Send + Sync>;

type MaintainedCertificates = HashMap<Fingerprint, Arc<MaintainedCertificate>>;

/// The maintenance thread. It ends when this is dropped.
pub struct Maintenance {
    shared: Arc<Shared>,
    _alive: watch::Sender<()>,
}

struct Shared {
    fetch: Arc<dyn Fetch>,
    store: Option<Arc<dyn Store>>,
    fleet: fleet::Fleet,
    settings: Mutex<MaintenanceSettings>,
    certificates: Mutex<MaintainedCertificates>,
    /// Notified after each attempt to obtain something for a certificate; for [`Maintenance::prepare_more`], which blocks.
    tried: Condvar,
    /// The counterpart of `tried` for asynchronous tasks.
    tried_tasks: watch::Sender<()>,
    slots: Mutex<Vec<Arc<Slot>>>,
    /// Slots of names in a [`Catalogue`](crate::Catalogue), while their certificates are in memory.
    names: Mutex<Vec<Weak<Slot>>>,
    /// Sends certificates of catalogue names to the thread.
    loaded: mpsc::UnboundedSender<Arc<MaintainedCertificate>>,
    handle: Handle,
    slot_index: Mutex<SlotIndex>,
    on_revoked: Mutex<Vec<OnRevoked>>,
    lists: lists::Lists,
    permits: permits::FetchPermits,
    wake: Notify,
    /// Set when settings changed: all tasks are started again.
    starts_anew: AtomicBool,
}

impl Maintenance {
    /// Starts the thread, without certificates to maintain.
    ///
    /// Fetched data is kept in `store`. Gateways that share the store `fleet` fetch each staple once.
    pub fn start(
        settings: MaintenanceSettings,
        fetch: Arc<dyn Fetch>,
        store: Option<Arc<dyn Store>>,
        fleet: Option<Arc<dyn Store>>,
    ) -> Result<Self, CertError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(CertError::Maintenance)?;
        // The channel is unbounded, but the number of loaded names is not, and the thread empties it at once.
        let (loaded, certificates) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            fetch,
            store,
            fleet: fleet::Fleet::new(fleet),
            settings: Mutex::new(settings),
            certificates: Mutex::default(),
            tried: Condvar::new(),
            tried_tasks: watch::Sender::new(()),
            slots: Mutex::default(),
            names: Mutex::default(),
            loaded,
            handle: runtime.handle().clone(),
            slot_index: Mutex::default(),
            on_revoked: Mutex::default(),
            lists: lists::Lists::default(),
            permits: permits::FetchPermits::default(),
            wake: Notify::new(),
            starts_anew: AtomicBool::new(false),
        });
        let (alive, dropped) = watch::channel(());
        let own = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("certificates".to_owned())
            .spawn(move || runtime.block_on(thread::run(own, certificates, dropped)))
            .map_err(CertError::Maintenance)?;
        Ok(Self { shared, _alive: alive })
    }

    /// Registers `call`, which the thread calls with each certificate that is found to be revoked.
    pub fn on_revoked(&self, call: impl Fn(&Certificate) + Send + Sync + 'static) {
        lock(&self.shared.on_revoked).push(Box::new(call));
    }

    /// Applies `settings` and starts maintaining `certificates`, which are about to be published. Returns when each
    /// that names a responder has a staple or a failed attempt, or after `settings.wait`.
    ///
    /// Blocks, and reads the store.
    pub fn prepare(&self, certificates: &[Arc<Certificate>], settings: MaintenanceSettings) {
        let before = std::mem::replace(&mut *lock(&self.shared.settings), settings);
        if (MaintenanceSettings { wait: settings.wait, ..before }) != settings {
            // `wait` is excluded: it affects no running task.
            self.shared.starts_anew.store(true, Ordering::Relaxed);
        }
        self.prepare_more(certificates);
    }

    /// Runs `task` on the maintenance thread until the thread ends. The task must not block.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.shared.handle.spawn(task);
    }

    /// Starts all fetches again at the next [`prepare`](Self::prepare), because the conditions of [`Fetch`] changed.
    pub fn restart(&self) {
        self.shared.starts_anew.store(true, Ordering::Relaxed);
    }

    /// Like [`prepare`](Self::prepare), with unchanged settings: for certificates that are not from the configuration.
    pub fn prepare_more(&self, certificates: &[Arc<Certificate>]) {
        for certificate in certificates {
            self.shared.maintain_loaded(certificate, Origin::Host);
        }
        self.shared.wake.notify_one();
        let until = Instant::now() + self.shared.settings().wait;
        let mut all = lock(&self.shared.certificates);
        // `certificates` may contain one certificate twice; the second then replaced the state of the first.
        let is_tried = |all: &MaintainedCertificates, one: &Certificate| {
            all.get(&one.fingerprint).is_none_or(|own| own.is_tried())
        };
        while certificates.iter().any(|certificate| !is_tried(&all, certificate)) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.tried.wait_timeout(all, left);
            all = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// `certificate` with its completed chain and its current staple.
    pub fn served(&self, certificate: &Arc<Certificate>, engine: &Arc<dyn PrivateKeyEngine>) -> Served {
        self.shared.served(certificate, engine)
    }

    /// The current staple of `certificate`.
    pub fn staple(&self, certificate: &Arc<Certificate>) -> Option<Arc<Staple>> {
        self.shared.staple(certificate)
    }

    /// Replaces the set of maintained slots. Certificates that others publish into them are noticed within ten seconds.
    pub fn follow(&self, slots: Vec<Arc<Slot>>) {
        *lock(&self.shared.slots) = slots;
        drop(self.shared.survey());
        self.shared.wake.notify_one();
    }

    /// Updates `slot`, one of the followed slots, now instead of within ten seconds.
    pub fn look(&self, slot: &Slot) {
        self.shared.refresh(slot);
        self.shared.wake.notify_one();
    }

    /// Maintains staples and issuers for a catalogue name's `slot` until the slot is dropped elsewhere.
    ///
    /// Returns whether the slot may be used at once; if not, it contains a must-staple certificate without a staple,
    /// see [`when_stapled`](Self::when_stapled). Reads the store.
    pub(crate) fn maintain(&self, slot: &Arc<Slot>) -> bool {
        self.shared.maintain(slot)
    }

    /// Calls `then` on the maintenance thread once the certificates in `slot` have staples, the attempts have failed,
    /// or [`MaintenanceSettings::wait`] has elapsed. `then` must not block.
    pub(crate) fn when_stapled(&self, slot: &Arc<Slot>, then: impl FnOnce() + Send + 'static) {
        let (shared, slot) = (Arc::clone(&self.shared), Arc::clone(slot));
        self.shared.handle.spawn(async move {
            let wait = shared.settings().wait;
            // After the timeout, the certificate is used without a staple: a client that ignores must-staple accepts
            // it.
            let _ = tokio::time::timeout(wait, shared.until_stapled(&slot)).await;
            shared.refresh(&slot);
            then();
        });
    }

    /// Whether staples are fetched.
    pub(crate) fn keeps_staples(&self) -> bool {
        self.shared.settings().staples
    }

    /// Names of certificates of hosts that clients refuse for lack of a staple (must-staple, RFC 7633), at most ten.
    /// Certificates of catalogues are left out: one of many thousand names says little about the whole process.
    pub fn without_required_staple(&self) -> Vec<String> {
        let now = SystemTime::now();
        let all = lock(&self.shared.certificates);
        let lacking =
            all.values().filter(|own| own.origin() == Origin::Host && own.lacks_required_staple(now));
        lacking.map(|maintained| maintained.certificate().title()).take(10).collect()
    }

    /// The state of all maintained certificates, ordered by expiry.
    pub fn report(&self) -> Vec<Report> {
        let now = SystemTime::now();
        let certificates: Vec<_> = lock(&self.shared.certificates).values().cloned().collect();
        let mut reports: Vec<_> = certificates.iter().map(|maintained| maintained.report(now)).collect();
        reports.sort_by(|one, other| (one.not_after, &one.title).cmp(&(other.not_after, &other.title)));
        reports
    }
}

impl fmt::Debug for Maintenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maintenance").finish_non_exhaustive()
    }
}

impl Shared {
    fn settings(&self) -> MaintenanceSettings {
        *lock(&self.settings)
    }

    /// Starts maintaining `certificate`, seen in a slot, with the stored data if it is new.
    fn found(&self, certificate: &Arc<Certificate>, origin: Origin) {
        // The lock is not held while the store is read. `or_insert` keeps the state that another caller
        // created meanwhile.
        let is_new = !lock(&self.certificates).contains_key(&certificate.fingerprint);
        if is_new && (origin == Origin::Host || needs_maintenance(self.settings(), certificate)) {
            let maintained = Arc::new(MaintainedCertificate::new(Arc::clone(certificate), origin));
            self.recall(&maintained);
            lock(&self.certificates).entry(certificate.fingerprint).or_insert(maintained);
        }
    }

    /// The state of `certificate` as loaded now; its chain or its staple file may differ from those of the known state.
    fn maintain_loaded(&self, certificate: &Arc<Certificate>, origin: Origin) -> Arc<MaintainedCertificate> {
        let before = lock(&self.certificates).get(&certificate.fingerprint).cloned();
        let new = match before {
            // Hosts have precedence over catalogues: their revocation lists are watched too.
            Some(maintained) if maintained.is_of(certificate) && maintained.origin() >= origin => {
                return maintained;
            }
            Some(maintained) if maintained.origin() > origin => return maintained,
            Some(maintained) => maintained.again(Arc::clone(certificate), origin),
            None => MaintainedCertificate::new(Arc::clone(certificate), origin),
        };
        let new = Arc::new(new);
        self.recall(&new);
        lock(&self.certificates).insert(certificate.fingerprint, Arc::clone(&new));
        new
    }

    fn recall(&self, maintained: &MaintainedCertificate) {
        issuers::recall(self, maintained);
        staples::recall(self, maintained);
    }

    fn served(&self, certificate: &Arc<Certificate>, engine: &Arc<dyn PrivateKeyEngine>) -> Served {
        let staple = self.staple(certificate);
        let maintained = lock(&self.certificates).get(&certificate.fingerprint).cloned();
        // An issuer that the operator has added to the chain file meanwhile replaces the fetched one.
        let completed =
            maintained.and_then(|maintained| maintained.completed()).filter(|_| !certificate.is_complete);
        let certificate = completed.unwrap_or_else(|| Arc::clone(certificate));
        Served { certificate, engine: Arc::clone(engine), staple }
    }

    fn staple(&self, certificate: &Certificate) -> Option<Arc<Staple>> {
        let maintained = lock(&self.certificates).get(&certificate.fingerprint).cloned();
        // This includes a staple from a file: a response from before the revocation would hide it from
        // clients.
        if maintained.as_ref().is_some_and(|maintained| maintained.is_revoked()) {
            return None;
        }
        let fetched =
            maintained.filter(|_| self.settings().staples).and_then(|maintained| maintained.staple());
        let staple = certificate.staple.clone().or(fetched);
        staple.filter(|staple| staple.is_fresh(SystemTime::now()))
    }

    async fn fetch(&self, url: &str, limit: usize) -> Result<Fetched, String> {
        let _permit = self.permits.acquire(url).await;
        self.fetch.get(url, limit).await.map_err(|failure| failure.to_string())
    }

    fn notify_tried(&self) {
        // Holding the lock closes the window in which a waiter has checked its condition and does not wait yet.
        let _certificates = lock(&self.certificates);
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

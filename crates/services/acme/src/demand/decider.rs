//! Decides which on-demand names of one host are served, and keeps their certificates in memory.

mod upkeep;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brisk_certs::OnDemand;
use brisk_certs::on_demand::NameRequest;
use brisk_fetch::{Client, ClientSettings, Destinations};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{spawn_blocking, spawn_local};
use tokio::time::{Instant, sleep};

use super::ask::{Decision, ask, without_secrets};
use super::job::{DemandJob, DemandTask, Outcome};
use super::limits::{Bucket, QueryLimit};
use super::load::{Loaded, load};
use super::table::{NameLookup, Table};
use super::{DemandSettings, OnDemandHost};
use crate::AcmeError;
use crate::records::Records;
use upkeep::{CHECKS, RENEWALS};

/// Time for which a rejected name is refused without another request to the operator's server.
const NO: Duration = Duration::from_mins(5);

/// Time for which a name is refused after a failed request to the operator's server.
const UNKNOWN: Duration = Duration::from_secs(10);

/// Longest time for which a name is refused after a failed order. The pause of the order itself may be longer.
const FAILED: Duration = Duration::from_mins(10);

/// Interval of [`look_over`](NameDecider::look_over), and of the comparison with the [`Store`].
const TICK: Duration = Duration::from_secs(5);
const COMPARE: Duration = Duration::from_mins(1);

/// Minimum interval between two warnings of one kind, because unknown clients can cause them.
const WARNINGS: Duration = Duration::from_mins(1);

/// State of the on-demand names of one host.
pub(super) struct NameDecider {
    names: Arc<OnDemand>,
    settings: DemandSettings,
    records: Records,
    jobs: mpsc::UnboundedSender<DemandJob>,
    client: Result<Client, String>,
    table: RefCell<Table>,
    asking: RefCell<QueryLimit>,
    orders: RefCell<Bucket>,
    /// Names of this host with certificates in the [`Store`].
    kept: RefCell<HashSet<String>>,
    /// Names whose first order is in progress.
    ordering: RefCell<HashSet<String>>,
    /// Time of the next check of each certificate in memory.
    looks: RefCell<HashMap<String, Instant>>,
    /// Names that are being checked or renewed, and the number that waits for a check or is in one.
    under_way: RefCell<HashSet<String>>,
    waiting: Cell<usize>,
    looking: Semaphore,
    renewing: Semaphore,
    /// Names of the [`Store`] that the present sweep has not checked yet.
    sweep: RefCell<VecDeque<String>>,
    /// Names without use, and the time since which that has been seen.
    over: RefCell<HashMap<String, Instant>>,
    warned: RefCell<HashMap<Warning, Instant>>,
}

/// Kinds of warnings that unknown clients can cause. Each is throttled separately, so that none silences another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Warning {
    Undecided,
    Most,
    Orders,
    Store,
    Renewal,
}

/// Result of looking up a name in the [`Store`].
enum Stored {
    Shown,
    Nothing,
    /// The `Store` cannot be read; the name may have certificates.
    Unreadable,
}

/// Runs a closure when dropped, also while a panic unwinds.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl NameDecider {
    pub(super) fn new(host: OnDemandHost, records: Records, jobs: mpsc::UnboundedSender<DemandJob>) -> Self {
        let now = Instant::now();
        let destinations = Destinations::default().with_url(&host.settings.ask);
        let settings = ClientSettings { destinations, ..ClientSettings::default() };
        let client = Client::new(&settings).map_err(|error| error.to_string());
        let orders = Bucket::new(host.settings.orders, now);
        Self {
            names: host.names,
            settings: host.settings,
            records,
            jobs,
            client,
            table: RefCell::default(),
            asking: RefCell::new(QueryLimit::new(now)),
            orders: RefCell::new(orders),
            kept: RefCell::default(),
            ordering: RefCell::default(),
            looks: RefCell::default(),
            under_way: RefCell::default(),
            waiting: Cell::new(0),
            looking: Semaphore::new(CHECKS),
            renewing: Semaphore::new(RENEWALS),
            sweep: RefCell::default(),
            over: RefCell::default(),
            warned: RefCell::default(),
        }
    }

    /// Answers names from handshakes until the task is dropped.
    pub(super) async fn run(self: Rc<Self>) {
        self.compare().await;
        let keeping = async {
            loop {
                sleep(TICK).await;
                self.look_over();
            }
        };
        let comparing = async {
            loop {
                sleep(COMPARE).await;
                self.compare().await;
                self.sweep().await;
            }
        };
        let answering = async {
            while let Some(question) = self.names.question().await {
                self.take(question);
            }
        };
        tokio::join!(keeping, comparing, answering);
    }

    /// Accepts a name from a handshake. Never waits.
    fn take(self: &Rc<Self>, question: NameRequest) {
        let NameRequest { name, client, answer } = question;
        let now = Instant::now();
        if let Some(served) = self.names.shown(&name) {
            // The certificate arrived while the handshake was queued.
            let _ = answer.send(served);
            return;
        }
        let mut waiter = Some(answer);
        if self.table.borrow_mut().join(&name, &mut waiter, now) == NameLookup::Handled {
            return;
        }
        let is_kept = self.kept.borrow().contains(&name);
        if !is_kept && !self.asking.borrow_mut().allows(client, now) {
            return;
        }
        if self.table.borrow_mut().begin(&name, waiter, is_kept) {
            let own = Rc::clone(self);
            spawn_local(async move {
                // Reached without a decision only after a panic.
                let _decided = OnDrop(|| {
                    if own.table.borrow().is_busy(&name) {
                        own.refuse(&name, UNKNOWN);
                    }
                });
                own.decide(&name, client, is_kept).await;
            });
        }
    }

    /// Decides whether `name` is served, and orders its certificate if needed.
    async fn decide(self: &Rc<Self>, name: &str, client: Option<IpAddr>, is_kept: bool) {
        if is_kept && self.is_settled(name).await {
            return;
        }
        match self.ask(name, client).await {
            Decision::Accepted => {}
            Decision::Rejected => {
                tracing::debug!(name, "the operator's server rejects the name");
                return self.refuse(name, NO);
            }
            Decision::Unknown(reason) => {
                self.warn(Warning::Undecided, || {
                    let ask = without_secrets(&self.settings.ask);
                    tracing::warn!(name, reason, ask, "names on demand cannot be decided");
                });
                return self.refuse(name, UNKNOWN);
            }
        }
        // Another gateway may have obtained it.
        if !is_kept && self.is_settled(name).await {
            return;
        }
        // The pause after a failed order is respected before a token is taken, so that a failing name does not use the
        // tokens of others.
        match self.job(name, DemandTask::Look).await {
            Outcome::Failed(_) => return self.refuse(name, UNKNOWN),
            Outcome::Due(at) | Outcome::Missing(at) => {
                if let Ok(rest) = at.duration_since(SystemTime::now()) {
                    return self.refuse(name, rest.clamp(UNKNOWN, FAILED));
                }
            }
        }
        match self.admit(name) {
            Ok(()) => self.obtain(name).await,
            Err(pause) => self.refuse(name, pause),
        }
    }

    /// Returns whether the [`Store`] alone decides: it has a certificate, or it cannot be read, which refuses the name
    /// for a short time.
    async fn is_settled(self: &Rc<Self>, name: &str) -> bool {
        match self.show(name).await {
            Stored::Shown => true,
            Stored::Nothing => false,
            Stored::Unreadable => {
                self.refuse(name, UNKNOWN);
                true
            }
        }
    }

    /// Takes a token for the first order of a name.
    ///
    /// # Errors
    ///
    /// The time for which the name is to be refused.
    fn admit(&self, name: &str) -> Result<(), Duration> {
        let kept = self.kept.borrow();
        if !kept.contains(name) && kept.len() + self.ordering.borrow().len() >= self.settings.most {
            let most = self.settings.most;
            self.warn(Warning::Most, || {
                tracing::warn!(name, most, "limit of on-demand names reached; the name is refused");
            });
            return Err(COMPARE);
        }
        self.orders.borrow_mut().take(Instant::now()).map_err(|pause| {
            self.warn(Warning::Orders, || {
                tracing::warn!(name, "rate limit of on-demand orders reached; the name is refused for now");
            });
            pause.clamp(Duration::from_secs(1), FAILED)
        })
    }

    async fn ask(&self, name: &str, client: Option<IpAddr>) -> Decision {
        match &self.client {
            Ok(http) => ask(http, &self.settings.ask, name, client).await,
            Err(error) => Decision::Unknown(error.clone()),
        }
    }

    /// Orders a certificate that was [admitted](Self::admit) and presents it.
    async fn obtain(self: &Rc<Self>, name: &str) {
        let is_new = !self.kept.borrow().contains(name);
        if is_new {
            self.ordering.borrow_mut().insert(name.to_owned());
        }
        let _ordered = OnDrop(|| {
            self.ordering.borrow_mut().remove(name);
        });
        // Stored before the order, so that [`sweep`](Self::sweep) finds the name and removes its traces later.
        if is_new && !self.has_written(name, Records::put_tried).await {
            self.orders.borrow_mut().give_back();
            return self.refuse(name, UNKNOWN);
        }
        let outcome = self.job(name, DemandTask::Obtain).await;
        if matches!(outcome, Outcome::Due(_)) {
            self.names.count_obtained();
        }
        // Checked for every outcome: one kind of key may have succeeded where another failed.
        if let Stored::Shown = self.show(name).await {
            return;
        }
        let (Outcome::Missing(until) | Outcome::Failed(until)) = outcome else {
            return self.refuse(name, UNKNOWN);
        };
        if let Some(reason) = self.last_error(name).await {
            self.names.note_failure(name, &reason);
        }
        let pause = until.duration_since(SystemTime::now()).unwrap_or_default();
        self.refuse(name, pause.clamp(UNKNOWN, FAILED));
    }

    /// Reads the error of the last order for `name`, or the error of the [`Store`].
    async fn last_error(&self, name: &str) -> Option<String> {
        let (records, wanted) = (self.records.clone(), self.settings.wanted(name));
        let read = move || {
            wanted.keys.iter().find_map(|kind| match records.status(wanted.name(), *kind) {
                Ok(status) => status.last_error,
                Err(error) => Some(error.to_string()),
            })
        };
        // An error means that the closure panicked; the panic is in the log.
        spawn_blocking(read).await.ok().flatten()
    }

    async fn job(&self, name: &str, task: DemandTask) -> Outcome {
        let (done, outcome) = oneshot::channel();
        let sent = self.jobs.send(DemandJob { wanted: self.settings.wanted(name), task, done });
        let failed = Outcome::Failed(SystemTime::now() + UNKNOWN);
        if sent.is_err() { failed } else { outcome.await.unwrap_or(failed) }
    }

    /// Presents the stored certificates for `name` to the handshakes that wait for it.
    async fn show(self: &Rc<Self>, name: &str) -> Stored {
        let Loaded { certificates, keys, .. } = match self.stored(name).await {
            None => return Stored::Unreadable,
            Some(None) => return Stored::Nothing,
            Some(Some(loaded)) => loaded,
        };
        let Some(served) = self.names.put(name, certificates, keys) else { return Stored::Unreadable };
        self.looks.borrow_mut().insert(name.to_owned(), Instant::now());
        self.table.borrow_mut().answer(name, &served);
        self.keep(name);
        Stored::Shown
    }

    /// Notes in the [`Store`] that `name` has a certificate. Runs in the background, because a handshake must not wait
    /// for a write.
    fn keep(self: &Rc<Self>, name: &str) {
        if self.kept.borrow().contains(name) {
            return;
        }
        let (own, name) = (Rc::clone(self), name.to_owned());
        spawn_local(async move {
            let put = |records: &Records, name: &str| {
                records.put_demanded(name)?;
                records.end_tried(name)
            };
            // A failed write is repeated at the next check.
            if own.has_written(&name, put).await {
                own.kept.borrow_mut().insert(name);
            }
        });
    }

    /// Writes to the [`Store`] on a blocking thread. Returns whether it succeeded.
    async fn has_written(
        &self,
        name: &str,
        write: impl FnOnce(&Records, &str) -> Result<(), AcmeError> + Send + 'static,
    ) -> bool {
        let (records, own) = (self.records.clone(), name.to_owned());
        match spawn_blocking(move || write(&records, &own)).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                self.warn(Warning::Store, || tracing::warn!(name, %error, "cannot store an on-demand name"));
                false
            }
            // The closure panicked; the panic is in the log.
            Err(_) => false,
        }
    }

    /// Reads the stored certificates of `name`. The outer `None` means that the [`Store`] cannot be read.
    async fn stored(&self, name: &str) -> Option<Option<Loaded>> {
        let (records, wanted) = (self.records.clone(), self.settings.wanted(name));
        match spawn_blocking(move || load(&records, &wanted)).await {
            Ok(Ok(found)) => Some(found),
            Ok(Err(error)) => {
                self.warn(Warning::Store, || {
                    tracing::warn!(name, %error, "cannot publish stored certificates");
                });
                None
            }
            // The closure panicked; the panic is in the log.
            Err(_) => None,
        }
    }

    fn refuse(&self, name: &str, pause: Duration) {
        self.table.borrow_mut().refuse(name, pause, Instant::now());
    }

    fn warn(&self, kind: Warning, write: impl FnOnce()) {
        let now = Instant::now();
        let last = self.warned.borrow().get(&kind).copied();
        if last.is_none_or(|last| now.duration_since(last) >= WARNINGS) {
            self.warned.borrow_mut().insert(kind, now);
            write();
        }
    }
}

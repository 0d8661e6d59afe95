//! Decides on what handshakes of one host ask for, and looks after what is in memory for it.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brisk_certs::on_demand::Question;
use brisk_certs::{OnDemand, Served};
use brisk_fetch::{Client, ClientSettings};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{spawn_blocking, spawn_local};
use tokio::time::{Instant, sleep};

use super::ask::{Answer, ask};
use super::job::{Job, Outcome, Task};
use super::limits::{Asking, Bucket};
use super::load::{Loaded, forget_ended, load};
use super::table::{Next, Table};
use super::{DemandSettings, DemandedHost};
use crate::attempt::rfc3339;
use crate::records::Records;
use crate::renewal::random_below;

/// How long a name is refused that the operator's server has refused.
const NO: Duration = Duration::from_mins(5);

/// How long a name is refused about which it said nothing.
const UNKNOWN: Duration = Duration::from_secs(10);

/// How long a name is refused whose order has failed, at most: the next attempt is the order's own to time.
const FAILED: Duration = Duration::from_mins(10);

/// How often what is in memory is looked over, and names of others are looked for.
const TICK: Duration = Duration::from_secs(5);
const COMPARE: Duration = Duration::from_mins(1);

/// How often a certificate that is used is looked at, and how long after its last use it is.
const LOOK: Duration = Duration::from_hours(1);
const USED: Duration = Duration::from_hours(48);

/// Certificates that are looked at in a tick, and at a time.
const LOOKS: usize = 50;
const LOOKING: usize = 4;

/// Names that are looked at in a minute, whether they ended long ago.
const SWEPT: usize = 20;

/// The least time between two warnings of one kind: strangers may cause them.
const WARNINGS: Duration = Duration::from_mins(1);

/// What decides for one host.
pub(super) struct Intake {
    names: Arc<OnDemand>,
    settings: DemandSettings,
    records: Records,
    jobs: mpsc::UnboundedSender<Job>,
    client: Result<Client, String>,
    table: RefCell<Table>,
    asking: RefCell<Asking>,
    orders: RefCell<Bucket>,
    /// The names that have certificates in the store.
    kept: RefCell<HashSet<String>>,
    /// When what is in memory is looked at next.
    looks: RefCell<HashMap<String, Instant>>,
    looking: Semaphore,
    /// Names of the store that are still to be looked at in this round.
    sweep: RefCell<VecDeque<String>>,
    warned: Cell<Option<Instant>>,
}

impl Intake {
    pub(super) fn new(host: DemandedHost, records: Records, jobs: mpsc::UnboundedSender<Job>) -> Self {
        let now = Instant::now();
        let client = Client::new(&ClientSettings::default()).map_err(|error| error.to_string());
        let orders = Bucket::new(host.settings.orders, now);
        Self {
            names: host.names,
            settings: host.settings,
            records,
            jobs,
            client,
            table: RefCell::default(),
            asking: RefCell::new(Asking::new(now)),
            orders: RefCell::new(orders),
            kept: RefCell::default(),
            looks: RefCell::default(),
            looking: Semaphore::new(LOOKING),
            sweep: RefCell::default(),
            warned: Cell::new(None),
        }
    }

    /// Answers what is asked, until it is dropped.
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

    /// Takes a question. Waits for nothing.
    fn take(self: &Rc<Self>, question: Question) {
        let Question { name, client, answer } = question;
        let now = Instant::now();
        if let Some(served) = self.names.shown(&name) {
            // It was put there while this waited.
            let _ = answer.send(served);
            return;
        }
        let mut waiter = Some(answer);
        if self.table.borrow_mut().join(&name, &mut waiter, now) == Next::Done {
            return;
        }
        let is_kept = self.kept.borrow().contains(&name);
        if !is_kept && !self.asking.borrow_mut().may(client, now) {
            return;
        }
        if self.table.borrow_mut().begin(&name, waiter) {
            let own = Rc::clone(self);
            spawn_local(async move { own.decide(&name, client, is_kept).await });
        }
    }

    /// Whether `name` is served, and by what.
    async fn decide(&self, name: &str, client: Option<IpAddr>, is_kept: bool) {
        if is_kept && self.is_loaded(name).await {
            return;
        }
        match self.ask(name, client).await {
            Answer::Yes => {}
            Answer::No => {
                tracing::debug!(name, "the server that decides on names refuses it");
                return self.refuse(name, NO);
            }
            Answer::Unknown(reason) => {
                self.warn(|| {
                    tracing::warn!(
                        name,
                        reason,
                        ask = self.settings.ask,
                        "names on demand cannot be decided"
                    );
                });
                return self.refuse(name, UNKNOWN);
            }
        }
        // Another gateway may have it.
        if !is_kept && self.is_loaded(name).await {
            return;
        }
        // The pause after an order that has failed is kept, and takes no other name's place.
        if let Outcome::Due(at) = self.job(name, Task::Look).await
            && let Ok(rest) = at.duration_since(SystemTime::now())
        {
            return self.refuse(name, rest.clamp(UNKNOWN, FAILED));
        }
        match self.admit(name) {
            Ok(()) => self.obtain(name).await,
            Err(pause) => self.refuse(name, pause),
        }
    }

    /// Whether a certificate may be ordered for a name that has none; if not, how long it is refused.
    fn admit(&self, name: &str) -> Result<(), Duration> {
        let kept = self.kept.borrow();
        if !kept.contains(name) && kept.len() + self.table.borrow().busy() > self.settings.most {
            let most = self.settings.most;
            self.warn(|| {
                tracing::warn!(name, most, "as many names on demand as there may be: it is refused");
            });
            return Err(COMPARE);
        }
        self.orders.borrow_mut().take(Instant::now()).map_err(|pause| {
            self.warn(|| tracing::warn!(name, "as many orders on demand as there may be: it waits"));
            pause.clamp(Duration::from_secs(1), FAILED)
        })
    }

    async fn ask(&self, name: &str, client: Option<IpAddr>) -> Answer {
        match &self.client {
            Ok(http) => ask(http, &self.settings.ask, name, client).await,
            Err(error) => Answer::Unknown(error.clone()),
        }
    }

    /// Orders a certificate, and shows it.
    async fn obtain(&self, name: &str) {
        let until = match self.job(name, Task::Obtain).await {
            Outcome::Due(_) => {
                self.names.count_obtained();
                if self.is_loaded(name).await {
                    return;
                }
                SystemTime::now()
            }
            Outcome::Failed(until) => until,
        };
        let pause = until.duration_since(SystemTime::now()).unwrap_or_default();
        self.refuse(name, pause.clamp(UNKNOWN, FAILED));
    }

    async fn job(&self, name: &str, task: Task) -> Outcome {
        let (done, outcome) = oneshot::channel();
        let sent = self.jobs.send(Job { wanted: self.settings.wanted(name), task, done });
        let failed = Outcome::Failed(SystemTime::now() + UNKNOWN);
        if sent.is_err() { failed } else { outcome.await.unwrap_or(failed) }
    }

    /// Shows what the store has for `name`, and answers those who wait for it. Whether it has anything.
    async fn is_loaded(&self, name: &str) -> bool {
        let Some(Some(Loaded { certificates, keys, .. })) = self.stored(name).await else { return false };
        let Some(served) = self.names.put(name, certificates, keys) else { return false };
        self.looks.borrow_mut().insert(name.to_owned(), Instant::now());
        if self.kept.borrow_mut().insert(name.to_owned()) {
            let (records, own) = (self.records.clone(), name.to_owned());
            if let Ok(Err(error)) = spawn_blocking(move || records.put_demanded(&own)).await {
                tracing::warn!(name, %error, "after a restart it is asked about again");
            }
        }
        self.table.borrow_mut().answer(name, &served);
        true
    }

    /// What the store has for `name`. The outer `None`: it cannot be read.
    async fn stored(&self, name: &str) -> Option<Option<Loaded>> {
        let (records, wanted) = (self.records.clone(), self.settings.wanted(name));
        match spawn_blocking(move || load(&records, &wanted)).await {
            Ok(Ok(found)) => Some(found),
            Ok(Err(error)) => {
                self.warn(|| tracing::warn!(name, %error, "certificates of the store are not shown"));
                None
            }
            // Of a defect, which has said where it was.
            Err(_) => None,
        }
    }

    fn refuse(&self, name: &str, pause: Duration) {
        self.table.borrow_mut().refuse(name, pause, Instant::now());
    }

    /// Drops what no client has asked for lately, and looks at what is in use.
    fn look_over(self: &Rc<Self>) {
        let now = Instant::now();
        let mut begun = 0;
        for (name, idle) in self.names.in_memory() {
            if idle > USED {
                self.names.drop_shown(&name);
                self.looks.borrow_mut().remove(&name);
                continue;
            }
            let is_due = self.looks.borrow().get(&name).is_none_or(|at| *at <= now);
            if is_due && begun < LOOKS {
                begun += 1;
                let spread = Duration::from_secs(random_below(LOOK.as_secs() / 10));
                self.looks.borrow_mut().insert(name.clone(), now + LOOK + spread);
                let own = Rc::clone(self);
                spawn_local(async move { own.look_at(&name).await });
            }
        }
    }

    /// Renews what is due, if the name is still served, and shows what another gateway has renewed.
    async fn look_at(&self, name: &str) {
        let _place = self.looking.acquire().await.expect("it is never closed");
        if let Outcome::Due(at) = self.job(name, Task::Look).await
            && at <= SystemTime::now()
        {
            match self.ask(name, None).await {
                Answer::Yes => drop(self.job(name, Task::Obtain).await),
                Answer::No => tracing::info!(name, "its certificate is not renewed: the name is refused now"),
                Answer::Unknown(reason) => {
                    self.warn(|| tracing::warn!(name, reason, "its renewal cannot be decided on"));
                }
            }
        }
        // What cannot be read now has not gone.
        let Some(stored) = self.stored(name).await else { return };
        let Some(Loaded { certificates, keys, ends }) = stored else {
            // Nothing valid any more: the next handshake has it asked about.
            self.looks.borrow_mut().remove(name);
            return self.names.drop_shown(name);
        };
        let Some(shown) = self.names.peek(name) else { return };
        let is_same = |one: &Served| certificates.iter().any(|own| own.chain == one.certificate.chain);
        if !shown.iter().all(is_same) {
            self.names.replace(name, certificates, keys);
            tracing::info!(name, ends = rfc3339(ends), "new handshakes are shown a renewed certificate");
        }
    }

    /// Learns which names have certificates, of this gateway or another.
    async fn compare(&self) {
        let records = self.records.clone();
        match spawn_blocking(move || records.demanded()).await {
            Ok(Ok(names)) => self.kept.borrow_mut().extend(names),
            Ok(Err(error)) => self.warn(|| tracing::warn!(%error, "names on demand are not known")),
            Err(_) => {}
        }
    }

    /// Forgets names whose certificates ended long ago, a few at a time.
    async fn sweep(&self) {
        if self.sweep.borrow().is_empty() {
            let kept = self.kept.borrow();
            self.sweep.replace(kept.iter().cloned().collect());
        }
        for _ in 0..SWEPT {
            let Some(name) = self.sweep.borrow_mut().pop_front() else { return };
            let (records, own) = (self.records.clone(), name.clone());
            let forgotten = spawn_blocking(move || forget_ended(&records, &own, SystemTime::now())).await;
            if let Ok(Ok(true)) = forgotten {
                self.kept.borrow_mut().remove(&name);
                tracing::info!(name, "its certificate ended long ago: the name is forgotten");
            }
        }
    }

    fn warn(&self, write: impl FnOnce()) {
        let now = Instant::now();
        if self.warned.get().is_none_or(|last| now.duration_since(last) >= WARNINGS) {
            self.warned.set(Some(now));
            write();
        }
    }
}

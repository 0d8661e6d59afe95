//! [`Visits`], the handle through which workers record visits.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use brisk_telemetry::metrics::Collector;
use crossbeam_channel::{Sender, bounded};

use crate::clock::unix_seconds;
use crate::experiment::{Definitions, Experiment, ExperimentId, NOT_COMPARED};
use crate::figures::{Figures, VisitsCollector};
use crate::marks;
use crate::network::Network;
use crate::pages::Pages;
use crate::reader::Reader;
use crate::sequential::Decision;
use crate::settings::Settings;
use crate::shared::{Asked, Shared};
use crate::visit::Visit;
use crate::writer::Writer;

/// Capacity of the queue to the writer thread; visits beyond it are dropped.
const QUEUE: usize = 16_384;
/// Queue length at which the writer thread is woken.
const MANY: usize = QUEUE / 4;
/// Capacity of the queue of other messages, which are rare.
const ASKED: usize = 64;

/// State of the store of [`Visits`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Visits accepted.
    pub recorded: u64,
    /// Visits lost because the queue was full or the database could not be written.
    pub dropped: u64,
    /// Size of the database in bytes.
    pub bytes: u64,
    /// Reason for which visits are not stored now; `None` while they are.
    pub error: Option<String>,
}

/// Records visits. Cheap to clone. After the last clone is dropped, a thread writes the queued visits and ends with
/// the process; call [`close`](Self::close) to wait for it.
#[derive(Debug, Clone, Default)]
pub struct Visits(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    folder: Arc<Path>,
    queue: Sender<Visit>,
    asked: Sender<Asked>,
    shared: Arc<Shared>,
    /// Serializes queries that need much memory.
    turn: Arc<Mutex<()>>,
}

impl Visits {
    /// Stores visits in `folder`, which is created if missing. A separate thread opens the database; on failure it
    /// logs the reason, reports it in [`status`](Self::status) and retries.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
    pub fn open(folder: &Path, settings: Settings) -> io::Result<Self> {
        let (queue, visits) = bounded(QUEUE);
        let (asked, questions) = bounded(ASKED);
        let shared = Arc::new(Shared {
            settings: ArcSwap::from_pointee(settings),
            definitions: Definitions::default(),
            recorded: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            error: Mutex::new(None),
            figures: Figures::default(),
            pages: Pages::default(),
            decisions: ArcSwap::default(),
        });
        let folder: Arc<Path> = folder.into();
        let writer = Writer::new(Arc::clone(&folder), Arc::clone(&shared));
        thread::Builder::new().name("visits".to_owned()).spawn(move || writer.run(&visits, &questions))?;
        Ok(Self(Some(Arc::new(Inner { folder, queue, asked, shared, turn: Arc::default() }))))
    }

    /// Creates a handle that discards all visits.
    pub fn off() -> Self {
        Self(None)
    }

    /// Whether visits are stored.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Replaces the [`Settings`].
    pub fn update(&self, settings: Settings) {
        if let Some(inner) = &self.0 {
            // Replaced as a whole: workers read the settings for each page view without a lock.
            inner.shared.settings.store(Arc::new(settings));
        }
    }

    /// [`Settings::share`] of page views to measure, 0 to 1.
    pub fn share(&self) -> f64 {
        self.0.as_ref().map_or(0.0, |inner| inner.shared.settings.load().share)
    }

    /// Records a visit. Never blocks: if the writer thread is behind, the visit is dropped and counted. Rarely wakes
    /// that thread, which collects visits at intervals.
    pub fn record(&self, visit: Visit) {
        let Some(inner) = &self.0 else { return };
        let is_closed = inner.shared.is_closed.load(Ordering::Relaxed);
        // A visit in the queue after the last write would be lost without being counted.
        let taken = !is_closed && inner.queue.try_send(visit).is_ok();
        let counter = if taken { &inner.shared.recorded } else { &inner.shared.dropped };
        counter.fetch_add(1, Ordering::Relaxed);
        // One message is enough, and the queue must keep room for the other messages.
        if inner.queue.len() >= MANY && inner.asked.is_empty() {
            let _ = inner.asked.try_send(Asked::Gather);
        }
    }

    /// The [`Network`] of a client at `address`, by [`Settings::networks`].
    pub fn network(&self, address: IpAddr) -> Network {
        let inner = self.0.as_ref();
        inner.map_or(Network::UNKNOWN, |inner| inner.shared.settings.load().networks.find(address))
    }

    /// The name of the page at `path` of `host`, for [`Visit::page`]. The number of pages is limited, with a share for
    /// each host; `may_add` is asked before a new one is added. `None` is any other page. Takes a lock for a short time.
    pub fn page(&self, host: &str, path: &str, may_add: impl FnOnce() -> bool) -> Option<Arc<str>> {
        self.0.as_ref()?.shared.pages.name(host, path, may_add)
    }

    /// Sets the experiments of the configuration and returns their ids in the same order. Previous experiments that
    /// are not in `experiments` end; a configuration without any passes an empty slice. An unchanged definition keeps
    /// its id; one that was changed, or removed and added again, starts anew.
    pub fn define(&self, experiments: &[Experiment]) -> Vec<ExperimentId> {
        let Some(inner) = &self.0 else { return vec![NOT_COMPARED; experiments.len()] };
        let ids = inner.shared.definitions.define(experiments);
        inner.shared.figures.forget_arms(&inner.shared.definitions);
        // If the queue is full, the next regular update finds the change.
        let _ = inner.asked.try_send(Asked::Defined);
        ids
    }

    /// Whether connections should take part in an experiment: it is compared and not decided. `false` until the
    /// decision was read from the database, so that a decision applies from the first connection after a restart.
    /// Costs a hash lookup.
    pub fn is_running(&self, experiment: ExperimentId) -> bool {
        let shared = self.0.as_ref().map(|inner| &inner.shared);
        shared.is_some_and(|shared| matches!(shared.decisions.load().get(&experiment), Some(None)))
    }

    /// The decision on an experiment, if any; then no connection should take part in it.
    pub fn decision(&self, experiment: ExperimentId) -> Option<Decision> {
        self.0.as_ref()?.shared.decisions.load().get(&experiment).copied().flatten()
    }

    /// Marks a reload of the configuration. A failure is logged: it concerns charts only.
    pub fn mark_reload(&self) {
        let Some(inner) = &self.0 else { return };
        if let Err(error) = marks::add_reload(&inner.folder, unix_seconds()) {
            tracing::warn!("the reload is not marked in the charts of visits: {error}");
        }
    }

    /// Metrics of the store, for [`Metrics::register`](brisk_telemetry::Metrics::register); `None` if visits are not
    /// stored.
    pub fn collector(&self) -> Option<impl Collector> {
        self.0.as_ref().map(|inner| VisitsCollector(Arc::clone(&inner.shared)))
    }

    /// A reader of the database; `None` if visits are not stored.
    pub fn reader(&self) -> Option<Reader> {
        self.0.as_ref().map(|inner| Reader::new(&inner.folder, &inner.turn, &inner.shared))
    }

    /// Writes all visits recorded so far and blocks until this is done, at most for `timeout`. Returns whether they
    /// are in the database.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.ask(Asked::Flush, timeout)
    }

    /// Like [`flush`](Self::flush), and closes the database: later visits are dropped. For the end of the process.
    pub fn close(&self, timeout: Duration) -> bool {
        self.ask(Asked::Close, timeout)
    }

    fn ask(&self, question: fn(Sender<bool>) -> Asked, timeout: Duration) -> bool {
        let Some(inner) = &self.0 else { return true };
        // One deadline for the queue and the reply together.
        let deadline = Instant::now() + timeout;
        let (reply, done) = bounded(1);
        inner.asked.send_deadline(question(reply), deadline).is_ok()
            && done.recv_deadline(deadline).unwrap_or(false)
    }

    /// The current [`Status`] of the store.
    pub fn status(&self) -> Status {
        let shared = self.0.as_ref().map(|inner| &inner.shared);
        let load =
            |of: fn(&Shared) -> &AtomicU64| shared.map_or(0, |shared| of(shared).load(Ordering::Relaxed));
        Status {
            recorded: load(|shared| &shared.recorded),
            dropped: load(|shared| &shared.dropped),
            bytes: load(|shared| &shared.bytes),
            error: shared
                .and_then(|shared| shared.error.lock().unwrap_or_else(PoisonError::into_inner).clone()),
        }
    }
}

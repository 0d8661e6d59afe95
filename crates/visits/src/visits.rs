//! The handle that takes visits from workers.

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

use crate::experiment::{Definitions, Experiment, ExperimentId};
use crate::figures::{Figures, VisitsCollector};
use crate::network::Network;
use crate::reader::Reader;
use crate::sequential::Decision;
use crate::settings::Settings;
use crate::shared::{Asked, Shared};
use crate::visit::Visit;
use crate::writer::Writer;

/// Visits that wait for the writing thread; the next one is dropped.
const QUEUE: usize = 16_384;
/// That many are not left to gather.
const MANY: usize = QUEUE / 4;
/// What the thread is asked beside; that is rare.
const ASKED: usize = 64;

/// What the store is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Visits taken.
    pub recorded: u64,
    /// Visits that were lost: the queue was full, or the database could not be written.
    pub dropped: u64,
    /// Bytes of the database.
    pub bytes: u64,
    /// Why visits are not stored now.
    pub error: Option<String>,
}

/// Takes visits and keeps them. Cheap to clone. When the last clone is dropped, what is queued is written, by a thread that ends
/// with the process: at its end [`close`](Self::close) waits for that.
#[derive(Debug, Clone, Default)]
pub struct Visits(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    folder: Arc<Path>,
    queue: Sender<Visit>,
    asked: Sender<Asked>,
    shared: Arc<Shared>,
    /// One at a time asks what takes much memory.
    turn: Arc<Mutex<()>>,
}

impl Visits {
    /// Keeps visits in `folder`, which is made if it is not there. The database is opened by a thread of its own; where that
    /// fails, the reason is logged and in [`status`](Self::status), and is tried again. Fails if there can be no thread.
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
            decisions: ArcSwap::default(),
        });
        let folder: Arc<Path> = folder.into();
        let writer = Writer::new(Arc::clone(&folder), Arc::clone(&shared));
        thread::Builder::new().name("visits".to_owned()).spawn(move || writer.run(&visits, &questions))?;
        Ok(Self(Some(Arc::new(Inner { folder, queue, asked, shared, turn: Arc::default() }))))
    }

    /// Keeps nothing.
    pub fn off() -> Self {
        Self(None)
    }

    /// Whether visits are kept.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Replaces the settings.
    pub fn update(&self, settings: Settings) {
        if let Some(inner) = &self.0 {
            inner.shared.settings.store(Arc::new(settings));
        }
    }

    /// The share of page views that are to be measured, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.0.as_ref().map_or(0.0, |inner| inner.shared.settings.load().share)
    }

    /// Takes a visit. Never waits: where the writing thread is behind, the visit is dropped and counted. Seldom wakes that
    /// thread, which lets visits gather.
    pub fn record(&self, visit: Visit) {
        let Some(inner) = &self.0 else { return };
        let is_closed = inner.shared.is_closed.load(Ordering::Relaxed);
        let taken = !is_closed && inner.queue.try_send(visit).is_ok();
        let counter = if taken { &inner.shared.recorded } else { &inner.shared.dropped };
        counter.fetch_add(1, Ordering::Relaxed);
        if inner.queue.len() >= MANY && inner.asked.is_empty() {
            let _ = inner.asked.try_send(Asked::Gather);
        }
    }

    /// The network of a client at `address`.
    pub fn network(&self, address: IpAddr) -> Network {
        let inner = self.0.as_ref();
        inner.map_or(Network::UNKNOWN, |inner| inner.shared.settings.load().networks.find(address))
    }

    /// Makes the experiments of the configuration known, all of them, and returns their ids in the same order. Those that were
    /// there and are not among these end, so that a configuration without any calls it with none. The same definition has the same id while it
    /// stays; one that was changed, or was away, is compared anew.
    pub fn define(&self, experiments: &[Experiment]) -> Vec<ExperimentId> {
        let Some(inner) = &self.0 else { return vec![ExperimentId::NONE; experiments.len()] };
        let ids = inner.shared.definitions.define(experiments);
        inner.shared.figures.forget_arms(&inner.shared.definitions);
        // Where too much is asked they are looked for a little later.
        let _ = inner.asked.try_send(Asked::Defined);
        ids
    }

    /// Whether connections are to be drawn for an experiment: it is compared, and not decided. Not before the database was asked
    /// whether it is, so that a decision holds from the first connection after a restart on. Costs a look into a table.
    pub fn is_running(&self, experiment: ExperimentId) -> bool {
        let shared = self.0.as_ref().map(|inner| &inner.shared);
        shared.is_some_and(|shared| matches!(shared.decisions.load().get(&experiment), Some(None)))
    }

    /// The decision on an experiment, once there is one: then no connection should be drawn for it any more.
    pub fn decision(&self, experiment: ExperimentId) -> Option<Decision> {
        self.0.as_ref()?.shared.decisions.load().get(&experiment).copied().flatten()
    }

    /// The metrics of all of this, for [`Metrics::register`](brisk_telemetry::Metrics::register); `None` where nothing is kept.
    pub fn collector(&self) -> Option<impl Collector> {
        self.0.as_ref().map(|inner| VisitsCollector(Arc::clone(&inner.shared)))
    }

    /// What asks the database; `None` where there is none.
    pub fn reader(&self) -> Option<Reader> {
        self.0.as_ref().map(|inner| Reader::new(&inner.folder, &inner.turn, &inner.shared))
    }

    /// Has everything written that was recorded before, and waits for that until `timeout`. Returns whether it is in the
    /// database. Blocks.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.ask(Asked::Flush, timeout)
    }

    /// As [`flush`](Self::flush), and closes the database: what is recorded later is dropped. For the end of the process.
    pub fn close(&self, timeout: Duration) -> bool {
        self.ask(Asked::Close, timeout)
    }

    fn ask(&self, question: fn(Sender<bool>) -> Asked, timeout: Duration) -> bool {
        let Some(inner) = &self.0 else { return true };
        let deadline = Instant::now() + timeout;
        let (reply, done) = bounded(1);
        inner.asked.send_deadline(question(reply), deadline).is_ok()
            && done.recv_deadline(deadline).unwrap_or(false)
    }

    /// What the store is doing now.
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

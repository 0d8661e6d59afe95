//! Displayed data: one sample per second, and lists that are created on request.

mod connections;
mod history;
mod lists;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use brisk_certs::maintenance::Report;
use brisk_pressure::{Source, Work};
use brisk_telemetry::metrics::Reading;
use http::Response;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::{JoinError, spawn_blocking};

use crate::events::{EventStreams, Events, event};
use crate::responses::Body;
use crate::sources::Sources;
use crate::visitors::{self, QueryCache};
use history::History;
use lists::Page;

/// Time for which the list of certificates is reused. Creating it takes noticeable time with many certificates, and the
/// page requests it every 5 s.
const REPORTS_CACHED_FOR: Duration = Duration::from_secs(30);

/// Interval and age of stored readings, so that a new client receives the last minute too.
const KEEP_EACH: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_mins(1);

/// Data of one gateway, and the clients that receive its events.
pub(crate) struct Board {
    sources: Sources,
    // Cells suffice: one thread runs all tasks of the dashboard, and none holds a borrow across an await.
    history: RefCell<History>,
    /// Readings of the last minute, every [`KEEP_EACH`].
    past: RefCell<VecDeque<(Instant, Reading)>>,
    streams: RefCell<EventStreams>,
    reports: Mutex<Option<(Instant, Arc<[Report]>)>>,
    last: Cell<Instant>,
    queries: QueryCache,
    /// Start of the process, in ms since 1970. Clients do not compare counters of different processes.
    started: u64,
}

impl Board {
    pub(crate) fn new(sources: Sources) -> Self {
        let history = History::new(&sources.metrics.reading());
        Self {
            sources,
            history: history.into(),
            past: RefCell::default(),
            streams: RefCell::default(),
            reports: Mutex::default(),
            last: Cell::new(Instant::now()),
            queries: QueryCache::new(),
            started: unix_millis(SystemTime::now()),
        }
    }

    /// Takes a sample and sends it to all [`EventStreams`]. To be called once per second; without streams the call takes a
    /// few microseconds.
    pub(crate) fn tick(&self) {
        // Measured, because a tick may be late. A second that is assumed would show too high rates.
        let passed = self.last.replace(Instant::now()).elapsed();
        let reading = self.sources.metrics.reading();
        let workers = (self.sources.workers)();
        self.history.borrow_mut().add(unix_millis(SystemTime::now()), passed, &reading, &workers);
        let mut streams = self.streams.borrow_mut();
        if !streams.is_empty() {
            streams.send(&event(&self.present(&reading).to_string()));
        }
        self.keep(reading);
    }

    /// Stores a [`Reading`] every [`KEEP_EACH`].
    fn keep(&self, reading: Reading) {
        let mut past = self.past.borrow_mut();
        if past.back().is_none_or(|(kept, _)| kept.elapsed() >= KEEP_EACH) {
            past.push_back((Instant::now(), reading));
        }
        // One reading older than a minute is kept as the base for differences.
        while past.get(1).is_some_and(|(kept, _)| kept.elapsed() >= MINUTE) {
            past.pop_front();
        }
    }

    /// Opens an event stream that ends at `until`. `None` if there are [`MOST`](crate::events::MOST).
    pub(crate) fn join(&self, until: Option<Instant>) -> Option<Events> {
        let present = self.present(&self.sources.metrics.reading());
        self.streams.borrow_mut().join(event(&present.to_string()), until)
    }

    /// Rates of the last minutes, readings of the last minute, and whether the client has logged in.
    pub(crate) fn history(&self, login: bool) -> Value {
        let mut history = self.history.borrow().json();
        history["login"] = login.into();
        history["start"] = self.started.into();
        let past = self.past.borrow();
        let past = past.iter().map(
            |(kept, reading)| json!({ "ago": micros(kept.elapsed()) / 1000, "now": self.present(reading) }),
        );
        history["past"] = past.collect();
        history
    }

    /// Totals since the start, and the rates of the last second.
    fn present(&self, reading: &Reading) -> Value {
        let handshakes: Vec<_> = reading
            .handshakes
            .iter()
            .map(|kind| json!([kind.version, kind.group, kind.resumption, kind.count]))
            .collect();
        let named = |name: &'static str, count: u64| json!([name, count]);
        let failures: Vec<_> =
            reading.failures.iter().map(|(outcome, n)| named(outcome.name(), *n)).collect();
        let missed: Vec<_> =
            reading.resumption_failures.iter().map(|(reason, n)| named(reason.name(), *n)).collect();
        let early: Vec<_> = reading.early_data.iter().map(|(outcome, n)| named(outcome.name(), *n)).collect();
        json!({
            "start": self.started,
            "row": self.history.borrow().last(),
            "open": reading.open,
            "accepted": reading.accepted,
            "refused": reading.refused,
            "requests": reading.requests,
            "errors": reading.errors,
            "handshakes": handshakes,
            "failures": failures,
            "missed": missed,
            "early": early,
            "keys": self.keys(reading),
            "workers": self.workers(),
            "pressure": self.pressure(),
        })
    }

    /// The level of the overload with its number and its foremost source, refusals since the start, and all sources.
    fn pressure(&self) -> Value {
        let pressure = &self.sources.pressure;
        // Named here, so that a new source appears without a change of the page.
        let sources: Vec<_> =
            Source::ALL.iter().map(|source| json!([source.name(), pressure.value(*source)])).collect();
        let refused: Vec<_> =
            Work::ALL.iter().map(|work| json!([work.name(), pressure.refusals(*work)])).collect();
        json!({ "level": pressure.level().name(), "number": pressure.level().number(),
                "source": pressure.foremost().name(), "sources": sources, "refused": refused })
    }

    fn keys(&self, reading: &Reading) -> Value {
        let figures = self.sources.engines.figures();
        let operations: Vec<_> = reading
            .key_operations
            .iter()
            .map(|of| {
                json!({ "engine": of.engine, "algorithm": of.algorithm, "done": of.done, "failed": of.failed,
                        "wait": of.wait, "compute": of.compute })
            })
            .collect();
        let gathered: Vec<_> = figures
            .gathered
            .iter()
            .map(|of| json!([of.operation, of.in_lanes, of.alone, of.batches]))
            .collect();
        json!({ "waiting": figures.waiting, "batches": figures.batches, "gathered": gathered, "operations": operations })
    }

    fn workers(&self) -> Value {
        let worker = |load: crate::sources::WorkerLoad| {
            json!([(load.busy * 1000.0).round() / 1000.0, micros(load.delay), load.is_stuck])
        };
        (self.sources.workers)().into_iter().map(worker).collect()
    }

    /// The slowest connections of the last minutes, or with `latest` those that ended last.
    pub(crate) fn connections(&self, latest: bool) -> Value {
        let all = if latest { self.sources.sink.recent() } else { self.sources.sink.slowest() };
        connections::shown(&all)
    }

    /// Problems of the last minutes.
    pub(crate) fn problems(&self) -> Value {
        lists::problems(&self.sources.metrics.problems().latest())
    }

    /// Measured wait times of visitors.
    pub(crate) async fn visitors(&self, query: &str) -> Response<Body> {
        visitors::answer(&self.sources.visits, &self.queries, query).await
    }

    /// One page of the upstream servers whose names contain `text`.
    pub(crate) fn upstreams(&self, text: &str, page: usize) -> Value {
        lists::upstreams(self.sources.upstreams.readings(), &Page { text, page })
    }

    /// One page of the certificates whose names contain `text`. Runs on a blocking thread, since there may be 100,000
    /// of them.
    pub(crate) async fn certificates(&self, text: String, page: usize) -> Result<Value, JoinError> {
        let reports = self.reports().await?;
        let list = move || lists::certificates(&reports, SystemTime::now(), &Page { text: &text, page });
        spawn_blocking(list).await
    }

    async fn reports(&self) -> Result<Arc<[Report]>, JoinError> {
        // Held while a list is made: requests at the same time wait for that list instead of making their
        // own.
        let mut reports = self.reports.lock().await;
        if let Some((_, kept)) = reports.as_ref().filter(|(made, _)| made.elapsed() < REPORTS_CACHED_FOR) {
            return Ok(Arc::clone(kept));
        }
        let (maintenance, old) = (Arc::clone(&self.sources.maintenance), reports.take());
        let make = move || {
            // On the blocking thread too, since freeing 100,000 reports takes time.
            drop(old);
            Arc::from(lists::in_order(maintenance.report()))
        };
        let made: Arc<[Report]> = spawn_blocking(make).await?;
        *reports = Some((Instant::now(), Arc::clone(&made)));
        Ok(made)
    }

    /// Frees cached data that is too old to be used again.
    pub(crate) fn forget(&self) {
        self.queries.forget();
        // A locked list is in use and stays.
        let Ok(mut reports) = self.reports.try_lock() else { return };
        if reports.as_ref().is_some_and(|(made, _)| made.elapsed() >= REPORTS_CACHED_FOR) {
            let old = reports.take();
            spawn_blocking(move || drop(old));
        }
    }
}

/// Whole microseconds.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970.
fn unix_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

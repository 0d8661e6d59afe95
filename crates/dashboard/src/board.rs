//! What is shown: a sample each second, and lists that are made when they are asked for.

mod connections;
mod history;
mod lists;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use brisk_certs::care::Report;
use brisk_telemetry::metrics::Reading;
use http::Response;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::events::{Audience, Events, event};
use crate::responses::Body;
use crate::sources::Sources;
use crate::visitors;
use history::History;
use lists::Page;

/// How long a list of all certificates is used again: to make one takes a while where there are many.
const REPORTS_FOR: Duration = Duration::from_secs(5);

/// How often it is kept what was counted, and for how long: a client that begins to look sees the last minute too.
const KEEP_EACH: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_mins(1);

/// The facts of one gateway, and all who look at them.
pub(crate) struct Board {
    sources: Sources,
    history: RefCell<History>,
    /// What was counted in the last minute, now and then.
    past: RefCell<VecDeque<(Instant, Reading)>>,
    audience: RefCell<Audience>,
    reports: RefCell<Option<(Instant, Rc<[Report]>)>>,
    last: Cell<Instant>,
    /// For questions that take a while.
    turn: Semaphore,
}

impl Board {
    pub(crate) fn new(sources: Sources) -> Self {
        let history = History::new(&sources.metrics.reading());
        Self {
            sources,
            history: history.into(),
            past: RefCell::default(),
            audience: RefCell::default(),
            reports: RefCell::default(),
            last: Cell::new(Instant::now()),
            turn: Semaphore::new(1),
        }
    }

    /// Takes a sample, and sends it to who looks. To be called once a second; without an audience it costs some microseconds.
    pub(crate) fn tick(&self) {
        let passed = self.last.replace(Instant::now()).elapsed();
        let reading = self.sources.metrics.reading();
        self.history.borrow_mut().add(unix_millis(SystemTime::now()), passed, &reading);
        let mut audience = self.audience.borrow_mut();
        if !audience.is_empty() {
            audience.send(&event(&self.present(&reading).to_string()));
        }
        self.keep(reading);
    }

    /// Keeps what was counted until now, if it is time for that.
    fn keep(&self, reading: Reading) {
        let mut past = self.past.borrow_mut();
        if past.back().is_none_or(|(kept, _)| kept.elapsed() >= KEEP_EACH) {
            past.push_back((Instant::now(), reading));
        }
        // One that is older than a minute is what the others are compared with.
        while past.get(1).is_some_and(|(kept, _)| kept.elapsed() >= MINUTE) {
            past.pop_front();
        }
    }

    /// The events for one more who looks; `None` if there are too many.
    pub(crate) fn join(&self) -> Option<Events> {
        let present = self.present(&self.sources.metrics.reading());
        self.audience.borrow_mut().join(event(&present.to_string()))
    }

    /// The rates of the last minutes, what was counted in the last one, and whether who looks has logged in.
    pub(crate) fn history(&self, login: bool) -> Value {
        let mut history = self.history.borrow().json();
        history["login"] = login.into();
        let past = self.past.borrow();
        let past = past.iter().map(
            |(kept, reading)| json!({ "ago": micros(kept.elapsed()) / 1000, "now": self.present(reading) }),
        );
        history["past"] = past.collect();
        history
    }

    /// Totals since the start, and the last second's rates.
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
        })
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

    /// The connections of the last minutes that were slowest, or those that ended last.
    pub(crate) fn connections(&self, latest: bool) -> Value {
        let all = if latest { self.sources.sink.recent() } else { self.sources.sink.slowest() };
        connections::shown(&all)
    }

    /// What went wrong in the last minutes.
    pub(crate) fn problems(&self) -> Value {
        lists::problems(&self.sources.metrics.problems().latest())
    }

    /// What visitors waited for.
    pub(crate) async fn visitors(&self, query: &str) -> Response<Body> {
        visitors::answer(&self.sources.visits, &self.turn, query).await
    }

    /// One page of the upstream servers whose names hold `text`.
    pub(crate) fn upstreams(&self, text: &str, page: usize) -> Value {
        lists::upstreams(self.sources.metrics.upstream_readings(), &Page { text, page })
    }

    /// One page of the certificates with a name that holds `text`.
    pub(crate) fn certificates(&self, text: &str, page: usize) -> Value {
        lists::certificates(&self.reports(), SystemTime::now(), &Page { text, page })
    }

    fn reports(&self) -> Rc<[Report]> {
        let mut reports = self.reports.borrow_mut();
        if let Some((_, kept)) = reports.as_ref().filter(|(made, _)| made.elapsed() < REPORTS_FOR) {
            return Rc::clone(kept);
        }
        let made: Rc<[Report]> = self.sources.care.report().into();
        *reports = Some((Instant::now(), Rc::clone(&made)));
        made
    }

    /// Gives up what may not be asked for again.
    pub(crate) fn forget(&self) {
        let mut reports = self.reports.borrow_mut();
        if reports.as_ref().is_some_and(|(made, _)| made.elapsed() >= REPORTS_FOR) {
            *reports = None;
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

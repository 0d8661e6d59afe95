//! Metrics with labels known only at run time: key operations by engine and algorithm, upstream servers.

use std::array;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;

use super::histogram::Histogram;
use crate::outcome::named;

named! {
    /// Outcome of a key operation.
    KeyOutcome {
        /// The engine answered with a result.
        Ok = "ok",
        /// The engine's queue was full.
        Overloaded = "overloaded",
        /// No result by the deadline.
        DeadlinePassed = "deadline-passed",
        /// The caller dropped the operation before its result.
        Abandoned = "abandoned",
        /// The engine has no such key, cannot do this with it, or failed.
        Failed = "failed",
    }
}

/// One key operation that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyOperationFacts {
    /// Engine that performed the operation; `None` if it was not performed.
    pub engine: Option<&'static str>,
    /// The family of the key.
    pub algorithm: &'static str,
    /// Outcome of the operation.
    pub outcome: KeyOutcome,
    /// Time that was not spent on the work itself.
    pub wait: Duration,
    /// Time of the work itself.
    pub compute: Duration,
}

impl KeyOperationFacts {
    fn engine_label(&self) -> &'static str {
        self.engine.unwrap_or("none")
    }
}

/// The key operations of one engine with one algorithm.
#[derive(Debug)]
pub(super) struct KeySeries {
    pub(super) engine: &'static str,
    pub(super) algorithm: &'static str,
    pub(super) wait: Histogram,
    /// Empty where the engine is none.
    pub(super) compute: Histogram,
    outcomes: [AtomicU64; KeyOutcome::ALL.len()],
}

impl KeySeries {
    fn new(facts: &KeyOperationFacts) -> Self {
        Self {
            engine: facts.engine_label(),
            algorithm: facts.algorithm,
            wait: Histogram::default(),
            compute: Histogram::default(),
            outcomes: array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn is_of(&self, facts: &KeyOperationFacts) -> bool {
        self.engine == facts.engine_label() && self.algorithm == facts.algorithm
    }

    fn observe(&self, facts: &KeyOperationFacts) {
        self.outcomes[facts.outcome as usize].fetch_add(1, Ordering::Relaxed);
        self.wait.observe(facts.wait);
        if facts.engine.is_some() {
            self.compute.observe(facts.compute);
        }
    }

    /// Operations by outcome.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = (KeyOutcome, u64)> + '_ {
        let counts = self.outcomes.iter().map(|count| count.load(Ordering::Relaxed));
        KeyOutcome::ALL.iter().copied().zip(counts)
    }
}

/// All key operations: a short list that is read without a lock and replaced when a new pair of labels occurs.
#[derive(Debug, Default)]
pub(super) struct KeyOperations(ArcSwap<Vec<Arc<KeySeries>>>);

impl KeyOperations {
    pub(super) fn observe(&self, facts: &KeyOperationFacts) {
        if let Some(series) = self.0.load().iter().find(|series| series.is_of(facts)) {
            return series.observe(facts);
        }
        let new = Arc::new(KeySeries::new(facts));
        // Another thread may add the same labels concurrently, so the check is repeated inside.
        self.0.rcu(|all| {
            let mut all = Vec::clone(all);
            if !all.iter().any(|series| series.is_of(facts)) {
                all.push(Arc::clone(&new));
            }
            all
        });
        if let Some(series) = self.0.load().iter().find(|series| series.is_of(facts)) {
            series.observe(facts);
        }
    }

    pub(super) fn all(&self) -> Arc<Vec<Arc<KeySeries>>> {
        self.0.load_full()
    }
}

/// The figures of one upstream server. They are on the page while a reference to them exists.
#[derive(Debug)]
pub struct UpstreamMetrics {
    pub(super) group: Box<str>,
    pub(super) server: Box<str>,
    healthy: AtomicU8,
    open: AtomicI64,
    waiting: AtomicI64,
    pub(super) connections: AtomicU64,
    pub(super) full_handshakes: AtomicU64,
    pub(super) resumed_handshakes: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) pipelines: AtomicU64,
    pub(super) pipelined: AtomicU64,
    pub(super) repeats: [AtomicU64; PipelineRepeat::ALL.len()],
    pub(super) hedges: [AtomicU64; Hedge::ALL.len()],
}

named! {
    /// Result of a hedge, the second attempt of a request.
    Hedge {
        /// The second server responded first.
        Won = "won",
        /// The first server responded first, or the second failed.
        Lost = "lost",
        /// No second attempt was made, because the share of second attempts was used up.
        Budget = "budget",
    }
}

/// Reason to send a pipelined request again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PipelineRepeat {
    /// The connection ended, or it cannot continue after a response.
    #[default]
    Closed,
    /// A response before is late.
    Slow,
    /// A response before is larger than the limit of gathered bodies.
    Large,
}

impl PipelineRepeat {
    /// All reasons.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Slow, Self::Large];

    /// The name in the metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Slow => "slow",
            Self::Large => "large",
        }
    }
}

impl UpstreamMetrics {
    fn new(group: &str, server: &str) -> Self {
        Self {
            group: group.into(),
            server: server.into(),
            healthy: AtomicU8::new(1),
            open: AtomicI64::new(0),
            waiting: AtomicI64::new(0),
            connections: AtomicU64::new(0),
            full_handshakes: AtomicU64::new(0),
            resumed_handshakes: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            pipelines: AtomicU64::new(0),
            pipelined: AtomicU64::new(0),
            repeats: [const { AtomicU64::new(0) }; PipelineRepeat::ALL.len()],
            hedges: [const { AtomicU64::new(0) }; Hedge::ALL.len()],
        }
    }

    /// The server takes requests; so it is taken to be at first.
    pub fn healthy(&self) {
        self.healthy.store(1, Ordering::Relaxed);
    }

    /// The server gets no requests until it recovers.
    pub fn unhealthy(&self) {
        self.healthy.store(0, Ordering::Relaxed);
    }

    /// Counts a request sent to the server.
    pub fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that the server failed: no connection, no response in time, a broken one.
    pub fn failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a pipeline of `requests`.
    pub fn pipeline(&self, requests: u64) {
        self.pipelines.fetch_add(1, Ordering::Relaxed);
        self.pipelined.fetch_add(requests, Ordering::Relaxed);
    }

    /// Counts a pipelined request that has to be sent again.
    pub fn pipeline_repeat(&self, reason: PipelineRepeat) {
        self.repeats[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a second attempt at the server, or one that this server should have been spared.
    pub fn hedge(&self, result: Hedge) {
        self.hedges[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection made to the server.
    pub fn connection_opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a full TLS handshake with the server.
    pub fn full_handshake(&self) {
        self.full_handshakes.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a TLS handshake that resumed a session with the server.
    pub fn resumed_handshake(&self) {
        self.resumed_handshakes.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a connection to the server.
    pub fn connection_closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a request that waits for a connection.
    pub fn wait_begun(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of the wait of a request.
    pub fn wait_ended(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn waiting_requests(&self) -> i64 {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(super) fn health(&self) -> u64 {
        self.healthy.load(Ordering::Relaxed).into()
    }

    pub(super) fn open_connections(&self) -> i64 {
        self.open.load(Ordering::Relaxed)
    }
}

/// The upstream servers whose figures are in use. A clone refers to the same servers.
#[derive(Clone, Debug, Default)]
pub struct Upstreams(Arc<Mutex<Vec<Weak<UpstreamMetrics>>>>);

impl Upstreams {
    /// The metrics of `server` in `group`: existing ones if they are still held, otherwise new ones.
    pub fn get(&self, group: &str, server: &str) -> Arc<UpstreamMetrics> {
        let mut all = self.lock();
        // Series of removed upstreams end here, so reloads do not accumulate them.
        all.retain(|upstream| upstream.strong_count() > 0);
        let held = all.iter().filter_map(Weak::upgrade);
        let same = |upstream: &Arc<UpstreamMetrics>| *upstream.group == *group && *upstream.server == *server;
        if let Some(upstream) = held.into_iter().find(same) {
            return upstream;
        }
        let upstream = Arc::new(UpstreamMetrics::new(group, server));
        all.push(Arc::downgrade(&upstream));
        upstream
    }

    pub(super) fn all(&self) -> Vec<Arc<UpstreamMetrics>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<UpstreamMetrics>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::histogram::Totals;
    use super::*;

    #[test]
    fn key_operations_with_the_same_labels_are_one_series() {
        let operations = KeyOperations::default();
        let facts = |engine, outcome| KeyOperationFacts {
            engine,
            algorithm: "rsa",
            outcome,
            wait: Duration::from_micros(20),
            compute: Duration::from_micros(900),
        };
        for outcome in [KeyOutcome::Ok, KeyOutcome::Ok, KeyOutcome::Failed] {
            operations.observe(&facts(Some("ifma"), outcome));
        }
        operations.observe(&facts(None, KeyOutcome::Overloaded));
        let all = operations.all();
        let [performed, refused] = &all[..] else { panic!("two series: {all:?}") };
        let counts: Vec<_> = performed.outcomes().filter(|(_, count)| *count > 0).collect();
        assert_eq!(
            (performed.engine, &counts[..]),
            ("ifma", &[(KeyOutcome::Ok, 2), (KeyOutcome::Failed, 1)][..])
        );
        let counts = |series: &KeySeries| [&series.wait, &series.compute].map(|of| Totals::of([of]).count());
        assert_eq!((counts(performed), refused.engine, counts(refused)), ([3, 3], "none", [1, 0]));
    }

    #[test]
    fn an_upstream_keeps_its_figures_over_a_reload_and_loses_them_when_removed() {
        let upstreams = Upstreams::default();
        let before = upstreams.get("app", "127.0.0.1:80");
        before.request();
        let after = upstreams.get("app", "127.0.0.1:80");
        assert!(Arc::ptr_eq(&before, &after));
        assert!(!Arc::ptr_eq(&before, &upstreams.get("other", "127.0.0.1:80")));
        drop((before, after));
        assert!(upstreams.all().is_empty());
    }
}

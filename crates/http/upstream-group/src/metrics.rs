//! Metrics of upstream servers.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use brisk_telemetry::metrics::{Collector, Encoder};
use brisk_telemetry::named;

/// The figures of one upstream server. The page of metrics contains them while an [`Arc`] of them exists.
#[derive(Debug)]
pub struct UpstreamMetrics {
    group: Box<str>,
    server: Box<str>,
    healthy: AtomicU8,
    open: AtomicI64,
    waiting: AtomicI64,
    /// Limit of concurrent requests; 0 for none.
    limit: AtomicU64,
    limit_refusals: AtomicU64,
    connections: AtomicU64,
    full_handshakes: AtomicU64,
    resumed_handshakes: AtomicU64,
    requests: AtomicU64,
    failures: AtomicU64,
    pipelines: AtomicU64,
    pipelined: AtomicU64,
    pipeline_repeats: [AtomicU64; PipelineRepeat::ALL.len()],
    hedges: [AtomicU64; Hedge::ALL.len()],
    repeats: [AtomicU64; Repeat::ALL.len()],
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

named! {
    /// Repetition of a request of a server by its reason, or a repetition that the budget did not permit.
    Repeat {
        /// Nothing of the request was sent. A kept connection that has ended is replaced without a count.
        Unsent = "unsent",
        /// The connection failed before the response.
        Closed = "closed",
        /// The status of the response is one of `retry.statuses`.
        Status = "status",
        /// The response had not begun in time.
        Silent = "silent",
        /// The server was excluded while the request waited for it.
        Excluded = "excluded",
        /// The request was not sent again to leave a silent server, because the share of such requests was used up.
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
            limit: AtomicU64::new(0),
            limit_refusals: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            full_handshakes: AtomicU64::new(0),
            resumed_handshakes: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            pipelines: AtomicU64::new(0),
            pipelined: AtomicU64::new(0),
            pipeline_repeats: [const { AtomicU64::new(0) }; PipelineRepeat::ALL.len()],
            hedges: [const { AtomicU64::new(0) }; Hedge::ALL.len()],
            repeats: [const { AtomicU64::new(0) }; Repeat::ALL.len()],
        }
    }

    /// Records that the server takes requests. A new server counts as healthy.
    pub fn healthy(&self) {
        self.healthy.store(1, Ordering::Relaxed);
    }

    /// Records that the server gets no requests until it recovers.
    pub fn unhealthy(&self) {
        self.healthy.store(0, Ordering::Relaxed);
    }

    /// Counts a request sent to the server.
    pub fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that the server failed: no connection, no response in time, a malformed response.
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
        self.pipeline_repeats[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a second attempt at the server, or one that this server should have been spared.
    pub fn hedge(&self, result: Hedge) {
        self.hedges[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request of the server that was sent again, or that had to stay ([`Repeat::Budget`]).
    pub fn repeat(&self, reason: Repeat) {
        self.repeats[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Records the limit of concurrent requests, if one is in force.
    pub(crate) fn set_limit(&self, limit: Option<usize>) {
        let limit = limit.unwrap_or(0) as u64;
        // Without a change, the cache line stays shared among the workers.
        if load(&self.limit) != limit {
            self.limit.store(limit, Ordering::Relaxed);
        }
    }

    /// Counts a request that was refused because the server has as many requests as its limit.
    pub fn limit_refusal(&self) {
        self.limit_refusals.fetch_add(1, Ordering::Relaxed);
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

    /// Counts a request that waits for a connection or a permit.
    pub fn wait_begun(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of the wait of a request.
    pub fn wait_ended(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    fn reading(&self) -> UpstreamReading {
        UpstreamReading {
            group: self.group.clone(),
            server: self.server.clone(),
            healthy: self.health() == 1,
            // Relaxed additions of several workers have no common order, so that the sum may
            // be negative for a moment.
            open: u64::try_from(self.open_connections()).unwrap_or(0),
            connections: load(&self.connections),
            requests: load(&self.requests),
            failures: load(&self.failures),
            limit: Some(load(&self.limit)).filter(|limit| *limit > 0),
        }
    }

    fn waiting_requests(&self) -> i64 {
        self.waiting.load(Ordering::Relaxed)
    }

    fn health(&self) -> u64 {
        self.healthy.load(Ordering::Relaxed).into()
    }

    fn open_connections(&self) -> i64 {
        self.open.load(Ordering::Relaxed)
    }
}

/// The upstream servers whose figures are in use.
#[derive(Debug, Default)]
pub struct Upstreams(Mutex<Vec<Weak<UpstreamMetrics>>>);

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

    /// The figures of the upstream servers in use. Takes a lock that only reloads and scrapes take.
    pub fn readings(&self) -> Vec<UpstreamReading> {
        self.all().iter().map(|upstream| upstream.reading()).collect()
    }

    fn all(&self) -> Vec<Arc<UpstreamMetrics>> {
        // The lock ends here and not with the scrape, so that a reload does not wait for the page.
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<UpstreamMetrics>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The figures of one upstream server.
#[derive(Debug, Clone)]
pub struct UpstreamReading {
    /// Name of the upstream group.
    pub group: Box<str>,
    /// Address of the server.
    pub server: Box<str>,
    /// Whether the server receives requests.
    pub healthy: bool,
    /// Open connections.
    pub open: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Requests sent to the server.
    pub requests: u64,
    /// Requests that the server failed.
    pub failures: u64,
    /// Limit of concurrent requests of an overloaded server.
    pub limit: Option<u64>,
}

/// Name and description of a family with one counter for each server.
type Counter = (&'static str, &'static str, fn(&UpstreamMetrics) -> &AtomicU64);

const COUNTERS: &[Counter] = &[
    ("upstream_requests", "Requests sent to the server.", |of| &of.requests),
    ("upstream_failures", "Failed requests to the server.", |of| &of.failures),
    ("upstream_limit_refusals", "Requests refused by the limit of the server.", |of| &of.limit_refusals),
    ("upstream_pipelines", "Pipelines of at least two requests.", |of| &of.pipelines),
    ("upstream_pipelined_requests", "Requests in these pipelines.", |of| &of.pipelined),
];

/// Name and description of a family with one counter for each value of a label, and the label.
type Labeled =
    (&'static str, &'static str, &'static str, fn(&UpstreamMetrics) -> Vec<(&'static str, &AtomicU64)>);

const LABELED: &[Labeled] = &[
    ("upstream_pipeline_repeats", "Pipelined requests that were sent again, by reason.", "reason", |of| {
        PipelineRepeat::ALL.iter().map(|reason| reason.name()).zip(&of.pipeline_repeats).collect()
    }),
    ("upstream_hedges", "Second attempts of slow requests, by result.", "result", |of| {
        Hedge::ALL.iter().map(|result| result.name()).zip(&of.hedges).collect()
    }),
    ("upstream_repeats", "Requests that were sent again, by reason.", "reason", |of| {
        Repeat::ALL.iter().map(|reason| reason.name()).zip(&of.repeats).collect()
    }),
];

impl Collector for Upstreams {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let all = self.all();
        let mut family = page.gauge("upstream_healthy", "1 if the server is healthy, otherwise 0.")?;
        for upstream in &all {
            family.gauge(&server_labels(&upstream.group, &upstream.server), upstream.health())?;
        }
        let mut family = page.gauge("upstream_connections_open", "Open connections to the server.")?;
        for upstream in &all {
            family.gauge(&server_labels(&upstream.group, &upstream.server), upstream.open_connections())?;
        }
        let mut family =
            page.gauge("upstream_requests_waiting", "Requests that wait for a connection or a permit.")?;
        for upstream in &all {
            family.gauge(&server_labels(&upstream.group, &upstream.server), upstream.waiting_requests())?;
        }
        let mut family =
            page.gauge("upstream_concurrency_limit", "Limit of concurrent requests; 0 without an overload.")?;
        for upstream in &all {
            family.gauge(&server_labels(&upstream.group, &upstream.server), load(&upstream.limit))?;
        }
        let mut family =
            page.counter("upstream_connections", "Connections to the server that were established.")?;
        for upstream in &all {
            family.counter(&server_labels(&upstream.group, &upstream.server), load(&upstream.connections))?;
        }
        let mut family = page.counter("upstream_tls_handshakes", "TLS handshakes with the server.")?;
        for upstream in &all {
            let [group, server] = server_labels(&upstream.group, &upstream.server);
            for (resumed, count) in [("no", &upstream.full_handshakes), ("yes", &upstream.resumed_handshakes)]
            {
                family.counter(&[group, server, ("resumed", resumed)], load(count))?;
            }
        }
        for (name, help, counter) in COUNTERS {
            let mut family = page.counter(name, help)?;
            for upstream in &all {
                family.counter(&server_labels(&upstream.group, &upstream.server), load(counter(upstream)))?;
            }
        }
        for (name, help, label, counters) in LABELED {
            let mut family = page.counter(name, help)?;
            for upstream in &all {
                let [group, server] = server_labels(&upstream.group, &upstream.server);
                for (value, count) in counters(upstream) {
                    family.counter(&[group, server, (label, value)], load(count))?;
                }
            }
        }
        Ok(())
    }
}

fn server_labels<'a>(group: &'a str, server: &'a str) -> [(&'static str, &'a str); 2] {
    [("group", group), ("server", server)]
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use brisk_telemetry::Metrics;

    use super::*;

    /// Whether the page has exactly this line.
    fn shows(metrics: &Arc<Metrics>, line: &str) -> bool {
        metrics.render().lines().any(|shown| shown == line)
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

    #[test]
    fn an_upstream_is_shown_while_it_is_held() {
        let metrics = Metrics::new();
        let upstream = metrics.collector::<Upstreams>().get("app", "http://127.0.0.1:8080");
        let labels = "{group=\"app\",server=\"http://127.0.0.1:8080\"}";
        let healthy = |value| format!("brisk_upstream_healthy{labels} {value}");
        assert!(shows(&metrics, &healthy(1)));
        upstream.unhealthy();
        upstream.request();
        upstream.failure();
        upstream.connection_opened();
        assert!(shows(&metrics, &healthy(0)));
        assert!(shows(&metrics, &format!("brisk_upstream_requests_total{labels} 1")));
        assert!(shows(&metrics, &format!("brisk_upstream_failures_total{labels} 1")));
        assert!(shows(&metrics, &format!("brisk_upstream_connections_open{labels} 1")));
        drop(upstream);
        assert!(!metrics.render().contains("127.0.0.1:8080"));
    }

    #[test]
    fn a_reading_has_what_was_counted() {
        let upstreams = Upstreams::default();
        let upstream = upstreams.get("app", "127.0.0.1:80");
        upstream.unhealthy();
        upstream.request();
        let [reading] = &upstreams.readings()[..] else { panic!("one upstream") };
        assert_eq!((reading.healthy, reading.requests), (false, 1));
    }

    #[test]
    fn every_metric_is_documented() {
        let metrics = Metrics::new();
        metrics.collector::<Upstreams>();
        let documentation = include_str!("../../../../docs/metrics.md");
        assert_eq!(metrics.undocumented(documentation), [""; 0]);
    }
}

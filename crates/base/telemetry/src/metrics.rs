//! [`Metrics`] of the process, counted with plain atomics and exported in the OpenMetrics text format. `docs/metrics.md`
//! lists them.
//!
//! Calls per request or per connection take no lock and look up no label: counters have fixed indices.

mod encoder;
mod handshakes;
mod histogram;
mod key_operations;
mod page;
mod reading;
mod shard;

use std::any::Any;
use std::sync::atomic::{AtomicIsize, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use brisk_defects::Defect;

use crate::named;
pub use crate::outcome::Listening;
use crate::outcome::{EarlyData, EarlyRequest, HandshakeOutcome, MalformedReason, ResumptionFailure, Side};
use crate::problems::Problems;
use crate::record::{ConnectionRecord, TlsFacts};
pub use encoder::{Collector, Encoder, Family, Labels};
use handshakes::Handshakes;
pub use histogram::Histogram;
use key_operations::KeyOperations;
pub use key_operations::{KeyOperationFacts, KeyOutcome};
pub use reading::{HandshakeCount, KeyReading, Reading};
pub(crate) use shard::PerWorker;
use shard::Shards;

/// The `Content-Type` of the output of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

named! {
    /// Reason for which a connection was closed before anything was read from it.
    Refusal {
        /// The maximum number of connections was open.
        Limit = "limit",
        /// The client's address had as many open as allowed.
        ClientLimit = "client-limit",
        /// The client connects too often.
        ConnectionRate = "connection-rate",
        /// The client breaks protocols too often.
        ErrorRate = "error-rate",
        /// The process is overloaded.
        Overload = "overload",
    }
}

named! {
    /// Outcome of a reload.
    Reload {
        /// The new configuration is in use.
        Applied = "applied",
        /// The new configuration was wrong; the old one stays in use.
        Refused = "refused",
    }
}

/// Expiry of a certificate, for [`Metrics::set_certificates`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateExpiry {
    /// The host's first name.
    pub host: String,
    /// The key's algorithm, which distinguishes a host's certificates.
    pub algorithm: String,
    /// End of validity, in seconds since 1970.
    pub not_after: i64,
}

/// The metrics of one process, shared by all workers.
#[derive(Debug)]
pub struct Metrics {
    shards: Shards,
    handshakes: Handshakes,
    key_operations: KeyOperations,
    refused: [AtomicU64; Refusal::ALL.len()],
    reloads: [AtomicU64; Reload::ALL.len()],
    malformed: [AtomicU64; MalformedReason::ALL.len()],
    answers_held: AtomicIsize,
    shed: AtomicU64,
    certificates: ArcSwap<Vec<CertificateExpiry>>,
    /// The collectors of the page, in its order. Locked during a scrape.
    collectors: Mutex<Vec<Box<dyn Collector>>>,
    /// Collectors of [`Self::collector`]. Never locked during a scrape.
    by_type: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
    problems: Arc<Problems>,
}

impl Metrics {
    /// Creates metrics with all counters at zero.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            shards: Shards::new(),
            handshakes: Handshakes::new(),
            key_operations: KeyOperations::default(),
            refused: Default::default(),
            reloads: Default::default(),
            malformed: Default::default(),
            answers_held: AtomicIsize::new(0),
            shed: AtomicU64::new(0),
            certificates: ArcSwap::default(),
            collectors: Mutex::default(),
            by_type: Mutex::default(),
            problems: Arc::default(),
        })
    }

    /// Counts a connection accepted.
    pub(crate) fn connection_opened(&self, listener: Listening) {
        self.shards.mine().accepted[listener as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of an accepted connection, and the bytes that it carried.
    pub(crate) fn connection_closed(&self, record: &ConnectionRecord) {
        let shard = self.shards.mine();
        shard.closed[record.listener() as usize].fetch_add(1, Ordering::Relaxed);
        let bytes = [
            (&shard.received, record.bytes_received),
            (&shard.sent, record.bytes_sent),
            (&shard.early_bytes, record.early_bytes),
        ];
        // An atomic addition costs more than the comparison, and hardly any connection has early data.
        for (counter, bytes) in bytes.into_iter().filter(|(_, bytes)| *bytes > 0) {
            counter.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts a connection closed because of a limit: at once, so that it counts as neither accepted nor open, or when
    /// its PROXY header was read.
    pub fn connection_refused(&self, reason: Refusal) {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts bytes of a client that were refused before they became a request.
    pub fn malformed_request(&self, reason: MalformedReason) {
        self.malformed[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Changes how many bytes of answers are held for clients that have not taken them. All workers write to one place:
    /// report large changes only.
    pub fn change_answers_held(&self, bytes: isize) {
        self.answers_held.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of answers that are held for clients, as far as workers have reported them.
    pub fn answers_held(&self) -> usize {
        // The sum may be negative for a moment, because relaxed additions of several
        // workers have no common order.
        usize::try_from(self.answers_held.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Counts a connection closed because answers took too much memory and its client did not take them.
    pub fn connection_shed(&self) {
        self.shed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a handshake that succeeded, and [`TlsFacts::resumption_failure`] if it is not `None`.
    pub fn handshake(&self, tls: &TlsFacts) {
        self.handshakes.complete(tls);
    }

    /// Counts the [`EarlyData`] of a client. Once per connection, as soon as it is known: data that was accepted
    /// is read before its handshake has succeeded.
    pub fn early_data(&self, outcome: EarlyData) {
        self.handshakes.early_data(outcome);
    }

    /// Counts a request that came before the end of its handshake, by its [`EarlyRequest`].
    pub fn early_request(&self, treatment: EarlyRequest) {
        self.shards.mine().early_requests[treatment as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a handshake that ended with `outcome`, with the reason for which no session was resumed if it was known
    /// by then.
    pub(crate) fn handshake_failed(&self, outcome: HandshakeOutcome, resumption: Option<ResumptionFailure>) {
        self.handshakes.failed(outcome);
        if let Some(reason) = resumption {
            self.handshakes.resumption_failed(reason);
        }
    }

    /// Counts a request whose response has ended. `status` is 0 if none was sent; `side` is the side responsible for
    /// an error. Costs less than 50 ns.
    pub fn request(
        &self,
        status: u16,
        side: Option<Side>,
        upstream_time: Option<Duration>,
        duration: Duration,
    ) {
        if brisk_defects::strikes(Defect::LostCounter) {
            return;
        }
        let shard = self.shards.mine();
        shard.count_status(status);
        shard.request_time.observe(duration);
        if let Some(time) = upstream_time {
            shard.upstream_time.observe(time);
        }
        if let Some(side) = side {
            shard.errors[side as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a key operation that is over, by engine, algorithm and [`KeyOutcome`].
    pub fn key_operation(&self, facts: &KeyOperationFacts) {
        self.key_operations.observe(facts);
    }

    /// Counts a reload of the configuration, by its [`Reload`].
    pub fn reloaded(&self, reload: Reload) {
        self.reloads[reload as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Replaces the list of certificates in the metrics as a whole.
    pub fn set_certificates(&self, certificates: Vec<CertificateExpiry>) {
        self.certificates.store(Arc::new(certificates));
    }

    /// Adds `collector` to every scrape, after the collectors registered before.
    pub fn register(&self, collector: impl Collector) {
        self.collectors().push(Box::new(collector));
    }

    /// The collector of type `C`, for the counts of a feature, which outlive reloads: [registered](Self::register) at the first
    /// call, the same one at later calls. Takes a lock, so callers keep the result instead of asking for it per request.
    pub fn collector<C: Collector + Default>(&self) -> Arc<C> {
        // Held during the registration, so that two concurrent calls register one collector. A mutex apart
        // from that of `collectors`, so that a call does not wait for a scrape unless the collector is new.
        let mut by_type = self.by_type.lock().unwrap_or_else(PoisonError::into_inner);
        let known = by_type.iter().find_map(|known| Arc::clone(known).downcast().ok());
        known.unwrap_or_else(|| {
            let new = Arc::<C>::default();
            by_type.push(Arc::clone(&new) as _);
            self.register(Arc::clone(&new));
            new
        })
    }

    /// [`Problems`] of the last minutes.
    pub fn problems(&self) -> &Arc<Problems> {
        &self.problems
    }

    /// All metrics in the OpenMetrics text format; see [`CONTENT_TYPE`].
    pub fn render(self: &Arc<Self>) -> String {
        page::render(self)
    }

    /// Names of the metrics on the page that `documentation` does not contain in backquotes. For tests of the crates that define
    /// metrics.
    pub fn undocumented(self: &Arc<Self>, documentation: &str) -> Vec<String> {
        let page = self.render();
        let names = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        names.filter(|name| !documentation.contains(&format!("`{name}"))).map(str::to_owned).collect()
    }

    fn collectors(&self) -> MutexGuard<'_, Vec<Box<dyn Collector>>> {
        self.collectors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(crate) mod tests;

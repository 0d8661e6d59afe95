//! Counters and state of a set of key servers, for metrics and readiness.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use brisk_telemetry::metrics::{Collector, Encoder};

use super::address::KeyServerAddress;
use super::settings::RemoteSettings;

/// Counters of a set.
#[derive(Debug)]
pub(super) struct Statistics {
    pub(super) name: String,
    /// Whether the set is a local key process.
    is_local: bool,
    pub(super) servers: Vec<ServerStatistics>,
    /// Operations in progress.
    pub(super) under_way: AtomicUsize,
    /// Operations sent to a second server.
    pub(super) hedged: AtomicU64,
    /// Operations without a result at their deadline.
    pub(super) late: AtomicU64,
}

/// Counters of one server.
#[derive(Debug)]
pub(super) struct ServerStatistics {
    pub(super) address: String,
    /// Connections that respond.
    pub(super) usable: AtomicUsize,
    pub(super) done: AtomicU64,
    pub(super) refused: AtomicU64,
    /// Operations whose signature the public key does not verify.
    pub(super) wrong: AtomicU64,
    /// Operations whose connection ended before the response.
    pub(super) lost: AtomicU64,
    /// Connection attempts, and failed ones.
    pub(super) connects: AtomicU64,
    pub(super) failures: AtomicU64,
    /// Sum of response times of successful operations, in microseconds.
    micros: AtomicU64,
    /// Reason of the last failed attempt or ended connection.
    trouble: Mutex<Option<String>>,
}

impl Statistics {
    pub(super) fn new(settings: &RemoteSettings) -> Arc<Self> {
        let server = |place: &KeyServerAddress| ServerStatistics {
            address: place.to_string(),
            usable: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            connects: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            micros: AtomicU64::new(0),
            trouble: Mutex::default(),
        };
        Arc::new(Self {
            name: settings.name.clone(),
            is_local: settings.servers.iter().any(|place| matches!(place, KeyServerAddress::Local(_))),
            servers: settings.servers.iter().map(server).collect(),
            under_way: AtomicUsize::new(0),
            hedged: AtomicU64::new(0),
            late: AtomicU64::new(0),
        })
    }

    /// The reason for which no operation can be performed; `None` while any server responds.
    pub(super) fn trouble(&self) -> Option<String> {
        if self.servers.iter().any(|server| server.usable.load(Ordering::Relaxed) > 0) {
            return None;
        }
        let each = self.servers.iter().map(|server| {
            let reason = server.trouble().unwrap_or_default();
            if self.is_local { reason } else { format!("{}: {reason}", server.address) }
        });
        let each: Vec<_> = each.collect();
        if self.is_local {
            return Some(format!("the key process performs no operations ({})", each.join("; ")));
        }
        Some(format!("no key server of \"{}\" answers ({})", self.name, each.join("; ")))
    }
}

impl ServerStatistics {
    pub(super) fn answered(&self, time: Duration) {
        self.done.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// The reason for which the server performs no operation; `None` while it responds.
    pub(super) fn trouble(&self) -> Option<String> {
        if self.usable.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        Some(trouble.as_deref().unwrap_or("not connected yet").to_owned())
    }

    pub(super) fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}

/// Metrics of all sets of key servers of a process.
#[derive(Clone, Debug, Default)]
pub struct RemoteMetrics(Arc<Mutex<Vec<Weak<Statistics>>>>);

impl RemoteMetrics {
    /// Shows a set, instead of others of its name, as long as its engine exists.
    pub(super) fn add(&self, set: &Arc<Statistics>) {
        let new = Arc::downgrade(set);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Appended again even if it is known, because the latest set of a name is shown: a set that a
        // refused reload had started would otherwise hide the set in force.
        all.retain(|other| other.strong_count() > 0 && !other.ptr_eq(&new));
        all.push(new);
    }

    /// The latest set of each name. A set that a reload replaced may still have operations in progress.
    fn sets(&self) -> Vec<Arc<Statistics>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sets: Vec<Arc<Statistics>> = Vec::new();
        for set in all.iter().rev().filter_map(Weak::upgrade) {
            if sets.iter().all(|later| later.name != set.name) {
                sets.push(set);
            }
        }
        sets.sort_by(|one, other| one.name.cmp(&other.name));
        sets
    }
}

impl Collector for RemoteMetrics {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let sets = self.sets();
        if sets.is_empty() {
            return Ok(());
        }
        servers(page, &sets)?;
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut family =
            page.gauge("keyserver_operations_under_way", "Key operations that key servers have to answer.")?;
        for set in &sets {
            family.gauge(&[("keyserver", &set.name)], set.under_way.load(Ordering::Relaxed) as u64)?;
        }
        let mut family =
            page.counter("keyserver_hedges", "Key operations that a second key server was asked for.")?;
        for set in &sets {
            family.counter(&[("keyserver", &set.name)], load(&set.hedged))?;
        }
        let mut family =
            page.counter("keyserver_late", "Key operations without a result of a key server in time.")?;
        for set in &sets {
            family.counter(&[("keyserver", &set.name)], load(&set.late))?;
        }
        Ok(())
    }
}

fn servers(page: &mut Encoder<'_, '_>, sets: &[Arc<Statistics>]) -> fmt::Result {
    let each = || sets.iter().flat_map(|set| set.servers.iter().map(move |server| (&*set.name, server)));
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let mut family =
        page.gauge("keyserver_connections", "Connections to key servers that answer, by server.")?;
    for (name, server) in each() {
        let usable = server.usable.load(Ordering::Relaxed) as u64;
        family.gauge(&[("keyserver", name), ("server", &server.address)], usable)?;
    }
    let mut family =
        page.counter("keyserver_connects", "Attempts to connect to key servers, by server and outcome.")?;
    for (name, server) in each() {
        let failed = load(&server.failures);
        let outcomes = [("ok", load(&server.connects).saturating_sub(failed)), ("failed", failed)];
        for (outcome, count) in outcomes {
            let labels = [("keyserver", name), ("server", &*server.address), ("outcome", outcome)];
            family.counter(&labels, count)?;
        }
    }
    let mut family =
        page.counter("keyserver_operations", "Key operations sent to key servers, by server and outcome.")?;
    for (name, server) in each() {
        let outcomes = [
            ("ok", &server.done),
            ("refused", &server.refused),
            ("wrong", &server.wrong),
            ("lost", &server.lost),
        ];
        for (outcome, count) in outcomes {
            let labels = [("keyserver", name), ("server", &*server.address), ("outcome", outcome)];
            family.counter(&labels, load(count))?;
        }
    }
    let mut family = page.seconds_counter(
        "keyserver_answer",
        "Time until the answers of key servers to operations that were performed.",
    )?;
    for (name, server) in each() {
        let labels = [("keyserver", name), ("server", &*server.address)];
        family.seconds_counter(&labels, Duration::from_micros(load(&server.micros)))?;
    }
    Ok(())
}

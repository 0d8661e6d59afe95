//! `pool`: number and lifetime of connections, and requests that wait for one.

mod keys;
pub mod places;

use std::time::Duration;

use brisk_config_file::{KeyPath, Period};

use super::{Context, GroupFeature, GroupScope, TIMEOUTS};
pub use keys::{ConnectionsKeys, PoolKeys, QueueKeys};

/// Number and lifetime of connections.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSettings {
    /// Maximum number of idle connections per server and worker. Default: 512. A pool smaller than the number of
    /// concurrent requests doubles the cost of a request.
    pub idle_connections: usize,
    /// Lifetime of an idle connection, in whole seconds. Default: 60 s. Should be shorter than the server's own limit,
    /// so that the server does not close a connection while a request is sent on it.
    pub idle_timeout: Duration,
    /// Maximum number of connections to one server, of all workers, including idle ones. Default: no limit, and one of concurrent
    /// requests that adapts to an overloaded server ([`Concurrency`](crate::Concurrency)). A request
    /// that would exceed it uses another server, or waits in [`Self::queue`] and gets `503` when the time runs out.
    pub max_connections: Option<usize>,
    /// Requests that wait for one of these connections.
    pub queue: QueueSettings,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            idle_connections: 512,
            idle_timeout: Duration::from_mins(1),
            max_connections: None,
            queue: QueueSettings::default(),
        }
    }
}

/// The requests that wait for a connection to a server, of all workers.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSettings {
    /// Maximum number; further requests get `503` at once. One client has half of the free slots at most. Default: 16,384.
    pub size: usize,
    /// Maximum wait. Default: [`UpstreamTimeouts::connect`](crate::settings::UpstreamTimeouts::connect).
    pub timeout: Option<Duration>,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self { size: 16 << 10, timeout: None }
    }
}

/// `pool` of groups.
#[derive(Debug)]
pub struct PoolFeature;

impl GroupFeature for PoolFeature {
    type Keys = PoolKeys;
    type Settings = PoolSettings;

    fn resolve(keys: &PoolKeys, group: &GroupScope<'_>, context: &mut Context<'_, '_>) -> PoolSettings {
        let (keys, path) = (&keys.pool, group.key("pool"));
        let usual = PoolSettings::default();
        let most = keys.max_connections.map(|most| {
            context.findings.within(&path.key("max_connections"), Some(most), 1, &(1..=1_000_000)) as usize
        });
        let seconds = Period(Duration::from_secs(1))..=*TIMEOUTS.end();
        let idle = context.findings.within(
            &path.key("idle_timeout"),
            keys.idle_timeout,
            Period(usual.idle_timeout),
            &seconds,
        );
        // An idle connection occupies a process of the application server.
        let kept = if group.cgi_protocol().is_some() { 0 } else { usual.idle_connections };
        PoolSettings {
            idle_connections: keys.idle_connections.map_or(kept, |kept| kept as usize),
            idle_timeout: idle.0,
            max_connections: most,
            queue: queue(keys, &path.key("queue"), context),
        }
    }
}

fn queue(keys: &ConnectionsKeys, path: &KeyPath, context: &mut Context<'_, '_>) -> QueueSettings {
    let (written, usual) = (&keys.queue, QueueSettings::default());
    let findings = &mut *context.findings;
    if findings.written(path) && keys.max_connections.is_none() {
        findings.wrong(path, "has no effect without `max_connections`: no request waits for a connection");
    }
    let size = findings.within(&path.key("size"), written.size, usual.size as u32, &(0..=1_000_000));
    let timeout = |timeout| findings.within(&path.key("timeout"), Some(timeout), timeout, &TIMEOUTS).0;
    QueueSettings { size: size as usize, timeout: written.timeout.map(timeout) }
}

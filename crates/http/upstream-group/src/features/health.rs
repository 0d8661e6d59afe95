//! `health`: detection of unavailable servers, by checks of the gateway and by the outcomes of requests.

pub mod checks;
mod keys;
mod resolve;
pub(crate) mod server_health;

use std::time::Duration;

use http::StatusCode;
use http::uri::PathAndQuery;

use super::{Context, GroupFeature, GroupScope};
pub use keys::{DetectionKeys, HealthKeys};

/// Detection of unavailable servers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HealthSettings {
    /// Active checks by requests of the gateway. Default: none.
    pub active: Option<ActiveChecks>,
    /// Passive checks by the outcomes of clients' requests.
    pub passive: PassiveChecks,
    /// Time in which the share of a server grows to its weight after an exclusion. Default: none, at once.
    pub slow_start: Option<Duration>,
}

/// Active checks: requests of the gateway to each server, once per process, not per worker.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveChecks {
    /// Path and query of the `GET` request.
    pub path: PathAndQuery,
    /// Service whose health is requested by gRPC (`grpc.health.v1`) instead of `path` and `status`; empty for the whole
    /// server. Requires HTTP/2. Default: none.
    pub grpc: Option<String>,
    /// `Host` of the request. Default: the authority of the server's URL.
    pub host: Option<String>,
    /// Status of a healthy server. Default: any from 200 to 399.
    pub status: Option<StatusCode>,
    /// Interval between two checks of a server. Default: 5 s.
    pub interval: Duration,
    /// Timeout of the whole check, including connecting. Default: 2 s.
    pub timeout: Duration,
    /// Number of consecutive successful checks that make a server available. Default: 2.
    pub healthy_after: u32,
    /// Number of consecutive failed checks that make a server unavailable. Default: 3.
    pub unhealthy_after: u32,
}

impl ActiveChecks {
    /// Checks of `path` with default settings.
    pub fn new(path: PathAndQuery) -> Self {
        Self {
            path,
            grpc: None,
            host: None,
            status: None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            healthy_after: 2,
            unhealthy_after: 3,
        }
    }
}

/// Pauses of servers after failed requests.
#[derive(Clone, Debug, PartialEq)]
pub struct PassiveChecks {
    /// Number of consecutive failures (no connection, no response, timeout) that start a pause; 0 disables pauses.
    /// Default: 5.
    pub max_failures: u32,
    /// Whether a response with a status from `500` to `599` is a failure. Default: `false`.
    pub counts_server_errors: bool,
    /// Percentage of failures among the requests of ten seconds, at least 20, that starts a pause. Default: none.
    pub error_share: Option<u32>,
    /// Percentage of the servers of the group that may be paused together; one server may always be. Default: 100.
    pub max_excluded: u32,
    /// Length of the pause. Doubles with each failure soon after a pause, up to 32 times `pause`. Default: 10 s.
    pub pause: Duration,
}

impl Default for PassiveChecks {
    fn default() -> Self {
        Self {
            max_failures: 5,
            counts_server_errors: false,
            error_share: None,
            max_excluded: 100,
            pause: Duration::from_secs(10),
        }
    }
}

/// `health` of groups.
#[derive(Debug)]
pub struct HealthFeature;

impl GroupFeature for HealthFeature {
    type Keys = HealthKeys;
    type Settings = HealthSettings;

    fn resolve(keys: &HealthKeys, group: &GroupScope<'_>, context: &mut Context<'_, '_>) -> HealthSettings {
        resolve::settings(&keys.health, group, context)
    }
}

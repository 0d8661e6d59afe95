//! Keys of health checks.

use brisk_config_file::Period;
use serde::Deserialize;

/// Keys of a group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HealthKeys {
    /// Conditions for excluding a server.
    pub health: DetectionKeys,
}

/// `[upstream.NAME.health]`: conditions for excluding a server. With `path`, active checks are made; failures of requests count in
/// any case.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DetectionKeys {
    /// Path of the GET request for active checks at every server.
    pub path: Option<String>,
    /// In place of `path`: active checks by gRPC (`grpc.health.v1.Health/Check`) of this service, or of the whole server with `""`.
    /// A server is healthy if the status is `SERVING`. Requires HTTP/2.
    pub grpc: Option<String>,
    /// `Host` of that request.
    pub host: Option<String>,
    /// Status of a healthy server.
    pub status: Option<u16>,
    /// Time between two checks of a server. For servers of [`[[tcp]]`](#tcp), which are checked by connecting, it enables the
    /// checks.
    pub interval: Option<Period>,
    /// Time for the whole response; not longer than `interval`.
    pub timeout: Option<Period>,
    /// Number of consecutive successful checks that include a server again.
    pub healthy_after: Option<u16>,
    /// Number of consecutive failed checks that exclude a server.
    pub unhealthy_after: Option<u16>,
    /// Number of consecutive failed requests (no connection, no response in time) that exclude a server; `0`: never. The end of a
    /// kept connection does not count; a reset stream does.
    pub max_failures: Option<u16>,
    /// Time for which such a server is excluded. Doubled, up to 32 times this time, each time that it fails again within the same
    /// time after its return.
    pub failure_pause: Option<Period>,
    /// Whether a response with a status from 500 to 599 counts as a failed request, for `max_failures` and `error_share`. The client
    /// receives the response.
    pub server_errors: Option<bool>,
    /// Percentage of failed requests, among those of 10 seconds, that excludes a server; at least 20 requests.
    pub error_share: Option<u8>,
    /// Percentage of the servers of the group that failed requests may exclude together; one may always be excluded. Servers excluded
    /// by active checks do not count.
    pub max_excluded: Option<u8>,
    /// Time in which the share of a server grows evenly from almost nothing to its weight after it was excluded.
    pub slow_start: Option<Period>,
}

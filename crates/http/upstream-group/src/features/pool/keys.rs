//! Keys of connections.

use brisk_config_file::Period;
use serde::Deserialize;

/// Keys of a group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolKeys {
    /// Number and lifetime of connections.
    pub pool: ConnectionsKeys,
}

/// `[upstream.NAME.pool]`: connections kept for the next request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectionsKeys {
    /// Number of idle connections per server and worker, for HTTP/2 too.
    pub idle_connections: Option<u32>,
    /// Time for which idle connections are kept; use less than the upstream's own timeout.
    pub idle_timeout: Option<Period>,
    /// Number of connections to one server from all workers. A further request uses another server, or waits in a queue, the oldest
    /// first; idle connections are closed to make room. After the time of the queue, the response is 503 (`connection-limit` in the
    /// access log). Without the key, [overloaded servers](overload.md#upstreams) get fewer requests.
    pub max_connections: Option<u32>,
    /// With `max_connections`: requests that wait for a connection to one server, of all workers. `size`: number, default 16 384,
    /// up to 1 000 000; one client, an IPv4 address or an IPv6 /64, may take another place while it has fewer than are free, so
    /// one client alone has half of the places at most. Further requests get 503 at once (`queue-full`). `timeout`: longest wait,
    /// default `timeouts.connect`.
    pub queue: QueueKeys,
}

/// `queue` of `[upstream.NAME.pool]`: requests that wait for a connection.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueKeys {
    /// Maximum number of requests.
    pub size: Option<u32>,
    /// Longest wait.
    pub timeout: Option<Period>,
}

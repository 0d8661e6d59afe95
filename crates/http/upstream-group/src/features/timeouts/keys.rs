//! Keys of timeouts.

use brisk_config_file::{Period, PeriodLimit};
use serde::Deserialize;

/// Keys of a group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutsKeys {
    /// Timeouts of servers.
    pub timeouts: ServerTimeoutsKeys,
}

/// `[upstream.NAME.timeouts]`: how long an upstream may take.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerTimeoutsKeys {
    /// Time for connecting, including TLS.
    pub connect: Option<Period>,
    /// Time from the complete request to the head of the response; then 504. Also the wait of a request for a stream of an HTTP/2
    /// server; then 503.
    pub head: Option<Period>,
    /// Time without the head of a response after which a request that is safe to repeat [goes to another
    /// server](#silent-servers); up to `head`.
    pub attempt: Option<Period>,
    /// Longest pause within a response body.
    pub body: Option<Period>,
    /// Longest pause on a connection after a switch of protocols (WebSocket), without data of either side; over HTTP/2 to the server,
    /// without data of the server.
    pub upgraded: Option<Period>,
    /// HTTP/2: time without received data after which brisk sends a PING while requests are open. Without an acknowledgement within
    /// `connect`, the connection is closed. Some gRPC servers close connections that receive PINGs more often than every 5 minutes:
    /// increase the value if `body` is longer than `"90s"`.
    pub ping: Option<PeriodLimit>,
}

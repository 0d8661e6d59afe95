//! Keys of mirrored requests.

use brisk_config_file::{Period, Size};
use serde::Deserialize;

/// Mirror of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MirrorKeys {
    /// With `upstream`: [another upstream that gets copies of requests](#mirrored-requests).
    pub mirror: Option<Mirror>,
}

/// `mirror`: another upstream that gets copies of requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mirror {
    /// Name of the other `[upstream.NAME]`.
    pub upstream: String,
    /// Share of the requests, 0 to 100, in steps of 0.01.
    pub percent: Option<f64>,
    /// Maximum size of a mirrored body, up to `"8MiB"`.
    pub body_size: Option<Size>,
    /// Time from the start of a copy to the end of its response.
    pub timeout: Option<Period>,
    /// Maximum number of copies in progress for the route. One client has half of the free ones at most.
    pub requests: Option<u32>,
}

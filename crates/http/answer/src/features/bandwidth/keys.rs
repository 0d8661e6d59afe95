//! Keys of the pace of responses.

use brisk_config_file::Size;
use serde::Deserialize;

/// Pace of the responses of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BandwidthKeys {
    /// Pace of each response. `rate`: bytes per second as a size, for example `"1MiB"`, at least `"1KiB"`; `after`: size at the
    /// beginning of a response that is sent without delay, default none. A client with several responses at a time gets each of
    /// them at this pace; a [limit](#limitname) with `concurrency` restricts their number.
    pub bandwidth: Option<Bandwidth>,
}

/// `bandwidth` of a route.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bandwidth {
    /// Bytes per second.
    pub rate: Size,
    /// Bytes at the beginning of a response that are sent without a limit. Default: none.
    pub after: Option<Size>,
}

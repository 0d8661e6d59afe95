//! Keys of second attempts.

use brisk_config_file::Period;
use serde::Deserialize;

/// Keys of a group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HedgeKeys {
    /// [Second attempts](#hedging) of slow requests at another server.
    pub hedge: Option<AttemptKeys>,
}

/// `hedge`: second attempts of slow requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptKeys {
    /// Time without the head of a response after which the second attempt begins, from `"1ms"` to `"1m"`; best a time that 95 % of
    /// the responses stay below.
    pub after: Period,
    /// Maximum number of second attempts in a hundred requests, for each worker, with a burst of ten. Without it, an overloaded
    /// group would get twice the requests.
    pub percent: Option<u8>,
}

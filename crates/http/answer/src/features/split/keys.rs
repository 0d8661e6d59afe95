//! Keys of splits.

use brisk_config_file::table_of_parts;
use brisk_upstream_group::features::sticky::CookieKeys;
use serde::Deserialize;

/// Split of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SplitKeys {
    /// With `upstream`: [another upstream for a share of the visitors](#splits).
    pub split: Option<Split>,
}

table_of_parts! {
    /// `split`: another upstream for a share of the visitors.
    #[derive(Clone, Debug)]
    pub struct Split {
        /// The upstream and the share.
        pub destination: Destination,
        /// The cookie by which visitors keep their upstream.
        pub cookie: CookieKeys,
    }
}

/// The other upstream, and the share of the visitors that use it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Destination {
    /// Name of the other upstream.
    pub upstream: String,
    /// Share of the visitors, 0 to 100, in steps of 0.01.
    pub percent: f64,
}

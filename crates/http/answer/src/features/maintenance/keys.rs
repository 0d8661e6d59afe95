//! Keys of maintenance.

use std::path::PathBuf;

use brisk_config_file::{Network, Period};
use serde::Deserialize;

/// Maintenance of a host.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MaintenanceKeys {
    /// [maintenance](#maintenance) while a file exists.
    pub maintenance: Option<Maintenance>,
}

/// The file that switches maintenance on, and the response.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Maintenance {
    /// The switch. Its content does not matter.
    pub file: PathBuf,
    /// File with the content of the response, up to 1 MiB, as for [error pages](#error-pages).
    pub page: Option<PathBuf>,
    /// Value of `Retry-After`; between `"1s"` and `"24h"`.
    pub retry_after: Option<Period>,
    /// Clients whose requests are processed as usual. Not an access control: addresses of early data over QUIC are not
    /// verified.
    #[serde(default)]
    pub allow: Vec<Network>,
}

//! `maintenance` of hosts.

use std::path::PathBuf;

use brisk_config_file::Period;
use serde::Deserialize;

use crate::values::Network;

/// The file that switches maintenance on, and the response.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Maintenance {
    pub file: PathBuf,
    pub page: Option<PathBuf>,
    pub retry_after: Option<Period>,
    #[serde(default)]
    pub allow: Vec<Network>,
}

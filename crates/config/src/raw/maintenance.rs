//! `maintenance` of hosts.

use std::path::PathBuf;

use brisk_config_file::Period;
use serde::Deserialize;

use crate::values::Network;

/// The file that switches maintenance on, and the response.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Maintenance {
    pub(crate) file: PathBuf,
    pub(crate) page: Option<PathBuf>,
    pub(crate) retry_after: Option<Period>,
    #[serde(default)]
    pub(crate) allow: Vec<Network>,
}

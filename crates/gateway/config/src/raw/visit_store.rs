//! `[visits]`: storage of visits.

use std::path::PathBuf;

use brisk_config_file::{Period, Size};
use serde::Deserialize;

/// `[visits]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Visits {
    pub enabled: Option<bool>,
    pub folder: Option<PathBuf>,
    pub keep: Option<Period>,
    pub max_size: Option<Size>,
    pub networks: Option<PathBuf>,
    pub share: Option<f64>,
}

//! `[visits]`: storage of visits.

use std::path::PathBuf;

use brisk_config_file::{Period, Size};
use serde::Deserialize;

/// `[visits]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Visits {
    pub(crate) enabled: Option<bool>,
    pub(crate) folder: Option<PathBuf>,
    pub(crate) keep: Option<Period>,
    pub(crate) max_size: Option<Size>,
    pub(crate) networks: Option<PathBuf>,
    pub(crate) share: Option<f64>,
}

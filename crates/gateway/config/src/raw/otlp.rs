//! `[otlp]`: export of log records and spans.

use std::collections::BTreeMap;
use std::path::PathBuf;

use brisk_config_file::Period;
use serde::Deserialize;

/// `[otlp]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Otlp {
    pub endpoint: String,
    pub logs: Option<bool>,
    pub traces: Option<bool>,
    pub sample: Option<f64>,
    pub service_name: Option<String>,
    pub ca: Option<PathBuf>,
    pub headers: Option<BTreeMap<String, String>>,
    pub timeout: Option<Period>,
}

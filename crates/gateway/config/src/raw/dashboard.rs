//! `[dashboard]`: address of the dashboard and access to it.

use std::path::PathBuf;

use serde::Deserialize;

use super::{Address, Certificate};

/// `[dashboard]`. There is one if it is written, even without a key.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Dashboard {
    pub listen: Option<Address>,
    pub names: Vec<String>,
    pub token: Option<PathBuf>,
    pub certificate: Option<Certificate>,
    pub client_ca: Option<PathBuf>,
    /// Whether another port will do. That of a first run.
    #[serde(skip)]
    pub or_any_port: bool,
}

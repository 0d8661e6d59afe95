//! `[dashboard]`: address of the dashboard and access to it.

use std::path::PathBuf;

use serde::Deserialize;

use super::{Address, Certificate};

/// `[dashboard]`. There is one if it is written, even without a key.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Dashboard {
    pub(crate) listen: Option<Address>,
    pub(crate) names: Vec<String>,
    pub(crate) token: Option<PathBuf>,
    pub(crate) certificate: Option<Certificate>,
    pub(crate) client_ca: Option<PathBuf>,
    /// Whether another port will do. That of a first run.
    #[serde(skip)]
    pub(crate) or_any_port: bool,
}

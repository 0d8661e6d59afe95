//! Certificates in files, as hosts and others name them.

use std::path::PathBuf;

use serde::Deserialize;

use super::values::KeyPlace;

/// A certificate of a host, or that of an upstream's client.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Certificate {
    pub chain: PathBuf,
    pub key: KeyPlace,
    pub fallback_key: Option<PathBuf>,
    pub staple: Option<PathBuf>,
}

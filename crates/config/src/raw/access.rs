//! Access control of routes.

use std::path::PathBuf;

use serde::Deserialize;

/// `client_certificate`: certificates whose owners may use a route; any of the host's authorities if empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ClientCertificate {
    pub(crate) names: Option<Vec<String>>,
    pub(crate) fingerprints: Option<Vec<String>>,
}

/// `basic_auth`: users with passwords.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BasicAuth {
    pub(crate) file: PathBuf,
    pub(crate) realm: Option<String>,
    pub(crate) forward: Option<bool>,
}

/// `satisfy`: the number of restrictions that a client has to meet.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Satisfy {
    All,
    Any,
}

/// `forward_auth`: another server that decides about requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForwardAuth {
    pub(crate) url: Option<String>,
    pub(crate) upstream: Option<String>,
    pub(crate) path: Option<String>,
    #[serde(default)]
    pub(crate) copy_headers: Vec<String>,
}

//! Access control of routes.

use std::path::PathBuf;

use serde::Deserialize;

/// `client_certificate`: certificates whose owners may use a route; any of the host's authorities if empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientCertificate {
    pub names: Option<Vec<String>>,
    pub fingerprints: Option<Vec<String>>,
}

/// `basic_auth`: users with passwords.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BasicAuth {
    pub file: PathBuf,
    pub realm: Option<String>,
    pub forward: Option<bool>,
}

/// `satisfy`: the number of restrictions that a client has to meet.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Satisfy {
    All,
    Any,
}

/// `forward_auth`: another server that decides about requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardAuth {
    pub url: Option<String>,
    pub upstream: Option<String>,
    pub path: Option<String>,
    #[serde(default)]
    pub copy_headers: Vec<String>,
    #[serde(default)]
    pub copy_to_response: Vec<String>,
}

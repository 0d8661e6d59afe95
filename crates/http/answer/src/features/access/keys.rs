//! Keys of access control.

use std::path::PathBuf;

use brisk_config_file::Network;
use serde::Deserialize;

use super::token_keys::Jwt;

/// Networks of clients, of hosts and routes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkKeys {
    /// Clients that may use the host, see [access control](#access-control).
    pub allow: Option<Vec<Network>>,
    /// Clients that may use the host, see [access control](#access-control).
    pub deny: Option<Vec<Network>>,
}

/// Restrictions of the clients of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessKeys {
    /// Clients that may use the route, see [access control](#access-control).
    pub allow: Option<Vec<Network>>,
    /// Clients that may use the route, see [access control](#access-control).
    pub deny: Option<Vec<Network>>,
    /// [client certificates](#access-control) of which the route requires one.
    pub client_certificate: Option<ClientCertificate>,
    /// [users with passwords](#access-control).
    pub basic_auth: Option<BasicAuth>,
    /// [tokens of an issuer](#access-control).
    pub jwt: Option<Jwt>,
    /// Whether a client has to meet all restrictions of the route, or [one of them](#access-control).
    pub satisfy: Option<Satisfy>,
}

/// `client_certificate`: certificates whose owners may use a route; any of the host's authorities if empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientCertificate {
    /// Permitted names: a certificate needs one of them. Default: any name.
    pub names: Option<Vec<String>>,
    /// SHA-256 fingerprints of permitted certificates. Default: any certificate of the authorities of the host.
    pub fingerprints: Option<Vec<String>>,
}

/// `basic_auth`: users with passwords.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BasicAuth {
    /// File with users and hashes of their passwords, in the format of `htpasswd`.
    pub file: PathBuf,
    /// Realm that browsers show. Default: `restricted`.
    pub realm: Option<String>,
    /// Whether upstreams get the credentials. Default: `false`.
    pub forward: Option<bool>,
}

/// `satisfy`: the number of restrictions that a client has to meet.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Satisfy {
    /// All restrictions.
    All,
    /// One restriction.
    Any,
}

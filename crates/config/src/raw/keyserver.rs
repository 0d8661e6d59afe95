//! `[keyserver.NAME]` of a gateway, and the file of a key server.

use std::collections::BTreeMap;
use std::path::PathBuf;

use brisk_config_file::{Period, Rate};
use brisk_net::Target;
use serde::Deserialize;

use super::{Admin, Certificate, Keys};
use crate::values::{Address, KeyServerAddress};

/// `[keyserver.NAME]`: servers that have the same keys.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyServers {
    pub(crate) servers: Vec<KeyServerAddress>,
    pub(crate) certificate: Option<Certificate>,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) server_name: Option<String>,
    pub(crate) connections: Option<u16>,
    pub(crate) deadline: Option<Period>,
    pub(crate) hedge: Option<Period>,
    pub(crate) queue: Option<u32>,
}

impl KeyServers {
    /// The addresses of the servers.
    pub(crate) fn targets(&self) -> Vec<Target> {
        self.servers.iter().map(|server| server.0.clone()).collect()
    }
}

/// The whole file of a key server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerConfig {
    pub(crate) server: ServerSection,
    pub(crate) keys: Keys,
    pub(crate) admin: Admin,
    pub(crate) client: BTreeMap<String, Client>,
}

/// `[server]`: listeners, certificate, and location of the keys.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerSection {
    pub(crate) listen: Vec<Address>,
    pub(crate) certificate: Option<Certificate>,
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) key_folder: Option<PathBuf>,
    pub(crate) certificates: Vec<Certificate>,
    pub(crate) workers: Option<u16>,
    pub(crate) max_connections: Option<u32>,
    pub(crate) operations: Option<u16>,
    pub(crate) drain_timeout: Option<Period>,
}

/// `[client.NAME]`: permissions of the client with this common name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Client {
    pub(crate) keys: Option<Vec<String>>,
    pub(crate) operations: Option<Vec<Operation>>,
    pub(crate) rate: Option<Rate>,
}

/// A permitted kind of signature, or decryption.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(crate) enum Operation {
    #[serde(rename = "tls1.3")]
    Tls13,
    #[serde(rename = "tls1.2")]
    Tls12,
    #[serde(rename = "tls1.3-client")]
    Tls13Client,
    #[serde(rename = "tls1.2-rsa-decryption")]
    Tls12RsaDecryption,
}

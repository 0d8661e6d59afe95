//! `[keyserver.NAME]` of a gateway, and the file of a key server.

use std::collections::BTreeMap;
use std::path::PathBuf;

use brisk_config_file::{Period, Rate};
use brisk_net::Target;
use serde::Deserialize;

use super::values::{Address, KeyServerAddress};
use super::{Admin, Certificate, Keys, Sandbox};

/// `[keyserver.NAME]`: servers that have the same keys.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyServers {
    pub servers: Vec<KeyServerAddress>,
    pub certificate: Option<Certificate>,
    pub ca: Option<PathBuf>,
    pub server_name: Option<String>,
    pub connections: Option<u16>,
    pub deadline: Option<Period>,
    pub hedge: Option<Period>,
    pub queue: Option<u32>,
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
    pub server: ServerSection,
    pub keys: Keys,
    pub admin: Admin,
    pub client: BTreeMap<String, Client>,
}

/// `[server]`: listeners, certificate, and location of the keys.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerSection {
    pub listen: Vec<Address>,
    pub certificate: Option<Certificate>,
    pub client_ca: Option<PathBuf>,
    pub key_folder: Option<PathBuf>,
    pub certificates: Vec<Certificate>,
    pub workers: Option<u16>,
    pub max_connections: Option<u32>,
    pub operations: Option<u16>,
    pub drain_timeout: Option<Period>,
    pub sandbox: Option<Sandbox>,
}

/// `[client.NAME]`: permissions of the client with this common name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Client {
    pub keys: Option<Vec<String>>,
    pub operations: Option<Vec<Operation>>,
    pub rate: Option<Rate>,
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

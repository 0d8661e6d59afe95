//! Keys of the choice of a server.

use std::str::FromStr;

use brisk_config_file::{Written, read_as_text};
use serde::Deserialize;

/// Keys of a group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BalanceKeys {
    /// Method by which a server is chosen.
    pub balance: Option<BalanceMethod>,
    /// Input of `consistent_hash`; an error with another `balance`.
    pub hash_by: Option<HashBy>,
}

/// Balancing method of a group.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum BalanceMethod {
    /// In turn.
    RoundRobin,
    /// The server with the fewest requests.
    LeastConnections,
    /// By a property of the request.
    ConsistentHash,
}

/// `hash_by`: property of a request that selects its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashBy {
    /// The address of the client.
    ClientAddress,
    /// The path.
    Path,
    /// The header of this name.
    Header(String),
    /// The cookie of this name.
    Cookie(String),
}

impl Written for HashBy {
    const EXPECTED: &'static str = "\"client_address\", \"path\", \"header:NAME\" or \"cookie:NAME\"";
}

impl FromStr for HashBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = |name: &str| Some(name.to_owned()).filter(|name| !name.is_empty());
        let known = match text.split_once(':') {
            None if text == "client_address" => Some(Self::ClientAddress),
            None if text == "path" => Some(Self::Path),
            Some(("header", header)) => name(header).map(Self::Header),
            Some(("cookie", cookie)) => name(cookie).map(Self::Cookie),
            _ => None,
        };
        known.ok_or_else(|| format!("{text:?} is not known here; write {}", Self::EXPECTED))
    }
}

read_as_text!(HashBy);

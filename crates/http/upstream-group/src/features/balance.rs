//! `balance` and `hash_by`: the choice among the servers of a group.

pub(crate) mod choice;
mod keys;
pub(crate) mod members;

use brisk_config_file::KeyPath;
use http::HeaderName;

use super::{Context, GroupFeature, GroupScope};
pub use keys::{BalanceKeys, BalanceMethod, HashBy};

/// Choice among the healthy servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// In turn, by weight.
    #[default]
    RoundRobin,
    /// The server with the fewest requests of this worker in proportion to its weight.
    LeastConnections,
    /// The same server for equal keys, as long as it is healthy.
    ConsistentHash {
        /// The part of the request used as key.
        by: HashKey,
    },
}

/// The part of a request that determines its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The client's address.
    ClientAddress,
    /// The path of the request without the query.
    Path,
    /// The value of a header; without the header, the client's address.
    Header(HeaderName),
    /// The value of a cookie; without the cookie, the client's address.
    Cookie(String),
}

/// `balance` and `hash_by` of groups.
#[derive(Debug)]
pub struct BalanceFeature;

impl GroupFeature for BalanceFeature {
    type Keys = BalanceKeys;
    type Settings = Balance;

    fn resolve(keys: &BalanceKeys, group: &GroupScope<'_>, context: &mut Context<'_, '_>) -> Balance {
        let path = group.key("hash_by");
        match keys.balance.unwrap_or(BalanceMethod::RoundRobin) {
            BalanceMethod::ConsistentHash => {
                let by = keys.hash_by.as_ref().map(|by| hash_key(by, &path, context));
                Balance::ConsistentHash { by: by.unwrap_or(HashKey::ClientAddress) }
            }
            other => {
                if keys.hash_by.is_some() {
                    context.findings.wrong(&path, "has no effect without balance = \"consistent_hash\"");
                }
                match other {
                    BalanceMethod::LeastConnections => Balance::LeastConnections,
                    _ => Balance::RoundRobin,
                }
            }
        }
    }
}

fn hash_key(by: &HashBy, path: &KeyPath, context: &mut Context<'_, '_>) -> HashKey {
    match by {
        HashBy::ClientAddress => HashKey::ClientAddress,
        HashBy::Path => HashKey::Path,
        HashBy::Cookie(name) => HashKey::Cookie(name.clone()),
        HashBy::Header(name) => {
            if let Ok(name) = HeaderName::try_from(name.as_str()) {
                return HashKey::Header(name);
            }
            context.findings.wrong(path, format!("{name:?} is not the name of a header"));
            HashKey::ClientAddress
        }
    }
}

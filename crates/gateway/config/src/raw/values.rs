//! Values written as text or in several forms: addresses and servers.

mod key_place;
mod private_host;
mod sessions;

use std::fmt;
use std::str::FromStr;

use brisk_config_file::{Written, read_as_text};
use brisk_net::Target;
use brisk_upstream_group::settings::{ServerUrl, ServerUrlError};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

pub(crate) use brisk_config_file::{Address, ClientConnections, FastOpen, LogFile, Network, ProxyProtocol};
pub(crate) use key_place::KeyPlace;
pub(crate) use private_host::PrivateHost;
pub(crate) use sessions::{RedisServer, TicketKeys};

/// An address of a key server, or its name, with the port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyServerAddress(pub Target);

impl Written for KeyServerAddress {
    const EXPECTED: &'static str = "an address in quotes, as \"10.0.0.5:8444\"";
}

impl FromStr for KeyServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| {
            format!(
                "{text:?} is not an address of a key server: write host and port, as \"10.0.0.5:8444\" or \
                 \"keys.internal:8444\""
            )
        })
    }
}

/// `hash_by`: property of a request that selects its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HashBy {
    ClientAddress,
    Path,
    Header(String),
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

/// A server of an upstream, alone or with its role in the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamServer {
    pub url: ServerUrl,
    pub weight: Option<u16>,
    pub backup: bool,
    pub resolve: bool,
}

impl UpstreamServer {
    /// A server without further keys.
    pub(crate) fn new(url: ServerUrl) -> Self {
        Self { url, weight: None, backup: false, resolve: false }
    }
}

impl Written for Url {
    const EXPECTED: &'static str = "a URL in quotes, as \"http://127.0.0.1:8080\"";
}

/// A [`ServerUrl`] as it is read from a file.
struct Url(ServerUrl);

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error: ServerUrlError| error.to_string())
    }
}

impl<'de> Deserialize<'de> for UpstreamServer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            url: Url,
            weight: Option<u16>,
            #[serde(default)]
            backup: bool,
            #[serde(default)]
            resolve: bool,
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = UpstreamServer;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a URL in quotes or { url = URL, weight = NUMBER }")
            }

            fn visit_str<E: de::Error>(self, url: &str) -> Result<UpstreamServer, E> {
                let Url(url) = url.parse().map_err(E::custom)?;
                Ok(UpstreamServer::new(url))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<UpstreamServer, A::Error> {
                let Table { url: Url(url), weight, backup, resolve } =
                    Table::deserialize(value::MapAccessDeserializer::new(table))?;
                Ok(UpstreamServer { url, weight, backup, resolve })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

read_as_text!(HashBy, KeyServerAddress, RedisServer, Url);

/// A version of HTTP that clients may agree on by ALPN.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(crate) enum Protocol {
    #[serde(rename = "h2")]
    Http2,
    #[serde(rename = "http/1.1")]
    Http1,
}

/// The version of HTTP spoken to an `https` upstream.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(crate) enum TlsProtocol {
    #[serde(rename = "http/1.1")]
    Http1,
    #[serde(rename = "h2")]
    Http2,
}

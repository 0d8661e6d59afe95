//! Values written as text or in several forms: addresses and keys.

mod key_place;
mod private_host;
mod sessions;

use std::str::FromStr;

use brisk_config_file::{Written, read_as_text};
use brisk_net::Target;
use serde::Deserialize;

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

read_as_text!(KeyServerAddress, RedisServer);

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

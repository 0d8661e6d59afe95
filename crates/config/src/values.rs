//! Values written as text or in several forms: addresses, networks, redirects.

mod key_place;
mod private_host;
mod sessions;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use brisk_config_file::{Written, read_as_text};
use brisk_net::Target;
use brisk_upstream::settings::{ServerUrl, ServerUrlError};
use ipnet::IpNet;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor, value};

pub(crate) use key_place::KeyPlace;
pub(crate) use private_host::PrivateHost;
pub(crate) use sessions::{EarlyData, RedisServer, TicketKeys};

/// An IP address and a port to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address(pub(crate) SocketAddr);

impl Written for Address {
    const EXPECTED: &'static str = "an address in quotes, as \"0.0.0.0:443\"";
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| {
            format!(
                "{text:?} is not an address: write IP address and port, as \"0.0.0.0:443\" or \"[::]:443\""
            )
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A network, or a single address as the network that holds only it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network(pub(crate) IpNet);

impl Written for Network {
    const EXPECTED: &'static str = "a network in quotes, as \"10.0.0.0/8\"";
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a network: write one as \"10.0.0.0/8\", \"2001:db8::/32\" or \"192.0.2.1\""
            )
        };
        let single = || text.parse::<IpAddr>().map(IpNet::from);
        text.parse::<IpNet>().or_else(|_| single()).map(Self).map_err(|_| wrong())
    }
}

/// `fast_open`: the queue length, or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FastOpen(pub(crate) Option<u32>);

impl<'de> Deserialize<'de> for FastOpen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = FastOpen;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a queue length from 1 to 65535 or `false`")
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<FastOpen, E> {
                if on { Err(E::invalid_type(de::Unexpected::Bool(on), &self)) } else { Ok(FastOpen(None)) }
            }

            fn visit_i64<E: de::Error>(self, length: i64) -> Result<FastOpen, E> {
                let in_range = u16::try_from(length).ok().filter(|length| *length > 0);
                let wrong = || E::invalid_value(de::Unexpected::Signed(length), &self);
                in_range.map(|length| FastOpen(Some(length.into()))).ok_or_else(wrong)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// `max_connections_per_client`: a number, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientConnections(pub(crate) Option<u32>);

impl<'de> Deserialize<'de> for ClientConnections {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = ClientConnections;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of connections or `false`")
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<ClientConnections, E> {
                if on {
                    return Err(E::invalid_type(de::Unexpected::Bool(on), &self));
                }
                Ok(ClientConnections(None))
            }

            fn visit_i64<E: de::Error>(self, most: i64) -> Result<ClientConnections, E> {
                let wrong = || E::invalid_value(de::Unexpected::Signed(most), &self);
                u32::try_from(most).map(|most| ClientConnections(Some(most))).map_err(|_| wrong())
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// `proxy_protocol`: from no one, everyone, or some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProxyProtocol {
    Off,
    Everyone,
    Trusted(Vec<Network>),
}

impl<'de> Deserialize<'de> for ProxyProtocol {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = ProxyProtocol;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true`, `false` or a list of networks")
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<ProxyProtocol, E> {
                Ok(if on { ProxyProtocol::Everyone } else { ProxyProtocol::Off })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<ProxyProtocol, A::Error> {
                Vec::deserialize(value::SeqAccessDeserializer::new(list)).map(ProxyProtocol::Trusted)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// An address of a key server, or its name, with the port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyServerAddress(pub(crate) Target);

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

/// `access_log.file`: a stream of the process or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogFile {
    Stdout,
    Stderr,
    Path(PathBuf),
}

impl Written for LogFile {
    const EXPECTED: &'static str = "\"stdout\", \"stderr\" or a path";
}

impl FromStr for LogFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err(format!("no path: write {}", Self::EXPECTED)),
            "stdout" => Ok(Self::Stdout),
            "stderr" => Ok(Self::Stderr),
            path => Ok(Self::Path(path.into())),
        }
    }
}

/// `redirect`: where to, and with which status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) to: String,
    pub(crate) status: Option<u16>,
}

impl<'de> Deserialize<'de> for Redirect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            to: String,
            status: Option<u16>,
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Redirect;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a URL in quotes or { to = URL, status = NUMBER }")
            }

            fn visit_str<E: de::Error>(self, to: &str) -> Result<Redirect, E> {
                Ok(Redirect { to: to.to_owned(), status: None })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<Redirect, A::Error> {
                let Table { to, status } = Table::deserialize(value::MapAccessDeserializer::new(table))?;
                Ok(Redirect { to, status })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A server of an upstream, alone or with its share of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamServer {
    pub(crate) url: ServerUrl,
    pub(crate) weight: Option<u16>,
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
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = UpstreamServer;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a URL in quotes or { url = URL, weight = NUMBER }")
            }

            fn visit_str<E: de::Error>(self, url: &str) -> Result<UpstreamServer, E> {
                let Url(url) = url.parse().map_err(E::custom)?;
                Ok(UpstreamServer { url, weight: None })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, table: A) -> Result<UpstreamServer, A::Error> {
                let Table { url: Url(url), weight } =
                    Table::deserialize(value::MapAccessDeserializer::new(table))?;
                Ok(UpstreamServer { url, weight })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

read_as_text!(Address, Network, HashBy, KeyServerAddress, LogFile, RedisServer, Url);

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

//! Values of several forms: addresses, networks, numbers that can be off, and files.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use brisk_net::canonical_network;
use ipnet::IpNet;
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor, value};

use crate::read_as_text;
use crate::text::Written;

/// An IP address and a port to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address(pub SocketAddr);

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
pub struct Network(pub IpNet);

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
        let network = text.parse::<IpNet>().or_else(|_| single()).map_err(|_| wrong())?;
        // Networks are compared with canonical addresses of clients: IPv4 for mapped ones. A network of
        // mapped addresses would match none of them.
        let canonical = canonical_network(network);
        if canonical == network {
            Ok(Self(network))
        } else {
            Err(format!("{text:?} is an IPv4 network: write \"{canonical}\""))
        }
    }
}

/// `fast_open`: the queue length, or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastOpen(pub Option<u32>);

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
pub struct ClientConnections(pub Option<u32>);

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
pub enum ProxyProtocol {
    /// From no one.
    Off,
    /// From every client.
    Everyone,
    /// From clients in these networks.
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

/// `access_log.file`: a stream of the process or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogFile {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The file at a path.
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

read_as_text!(Address, Network, LogFile);

//! Keys of the servers of a group.

use std::fmt;
use std::str::FromStr;

use brisk_config_file::{Written, read_as_text};
use brisk_http::server_url::{ServerUrl, ServerUrlError};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor, value};

/// Keys of a group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServersKeys {
    /// Servers: `http://`, `https://` or `h2c://` (HTTP/2 without TLS), host and port, and optionally a
    /// [path](#paths-for-upstreams), the same for all servers; or a [Unix socket](#unix-sockets), `unix:/PATH` or
    /// `h2c+unix:/PATH`; or [application servers](#fastcgi-uwsgi-and-scgi), `fastcgi://`, `uwsgi://` or `scgi://`, with a socket
    /// `fastcgi+unix:/PATH` and so on. For [`[[tcp]]`](#tcp): `tcp://`, `tls://` or `tcp+unix:`. `weight`: share of the requests,
    /// default 1. `backup = true`: a [backup server](#backup-servers).
    /// `resolve = true`, or `srv+` in front of the URL: servers [from DNS](#servers-from-dns).
    pub servers: Vec<UpstreamServer>,
}

/// A server of an upstream, alone or with its role in the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamServer {
    /// The address of the server.
    pub url: ServerUrl,
    /// Share of the requests.
    pub weight: Option<u16>,
    /// Whether the server gets requests only while no other is available.
    pub backup: bool,
    /// Whether DNS names the servers.
    pub resolve: bool,
}

impl UpstreamServer {
    /// A server without further keys.
    pub fn new(url: ServerUrl) -> Self {
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

read_as_text!(Url);

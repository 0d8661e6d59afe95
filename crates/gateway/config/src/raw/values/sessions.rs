//! Values of resumption with several forms: sources of ticket keys, Redis servers.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor, value};

use brisk_config_file::Written;
use brisk_wire::uri::without_scheme;

/// `sessions.ticket_keys`: where the keys of tickets come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TicketKeys {
    Memory,
    Secret,
    Redis,
    Files(Vec<PathBuf>),
}

impl TicketKeys {
    const WORDS: [&'static str; 3] = ["memory", "secret", "redis"];
}

impl<'de> Deserialize<'de> for TicketKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = TicketKeys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"memory\", \"secret\", \"redis\" or a list of files")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<TicketKeys, E> {
                match word {
                    "memory" => Ok(TicketKeys::Memory),
                    "secret" => Ok(TicketKeys::Secret),
                    "redis" => Ok(TicketKeys::Redis),
                    // Without the brackets of a list, a path would be reported as an unknown word.
                    file if file.contains(['.', '/']) => {
                        Err(E::custom(format!("key files are written as a list: [{file:?}]")))
                    }
                    other => Err(E::unknown_variant(other, &TicketKeys::WORDS)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<TicketKeys, A::Error> {
                Vec::deserialize(value::SeqAccessDeserializer::new(list)).map(TicketKeys::Files)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A server of `sessions.redis`: `redis://HOST:PORT`, or `rediss://` where it speaks TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RedisServer {
    pub tls: bool,
    /// A name or an address, without brackets.
    pub host: String,
    pub port: Option<u16>,
}

impl Written for RedisServer {
    const EXPECTED: &'static str = "a URL in quotes, as \"redis://127.0.0.1:6379\"";
}

impl FromStr for RedisServer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |right: &str| Err(format!("{text:?} is not a server of Redis: {right}"));
        // Valkey is compatible, and its clients have schemes of their own.
        let schemes = [("redis://", false), ("valkey://", false), ("rediss://", true), ("valkeys://", true)];
        let after = |(scheme, tls)| Some((tls, without_scheme(text, scheme)?));
        let Some((tls, rest)) = schemes.into_iter().find_map(after) else {
            return wrong("write \"redis://HOST:PORT\", or \"rediss://HOST:PORT\" where it speaks TLS");
        };
        if rest.contains('@') {
            // The text is not repeated in the error: it may contain a password.
            return Err("write who brisk is as `username` and `password_file`, not in the URL".to_owned());
        }
        // A slash at the end is the empty path of a URL, and names no database.
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) {
            return wrong("it ends after the port: brisk uses database 0");
        }
        let Some((host, port)) = host_and_port(rest) else {
            return wrong(
                "write host and port, as \"redis://10.0.0.1:6379\" or \"redis://[2001:db8::1]:6379\"",
            );
        };
        Ok(Self { tls, host, port })
    }
}

fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    // IPv6 has to be in brackets: otherwise the last part of the address could be the port.
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        (address.to_string(), port.strip_prefix(':').or(port.is_empty().then_some(""))?)
    } else {
        let (host, port) = text.split_once(':').unwrap_or((text, ""));
        (host.to_ascii_lowercase(), port)
    };
    let named = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if host.is_empty() || !host.chars().all(named) {
        return None;
    }
    // Port 0 is a request for any free port, which is no port to connect to.
    let port = if port.is_empty() { None } else { Some(port.parse().ok().filter(|port| *port > 0)?) };
    Some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_redis_have_a_scheme_a_host_and_perhaps_a_port() {
        let server = |tls, host: &str, port| Ok(RedisServer { tls, host: host.to_owned(), port });
        for (text, expected) in [
            ("redis://10.0.0.1:6379", server(false, "10.0.0.1", Some(6379))),
            ("rediss://Cache.example.com", server(true, "cache.example.com", None)),
            ("valkey://cache:7000/", server(false, "cache", Some(7000))),
            ("redis://[2001:db8::1]:6379", server(false, "2001:db8::1", Some(6379))),
            ("redis://[::1]", server(false, "::1", None)),
            ("REDIS://a", server(false, "a", None)),
            ("Valkeys://a", server(true, "a", None)),
        ] {
            assert_eq!(text.parse::<RedisServer>(), expected, "{text}");
        }
        for (text, right) in [
            ("10.0.0.1:6379", "write \"redis://HOST:PORT\""),
            ("http://10.0.0.1", "write \"redis://HOST:PORT\""),
            ("redis://brisk:geheim@10.0.0.1", "`password_file`"),
            ("redis://10.0.0.1:6379/1", "brisk uses database 0"),
            ("redis://10.0.0.1:0", "write host and port"),
            ("redis://10.0.0.1:x", "write host and port"),
            ("redis://2001:db8::1", "write host and port"),
            ("redis://:6379", "write host and port"),
            ("redis://[::1]6379", "write host and port"),
        ] {
            let message = text.parse::<RedisServer>().expect_err(text);
            assert!(message.contains(right) && !message.contains("geheim"), "{message}");
        }
    }
}

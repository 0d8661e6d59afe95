//! Lines `server`, `default-server` and `server-template`: addresses and options.

use std::collections::BTreeMap;

use crate::directive::Directive;
use crate::haproxy::context::Context;
use crate::haproxy::grammar::has_variable;

/// Options with a value, such as `inter 2s`.
const VALUED: [&str; 47] = [
    "addr",
    "agent-addr",
    "agent-inter",
    "agent-port",
    "agent-send",
    "alpn",
    "backlog",
    "ca-file",
    "check-alpn",
    "check-proto",
    "check-sni",
    "ciphers",
    "ciphersuites",
    "cookie",
    "crl-file",
    "crt",
    "downinter",
    "error-limit",
    "fall",
    "fastinter",
    "id",
    "init-addr",
    "inter",
    "log-proto",
    "max-reuse",
    "maxconn",
    "maxqueue",
    "minconn",
    "namespace",
    "observe",
    "on-error",
    "on-marked-down",
    "on-marked-up",
    "pool-low-conn",
    "pool-max-conn",
    "pool-purge-delay",
    "port",
    "proto",
    "redir",
    "resolve-net",
    "resolve-opts",
    "resolve-prefer",
    "resolvers",
    "rise",
    "slowstart",
    "sni",
    "source",
];

/// Further options with a value, such as `weight 10`.
const ALSO_VALUED: [&str; 14] = [
    "ssl-max-ver",
    "ssl-min-ver",
    "tcp-ut",
    "track",
    "verify",
    "verifyhost",
    "weight",
    "proxy-v2-options",
    "usesrc",
    "curves",
    "sigalgs",
    "client-sigalgs",
    "shard",
    "set-proxy-v2-tlv-fmt",
];

/// Options that need no counterpart.
pub(crate) const UNNEEDED: [&str; 36] = [
    "id",
    "init-addr",
    "resolve-opts",
    "resolve-net",
    "pool-low-conn",
    "pool-max-conn",
    "pool-purge-delay",
    "max-reuse",
    "on-marked-down",
    "on-marked-up",
    "downinter",
    "fastinter",
    "ciphers",
    "ciphersuites",
    "ssl-max-ver",
    "ssl-min-ver",
    "no-sslv3",
    "no-tlsv10",
    "no-tlsv11",
    "no-tlsv12",
    "no-tlsv13",
    "no-tls-tickets",
    "force-tlsv12",
    "force-tlsv13",
    "ssl-reuse",
    "no-ssl-reuse",
    "enabled",
    "non-stick",
    "minconn",
    "tcp-ut",
    "tfo",
    "no-tfo",
    "no-check",
    "no-backup",
    "error-limit",
    "log-proto",
];

/// Options whose absence changes checks or the choice of servers only.
pub(crate) const LOST: [&str; 20] = [
    "addr",
    "agent-addr",
    "agent-inter",
    "agent-port",
    "agent-send",
    "agent-check",
    "check-alpn",
    "check-proto",
    "check-sni",
    "check-ssl",
    "check-send-proxy",
    "check-via-socks4",
    "observe",
    "on-error",
    "port",
    "redir",
    "track",
    "maxqueue",
    "shard",
    "proxy-v2-options",
];

/// A `server` with its options: `check inter 2s` becomes `inter` with `2s`, and `check` with an empty value.
#[derive(Clone, Debug)]
pub(crate) struct Server<'a> {
    pub(crate) line: &'a Directive,
    pub(crate) address: &'a str,
    options: BTreeMap<&'a str, &'a str>,
}

impl<'a> Server<'a> {
    /// Reads a line with the options of `default-server` lines before it.
    pub(crate) fn read(line: &'a Directive, defaults: &[&'a Directive]) -> Self {
        // `server NAME ADDRESS`, `server-template PREFIX NUMBER ADDRESS`, `dispatch ADDRESS`.
        let at = match line.name.as_str() {
            "server" => 1,
            "server-template" => 2,
            _ => 0,
        };
        let mut options = BTreeMap::new();
        for default in defaults {
            gather(&default.args, &mut options);
        }
        gather(line.args.get(at + 1..).unwrap_or_default(), &mut options);
        Self { line, address: line.args.get(at).map_or("", String::as_str), options }
    }

    /// The value of an option.
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        self.options.get(name).copied()
    }

    /// Whether the option is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.options.contains_key(name)
    }

    /// Names of all options.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.options.keys().copied()
    }
}

fn gather<'a>(words: &'a [String], options: &mut BTreeMap<&'a str, &'a str>) {
    let mut rest = words.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        let value = if VALUED.contains(&word) || ALSO_VALUED.contains(&word) {
            rest.next().unwrap_or("")
        } else {
            ""
        };
        // `no-check` of a server takes back `check` of a `default-server`.
        if let Some(positive) = word.strip_prefix("no-") {
            options.remove(positive);
        }
        match word {
            "enabled" => options.remove("disabled"),
            _ => None,
        };
        options.insert(word, value);
    }
}

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// Host and port; IPv6 in brackets.
    Host(String, Option<u16>),
    /// A path, or a name in the abstract namespace with `@`.
    Socket(String),
}

/// Reads the address of a server: `[::1]:80` becomes `Host("[::1]", Some(80))`, and `abns@a` becomes `Socket("@a")`. `None` for
/// other forms, such as `fd@3`.
pub(crate) fn address(text: &str) -> Option<Address> {
    let text = ["ipv4@", "ipv6@", "tcp@", "tcp4@", "tcp6@", "inet@"]
        .iter()
        .find_map(|start| text.strip_prefix(start))
        .unwrap_or(text);
    if let Some(path) = text.strip_prefix("unix@").or_else(|| text.starts_with('/').then_some(text)) {
        return path.starts_with('/').then(|| Address::Socket(path.to_owned()));
    }
    if let Some(name) = text.strip_prefix("abns@") {
        return Some(Address::Socket(format!("@{name}")));
    }
    if text.contains('@') || text.is_empty() {
        return None;
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            (host, Some(port.parse().ok().filter(|port| *port > 0)?))
        }
        Some((host, "")) => (host, None),
        // The text keeps the variable of the environment; the number only states that there is a port.
        Some((host, port)) if has_variable(port) => {
            return Some(Address::Host(format!("{host}:{port}"), Some(1)));
        }
        // An offset such as +1000, or a range.
        Some((host, _)) if !host.contains(':') && !host.starts_with('[') => return None,
        _ => (text, None),
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_v6 = bare.parse::<std::net::Ipv6Addr>().is_ok();
    let is_name =
        |host: &str| has_variable(host) || crate::haproxy::host_name::is_name(host.trim_end_matches('.'));
    if is_v6 {
        return Some(Address::Host(format!("[{bare}]"), port));
    }
    is_name(host).then(|| Address::Host(host.to_owned(), port))
}

impl Context<'_> {
    /// URL of a [`Server`] in brisk, with `tcp` in `[[tcp]]`: `http://10.0.0.1:80`, `h2c://` with `proto h2`, `tls://` with `ssl`
    /// and `tcp`. `ports` are the ones of the listener, for an address without a port.
    pub(crate) fn url(server: &Server<'_>, tcp: bool, ports: &[u16]) -> Result<String, String> {
        let has_tls = server.has("ssl");
        let own = address(server.address).ok_or("brisk does not have the form of the address")?;
        let scheme = match (tcp, has_tls) {
            (true, true) => "tls",
            (true, false) => "tcp",
            (false, true) => "https",
            (false, false) if server.get("proto") == Some("h2") => "h2c",
            (false, false) => "http",
        };
        match own {
            Address::Socket(_) if has_tls => Err("brisk does not speak TLS over Unix sockets".to_owned()),
            Address::Socket(path) if tcp => Ok(format!("tcp+unix:{path}")),
            Address::Socket(path) if scheme == "h2c" => Ok(format!("h2c+unix:{path}")),
            Address::Socket(path) => Ok(format!("unix:{path}")),
            Address::Host(host, Some(_))
                if has_variable(host.rsplit(':').next().unwrap_or(""))
                    && host.contains(':')
                    && !host.ends_with(']') =>
            {
                Ok(format!("{scheme}://{host}"))
            }
            Address::Host(host, Some(port)) => Ok(format!("{scheme}://{host}:{port}")),
            // Such names have SRV records, which state the port.
            Address::Host(host, None) if host.starts_with('_') && server.has("resolvers") => {
                Ok(format!("srv+{scheme}://{host}"))
            }
            Address::Host(host, None) => match ports {
                [port] => Ok(format!("{scheme}://{host}:{port}")),
                _ => Err("the server has the port of the listener, and there are several".to_owned()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_hosts_ports_and_sockets() {
        let host = |host: &str, port| Some(Address::Host(host.to_owned(), port));
        for (text, expected) in [
            ("10.0.0.1:80", host("10.0.0.1", Some(80))),
            ("ipv4@app.internal:80", host("app.internal", Some(80))),
            ("[::1]:80", host("[::1]", Some(80))),
            ("2001:db8::1:80", host("[2001:db8::1]", Some(80))),
            ("app", host("app", None)),
            ("unix@/run/a.sock", Some(Address::Socket("/run/a.sock".to_owned()))),
            ("abns@a", Some(Address::Socket("@a".to_owned()))),
            ("10.0.0.1:+80", None),
            ("10.0.0.1:0", None),
            ("fd@3", None),
            ("", None),
        ] {
            assert_eq!(address(text), expected, "{text}");
        }
    }
}

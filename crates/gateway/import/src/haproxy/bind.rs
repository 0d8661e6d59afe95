//! Lines `bind`: addresses, `crt` and `crt-list`, and the `Listeners` of a `frontend` that brisk can serve together.

use std::net::IpAddr;

use crate::directive::Directive;
use crate::haproxy::context::Context;
use crate::haproxy::proxy::Proxy;
use crate::toml::{self, Keys};

/// Ports of one range such as `:8000-8099` at most.
const MOST_PORTS: u16 = 100;

/// Addresses of one `Listeners` at most.
const MOST_ADDRESSES: usize = 5000;

/// Options with a value that need no counterpart, such as `maxconn 100`.
const VALUED: [&str; 28] = [
    "name",
    "id",
    "mode",
    "user",
    "group",
    "uid",
    "gid",
    "maxconn",
    "backlog",
    "nice",
    "process",
    "thread",
    "shards",
    "level",
    "severity-output",
    "ciphers",
    "ciphersuites",
    "curves",
    "ecdhe",
    "npn",
    "ssl-max-ver",
    "tls-ticket-keys",
    "mss",
    "tcp-ut",
    "sigalgs",
    "client-sigalgs",
    "tfo-backlog",
    "proto",
];

/// Options without a value that need no counterpart, such as `tfo`; `bind` reads `ssl`, `accept-proxy` and `v6only`.
const FLAGS: [&str; 24] = [
    "ssl",
    "accept-proxy",
    "v4v6",
    "v6only",
    "tfo",
    "defer-accept",
    "transparent",
    "prefer-client-ciphers",
    "allow-0rtt",
    "expose-fd",
    "listeners",
    "no-sslv3",
    "no-tlsv10",
    "no-tlsv11",
    "no-tlsv12",
    "no-tls-tickets",
    "strict-sni",
    "no-ca-names",
    "no-alpn",
    "force-tlsv12",
    "force-tlsv13",
    "quic-force-retry",
    "ssl-skip-self-issued-ca",
    "no-tlsv13",
];

/// A certificate of `crt` or `crt-list`, or a folder of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// Name in the configuration, below the folder of `crt-base`.
    pub(crate) path: String,
    pub(crate) is_folder: bool,
    /// Names that a `crt-list` has for it.
    pub(crate) names: Vec<String>,
}

/// Addresses of a `frontend` that brisk can serve together: `tls`, `proxy` and `clients` are equal.
#[expect(clippy::struct_excessive_bools, reason = "the words of `bind`")]
#[derive(Clone, Debug)]
pub(crate) struct Listeners<'a> {
    pub(crate) line: &'a Directive,
    pub(crate) tls: bool,
    /// Whether connections begin with a PROXY header: `accept-proxy`.
    pub(crate) proxy: bool,
    /// `client_certificates` of a host, from `verify` and `ca-file`; empty without them.
    pub(crate) clients: Keys,
    pub(crate) addresses: Vec<String>,
    pub(crate) ports: Vec<u16>,
    pub(crate) quic: bool,
    pub(crate) certificates: Vec<Certificate>,
    /// Whether `ssl-min-ver` is `TLSv1.3`.
    pub(crate) is_recent: bool,
}

impl<'a> Context<'a> {
    /// The `Listeners` of a `frontend`, divided by properties that brisk has for a whole file.
    pub(crate) fn listeners(&self, proxy: &Proxy<'a>) -> Vec<Listeners<'a>> {
        let mut all: Vec<Listeners<'a>> = Vec::new();
        for line in proxy.all("bind") {
            let Some(own) = self.bind(line) else { continue };
            let is_same = |other: &&mut Listeners<'a>| {
                other.tls == own.tls && other.proxy == own.proxy && other.clients == own.clients
            };
            match all.iter_mut().find(is_same) {
                // The rest is not read: the frontend has too many addresses.
                Some(other) if other.addresses.len() > MOST_ADDRESSES => {}
                Some(other) => {
                    other.addresses.extend(own.addresses);
                    other.ports.extend(own.ports);
                    other.quic |= own.quic;
                    // One line with TLS 1.2 keeps it for all, so that its clients can connect.
                    other.is_recent &= own.is_recent;
                    let new = own.certificates.into_iter().filter(|new| !other.certificates.contains(new));
                    other.certificates.extend(new.collect::<Vec<_>>());
                }
                None => all.push(own),
            }
        }
        for own in all.iter().filter(|own| own.addresses.len() > MOST_ADDRESSES) {
            let reason = format!("the frontend has more than {MOST_ADDRESSES} addresses");
            self.missing(own.line, reason, "divide the frontend; until then brisk does not listen there");
        }
        all.retain(|own| own.addresses.len() <= MOST_ADDRESSES);
        for listeners in &mut all {
            // `dedup` removes neighbors only; the addresses keep the order of the lines.
            listeners.ports.sort_unstable();
            listeners.ports.dedup();
            let mut seen = std::collections::BTreeSet::new();
            listeners.addresses.retain(|address| seen.insert(address.clone()));
        }
        all
    }

    fn bind(&self, line: &'a Directive) -> Option<Listeners<'a>> {
        let missing = |reason: &str| {
            self.missing(
                line,
                reason,
                "write an address in https or http of [server]; until then brisk does not listen there",
            );
            None
        };
        let mut own = Listeners {
            line,
            tls: line.has("ssl"),
            proxy: line.has("accept-proxy"),
            clients: Keys::default(),
            addresses: Vec::new(),
            ports: Vec::new(),
            quic: false,
            certificates: Vec::new(),
            is_recent: false,
        };
        for text in line.arg(0).split(',') {
            let Some((mut addresses, ports, is_quic)) = addresses(text, line.has("v6only")) else {
                return missing("brisk listens on IP addresses with fixed ports");
            };
            own.quic |= is_quic;
            own.addresses.append(&mut addresses);
            own.ports.extend(ports);
        }
        self.carried(line);
        match self.bind_options(line, &mut own) {
            Ok(()) if own.tls && own.certificates.is_empty() => {
                missing("the listener has no certificate that the importer finds")
            }
            Ok(()) => Some(own),
            Err(reason) => missing(&reason),
        }
    }

    fn bind_options(&self, line: &'a Directive, own: &mut Listeners<'a>) -> Result<(), String> {
        let (mut verify, mut authority, mut lists) = (None, None, Vec::new());
        let mut rest = line.args.iter().skip(1);
        while let Some(word) = rest.next() {
            let mut value = || rest.next().map_or("", String::as_str);
            match word.as_str() {
                "crt" => own.certificates.push(self.certificate(value())),
                "crt-list" => own.certificates.extend(self.certificate_list(line, value())?),
                "verify" => verify = Some(value()),
                "ca-file" => authority = Some(value()),
                "crl-file" => lists.push(self.based(value(), "ca-base")),
                "ca-verify-file" | "alpn" => drop(value()),
                "ssl-min-ver" => own.is_recent = value() == "TLSv1.3",
                "interface" | "namespace" => {
                    return Err(format!("brisk does not listen on the {word} {} alone", value()));
                }
                "ca-ignore-err" | "crt-ignore-err" => {
                    let errors = value();
                    self.different(
                        line,
                        format!("brisk refuses certificates of clients with the errors {errors}"),
                    );
                }
                "ca-sign-file" | "ca-sign-pass" | "ocsp-update" => {
                    let value = value();
                    self.missing(
                        line,
                        format!("brisk has no {word} {value}"),
                        "look for its purpose in docs/configuration.md",
                    );
                }
                word if VALUED.contains(&word) => drop(value()),
                word if FLAGS.contains(&word) => {}
                word => self.missing(
                    line,
                    format!("brisk has no option {word} of addresses"),
                    "look for its purpose in docs/configuration.md",
                ),
            }
        }
        let mode = match verify {
            Some("required") => "required",
            Some("optional") => "optional",
            _ => return Ok(()),
        };
        let authority = authority.ok_or("the certificates of clients have no ca-file")?;
        own.clients = Keys::of("mode", toml::text(mode));
        own.clients.set("ca", self.based(authority, "ca-base"));
        if !lists.is_empty() {
            own.clients.set("crl", format!("[{}]", lists.join(", ")));
            // HAProxy needs a list for the certificate of the client only.
        }
        Ok(())
    }

    /// The `Certificate` of a file or folder below `crt-base`.
    fn certificate(&self, name: &str) -> Certificate {
        let path = match self.global("crt-base") {
            Some(line) if !name.starts_with('/') => {
                self.carried(line);
                format!("{}/{name}", line.arg(0))
            }
            _ => name.to_owned(),
        };
        let is_folder = path.ends_with('/') || self.files.borrow().is_folder(&path);
        let path = path.trim_end_matches('/').to_owned();
        // Without the folder on this machine, its name decides.
        let is_folder = is_folder || !path.rsplit('/').next().unwrap_or("").contains('.');
        Certificate { path, is_folder, names: Vec::new() }
    }

    /// The certificates of a `crt-list` with their names. Options in brackets concern the names of a line.
    fn certificate_list(&self, line: &'a Directive, name: &str) -> Result<Vec<Certificate>, String> {
        let lines = self.files.borrow_mut().lines(name)?;
        let mut all = Vec::new();
        for text in lines.iter() {
            let (path, mut rest) = text.split_once([' ', '\t', '[']).unwrap_or((text, ""));
            if text.contains('[') {
                let bracketed = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
                let (options, names) = bracketed.ok_or("the crt-list has a bracket without its end")?;
                self.certificate_options(line, options)?;
                rest = names;
            }
            let names = rest.split_whitespace().filter(|name| !name.starts_with('!'));
            let names = names.map(str::to_ascii_lowercase).collect();
            all.push(Certificate { names, ..self.certificate(path) });
        }
        Ok(all)
    }

    /// Notes options of a line of a `crt-list`. An error if they restrict clients, because a listener of brisk has one rule.
    fn certificate_options(&self, line: &'a Directive, options: &str) -> Result<(), String> {
        let words: Vec<_> = options.split_whitespace().collect();
        let is_verified = words.windows(2).any(|pair| pair[0] == "verify" && pair[1] != "none");
        if is_verified || words.iter().any(|word| matches!(*word, "ca-file" | "crl-file" | "ca-verify-file"))
        {
            return Err(
                "the crt-list verifies clients for some names: write client_certificates of these hosts"
                    .to_owned(),
            );
        }
        if !words.is_empty() {
            let reason = format!("brisk has no options of certificates: {}", words.join(" "));
            self.missing(line, reason, "look for their purpose in docs/configuration.md, [tls]");
        }
        Ok(())
    }
}

/// IP addresses with ports, and whether they are for QUIC: `10.0.0.1:80-81` is `10.0.0.1:80` and `10.0.0.1:81`. `None` for
/// sockets such as `/run/a.sock`, and for names except `localhost`.
fn addresses(text: &str, is_v6_only: bool) -> Option<(Vec<String>, Vec<u16>, bool)> {
    let is_quic = text.starts_with("quic4@") || text.starts_with("quic6@");
    let text = ["ipv4@", "ipv6@", "tcp@", "tcp4@", "tcp6@", "quic4@", "quic6@"]
        .iter()
        .find_map(|start| text.strip_prefix(start))
        .unwrap_or(text);
    // The last colon, because an IPv6 address such as `::` has colons too.
    let (host, ports) = text.rsplit_once(':')?;
    let (first, last) = match ports.split_once('-') {
        Some((first, last)) => (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?),
        None => (ports.parse().ok()?, ports.parse().ok()?),
    };
    if first == 0 || last < first || last - first >= MOST_PORTS {
        return None;
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let hosts = match bare {
        "" | "*" => vec!["0.0.0.0".to_owned()],
        // Linux accepts IPv4 there too.
        "::" if !is_v6_only => vec!["0.0.0.0".to_owned(), "[::]".to_owned()],
        "localhost" => vec!["127.0.0.1".to_owned()],
        bare => match bare.parse::<IpAddr>().ok()? {
            IpAddr::V4(own) => vec![own.to_string()],
            IpAddr::V6(own) => vec![format!("[{own}]")],
        },
    };
    let ports: Vec<u16> = (first..=last).collect();
    let all = hosts.iter().flat_map(|host| ports.iter().map(move |port| format!("{host}:{port}")));
    Some((all.collect(), ports, is_quic))
}

#[cfg(test)]
mod tests {
    use super::addresses;

    #[test]
    fn addresses_have_ip_addresses_and_ports() {
        for (text, expected) in [
            (":80", Some(vec!["0.0.0.0:80"])),
            ("*:443", Some(vec!["0.0.0.0:443"])),
            (":::443", Some(vec!["0.0.0.0:443", "[::]:443"])),
            ("ipv6@[::1]:80", Some(vec!["[::1]:80"])),
            ("10.0.0.1:80-81", Some(vec!["10.0.0.1:80", "10.0.0.1:81"])),
            ("10.0.0.1:80-9999", None),
            ("/run/a.sock", None),
            ("example.com:80", None),
            ("80", None),
        ] {
            let own = addresses(text, false).map(|(addresses, _, _)| addresses);
            let expected = expected.map(|all| all.into_iter().map(str::to_owned).collect());
            assert_eq!(own, expected, "{text}");
        }
    }
}

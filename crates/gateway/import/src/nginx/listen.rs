//! Addresses of servers, and the division into files: brisk serves all hosts at all of its addresses.

use std::collections::BTreeSet;

use crate::directive::Directive;
use crate::nginx::scope::Scope;

/// An address of a `server`.
#[expect(clippy::struct_excessive_bools, reason = "the words of `listen`")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    /// IP address and port.
    pub(crate) address: String,
    pub(crate) tls: bool,
    pub(crate) quic: bool,
    pub(crate) default: bool,
    pub(crate) proxy: bool,
}

impl Listen {
    /// Reads the arguments of `listen`; none for a Unix socket or a host name.
    fn read(directive: &Directive) -> Option<Self> {
        let address = address(directive.arg(0))?;
        let has = |word: &str| directive.has(word);
        let tls = has("ssl") || has("quic");
        Some(Self {
            address,
            tls,
            quic: has("quic"),
            default: has("default_server") || has("default"),
            proxy: has("proxy_protocol"),
        })
    }
}

/// IP address and port of a `listen`.
pub(crate) fn address(text: &str) -> Option<String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(format!("0.0.0.0:{text}"));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port))
            if port.bytes().all(|byte| byte.is_ascii_digit())
                && !port.is_empty()
                && (host.ends_with(']') || !host.starts_with('[')) =>
        {
            (host, port)
        }
        _ => (text, "80"),
    };
    let host = match host {
        "*" | "" => "0.0.0.0",
        "localhost" => "127.0.0.1",
        host => host,
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<std::net::IpAddr>().ok().map(|_| format!("{host}:{port}"))
}

/// A `server` of nginx.
#[derive(Clone, Debug)]
pub(crate) struct Server<'a> {
    pub(crate) directive: &'a Directive,
    pub(crate) listens: Vec<Listen>,
    /// `listen` directives that are no IP addresses.
    pub(crate) unread: Vec<&'a Directive>,
    pub(crate) names: Vec<String>,
}

impl<'a> Server<'a> {
    /// Reads addresses and names.
    pub(crate) fn new(directive: &'a Directive) -> Self {
        let lines = |name: &'static str| directive.inner().iter().filter(move |inner| inner.name == name);
        let mut listens: Vec<_> = lines("listen").filter_map(Listen::read).collect();
        let unread: Vec<_> = lines("listen").filter(|listen| Listen::read(listen).is_none()).collect();
        // nginx listens on port 80 then, if root has started it.
        if listens.is_empty() && unread.is_empty() {
            listens.push(Listen {
                address: "0.0.0.0:80".to_owned(),
                tls: false,
                quic: false,
                default: false,
                proxy: false,
            });
        }
        // The directive of older versions.
        if lines("ssl").any(|ssl| ssl.arg(0) == "on") {
            for listen in &mut listens {
                listen.tls = true;
            }
        }
        let names =
            lines("server_name").flat_map(|line| &line.args).map(|name| name.to_ascii_lowercase()).collect();
        Self { directive, listens, unread, names }
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.listens.iter().any(|listen| listen.tls)
    }

    pub(crate) fn has_plain(&self) -> bool {
        self.listens.iter().any(|listen| !listen.tls)
    }

    /// Whether a `listen` of the server has an address that brisk can have.
    pub(crate) fn has_address(&self) -> bool {
        !self.listens.is_empty()
    }

    fn shares_address(&self, other: &Self) -> bool {
        self.listens.iter().any(|listen| other.listens.iter().any(|own| own.address == listen.address))
    }

    /// Whether all requests over plain HTTP are redirected to HTTPS, except validations of certificates.
    pub(crate) fn redirects_to_https(&self) -> bool {
        !self.has_tls() && only_redirects(self.directive.inner())
    }
}

fn only_redirects(block: &[Directive]) -> bool {
    // A redirect to a fixed URL is another page, and not the same one over HTTPS.
    let is_secure = |target: &str| target.starts_with("https://") && target.contains(['$']);
    let mut found = false;
    for directive in block {
        match directive.name.as_str() {
            // A refusal for other names or paths, as Certbot writes it. Over HTTPS, other servers decide
            // about these.
            "return" if directive.arg(0) == "404" || directive.arg(0) == "403" => {}
            "return" if is_secure(directive.arg(directive.args.len().saturating_sub(1))) => found = true,
            "rewrite" if is_secure(directive.arg(1)) => found = true,
            "location" if is_challenge(directive) => {}
            "if" | "location" if only_redirects(directive.inner()) => found = true,
            "return" | "rewrite" | "location" | "if" | "proxy_pass" | "try_files" | "fastcgi_pass" => {
                return false;
            }
            _ => {}
        }
    }
    found
}

/// Whether a `location` is for validations of certificates over HTTP.
pub(crate) fn is_challenge(location: &Directive) -> bool {
    location.args.iter().any(|arg| arg.contains(".well-known/acme-challenge"))
}

/// Gives all servers of an address TLS if one of them has it: in nginx, `ssl` is a property of the address.
pub(crate) fn share_tls(servers: &mut [Server<'_>]) {
    let listens = servers.iter().flat_map(|server| &server.listens).filter(|listen| listen.tls);
    let secure: BTreeSet<_> = listens.map(|listen| listen.address.clone()).collect();
    for listen in servers.iter_mut().flat_map(|server| &mut server.listens) {
        listen.tls |= secure.contains(&listen.address);
    }
}

/// Divides servers into groups that one process of brisk can serve: those that share addresses, and HTTP with HTTPS at the
/// usual ports. A group at other addresses must not be reachable at those of the first.
pub(crate) fn divide<'a>(servers: Vec<Server<'a>>) -> Vec<Vec<Server<'a>>> {
    let mut groups: Vec<Vec<Server<'a>>> = Vec::new();
    for server in servers {
        // A server may share addresses with several groups, which it joins.
        let (mut joined, others): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|group| group.iter().any(|other| other.shares_address(&server)));
        let mut group: Vec<_> = joined.drain(..).flatten().collect();
        group.push(server);
        groups = others;
        groups.push(group);
    }
    groups.sort_by_key(|group| group.iter().map(|server| server.directive.id).min());
    let mut merged: Vec<Vec<Server<'a>>> = Vec::new();
    for group in groups {
        match merged.iter_mut().find(|other| are_one(other, &group)) {
            Some(other) => other.extend(group),
            None => merged.push(group),
        }
    }
    merged
}

fn are_one(first: &[Server<'_>], second: &[Server<'_>]) -> bool {
    let is_usual = |server: &Server<'_>| {
        server.listens.iter().all(|listen| {
            let port = if listen.tls { ":443" } else { ":80" };
            listen.address.ends_with(port)
        })
    };
    // Servers of one address must not become reachable at the address of the others.
    if hosts(first) != hosts(second) {
        return false;
    }
    let is_redirect = |group: &[Server<'_>]| group.iter().all(Server::redirects_to_https);
    let has_tls = |group: &[Server<'_>]| group.iter().any(Server::has_tls);
    let is_usual = first.iter().chain(second).all(is_usual);
    let is_clear =
        second.iter().filter(|server| !server.redirects_to_https()).all(|server| {
            server.names.iter().all(|name| {
                !first.iter().any(|other| !other.redirects_to_https() && other.names.contains(name))
            }) && !server.names.is_empty()
        });
    (is_redirect(first) && has_tls(second))
        || (is_redirect(second) && has_tls(first))
        || (is_usual && is_clear)
}

/// IP addresses of servers, in which `0.0.0.0` and `[::]` are one.
fn hosts(servers: &[Server<'_>]) -> BTreeSet<String> {
    // Most servers listen on both, and a redirect for IPv6 belongs to the host of IPv4.
    let listens = servers.iter().flat_map(|server| &server.listens);
    let hosts = listens.filter_map(|listen| listen.address.rsplit_once(':'));
    hosts.map(|(host, _)| if host == "[::]" { "0.0.0.0" } else { host }.to_owned()).collect()
}

/// The scope inside of a `server`.
pub(crate) fn scope<'a>(http: &Scope<'a>, server: &Server<'a>) -> Scope<'a> {
    http.child(server.directive.inner())
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn addresses_of_nginx_get_an_ip_address_and_a_port() {
        for (text, expected) in [
            ("80", Some("0.0.0.0:80")),
            ("*:8080", Some("0.0.0.0:8080")),
            ("[::]:443", Some("[::]:443")),
            ("[::1]", Some("[::1]:80")),
            ("127.0.0.1", Some("127.0.0.1:80")),
            ("localhost:81", Some("127.0.0.1:81")),
            ("unix:/run/x.sock", None),
            ("example.com:80", None),
        ] {
            assert_eq!(address(text).as_deref(), expected, "{text}");
        }
    }
}

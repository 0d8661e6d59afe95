//! The tables for all hosts: `[server]` and `[tls]`.

use std::collections::BTreeSet;

use crate::directive::Directive;
use crate::nginx::access::network;
use crate::nginx::context::Context;
use crate::nginx::listen::{Server, scope};
use crate::nginx::scope::Scope;
use crate::table::Table;
use crate::toml::{self, Keys};

/// Largest number of bytes of a body in nginx without a setting.
const BODY: u64 = 1 << 20;

impl<'a> Context<'a> {
    /// The tables before the hosts. Settings that brisk has once come from the first server that sets them.
    pub(crate) fn service(&self, servers: &[Server<'a>]) -> Vec<Table> {
        let scopes: Vec<_> = servers.iter().map(|server| scope(&self.http, server)).collect();
        let mut server = Keys::default();
        listeners(servers, &mut server);
        self.trusted(&scopes, servers, &mut server);
        self.timeouts(&scopes, &mut server);
        self.server_limits(&scopes, &mut server);
        let mut tables = vec![Table { header: "[server]".to_owned(), keys: server, comment: String::new() }];
        let mut tls = Keys::default();
        if servers.iter().any(Server::has_tls) {
            self.tls_settings(&scopes, &mut tls);
        }
        if !tls.is_empty() {
            tables.push(Table { header: "[tls]".to_owned(), keys: tls, comment: String::new() });
        }
        tables.extend(self.logs(servers, &scopes));
        tables
    }

    /// Proxies that name the address of the client.
    fn trusted(&self, scopes: &[Scope<'a>], servers: &[Server<'a>], keys: &mut Keys) {
        let proxies = first(scopes, "set_real_ip_from");
        let header = first(scopes, "real_ip_header");
        let kind = header.first().map_or("X-Real-IP", |header| header.arg(0));
        let uses_protocol = servers.iter().flat_map(|server| &server.listens).any(|listen| listen.proxy);
        let has_rules = !self.geos.is_empty()
            || self.maps.values().any(|map| map.arg(0).contains("remote_addr"))
            || self.http.all_of(&["allow", "deny"]).0 > 0
            || servers.iter().any(|server| decides_by_address(server.directive.inner()));
        let mut networks = Vec::new();
        for proxy in &proxies {
            match proxy.arg(0) {
                "unix:" => self.unneeded(proxy, "brisk does not listen on Unix sockets"),
                own if network(own).is_some() => {
                    self.carried(proxy);
                    networks.push(own);
                }
                _ => {
                    self.missing(proxy, "brisk trusts networks", "write its addresses in trusted_proxies");
                    if has_rules {
                        self.open(proxy);
                    }
                }
            }
        }
        for directive in &header {
            self.carried(directive);
        }
        self.other_sources(scopes, has_rules);
        for location in servers.iter().flat_map(|server| server.directive.inner()) {
            self.untrusted(location, has_rules);
        }
        let is_usual = kind.eq_ignore_ascii_case("X-Forwarded-For") || kind == "proxy_protocol";
        if !networks.is_empty() && !is_usual && !uses_protocol {
            keys.set("client_header", toml::text(kind));
        }
        if uses_protocol {
            let is_listed = kind == "proxy_protocol" && !networks.is_empty();
            if !is_listed {
                self.open_protocol(servers, header.iter().chain(&proxies).copied(), has_rules);
            }
            // With networks, only these peers send the header. Otherwise each peer of the listener does.
            keys.set("proxy_protocol", if is_listed { toml::list(&networks) } else { "true".to_owned() });
        } else if !networks.is_empty() {
            keys.set("trusted_proxies", toml::list(&networks));
        }
        for recursive in first(scopes, "real_ip_recursive") {
            if recursive.arg(0) == "on" {
                self.carried(recursive);
            } else {
                self.different(recursive, "brisk takes the last address that is not of a trusted proxy");
            }
        }
    }

    /// Notes a source of addresses that is not carried. `has_rules`: whether requests are refused by their address.
    fn lost_source(&self, line: &Directive, action: &str, has_rules: bool) {
        self.missing(line, "one header names the client for all requests", action);
        if has_rules {
            self.open(line);
        }
    }

    /// Notes sources of addresses of servers that differ from those of the first server that has some.
    fn other_sources(&self, scopes: &[Scope<'a>], has_rules: bool) {
        for name in ["set_real_ip_from", "real_ip_header"] {
            let own = texts(&first(scopes, name));
            let others = scopes.iter().map(|scope| scope.all(name)).filter(|lines| !lines.is_empty());
            for line in others.filter(|lines| texts(lines) != own).flatten() {
                self.lost_source(line, "write the same lines for all servers of these addresses", has_rules);
            }
        }
    }

    /// Notes listeners with the PROXY protocol on which each peer names the client in brisk, and the lines about `sources` by which
    /// nginx would name another one.
    fn open_protocol(
        &self,
        servers: &[Server<'a>],
        sources: impl Iterator<Item = &'a Directive>,
        has_rules: bool,
    ) {
        for line in sources {
            let action = "write real_ip_header proxy_protocol, or listen without proxy_protocol";
            self.lost_source(line, action, has_rules);
        }
        let lines = servers.iter().flat_map(|server| server.directive.inner());
        for listen in lines.filter(|line| line.name == "listen" && line.has("proxy_protocol")) {
            self.different(listen, "each peer names the client: write the networks of the proxies");
            if has_rules {
                self.open(listen);
            }
        }
    }

    /// Notes sources of addresses that only a location has. `has_rules`: whether requests are refused by their address.
    fn untrusted(&self, location: &Directive, has_rules: bool) {
        if location.name != "location" {
            return;
        }
        for line in location.inner() {
            if matches!(&*line.name, "set_real_ip_from" | "real_ip_header") {
                let action = "write it in the server: brisk reads the address before it looks for a route";
                self.lost_source(line, action, has_rules);
            }
            self.untrusted(line, has_rules);
        }
    }

    fn timeouts(&self, scopes: &[Scope<'a>], keys: &mut Keys) {
        let mut timeouts = Keys::default();
        let names = [
            ("client_header_timeout", "head", 60_000),
            ("client_body_timeout", "body", 60_000),
            ("keepalive_timeout", "idle", 75_000),
            ("send_timeout", "write", 60_000),
        ];
        for (name, own, usual) in names {
            for directive in first(scopes, name) {
                match toml::milliseconds(directive.arg(0)) {
                    Some(0) => self.different(directive, "brisk keeps connections for a short time at least"),
                    Some(time) if time == usual => {
                        self.unneeded(directive, "it is nginx's own value; brisk has similar ones");
                    }
                    Some(time) => {
                        timeouts.set(own, toml::duration(time.clamp(100, 86_400_000)));
                        self.carried(directive);
                    }
                    None => {
                        self.missing(directive, "the time is not a number", "write it in [server.timeouts]");
                    }
                }
            }
        }
        if !timeouts.is_empty() {
            keys.set("timeouts", timeouts.inline());
        }
    }

    fn server_limits(&self, scopes: &[Scope<'a>], keys: &mut Keys) {
        let mut limits = Keys::default();
        let sizes: Vec<_> = scopes
            .iter()
            .map(|scope| {
                let size = scope.one("client_max_body_size");
                size.and_then(|size| toml::bytes(size.arg(0))).unwrap_or(BODY)
            })
            .collect();
        // The value of most servers stands once; routes of the others have their own.
        let most = sizes
            .iter()
            .max_by_key(|size| sizes.iter().filter(|other| other == size).count())
            .copied()
            .unwrap_or(BODY);
        for scope in scopes {
            scope.all("client_max_body_size").into_iter().for_each(|size| self.carried(size));
        }
        self.body_size.set(Some(most));
        if most > 0 {
            limits.set("body_size", toml::size(most));
        }
        for headers in first(scopes, "large_client_header_buffers") {
            let total =
                toml::bytes(headers.arg(1)).and_then(|size| size.checked_mul(headers.arg(0).parse().ok()?));
            match total {
                // brisk has 64 KiB by default, so a smaller limit of nginx would only refuse more.
                Some(total) if total > 64 << 10 => {
                    limits.set("head_size", toml::size(total.min(1 << 20)));
                    self.carried(headers);
                }
                _ => self.unneeded(headers, "brisk accepts heads of 64 KiB"),
            }
        }
        for requests in first(scopes, "keepalive_requests") {
            self.unneeded(requests, "brisk has no maximum of requests on a connection");
        }
        if !limits.is_empty() {
            keys.set_table("limits", &limits);
        }
        for underscores in first(scopes, "underscores_in_headers") {
            if underscores.arg(0) == "on" {
                keys.set("underscores_in_headers", "\"pass\"");
            }
            self.carried(underscores);
        }
    }

    fn tls_settings(&self, scopes: &[Scope<'a>], keys: &mut Keys) {
        for protocols in first(scopes, "ssl_protocols") {
            // Versions below 1.2 are not in brisk, so the lowest one is all that can be carried.
            let old = protocols
                .args
                .iter()
                .any(|version| matches!(version.as_str(), "TLSv1" | "TLSv1.1" | "SSLv3" | "SSLv2"));
            if !protocols.has("TLSv1.2") && protocols.has("TLSv1.3") {
                keys.set("min_version", "\"1.3\"");
            }
            if old {
                self.different(protocols, "brisk has TLS 1.2 and 1.3");
            } else {
                self.carried(protocols);
            }
        }
        for timeout in first(scopes, "ssl_session_timeout") {
            self.carried(timeout);
            if let Some(time) = toml::milliseconds(timeout.arg(0)).filter(|time| *time != 86_400_000) {
                keys.set("session_lifetime", toml::duration(time.clamp(1000, 604_800_000)));
                // Ticket keys change in at least a thirtieth of the lifetime, and by default after 12 hours.
            }
        }
        for tickets in first(scopes, "ssl_session_tickets") {
            if tickets.arg(0) == "off" {
                keys.set("tickets", "false");
            }
            self.carried(tickets);
        }
    }
}

/// Whether requests are refused by the address of the client.
fn decides_by_address(block: &[Directive]) -> bool {
    block.iter().any(|line| {
        matches!(&*line.name, "allow" | "deny")
            || line.name == "if" && line.arg(0).contains("remote_addr")
            || decides_by_address(line.inner())
    })
}

/// Addresses, and the treatment of unknown hosts.
fn listeners(servers: &[Server<'_>], keys: &mut Keys) {
    let gather = |tls: bool| {
        let mut all: Vec<&str> = Vec::new();
        for listen in servers.iter().flat_map(|server| &server.listens).filter(|listen| listen.tls == tls) {
            if !all.contains(&listen.address.as_str()) {
                all.push(&listen.address);
            }
        }
        all
    };
    let (https, http) = (gather(true), gather(false));
    if !https.is_empty() {
        keys.set("https", toml::list(&https));
    }
    // nginx decides about TLS by address. One that is in both lists has TLS.
    let http: Vec<_> = http.into_iter().filter(|address| !https.contains(address)).collect();
    if !http.is_empty() {
        keys.set("http", toml::list(http));
    }
    if servers.iter().flat_map(|server| &server.listens).any(|listen| listen.quic) {
        keys.set("http3", "true");
    }
    let refuses = servers.iter().any(|server| {
        let inner = server.directive.inner();
        let is_closed = inner.iter().any(|line| line.name == "return" && line.arg(0) == "444")
            && server.names.iter().all(|name| name == "_" || name.is_empty());
        inner.iter().any(|line| line.name == "ssl_reject_handshake" && line.arg(0) == "on") || is_closed
    });
    keys.set("unknown_host", if refuses { "\"refuse\"" } else { "\"default\"" });
}

/// The arguments of directives.
fn texts<'a>(lines: &[&'a Directive]) -> BTreeSet<&'a [String]> {
    lines.iter().map(|line| line.args.as_slice()).collect()
}

/// The directives with this name in the first scope that has some.
pub(crate) fn first<'a>(scopes: &[Scope<'a>], name: &str) -> Vec<&'a Directive> {
    scopes.iter().map(|scope| scope.all(name)).find(|found| !found.is_empty()).unwrap_or_default()
}

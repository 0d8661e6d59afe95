//! The tables for all hosts: `[server]`, `[tls]` and `[access_log]`.

use crate::context::{Context, Table};
use crate::grammar::Directive;
use crate::listen::{Server, scope};
use crate::scope::Scope;
use crate::toml::{self, Keys};
use crate::variables::{Use, Values};

/// The format `combined` of nginx. Lines in files have further fields at their ends instead.
const COMBINED: &str = "{client.address} - {user} [{time.common}] \"{request.line}\" {response.status} {response.bytes} \"{request.header.referer}\" \"{request.header.user-agent}\"";

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
        let mut tables = vec![Table { header: "server".to_owned(), keys: server, comment: String::new() }];
        let mut tls = Keys::default();
        if servers.iter().any(Server::has_tls) {
            self.tls_settings(&scopes, &mut tls);
        }
        if !tls.is_empty() {
            tables.push(Table { header: "tls".to_owned(), keys: tls, comment: String::new() });
        }
        tables.extend(self.logs(&scopes));
        tables
    }

    /// Proxies that name the address of the client.
    fn trusted(&self, scopes: &[Scope<'a>], servers: &[Server<'a>], keys: &mut Keys) {
        let proxies = first(scopes, "set_real_ip_from");
        let header = first(scopes, "real_ip_header");
        let kind = header.first().map_or("X-Real-IP", |header| header.arg(0));
        let uses_protocol = servers.iter().flat_map(|server| &server.listens).any(|listen| listen.proxy);
        let networks: Vec<_> =
            proxies.iter().map(|proxy| proxy.arg(0)).filter(|network| *network != "unix:").collect();
        for directive in proxies.iter().chain(&header) {
            let is_same = kind.eq_ignore_ascii_case("X-Forwarded-For") || kind == "proxy_protocol";
            if is_same {
                self.carried(directive);
            } else {
                self.different(
                    directive,
                    "brisk reads the address from X-Forwarded-For, or from Forwarded without it",
                );
            }
        }
        if uses_protocol {
            let is_listed = kind == "proxy_protocol" && !networks.is_empty();
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
            keys.set("limits", limits.inline());
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

    /// `access_log` of the first server that has one.
    fn logs(&self, scopes: &[Scope<'a>]) -> Vec<Table> {
        let logs = first(scopes, "access_log");
        let table = |header: &str, keys: Keys, log: &Directive| {
            vec![Table { header: header.to_owned(), keys, comment: log.comment() }]
        };
        for scope in scopes {
            for log in scope.all("access_log") {
                if log.arg(0) != "off" && !logs.iter().any(|own| own.id == log.id) {
                    self.different(
                        log,
                        "the lines are in the log of the first server: write outputs in [access_log]",
                    );
                }
            }
        }
        let Some(log) = logs.first() else { return Vec::new() };
        for other in logs.iter().skip(1) {
            self.missing(
                other,
                "brisk writes one output for this configuration",
                "write [[access_log.output]] tables",
            );
        }
        let mut keys = Keys::default();
        if log.arg(0) == "off" {
            let is_global =
                scopes.iter().all(|scope| scope.one("access_log").is_some_and(|own| own.arg(0) == "off"));
            self.carried(log);
            if scopes.iter().all(|scope| scope.level("access_log") <= 1) && is_global {
                keys.set("format", "\"off\"");
                return table("access_log", keys, log);
            }
            return Vec::new();
        }
        self.carried(log);
        if log
            .args
            .iter()
            .skip(1)
            .any(|arg| arg.starts_with("if=") || arg.starts_with("buffer=") || arg.starts_with("gzip"))
        {
            self.different(
                log,
                "brisk writes all lines of a route, buffered for 50 ms and without compression",
            );
        }
        self.log_format(log, &mut keys);
        if let Some(server) = log.arg(0).strip_prefix("syslog:") {
            keys.0.insert(0, ("syslog".to_owned(), syslog(server)));
            return table("[access_log.output]", keys, log);
        }
        let standard = log.arg(0).strip_prefix("/dev/").filter(|name| name.starts_with("std"));
        let file = standard.map_or_else(|| self.file(log.arg(0)), toml::text);
        keys.0.insert(0, ("file".to_owned(), file));
        table("access_log", keys, log)
    }

    fn log_format(&self, log: &Directive, keys: &mut Keys) {
        let name = log.args.get(1).filter(|name| !name.contains('=')).map_or("combined", String::as_str);
        let formats = self.http.all("log_format");
        let format = formats.iter().find(|format| format.arg(0) == name);
        if format.is_none() && log.arg(0).starts_with("syslog:") {
            return keys.set("format", format!("{{ template = {} }}", toml::raw(COMBINED)));
        }
        let Some(format) = format else {
            return self
                .different(log, "the lines are in the combined format, with further fields at their ends");
        };
        if format.args.iter().any(|part| part == "escape=json") {
            keys.set("format", "\"json\"");
            return self.different(format, "the lines are JSON with the fields of brisk");
        }
        let text: String = format
            .args
            .iter()
            .skip(1)
            .filter(|part| !part.starts_with("escape="))
            .map(String::as_str)
            .collect();
        match self.template(&text, &Values::default(), Use::Log) {
            Ok(template) => {
                keys.set("format", format!("{{ template = {} }}", toml::text(&template)));
                self.carried(format);
            }
            Err(reason) => {
                self.different(format, format!("{reason}; the lines are in the text format of brisk"));
            }
        }
    }
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

fn syslog(text: &str) -> String {
    let mut keys = Keys::default();
    for part in text.split(',') {
        let Some((name, value)) = part.split_once('=') else { continue };
        match name {
            "server" if value.starts_with("unix:") => keys.set("server", toml::text(value)),
            "server" => {
                let port = if value.contains(':') { "" } else { ":514" };
                keys.set("server", toml::text(&format!("udp://{value}{port}")));
            }
            "facility" | "severity" => keys.set(name, toml::text(value)),
            "tag" => keys.set("app_name", toml::text(value)),
            _ => {}
        }
    }
    keys.inline()
}

/// The directives with this name in the first scope that has some.
fn first<'a>(scopes: &[Scope<'a>], name: &str) -> Vec<&'a Directive> {
    scopes.iter().map(|scope| scope.all(name)).find(|found| !found.is_empty()).unwrap_or_default()
}

//! Servers behind the gateway: `upstream` blocks and addresses in `proxy_pass`.

use crate::directive::Directive;
use crate::nginx::context::Context;
use crate::nginx::dns;
use crate::nginx::scope::Scope;
use crate::report::UNVERIFIED;
use crate::toml::{self, Keys};

/// Reason for a server that brisk cannot reach.
const TLS_SOCKET: &str = "brisk does not speak TLS over Unix sockets";

/// Protocol to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Https,
    Grpc,
    Grpcs,
    FastCgi,
    Uwsgi,
    Scgi,
    Tcp,
    Tls,
}

impl Protocol {
    /// The protocol of a URL of nginx, and the rest of the URL.
    pub(crate) fn of(url: &str) -> Option<(Self, &str)> {
        let schemes = [
            ("http://", Self::Http),
            ("https://", Self::Https),
            ("grpc://", Self::Grpc),
            ("grpcs://", Self::Grpcs),
        ];
        schemes.iter().find_map(|(scheme, protocol)| Some((*protocol, url.strip_prefix(scheme)?)))
    }

    fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::Grpcs | Self::Tls)
    }

    fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https | Self::Grpc)
    }

    fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp | Self::Tls)
    }

    /// URL of a server in brisk. The only place that knows the written forms of servers.
    fn server(self, address: &str) -> Option<String> {
        let socket = address.strip_prefix("unix:");
        match (self, socket) {
            (Self::Http, None) => Some(format!("http://{address}")),
            (Self::Http, Some(path)) => Some(format!("unix:{path}")),
            (Self::Https | Self::Grpcs, None) => Some(format!("https://{address}")),
            (Self::Grpc, None) => Some(format!("h2c://{address}")),
            (Self::Grpc, Some(path)) => Some(format!("h2c+unix:{path}")),
            (Self::Tcp, None) => Some(format!("tcp://{address}")),
            (Self::Tcp, Some(path)) => Some(format!("tcp+unix:{path}")),
            (Self::Tls, None) => Some(format!("tls://{address}")),
            (Self::FastCgi | Self::Uwsgi | Self::Scgi, None) => Some(format!("{}://{address}", self.cgi()?)),
            (Self::FastCgi | Self::Uwsgi | Self::Scgi, Some(path)) => {
                Some(format!("{}+unix:{path}", self.cgi()?))
            }
            (Self::Https | Self::Grpcs | Self::Tls, Some(_)) => None,
        }
    }

    /// The name of a protocol of application servers.
    pub(crate) fn cgi(self) -> Option<&'static str> {
        match self {
            Self::FastCgi => Some("fastcgi"),
            Self::Uwsgi => Some("uwsgi"),
            Self::Scgi => Some("scgi"),
            _ => None,
        }
    }
}

impl Context<'_> {
    /// The name of the group for the servers of a `proxy_pass`; writes its table once for each set of settings.
    pub(crate) fn upstream(
        &self,
        protocol: Protocol,
        authority: &str,
        scope: &Scope<'_>,
        pass: &Directive,
        script: Option<&str>,
    ) -> Result<String, String> {
        let group = self.groups.get(authority).copied();
        let prefix = pass.name.strip_suffix("_pass").unwrap_or("proxy");
        // The version of the protocol is a directive in nginx and a scheme in brisk.
        let is_http2 =
            prefix == "proxy" && scope.one("proxy_http_version").is_some_and(|version| version.arg(0) == "2");
        let protocol = match protocol {
            Protocol::Http if is_http2 => Protocol::Grpc,
            Protocol::Https if is_http2 => Protocol::Grpcs,
            protocol => protocol,
        };
        let mut keys = Keys::default();
        if let Some(group) = group {
            self.group(group, protocol, &mut keys)?;
        } else {
            keys.set("servers", toml::list([protocol.server(authority).ok_or(TLS_SOCKET)?]));
        }
        if protocol.cgi().is_some() {
            let cgi = self.cgi(protocol, scope, script)?;
            if !cgi.is_empty() {
                keys.set("cgi", cgi.inline());
            }
        }
        self.transport(protocol, prefix, scope, &mut keys);
        if protocol.is_tls() {
            self.tls(protocol, prefix, scope, (authority, pass), &mut keys);
        }
        let label = match authority.strip_prefix("unix:") {
            Some(path) => path.rsplit('/').next().unwrap_or(path).trim_end_matches(".sock").to_owned(),
            None if group.is_none() && protocol == Protocol::FastCgi => "php".to_owned(),
            None => label(authority),
        };
        Ok(self.named_table("upstream", &toml::name(&label), &keys, group.unwrap_or(pass)))
    }

    fn group(&self, group: &Directive, protocol: Protocol, keys: &mut Keys) -> Result<(), String> {
        let (mut servers, mut health) = (Vec::new(), Keys::default());
        self.carried(group);
        for line in group.inner() {
            match line.name.as_str() {
                "server" => self.server(line, protocol, &mut servers, &mut health, keys)?,
                "least_conn" => keys.set("balance", "\"least_connections\""),
                "ip_hash" => keys.set("balance", "\"consistent_hash\""),
                "hash" => self.hash(line, keys),
                "keepalive_timeout" => {
                    if let Some(time) = toml::milliseconds(line.arg(0)) {
                        keys.set("pool.idle_timeout", toml::duration(time));
                    }
                }
                "random" => self.different(line, "brisk uses the servers in turn"),
                "keepalive" | "zone" | "keepalive_requests" | "keepalive_time" | "resolver_timeout" => {
                    self.unneeded(
                        line,
                        "brisk keeps connections and shares the state of servers without a setting",
                    );
                }
                "sticky" => self.missing(
                    line,
                    "the cookie has another form",
                    "write sticky = { cookie = \"NAME\" } in the group",
                ),
                _ => {}
            }
            if matches!(&*line.name, "least_conn" | "ip_hash" | "hash" | "keepalive_timeout" | "server") {
                self.carried(line);
            }
        }
        keys.0.insert(0, ("servers".to_owned(), format!("[{}]", servers.join(", "))));
        if !health.is_empty() {
            keys.set("health", health.inline());
        }
        if group.inner().iter().any(|line| line.name == "server" && line.has("resolve")) {
            self.resolver(group, keys);
        }
        Ok(())
    }

    fn server(
        &self,
        line: &Directive,
        protocol: Protocol,
        servers: &mut Vec<String>,
        health: &mut Keys,
        keys: &mut Keys,
    ) -> Result<(), String> {
        if line.has("down") {
            self.unneeded(line, "the server is out of use");
            return Ok(());
        }
        let mut address = line.arg(0).to_owned();
        // In a group, nginx has no port from the scheme of `proxy_pass`: its default is 80.
        if !address.starts_with("unix:") && !has_port(&address) {
            address.push_str(":80");
        }
        let mut url = protocol.server(&address).ok_or(TLS_SOCKET)?;
        let service = line.parameter("service");
        if let Some(service) = service {
            let (scheme, _) = url
                .split_once("://")
                .filter(|_| protocol.is_http())
                .ok_or("only servers of HTTP come from services in DNS")?;
            url = format!("srv+{scheme}://{}.{}", dns::service(service), line.arg(0));
        }
        let mut server = Keys::default();
        server.set("url", toml::text(&url));
        if let Some(weight) = line.parameter("weight") {
            self.number(line, weight, "weight", &mut server);
        }
        if line.has("backup") {
            server.set("backup", "true");
        }
        if line.has("resolve") && service.is_none() {
            server.set("resolve", "true");
        }
        if let Some(most) = line.parameter("max_fails") {
            self.number(line, most, "max_failures", health);
        }
        match line.parameter("fail_timeout").and_then(toml::milliseconds) {
            // nginx then excludes no server.
            Some(0) => health.set("max_failures", "0"),
            Some(pause) => health.set("failure_pause", toml::duration(pause.clamp(100, 86_400_000))),
            None => {}
        }
        // nginx has no limit with 0.
        if let Some(most) = line.parameter("max_conns").filter(|most| *most != "0") {
            self.number(line, most, "pool.max_connections", keys);
        }
        servers.push(if server.0.len() == 1 { toml::text(&url) } else { server.inline() });
        Ok(())
    }

    fn number(&self, line: &Directive, text: &str, key: &str, keys: &mut Keys) {
        match toml::number(text) {
            Some(number) => keys.set(key, number),
            None => self.missing(line, format!("{text} is not a number"), "write a number"),
        }
    }

    fn hash(&self, line: &Directive, keys: &mut Keys) {
        let key = line.arg(0);
        let by = match key.trim_start_matches('$') {
            "remote_addr" | "binary_remote_addr" => Some("client_address".to_owned()),
            "uri" | "request_uri" | "host$request_uri" | "scheme$proxy_host$request_uri" => {
                Some("path".to_owned())
            }
            name => match name.split_once('_') {
                Some(("http", header)) => Some(format!("header:{}", header.replace('_', "-"))),
                Some(("cookie", cookie)) => Some(format!("cookie:{cookie}")),
                _ => None,
            },
        };
        match by {
            Some(by) => {
                keys.set("balance", "\"consistent_hash\"");
                keys.set("hash_by", toml::text(&by));
            }
            None => self.missing(
                line,
                "brisk chooses servers by address, path, header or cookie",
                "write hash_by in the group",
            ),
        }
    }

    /// `timeouts`, `retry` and `tls`, which nginx sets beside `proxy_pass`.
    fn transport(&self, protocol: Protocol, prefix: &str, scope: &Scope<'_>, keys: &mut Keys) {
        let setting = |name: &str| scope.one(&format!("{prefix}_{name}"));
        let mut timeouts = Keys::default();
        for (name, own) in
            [("connect_timeout", &["connect"][..]), ("read_timeout", &["head", "body", "upgraded"])]
        {
            let Some(directive) = setting(name) else { continue };
            match toml::milliseconds(directive.arg(0)) {
                Some(time) => {
                    self.carried(directive);
                    let time = time.clamp(100, 86_400_000);
                    // 60 s are the default of nginx, which is left out so that the default of brisk holds.
                    let kept = own.iter().filter(|_| name == "connect_timeout" || time != 60_000);
                    kept.for_each(|own| timeouts.set(own, toml::duration(time)));
                }
                None => self.missing(directive, "the time is not a number", "write timeouts in the group"),
            }
        }
        if protocol.cgi().is_some() {
            // Requests of these protocols are never upgraded, and brisk refuses the key.
            timeouts.0.retain(|(key, _)| key != "upgraded");
        }
        if protocol.is_tcp() {
            timeouts.0.retain(|(key, _)| key == "connect");
            if let Some(header) = scope.one("proxy_protocol") {
                self.carried(header);
                if header.arg(0) == "on" {
                    keys.set("proxy_protocol", "\"v1\"");
                }
            }
        }
        if !timeouts.is_empty() {
            keys.set("timeouts", timeouts.inline());
        }
        if let Some(next) = setting("next_upstream") {
            self.carried(next);
            // `off` also ends the repetition after failed connections, which brisk has by default.
            if next.has("off") {
                keys.set("retry", "false");
            } else if is_repeated(next) {
                keys.set("retry", retry(next));
            }
        }
    }

    fn tls(
        &self,
        protocol: Protocol,
        prefix: &str,
        scope: &Scope<'_>,
        (authority, pass): (&str, &Directive),
        keys: &mut Keys,
    ) {
        let setting = |name: &str| scope.one(&format!("{prefix}_ssl_{name}"));
        let mut tls = Keys::default();
        let (ca, verify) = (setting("trusted_certificate"), setting("verify"));
        // nginx verifies no server without the directive.
        let is_verified = verify.is_some_and(|verify| verify.arg(0) == "on");
        if let Some(ca) = ca.filter(|_| is_verified) {
            tls.set("ca", self.file(ca.arg(0)));
        } else if !is_verified {
            tls.set("verify", "false");
            self.different(verify.unwrap_or(pass), UNVERIFIED);
        }
        for directive in ca.into_iter().chain(verify) {
            self.carried(directive);
        }
        if let (Some(chain), Some(key)) = (setting("certificate"), setting("certificate_key")) {
            if chain.arg(0).contains('$') || key.arg(0).contains('$') {
                let reason = "the certificate depends on a variable";
                self.missing(chain, reason, "write an [upstream.NAME] for each certificate");
            } else if !chain.arg(0).is_empty() {
                let files = [chain, key].map(|file| self.file(file.arg(0)));
                tls.set("certificate", format!("{{ chain = {}, key = {} }}", files[0], files[1]));
                self.carried(chain);
                self.carried(key);
            }
        }
        if let Some(name) = setting("name") {
            if name.arg(0).contains('$') {
                self.different(name, "brisk sends and verifies the name in the URL of the server");
            } else {
                // nginx sends the name without its port.
                let plain = if has_port(name.arg(0)) { name.arg(0).rsplit_once(':') } else { None };
                tls.set("server_name", toml::text(plain.map_or(name.arg(0), |(host, _)| host)));
                self.carried(name);
            }
        } else if self.groups.contains_key(authority) && authority.contains('.') {
            // nginx verifies the name in `proxy_pass`, here that of the group. brisk would take that of each
            // server.
            tls.set("server_name", toml::text(authority));
        }
        match setting("server_name") {
            Some(name) if name.arg(0) == "off" => self.different(name, "brisk always sends the name"),
            Some(name) => self.carried(name),
            None => {}
        }
        if protocol == Protocol::Grpcs {
            tls.set("protocol", "\"h2\"");
        }
        if !tls.is_empty() {
            keys.set("tls", tls.inline());
        }
    }
}

/// Whether further cases than failed connections repeat requests.
pub(crate) fn is_repeated(next: &Directive) -> bool {
    next.args.iter().any(|case| case.starts_with("http_") || case == "non_idempotent")
}

/// The table `retry` for the cases of `proxy_next_upstream`.
fn retry(next: &Directive) -> String {
    let mut keys = Keys::default();
    let statuses: Vec<_> = next.args.iter().filter_map(|case| case.strip_prefix("http_")).collect();
    if !statuses.is_empty() {
        keys.set("statuses", format!("[{}]", statuses.join(", ")));
    }
    if next.has("non_idempotent") {
        keys.set("unsafe_methods", "true");
    }
    keys.inline()
}

/// Whether the address ends with a port.
pub(crate) fn has_port(address: &str) -> bool {
    let behind = address.rsplit_once(']').map_or(address, |(_, behind)| behind);
    behind.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The name of a server that has none in the input, such as `local-8080` for `127.0.0.1:8080`.
fn label(authority: &str) -> String {
    authority.strip_prefix("127.0.0.1:").map_or_else(|| authority.to_owned(), |port| format!("local-{port}"))
}

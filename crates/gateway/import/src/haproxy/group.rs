//! Groups of servers: `[upstream.NAME]` for a backend.

use crate::directive::Directive;
use crate::haproxy::context::{Context, milliseconds};
use crate::haproxy::proxy::Proxy;
use crate::haproxy::server::{LOST, Server, UNNEEDED};
use crate::toml::{self, Keys};

/// Action for a server that keeps its group from being used.
const BY_HAND: &str = "write [upstream.NAME] by hand; until then the routes refuse requests";

impl<'a> Context<'a> {
    /// The name of the group for the servers of a `backend`. `Err` is the reason why there is none.
    pub(crate) fn group(&self, index: usize, tcp: bool, ports: &[u16]) -> Result<String, String> {
        // Several frontends and rules may use one backend, and its lines are read once.
        let known = self.groups.borrow().get(&(index, tcp)).cloned();
        let result = if let Some(known) = known {
            known
        } else {
            let proxy = &self.proxies.all[index];
            let result = self.new_group(proxy, tcp, ports);
            self.groups.borrow_mut().insert((index, tcp), result.clone());
            result
        };
        if let Ok(name) = &result {
            self.using("upstream", name);
        }
        result
    }

    fn new_group(&self, proxy: &Proxy<'a>, tcp: bool, ports: &[u16]) -> Result<String, String> {
        let mut keys = Keys::default();
        let servers = self.servers_of(proxy)?;
        let mut texts = Vec::new();
        let has_cookies = servers.iter().any(|server| server.has("cookie"));
        for server in &servers {
            self.carried(server.line);
            self.options(server);
            if server.has("disabled") || server.get("weight") == Some("0") {
                self.different(server.line, "the server is out of use");
                continue;
            }
            let url = Self::url(server, tcp, ports)
                .inspect_err(|reason| self.missing(server.line, reason.clone(), BY_HAND))?;
            if let Some(list) = server.get("crl-file") {
                let reason = format!("brisk has no revocation lists for servers: {list}");
                self.missing(server.line, reason.clone(), BY_HAND);
                return Err(reason);
            }
            texts.push(server_text(server, &url));
        }
        if texts.is_empty() {
            return Err("all servers are out of use".to_owned());
        }
        keys.set("servers", format!("[{}]", texts.join(", ")));
        self.balance(proxy, &mut keys);
        if !tcp && has_cookies {
            self.sticky(proxy, &mut keys);
        }
        self.retries(proxy, tcp, &mut keys);
        self.to_servers(&servers, &mut keys)?;
        self.group_timeouts(proxy, tcp, &mut keys);
        self.pool(proxy, &servers, &mut keys);
        self.health(proxy, tcp, &servers, &mut keys);
        self.server_tls(&servers, tcp, &mut keys)?;
        self.dns(&servers, &mut keys);
        let name = toml::name(proxy.name());
        Ok(self.named("upstream", &name, &keys, proxy.directive))
    }

    /// The servers of a backend with the options of its `default-server` lines.
    fn servers_of(&self, proxy: &Proxy<'a>) -> Result<Vec<Server<'a>>, String> {
        let mut defaults: Vec<&Directive> = Vec::new();
        let mut words = 0;
        let mut servers = Vec::new();
        for line in proxy.lines() {
            match line.name.as_str() {
                "default-server" => {
                    self.carried(line);
                    defaults.push(line);
                    // Each server reads them all.
                    words += line.args.len();
                    if words > 400 {
                        return Err("the options of default-server are too many".to_owned());
                    }
                }
                "server" | "server-template" | "dispatch" => servers.push(Server::read(line, &defaults)),
                _ => {}
            }
        }
        Ok(servers)
    }

    /// Notes options of a server that have no counterpart.
    fn options(&self, server: &Server<'_>) {
        let known = [
            "addr",
            "alpn",
            "backup",
            "ca-file",
            "check",
            "cookie",
            "crt",
            "disabled",
            "fall",
            "inter",
            "maxconn",
            "proto",
            "resolve-prefer",
            "resolvers",
            "rise",
            "send-proxy",
            "send-proxy-v2",
            "send-proxy-v2-ssl",
            "send-proxy-v2-ssl-cn",
            "slowstart",
            "sni",
            "ssl",
            "verify",
            "verifyhost",
            "weight",
            "crl-file",
        ];
        for name in server.names() {
            if LOST.contains(&name) {
                self.different(server.line, format!("brisk checks and chooses servers without {name}"));
            } else if !known.contains(&name) && !UNNEEDED.contains(&name) {
                let reason = format!("brisk has no option {name} of servers");
                self.missing(
                    server.line,
                    reason,
                    "look for its purpose in docs/configuration.md, [upstream.NAME]",
                );
            }
        }
    }

    fn balance(&self, proxy: &Proxy<'a>, keys: &mut Keys) {
        for line in proxy.all("hash-type") {
            self.different(line, "brisk hashes consistently");
        }
        for line in proxy.all("stick").chain(proxy.all("stick-table")) {
            let is_source = line.name == "stick" && line.has("on") && line.has("src");
            if is_source {
                keys.set("balance", "\"consistent_hash\"");
                self.different(line, "a hash of the address chooses the server, not a table");
            } else if line.name == "stick" {
                self.missing(
                    line,
                    "brisk has no tables of clients and servers",
                    "write sticky = {} in the group",
                );
            }
        }
        let Some(line) = proxy.one("balance", "") else { return };
        let (kind, argument) = line
            .arg(0)
            .split_once('(')
            .map_or((line.arg(0), ""), |(kind, rest)| (kind, rest.trim_end_matches(')')));
        self.carried(line);
        let by = match kind {
            "roundrobin" | "static-rr" => return,
            "leastconn" => return keys.set("balance", "\"least_connections\""),
            "source" => "client_address".to_owned(),
            "uri" => {
                if line.args.len() > 1 {
                    self.different(line, "brisk hashes the whole path without the query");
                }
                "path".to_owned()
            }
            "hdr" if !argument.is_empty() => format!("header:{argument}"),
            "hash" if line.arg(1) == "src" => "client_address".to_owned(),
            "random" => return self.different(line, "brisk uses the servers in turn"),
            "first" => {
                return self.different(
                    line,
                    "brisk uses the servers in turn, and does not fill the first one before the next",
                );
            }
            _ => {
                return self.missing(
                    line,
                    "brisk chooses servers by address, path, header or cookie",
                    "write hash_by in the group",
                );
            }
        };
        keys.set("balance", "\"consistent_hash\"");
        if by != "client_address" {
            keys.set("hash_by", toml::text(&by));
        }
    }

    fn sticky(&self, proxy: &Proxy<'a>, keys: &mut Keys) {
        let Some(line) = proxy.one("cookie", "") else { return };
        let mut sticky = Keys::of("cookie", toml::text(line.arg(0)));
        let is_own = line.has("insert");
        let detail = if is_own {
            "the value is a keyed hash: write a secret in sticky, so that it stays the same after a restart"
        } else {
            "brisk does not change the cookie of the application, and sends one of its own"
        };
        self.different(line, detail);
        if !is_own {
            sticky.set("cookie", "\"brisk_server\"");
        }
        let attribute = |name: &str| line.args.iter().any(|arg| arg.eq_ignore_ascii_case(name));
        if !attribute("secure") {
            sticky.set("secure", "false");
        }
        for (text, own) in [("samesite=none", "none"), ("samesite=strict", "strict")] {
            // Browsers accept `none` with `Secure` only.
            if attribute(text) && (own != "none" || attribute("secure")) {
                sticky.set("same_site", toml::text(own));
            }
        }
        keys.set("sticky", sticky.inline());
    }

    fn retries(&self, proxy: &Proxy<'a>, tcp: bool, keys: &mut Keys) {
        if let Some(line) = proxy.one("retries", "") {
            if line.arg(0) == "0" {
                keys.set("retry", "false");
                self.carried(line);
            } else {
                self.different(line, "brisk repeats a request once, at another server");
            }
        }
        let Some(line) = proxy.one("retry-on", "") else { return };
        self.carried(line);
        if line.has("none") {
            return keys.set("retry", "false");
        }
        let mut statuses: Vec<&str> = line.args.iter().map(String::as_str).collect();
        statuses.retain(|word| word.parse().is_ok_and(|status: u16| (400..600).contains(&status)));
        if line.has("all-retryable-errors") {
            statuses = vec!["500", "502", "503", "504"];
        }
        if !statuses.is_empty() && !tcp {
            keys.set("retry", format!("{{ statuses = [{}] }}", statuses.join(", ")));
        }
    }

    /// The PROXY header of `send-proxy`, which all servers of a group get: `proxy_protocol`.
    fn to_servers(&self, servers: &[Server<'_>], keys: &mut Keys) -> Result<(), String> {
        let version = |server: &Server<'_>| {
            if server.names().any(|name| name.starts_with("send-proxy-v2")) {
                Some("\"v2\"")
            } else {
                server.has("send-proxy").then_some("\"v1\"")
            }
        };
        let first = servers.first().and_then(version);
        if let Some(other) = servers.iter().find(|server| version(server) != first) {
            let reason = "servers of a group get the same PROXY header";
            self.missing(other.line, reason, BY_HAND);
            return Err(reason.to_owned());
        }
        if let Some(version) = first {
            keys.set("proxy_protocol", version);
        }
        Ok(())
    }

    fn pool(&self, proxy: &Proxy<'a>, servers: &[Server<'_>], keys: &mut Keys) {
        let most = |server: &Server<'_>| {
            server.get("maxconn").and_then(|most| most.parse::<u64>().ok()).filter(|most| *most > 0)
        };
        // The least bound of one server keeps those of all.
        let Some(least) = servers.iter().filter_map(most).min() else { return };
        for server in servers.iter().filter(|server| most(server) != Some(least)) {
            self.different(server.line, format!("all servers of the group have {least} connections at most"));
        }
        let mut pool = Keys::of("max_connections", least.to_string());
        if let Some(line) = proxy.one("timeout", "queue") {
            self.carried(line);
            if let Some(time) = milliseconds(line.arg(1)) {
                let time = toml::duration(time.clamp(100, 86_400_000));
                pool.set("queue", Keys::of("timeout", time).inline());
            }
        }
        keys.set("pool", pool.inline());
    }

    /// DNS servers of a `resolvers` section: `dns` with the addresses of `nameserver` lines.
    fn dns(&self, servers: &[Server<'_>], keys: &mut Keys) {
        let Some(name) = servers.iter().find_map(|server| server.get("resolvers")) else { return };
        let mut dns = Keys::default();
        if let Some(section) = self.section("resolvers", name) {
            self.carried(section);
            let lines = section.inner().iter().filter(|line| line.name == "nameserver");
            let addresses: Vec<_> =
                lines.inspect(|line| self.carried(line)).map(|line| line.arg(1)).collect();
            let addresses: Vec<_> = addresses
                .into_iter()
                .map(|text| text.trim_start_matches("udp@").trim_start_matches("tcp@"))
                .filter(|text| text.parse::<std::net::SocketAddr>().is_ok())
                .collect();
            if !addresses.is_empty() {
                dns.set("servers", toml::list(addresses));
            }
        }
        if servers.iter().any(|server| server.get("resolve-prefer") == Some("ipv4")) {
            dns.set("ipv6", "false");
        }
        if !dns.is_empty() {
            keys.set("dns", dns.inline());
        }
    }
}

/// The entry of a server in `servers`: its URL, or a table with `url` and keys such as `weight`.
fn server_text(server: &Server<'_>, url: &str) -> String {
    let mut keys = Keys::of("url", toml::text(url));
    if let Some(weight) = server.get("weight").and_then(toml::number).filter(|weight| weight != "1") {
        keys.set("weight", weight);
    }
    if server.has("backup") {
        keys.set("backup", "true");
    }
    if server.has("resolvers") && !url.starts_with("srv+") && !url.contains("unix:") {
        keys.set("resolve", "true");
    }
    if keys.0.len() == 1 { toml::text(url) } else { keys.inline() }
}

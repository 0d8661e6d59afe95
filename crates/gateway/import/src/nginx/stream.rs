//! `stream`: connections that are forwarded as bytes, `[[tcp]]` in brisk.

use crate::directive::Directive;
use crate::nginx::context::Context;
use crate::nginx::scope::Scope;
use crate::nginx::upstream::{Protocol, has_port};
use crate::nginx::variables::only_variable;
use crate::toml::{self, Keys};

/// Settings of a `server` that need no counterpart.
const UNNEEDED: [&str; 8] = [
    "proxy_buffer_size",
    "preread_buffer_size",
    "preread_timeout",
    "tcp_nodelay",
    "proxy_socket_keepalive",
    "error_log",
    "resolver",
    "ssl_protocols",
];

impl Context<'_> {
    /// The tables for the servers of `stream`.
    pub(crate) fn stream(&self, stream: &Directive) {
        self.carried(stream);
        for server in stream.inner().iter().filter(|line| line.name == "server") {
            self.carried(server);
            let scope = self.http.child(server.inner());
            if let Err((place, reason)) = self.tcp(server, &scope) {
                let action = "write [[tcp]] by hand; until then brisk does not listen at the address";
                self.missing(place.unwrap_or(server), reason, action);
            }
        }
    }

    fn tcp<'d>(
        &self,
        server: &'d Directive,
        scope: &Scope<'d>,
    ) -> Result<(), (Option<&'d Directive>, String)> {
        // A connection that a rule refuses would be forwarded, so the address is left out instead.
        let rules = ["ssl_verify_client", "js_access", "limit_conn"];
        if let Some(rule) = scope.all_of(&rules).1.first() {
            return Err((Some(*rule), "[[tcp]] of brisk has no such restriction".to_owned()));
        }
        let mut keys = Keys::default();
        self.listeners(scope, &mut keys)?;
        let pass = scope.one("proxy_pass").ok_or((None, "there is no proxy_pass".to_owned()))?;
        let fail = |reason: String| (Some(pass), reason);
        if let Some(timeout) = scope.one("proxy_timeout") {
            self.carried(timeout);
            // Ten minutes are the default in nginx and in brisk.
            if let Some(time) = toml::milliseconds(timeout.arg(0)).filter(|time| *time != 600_000) {
                keys.set("idle_timeout", toml::duration(time.clamp(1000, 86_400_000)));
            }
        }
        for line in scope.own().iter().filter(|line| UNNEEDED.contains(&&*line.name)) {
            self.unneeded(line, "brisk chooses buffers and options of connections itself");
        }
        let preread = scope.is_on("ssl_preread");
        scope.all("ssl_preread").into_iter().for_each(|line| self.carried(line));
        let map = only_variable(pass.arg(0)).and_then(|name| self.maps.get(name));
        let Some(map) = map else {
            let target = self.destination(pass.arg(0), scope, pass).map_err(fail)?;
            keys.set("upstream", target);
            self.networks(scope, &mut keys);
            self.carried(pass);
            self.table("[[tcp]]".to_owned(), keys, server);
            return Ok(());
        };
        if !preread || map.arg(0) != "$ssl_preread_server_name" {
            return Err(fail(
                "the address depends on another variable than the name of the server".to_owned(),
            ));
        }
        self.carried(map);
        self.carried(pass);
        for (value, names) in self.named_servers(map) {
            let mut keys = keys.clone();
            let target = self.destination(&value, scope, pass).map_err(fail)?;
            keys.set("names", toml::list(names));
            keys.set("upstream", target);
            self.networks(scope, &mut keys);
            self.table("[[tcp]]".to_owned(), keys, server);
        }
        Ok(())
    }

    /// `listen`, and the certificates of a server with `ssl`.
    fn listeners<'d>(
        &self,
        scope: &Scope<'d>,
        keys: &mut Keys,
    ) -> Result<(), (Option<&'d Directive>, String)> {
        let mut addresses = Vec::new();
        let mut has_tls = false;
        for line in scope.own().iter().filter(|line| line.name == "listen") {
            let address = crate::nginx::listen::address(line.arg(0)).filter(|_| !line.has("udp"));
            let address = address.ok_or((Some(line), "brisk forwards TCP at IP addresses".to_owned()))?;
            // brisk has one setting for all its listeners. In nginx it is one of each address.
            if line.has("proxy_protocol") {
                return Err((Some(line), "proxy_protocol is a setting of all listeners".to_owned()));
            }
            self.carried(line);
            has_tls |= line.has("ssl");
            addresses.push(address);
        }
        if addresses.is_empty() {
            return Err((None, "there is no listen".to_owned()));
        }
        keys.set("listen", toml::list(addresses));
        if has_tls {
            let certificates =
                self.certificates(scope).ok_or((None, "there is no certificate".to_owned()))?;
            keys.set("certificates", certificates);
        }
        Ok(())
    }

    /// Servers of a `map` from names, each with its names.
    fn named_servers(&self, map: &Directive) -> Vec<(String, Vec<String>)> {
        let mut all: Vec<(String, Vec<String>)> = Vec::new();
        for line in map.inner() {
            let names = match line.name.as_str() {
                "hostnames" | "volatile" => {
                    self.carried(line);
                    continue;
                }
                "default" => vec!["*".to_owned()],
                key if key.starts_with('~') || key.ends_with(".*") || line.arg(0).contains('$') => {
                    let reason = "names of brisk are exact or begin with *.";
                    self.missing(line, reason, "list the names in [[tcp]]");
                    continue;
                }
                "" => vec!["*".to_owned()],
                key => match key.strip_prefix('.') {
                    Some(domain) => vec![domain.to_owned(), format!("*.{domain}")],
                    None => vec![key.to_ascii_lowercase()],
                },
            };
            self.carried(line);
            match all.iter_mut().find(|(value, _)| value == line.arg(0)) {
                Some((_, own)) => {
                    own.extend(names);
                    own.dedup();
                }
                None => all.push((line.arg(0).to_owned(), names)),
            }
        }
        all
    }

    /// The value of `upstream`: a single server, or a group with its settings.
    fn destination(&self, target: &str, scope: &Scope<'_>, pass: &Directive) -> Result<String, String> {
        if target.contains('$') || target.is_empty() {
            return Err("the address of the server depends on a variable".to_owned());
        }
        if !self.groups.contains_key(target) && !target.starts_with("unix:") && !has_port(target) {
            return Err("the server has no port".to_owned());
        }
        let protocol = if scope.is_on("proxy_ssl") { Protocol::Tls } else { Protocol::Tcp };
        scope.all("proxy_ssl").into_iter().for_each(|line| self.carried(line));
        self.upstream(protocol, target, scope, pass, None).map(|name| toml::text(&name))
    }
}

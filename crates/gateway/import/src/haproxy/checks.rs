//! Settings of groups: timeouts, health checks, and TLS to servers.

use crate::directive::Directive;
use crate::haproxy::context::{Context, milliseconds};
use crate::haproxy::host_name::is_name;
use crate::haproxy::proxy::Proxy;
use crate::haproxy::server::Server;
use crate::report::UNVERIFIED;
use crate::toml::{self, Keys};

/// Longest time of a group in milliseconds, a day.
const LONGEST: u64 = 86_400_000;

/// The request of a check and the status that it expects.
#[derive(Debug)]
struct Check {
    method: String,
    path: String,
    host: Option<String>,
    status: Option<String>,
    has_body: bool,
}

impl Check {
    /// Reads the words behind `option httpchk`.
    fn new(words: &[String]) -> Self {
        let (method, path, rest) = match words {
            [] => ("OPTIONS", "/", &[][..]),
            [path] => ("OPTIONS", path.as_str(), &[][..]),
            [method, path, rest @ ..] => (method.as_str(), path.as_str(), rest),
        };
        // Older configurations have headers behind the version.
        let head = rest.join(" ");
        let at = head.to_ascii_lowercase().find("host:");
        let host = at.and_then(|at| head[at + 5..].split_whitespace().next().map(str::to_owned));
        Self { method: method.to_owned(), path: path.to_owned(), host, status: None, has_body: false }
    }

    /// Reads `http-check send`.
    fn send(&mut self, line: &Directive) {
        let value = |name: &str| {
            let at = line.args.iter().position(|arg| arg.eq_ignore_ascii_case(name));
            at.and_then(|at| line.args.get(at + 1)).cloned()
        };
        self.method = value("meth").unwrap_or_else(|| self.method.clone());
        self.path = value("uri").unwrap_or_else(|| self.path.clone());
        self.host = value("host").or_else(|| self.host.take());
        self.has_body |= value("body").is_some();
    }

    /// Reads `http-check expect`. Whether it expects a status that brisk can expect.
    fn expects(&mut self, line: &Directive) -> bool {
        match (line.arg(1), line.arg(2)) {
            ("status", status) if status.parse::<u16>().is_ok() => {
                self.status = Some(status.to_owned());
                true
            }
            ("status", "200-399") | ("rstatus", "(2|3)[0-9][0-9]" | "^[23]") => true,
            _ => false,
        }
    }
}

impl<'a> Context<'a> {
    /// `timeouts` of a group.
    pub(crate) fn group_timeouts(&self, proxy: &Proxy<'a>, tcp: bool, keys: &mut Keys) {
        let mut timeouts = Keys::default();
        let time = |kind: &str| {
            let line = proxy.one("timeout", kind)?;
            self.carried(line);
            Some(milliseconds(line.arg(1))?.clamp(100, LONGEST))
        };
        let mut set = |key: &str, time: u64, usual: u64| {
            // A time that brisk has without a setting is left out.
            if time != usual {
                timeouts.set(key, toml::duration(time));
            }
        };
        if let Some(time) = time("connect") {
            set("connect", time, 5000);
        }
        if !tcp {
            let server = time("server");
            if let Some(time) = server {
                set("head", time, 60_000);
                set("body", time, 60_000);
            }
            if let Some(time) = time("tunnel").or(server) {
                set("upgraded", time, 60_000);
            }
        }
        if !timeouts.is_empty() {
            keys.set("timeouts", timeouts.inline());
        }
    }

    /// `health` of a group.
    pub(crate) fn health(&self, proxy: &Proxy<'a>, tcp: bool, servers: &[Server<'_>], keys: &mut Keys) {
        let checks = self.check_lines(proxy);
        let Some(server) = servers.iter().find(|server| server.has("check") && !server.has("no-check"))
        else {
            return;
        };
        let mut health = Keys::default();
        if tcp {
            if let Some(line) = checks
                .iter()
                .find(|line| !matches!(line.arg(0), "tcp-check" | "ssl-hello-chk") || line.name != "option")
            {
                self.different(line, "brisk checks these servers by connecting");
            }
        } else {
            self.http_check(proxy, &checks, &mut health);
            if health.get("path").is_none() {
                let detail = "brisk excludes a server after failed requests; for checks without requests, write health = { path = \"/\" } in the group";
                servers
                    .iter()
                    .filter(|server| server.has("check"))
                    .for_each(|server| self.different(server.line, detail));
            }
        }
        let interval =
            server.get("inter").map_or(Some(2000), milliseconds).unwrap_or(2000).clamp(100, LONGEST);
        // Without a path, brisk checks servers of HTTP by the requests of clients only.
        let is_active = tcp || health.get("path").is_some();
        if is_active {
            health.set("interval", toml::duration(interval));
            let timeout =
                proxy.one("timeout", "check").and_then(|line| milliseconds(line.arg(1))).unwrap_or(2000);
            let timeout = timeout.clamp(100, interval);
            if timeout != 2000 {
                health.set("timeout", toml::duration(timeout));
            }
            for (option, key, usual) in [("rise", "healthy_after", "2"), ("fall", "unhealthy_after", "3")] {
                if let Some(count) =
                    server.get(option).and_then(toml::number).filter(|count| count != usual && count != "0")
                {
                    health.set(key, count);
                }
            }
        }
        if let Some(line) = proxy.one("timeout", "check") {
            self.carried(line);
        }
        let start = servers.iter().find_map(|server| server.get("slowstart")).and_then(milliseconds);
        if let Some(start) = start.filter(|start| *start > 0) {
            health.set("slow_start", toml::duration(start.clamp(100, LONGEST)));
        }
        if !health.is_empty() {
            keys.set("health", health.inline());
        }
    }

    /// Lines about checks, such as `option httpchk` and `http-check`, which are `carried` unless a later note is heavier.
    fn check_lines(&self, proxy: &Proxy<'a>) -> Vec<&'a Directive> {
        let kinds = [
            "httpchk",
            "tcp-check",
            "ssl-hello-chk",
            "mysql-check",
            "pgsql-check",
            "redis-check",
            "smtpchk",
            "ldap-check",
        ];
        let mut lines: Vec<&Directive> = kinds.iter().filter_map(|kind| proxy.option(kind)).collect();
        lines.extend(proxy.all("http-check").chain(proxy.all("tcp-check")));
        for line in &lines {
            self.carried(line);
        }
        lines
    }

    fn http_check(&self, proxy: &Proxy<'a>, lines: &[&'a Directive], health: &mut Keys) {
        let Some(option) = proxy.option("httpchk") else {
            for line in lines {
                self.different(line, "brisk checks servers of HTTP by a request");
            }
            return;
        };
        let mut check = Check::new(&option.args[1..]);
        for line in lines.iter().filter(|line| line.name == "http-check") {
            match line.arg(0) {
                "send" => check.send(line),
                "expect" if check.expects(line) => {}
                "disable-on-404" | "send-state" => {
                    self.different(line, "brisk has healthy and unhealthy servers only");
                }
                _ => self.different(line, "brisk compares the status of the response only"),
            }
        }
        if !check.path.starts_with('/') || check.path.contains(|next: char| next.is_control() || next == ' ')
        {
            let reason = "the path of the check does not begin with a slash";
            return self.missing(option, reason, "write health in the group");
        }
        if check.method != "GET" || check.has_body {
            self.different(option, format!("brisk checks servers with GET in place of {}", check.method));
        }
        health.set("path", toml::text(&check.path));
        let is_name = |host: &String| is_name(host.split(':').next().unwrap_or(""));
        if let Some(host) = check.host.filter(is_name) {
            health.set("host", toml::text(&host));
        }
        if let Some(status) = check.status {
            health.set("status", status);
        }
    }

    /// `tls` of a group. All of its servers have the same settings in brisk.
    pub(crate) fn server_tls(
        &self,
        servers: &[Server<'_>],
        tcp: bool,
        keys: &mut Keys,
    ) -> Result<(), String> {
        let mut with_tls = servers.iter().filter(|server| server.has("ssl") && !server.has("disabled"));
        let Some(first) = with_tls.next() else { return Ok(()) };
        let tls = self.tls_of(first, tcp);
        for other in with_tls {
            let own = self.tls_of(other, tcp);
            if own != tls {
                let reason = "servers of a group have the same authority, name and certificate";
                self.missing(
                    other.line,
                    reason,
                    "write a group for each; until then the routes refuse requests",
                );
                return Err(reason.to_owned());
            }
        }
        if !tls.is_empty() {
            keys.set("tls", tls.inline());
        }
        Ok(())
    }

    fn tls_of(&self, server: &Server<'_>, tcp: bool) -> Keys {
        let mut tls = Keys::default();
        let usual = self.global("ssl-server-verify").map(|line| line.arg(0));
        let is_verified = server.get("verify").or(usual) != Some("none");
        if !is_verified {
            tls.set("verify", "false");
            self.different(server.line, UNVERIFIED);
        } else if let Some(file) = server.get("ca-file").filter(|file| *file != "@system-ca") {
            tls.set("ca", self.based(file, "ca-base"));
        }
        if let Some(file) = server.get("crt") {
            let file = self.based(file, "crt-base");
            tls.set("certificate", format!("{{ chain = {file}, key = {file} }}"));
        }
        let sni = server.get("sni").and_then(|sni| sni.strip_prefix("str(")?.strip_suffix(')'));
        if let Some(name) = server.get("verifyhost").or(sni) {
            tls.set("server_name", toml::text(name));
        } else if server.has("sni") {
            self.different(server.line, "brisk sends and verifies the name in the URL of the server: write server_name in [upstream.NAME.tls]");
        } else if is_verified {
            self.different(server.line, "brisk verifies the name or address in the URL of the server too: write server_name in [upstream.NAME.tls] for another one");
        }
        let is_http2 = server.get("alpn").is_some_and(|list| list.split(',').next() == Some("h2"))
            || server.get("proto") == Some("h2");
        if is_http2 && !tcp {
            tls.set("protocol", "\"h2\"");
        }
        tls
    }

    /// The name of a file below the folder of `ca-base` or `crt-base`.
    pub(crate) fn based(&self, file: &str, base: &str) -> String {
        match self.global(base) {
            Some(line) if !file.starts_with('/') => {
                self.carried(line);
                self.file(&format!("{}/{file}", line.arg(0)))
            }
            _ => self.file(file),
        }
    }
}

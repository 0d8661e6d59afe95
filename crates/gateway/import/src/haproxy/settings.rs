//! Settings of a whole file (`[server]`, `[tls]`), and settings of routes that HAProxy has in proxies, such as `compression`.

use std::fmt::Write as _;

use crate::directive::Directive;
use crate::haproxy::context::{Context, milliseconds};
use crate::haproxy::limits;
use crate::haproxy::proxy::Proxy;
use crate::haproxy::state::{Headers, State};
use crate::haproxy::unit::Unit;
use crate::table::Table;
use crate::toml::{self, Keys};

/// Longest time of a listener.
const LONGEST: u64 = 86_400_000;

impl<'a> Context<'a> {
    /// The text of a file: the tables of the [`Unit`], then the tables in its list `used`.
    pub(crate) fn text(&self, unit: &Unit<'a>, number: usize, count: usize) -> String {
        let mut text =
            String::from("# Made by `brisk import haproxy`. Comments name the lines of HAProxy.\n");
        if count > 1 {
            let _ = writeln!(
                text,
                "# File {number} of {count}: each needs a process, because brisk serves all hosts at all addresses."
            );
        }
        for table in self.service(unit) {
            table.write(&mut text);
        }
        unit.hosts(self, &mut text);
        unit.tcp.iter().for_each(|table| table.write(&mut text));
        let mut seen = std::collections::BTreeSet::new();
        // Joined units may use the same table.
        for header in unit.used.iter().filter(|header| seen.insert(*header)) {
            self.table(header).into_iter().for_each(|table| table.write(&mut text));
        }
        crate::haproxy::grammar::with_variables(&text)
    }

    /// `[server]`, `[tls]` and the tables of logs.
    fn service(&self, unit: &Unit<'a>) -> Vec<Table> {
        let proxy = &self.proxies.all[unit.front];
        let mut server = Keys::default();
        let has_hosts = !unit.hosts.is_empty();
        if has_hosts && unit.listeners.tls {
            server.set("https", toml::list(&unit.listeners.addresses));
        }
        if !unit.http.is_empty() {
            server.set("http", toml::list(&unit.http));
        }
        if has_hosts && unit.listeners.quic {
            server.set("http3", "true");
        }
        if has_hosts {
            server.set("unknown_host", "\"default\"");
        }
        if unit.listeners.proxy {
            server.set("proxy_protocol", "true");
        }
        self.process(proxy, &mut server);
        if has_hosts {
            self.client_timeouts(proxy, &mut server);
        }
        let mut tables = Vec::new();
        let plain = |header: &str, keys| Table { header: header.to_owned(), keys, comment: String::new() };
        if !server.is_empty() {
            tables.push(plain("[server]", server));
        }
        if unit.listeners.tls && (unit.listeners.is_recent || self.is_recent()) {
            tables.push(plain("[tls]", Keys::of("min_version", "\"1.3\"")));
        }
        tables.extend(self.logs(proxy));
        tables
    }

    /// Whether `ssl-default-bind-options` in `global` permits TLS 1.3 only, as `ssl-min-ver TLSv1.3` does.
    fn is_recent(&self) -> bool {
        let Some(line) = self.global("ssl-default-bind-options") else { return false };
        let has = |words: &[&str]| line.args.windows(words.len()).any(|own| own == words);
        has(&["ssl-min-ver", "TLSv1.3"]) || has(&["force-tlsv13"]) || has(&["no-tlsv12"])
    }

    /// Keys of the process: `max_connections` from `maxconn`, `drain_timeout` from `hard-stop-after`, `abort_on_close` from
    /// `option abortonclose`.
    fn process(&self, proxy: &Proxy<'a>, server: &mut Keys) {
        if let Some((number, rate)) = self.connections.borrow().get(proxy.name()) {
            if let Some((most, _)) = number {
                server.set("max_connections_per_client", most.to_string());
            }
            if let Some((most, period)) = rate {
                server.set("rates.connections", format!("\"{}\"", limits::rate(*most, *period)));
            }
        }
        let most = proxy.one("maxconn", "").into_iter().chain(self.global("maxconn"));
        let most = most.filter_map(|line| {
            self.different(line, "brisk closes the connection that is idle longest in place of waiting");
            line.arg(0).parse::<u64>().ok().filter(|most| *most > 0)
        });
        // HAProxy obeys both limits, so the smaller one decides.
        if let Some(most) = most.min() {
            server.set("max_connections", most.to_string());
        }
        if let Some(line) = self.global("hard-stop-after") {
            self.carried(line);
            if let Some(time) = milliseconds(line.arg(0)) {
                server.set("drain_timeout", toml::duration(time.clamp(100, LONGEST)));
            }
        }
        if let Some(line) = proxy.option("abortonclose") {
            self.carried(line);
            server.set("abort_on_close", "true");
        }
    }

    /// Headers that settings of the proxies add. The ones of clients never reach the server.
    pub(crate) fn own_headers(&self, front: &Proxy<'a>, back: &Proxy<'a>, state: &mut State) {
        let lines = |name: &'static str| back.one(name, "").or_else(|| front.one(name, ""));
        let value = |line: &'a Directive, name: &str| {
            line.args.iter().position(|arg| arg == name).map(|at| line.arg(at + 1))
        };
        for line in [front, back].into_iter().filter_map(|proxy| proxy.option("forwardfor")) {
            self.carried(line);
            if line.has("except") || line.has("if-none") {
                let detail = "brisk replaces the header of all clients: write proxies before it as trusted_proxies in [server]";
                self.different(line, detail);
            }
            let name = value(line, "header").unwrap_or("X-Forwarded-For");
            if name.eq_ignore_ascii_case("x-real-ip") {
                state.real_ip = true;
            } else if !name.eq_ignore_ascii_case("x-forwarded-for") && self.is_header(line, name) {
                state.request.set(name, "{client.address}");
                self.different(line, "brisk replaces the header of clients, and sends X-Forwarded-For too");
            }
        }
        for line in [front, back].into_iter().filter_map(|proxy| proxy.option("originalto")) {
            let name = value(line, "header").unwrap_or("X-Original-To");
            self.missing(line, format!("brisk does not send {name}"), "write request_headers in the route");
            if self.is_header(line, name) {
                state.request.remove(name);
            }
        }
        if let Some(line) = lines("http-send-name-header").filter(|line| self.is_header(line, line.arg(0))) {
            let reason = "brisk does not send the name of the server";
            self.missing(line, reason, "write request_headers in the route");
            state.request.remove(line.arg(0));
        }
        if let Some(line) = lines("unique-id-header").filter(|line| self.is_header(line, line.arg(0))) {
            self.different(line, "the value is the id of the access log of brisk");
            // brisk sends this header without a rule.
            if line.arg(0).eq_ignore_ascii_case("x-request-id") {
                state.request.default(line.arg(0));
            } else {
                state.request.set(line.arg(0), "{request.id}");
            }
        }
    }

    /// Whether a text is the name of a header.
    fn is_header(&self, line: &Directive, name: &str) -> bool {
        let is_own = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_header = !name.is_empty() && name.bytes().all(is_own) && !Headers::is_framing(name);
        if !is_header {
            self.missing(line, "brisk does not change such a header", "write another name");
        }
        is_header
    }

    /// `timeouts`: `body` and `write` from `timeout client`, `head` from `timeout http-request`, and `idle` from
    /// `timeout http-keep-alive`, or else from these.
    fn client_timeouts(&self, proxy: &Proxy<'a>, server: &mut Keys) {
        let time = |kind: &str| {
            let line = proxy.one("timeout", kind)?;
            self.carried(line);
            Some(milliseconds(line.arg(1))?.clamp(100, LONGEST))
        };
        let client = time("client");
        let head = time("http-request");
        let idle = time("http-keep-alive").or(head).or(client);
        let mut timeouts = Keys::default();
        for (key, time, usual) in [
            ("head", head, 10_000),
            ("body", client, 30_000),
            ("idle", idle, 60_000),
            ("write", client, 30_000),
        ] {
            // The usual time needs no key.
            if let Some(time) = time.filter(|time| *time != usual) {
                timeouts.set(key, toml::duration(time));
            }
        }
        if !timeouts.is_empty() {
            server.set("timeouts", timeouts.inline());
        }
    }

    /// Keys of a route that its proxies set: `compression`, `buffer_request`, `body_size` and `request_headers`.
    pub(crate) fn of_route(&self, front: &Proxy<'a>, back: &Proxy<'a>, keys: &mut Keys) {
        let line = |name: &'static str, first: &str| back.one(name, first).or_else(|| front.one(name, first));
        if let Some(own) = line("compression", "algo") {
            self.different(own, "brisk compresses with zstd and br too, as the client accepts");
            let types = line("compression", "type");
            if let Some(types) = types {
                self.carried(types);
            }
            let listed = types.map(|types| toml::list(types.args.iter().skip(1)));
            let value = listed.map_or("true".to_owned(), |types| format!("{{ types = {types} }}"));
            keys.set("compression", value);
        }
        if let Some(own) = back.option("http-buffer-request").or_else(|| front.option("http-buffer-request"))
        {
            self.different(own, "brisk waits for the whole body, up to 1 MiB");
            keys.set("buffer_request", "true");
            if keys.get("body_size").is_none() {
                keys.set("body_size", "\"1MiB\"");
            }
        }
    }
}

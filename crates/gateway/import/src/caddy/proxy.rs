//! Upstreams: `reverse_proxy` with its servers, balancing and headers.

use crate::caddy::context::Context;
use crate::caddy::environment::{self, has_variable, resolve};
use crate::caddy::flow::{Flow, REFUSES};
use crate::caddy::headers;
use crate::caddy::health;
use crate::caddy::plan::Action;
use crate::caddy::rewrite::rewritten;
use crate::caddy::state::{Change, Rule, State};
use crate::caddy::step::Step;
use crate::caddy::transport;
use crate::caddy::units;
use crate::caddy::world::World;
use crate::directive::Directive;
use crate::report::Class;
use crate::toml::{self, Keys};

/// A group of servers: `[upstream.NAME]`.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// Host and port of the only server; `None` for several, for `dynamic` and for Unix sockets.
    pub(crate) host: Option<String>,
    /// Whether the server has TLS, so that Caddy sends its name as `Host`.
    pub(crate) is_tls: bool,
}

/// `reverse_proxy`: the key `upstream`, with the rules of `header_up` and `header_down`.
pub(crate) fn serve<'a>(
    context: &Context<'a>,
    step: &Step<'a>,
    state: &mut State<'a>,
    world: &mut World,
) -> Flow {
    let directive = step.directive;
    let refuse = |reason: &str| Flow::refused(context, directive, reason);
    context.carried(directive);
    let group = match upstream(context, step, state, world) {
        Ok(group) => group,
        Err(reason) => return refuse(&reason),
    };
    for line in directive.inner() {
        if !setting(context, line, &group, state, world) {
            return Flow::REFUSE;
        }
    }
    let has_host = directive
        .inner()
        .iter()
        .any(|line| line.name == "header_up" && line.arg(0).eq_ignore_ascii_case("host"));
    // Caddy sends the name of a server with TLS as `Host`, unless `header_up` states another.
    if let Some(host) = group.host.filter(|_| !has_host && group.is_tls) {
        let is_set = state.request.iter().any(|rule| rule.name.eq_ignore_ascii_case("host"));
        if !is_set {
            state.request.push(Rule {
                change: Change::Set,
                name: "Host".to_owned(),
                value: host,
                source: directive,
            });
        }
    }
    Flow::Finish(Action::Upstream { name: group.name, keys: Keys::default(), is_cgi: false })
}

/// A line in the block of `reverse_proxy`. Whether the route may serve requests.
fn setting<'a>(
    context: &Context<'a>,
    line: &'a Directive,
    group: &Group,
    state: &mut State<'a>,
    world: &mut World,
) -> bool {
    match line.name.as_str() {
        "header_up" => return up(context, line, group, state, world),
        "header_down" => {
            context.carried(line);
            headers::rule(context, line, &line.args, true, state, world);
        }
        "rewrite" => match rewritten(&resolve(line.arg(0)), world) {
            Ok(view) => {
                world.view = view;
                context.carried(line);
            }
            Err(reason) => {
                context.missing(line, reason, REFUSES);
                return false;
            }
        },
        "handle_response" | "replace_status" | "method" => {
            let class = Class::NotCarried {
                reason: format!("brisk has no counterpart of {}", line.name),
                action: format!("write error_pages with intercept = true, or forward_auth; {REFUSES}"),
            };
            context.note_whole(line, &class);
            return false;
        }
        "request_buffers" => {
            context.different(
                line,
                "brisk streams bodies: write buffer_request = true and body_size in the route",
            );
        }
        name if name.starts_with('@') => context.unneeded(line, "only handle_response uses the matcher"),
        _ => {}
    }
    true
}

/// `header_up`. `false` if the route has to refuse requests. `Host {upstream_hostport}` is the address of the only server.
fn up<'a>(
    context: &Context<'a>,
    line: &'a Directive,
    group: &Group,
    state: &mut State<'a>,
    world: &World,
) -> bool {
    context.carried(line);
    let address = [
        "{upstream_hostport}",
        "{http.reverse_proxy.upstream.hostport}",
        "{http.reverse_proxy.upstream.host}",
    ];
    let is_host = line.arg(0).eq_ignore_ascii_case("host");
    if is_host && address.contains(&line.arg(1)) {
        let Some(host) = &group.host else {
            context.different(line, "servers get the Host of the client, because the group has several");
            return true;
        };
        state.request.push(Rule {
            change: Change::Set,
            name: "Host".to_owned(),
            value: host.clone(),
            source: line,
        });
        return true;
    }
    headers::rule(context, line, &line.args, false, state, world)
}

/// The [`Group`] of servers of a directive, from its arguments and `to`.
pub(crate) fn upstream(
    context: &Context<'_>,
    step: &Step<'_>,
    state: &State<'_>,
    world: &World,
) -> Result<Group, String> {
    let block = step.directive.inner();
    let mut named = step.args.clone();
    for line in block.iter().filter(|line| line.name == "to") {
        named.extend(line.args.iter().cloned());
        context.carried(line);
    }
    let mut keys = Keys::default();
    let transport = block.iter().find(|line| line.name == "transport");
    let kind = transport::kind(transport, &named);
    let dynamic = block.iter().find(|line| line.name == "dynamic");
    let servers = match dynamic {
        Some(dynamic) => vec![transport::dynamic(context, dynamic, kind, &mut keys)?],
        None => addresses(&named, kind)?,
    };
    if servers.is_empty() {
        return Err("there is no address of a server".to_owned());
    }
    let host = host(&servers, dynamic.is_some());
    balance(context, block, &servers, &mut keys);
    if keys.get("servers").is_none() {
        keys.0.insert(0, ("servers".to_owned(), environment::list(&servers)));
    }
    if let Some(transport) = transport {
        transport::settings(context, transport, state, world, &servers, &mut keys)?;
    }
    if kind != "fastcgi" {
        transport::timeouts(&mut keys);
    }
    health::settings(context, block, &mut keys);
    let keys = nested(keys);
    let name = context.named_table(
        "upstream",
        &units::label(servers.first().map_or("", String::as_str)),
        &keys,
        step.directive,
    );
    Ok(Group { name, host, is_tls: kind == "https" || servers.iter().any(|url| url.starts_with("https://")) })
}

/// Keys with a dot as inline tables: `timeouts.head` becomes `head` in `timeouts`.
fn nested(keys: Keys) -> Keys {
    let mut all = Keys::default();
    let mut tables: Vec<(String, Keys)> = Vec::new();
    for (key, value) in keys.0 {
        match key.split_once('.') {
            Some((table, own)) => match tables.iter_mut().find(|(name, _)| name == table) {
                Some((_, keys)) => keys.set(own, value),
                None => tables.push((table.to_owned(), Keys::of(own, value))),
            },
            None => all.set(&key, value),
        }
    }
    for (name, keys) in tables {
        all.set(&name, keys.inline());
    }
    all
}

/// The host and port of the only server, which Caddy sends as `Host` to servers of `https://`.
fn host(servers: &[String], is_dynamic: bool) -> Option<String> {
    let [one] = servers else { return None };
    let authority = one.split_once("://")?.1.split('/').next()?;
    let usual = if one.starts_with("https://") { ":443" } else { ":80" };
    let host = authority.strip_suffix(usual).unwrap_or(authority);
    (!is_dynamic && !one.contains("+unix:")).then(|| host.to_owned())
}

/// URLs of servers in brisk: `:8080` is `http://127.0.0.1:8080`, and `unix//run/a` is `unix:/run/a`.
pub(crate) fn addresses(texts: &[String], kind: &str) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for text in texts {
        let own = if has_variable(text) { text.clone() } else { resolve(text) };
        let (scheme, rest) = own.split_once("://").unwrap_or(("", &own));
        if rest.is_empty() || resolve(rest).contains(['{', '*']) {
            return Err(
                "the address of the server depends on the request: brisk forwards to fixed servers only"
                    .to_owned(),
            );
        }
        let socket = rest.strip_prefix("unix/").or_else(|| rest.strip_prefix("unix+h2c/"));
        let kind = match scheme {
            "https" | "wss" => "https",
            "h2c" => "h2c",
            "http" | "ws" | "" if rest.starts_with("unix+h2c/") => "h2c",
            "http" | "ws" | "" => kind,
            other => return Err(format!("brisk has no servers with {other}://")),
        };
        if let Some(socket) = socket {
            all.push(match kind {
                "http" => format!("unix:{socket}"),
                "https" => return Err("brisk does not speak TLS over Unix sockets".to_owned()),
                kind => format!("{kind}+unix:{socket}"),
            });
            continue;
        }
        let has_path = rest.contains('/') && !has_variable(rest);
        if has_path || rest.starts_with("udp") || rest.contains("tcp/") {
            return Err("the address of the server has a path or another network".to_owned());
        }
        // An address without a host is one of this machine.
        let rest = if rest.starts_with(':') { format!("127.0.0.1{rest}") } else { rest.to_owned() };
        let ports = rest.rsplit_once(':').and_then(|(host, ports)| {
            let (first, last) = ports.split_once('-')?;
            Some((host, first.parse::<u16>().ok()?, last.parse::<u16>().ok()?))
        });
        match ports {
            Some((host, first, last)) if last.saturating_sub(first) < 100 => {
                all.extend((first..=last).map(|port| format!("{kind}://{host}:{port}")));
            }
            Some(_) => return Err("the address has more than 100 ports".to_owned()),
            None => all.push(format!("{kind}://{rest}")),
        }
    }
    Ok(all)
}

/// `lb_policy` and its relatives: `least_conn` becomes `balance = "least_connections"`.
fn balance(context: &Context<'_>, block: &[Directive], servers: &[String], keys: &mut Keys) {
    for line in block {
        context.note_balance(line);
        match (line.name.as_str(), line.arg(0)) {
            ("lb_policy", "least_conn") => keys.set("balance", "\"least_connections\""),
            ("lb_policy", "ip_hash" | "client_ip_hash") => keys.set("balance", "\"consistent_hash\""),
            ("lb_policy", "uri_hash") => {
                keys.set("balance", "\"consistent_hash\"");
                keys.set("hash_by", "\"path\"");
            }
            ("lb_policy", "header") => {
                keys.set("balance", "\"consistent_hash\"");
                keys.set("hash_by", toml::text(&format!("header:{}", line.arg(1))));
            }
            ("lb_policy", "cookie") => {
                let name = if line.arg(1).is_empty() { "lb" } else { line.arg(1) };
                keys.set("sticky", format!("{{ cookie = {} }}", toml::text(name)));
            }
            ("lb_policy", "first") if servers.len() > 1 => {
                let own: Vec<_> = servers
                    .iter()
                    .enumerate()
                    .map(|(index, url)| {
                        let url = environment::text(url);
                        if index == 0 { url } else { format!("{{ url = {url}, backup = true }}") }
                    })
                    .collect();
                keys.set("servers", format!("[{}]", own.join(", ")));
            }
            ("lb_policy", "weighted_round_robin") if servers.len() + 1 == line.args.len() => {
                let numbers = line.args[1..]
                    .iter()
                    .map(|weight| toml::number(weight).unwrap_or_else(|| "1".to_owned()));
                let own: Vec<_> = servers
                    .iter()
                    .zip(numbers)
                    .map(|(url, weight)| format!("{{ url = {}, weight = {weight} }}", environment::text(url)))
                    .collect();
                keys.set("servers", format!("[{}]", own.join(", ")));
            }
            _ => {}
        }
    }
}

impl Context<'_> {
    /// Notes about directives of balancing (`lb_policy`, `lb_retries`), and about others that need no key.
    fn note_balance(&self, line: &Directive) {
        match (line.name.as_str(), line.arg(0)) {
            ("lb_policy", "random" | "random_choose") => {
                self.different(line, "brisk uses the servers in turn");
            }
            ("lb_policy", "query") => {
                self.missing(line, "brisk does not balance by parameters", "write hash_by = \"path\"");
            }
            ("lb_policy", "first") => {
                self.different(line, "the second and further servers are backups, which share requests");
            }
            ("lb_policy", "cookie") => self.different(line, "the cookie has another value"),
            ("lb_policy", _) => self.carried_whole(line),
            ("lb_retries" | "lb_try_duration" | "lb_try_interval", _) => {
                self.different(line, "brisk repeats a request at one other server");
            }
            ("lb_retry_match", _) => self.missing(
                line,
                "brisk repeats requests that are safe to repeat",
                "write retry in [upstream.NAME]",
            ),
            ("flush_interval" | "response_buffers" | "stream_buffer_size", _) => {
                self.unneeded(line, "brisk forwards each part of a response at once");
            }
            ("stream_timeout" | "stream_close_delay" | "verbose_logs" | "proxy_status_name", _) => {
                self.unneeded(line, "brisk has no such setting: server.drain_timeout ends open connections");
            }
            ("trusted_proxies", _) => {
                self.different(
                    line,
                    "proxies are trusted for the whole server: write trusted_proxies in [server]",
                );
            }
            _ => {}
        }
    }
}

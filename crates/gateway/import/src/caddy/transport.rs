//! Connections to servers: `transport` and `dynamic` of `reverse_proxy`.

use crate::caddy::context::Context;
use crate::caddy::environment::{self, resolve};
use crate::caddy::placeholders::{Use, template};
use crate::caddy::state::State;
use crate::caddy::units;
use crate::caddy::world::World;
use crate::directive::Directive;
use crate::report::UNVERIFIED;
use crate::toml::{self, Keys};

/// The scheme of servers in brisk: `http`, `https`, `h2c` or `fastcgi`.
pub(crate) fn kind(transport: Option<&Directive>, addresses: &[String]) -> &'static str {
    let Some(transport) = transport else { return "http" };
    // The scheme of an address decides before the block of `transport`.
    let is_plain = addresses.iter().any(|address| address.starts_with("http://"));
    let has = |name: &str| transport.inner().iter().any(|line| line.name == name);
    let versions = transport.inner().iter().find(|line| line.name == "versions");
    match transport.arg(0) {
        "fastcgi" => "fastcgi",
        "http"
            if !is_plain
                && (has("tls") || transport.inner().iter().any(|line| line.name.starts_with("tls_"))) =>
        {
            "https"
        }
        "http" if versions.is_some_and(|line| line.has("h2c") && !line.has("1.1")) => "h2c",
        _ => "http",
    }
}

/// The waits of Caddy, which has none for responses without a setting: `timeouts.head` is `10m`. brisk's own are a minute.
pub(crate) fn timeouts(keys: &mut Keys) {
    for (key, value) in [("head", "10m"), ("body", "1h"), ("upgraded", "1d")] {
        let name = format!("timeouts.{key}");
        if keys.get(&name).is_none() {
            keys.set(&name, toml::text(value));
        }
    }
}

/// The server of `dynamic`, whose addresses come from DNS: `resolve = true` for `a`, and `srv+http://NAME` for `srv`.
pub(crate) fn dynamic(
    context: &Context<'_>,
    dynamic: &Directive,
    kind: &str,
    keys: &mut Keys,
) -> Result<String, String> {
    context.carried(dynamic);
    let find =
        |name: &str| dynamic.inner().iter().find(|line| line.name == name).map(|line| resolve(line.arg(0)));
    for line in dynamic.inner() {
        match line.name.as_str() {
            "resolvers" => resolvers(context, line, keys),
            "name" | "port" | "service" | "proto" | "versions" => context.carried(line),
            _ => context.different(line, "brisk resolves names again when the TTL of their records ends"),
        }
    }
    match dynamic.arg(0) {
        "a" => {
            let name = find("name").unwrap_or_else(|| resolve(dynamic.arg(1)));
            let port = find("port").unwrap_or_else(|| resolve(dynamic.arg(2)));
            let url = format!("{kind}://{name}:{}", if port.is_empty() { "80" } else { &port });
            keys.set("servers", format!("[{{ url = {}, resolve = true }}]", environment::text(&url)));
            Ok(url)
        }
        "srv" => {
            let name = find("name").unwrap_or_else(|| resolve(dynamic.arg(1)));
            let full = match (find("service"), find("proto")) {
                (Some(service), Some(proto)) => format!("_{service}._{proto}.{name}"),
                _ => name,
            };
            Ok(format!("srv+{kind}://{full}"))
        }
        other => Err(format!("brisk has no counterpart of dynamic {other}")),
    }
}

fn resolvers(context: &Context<'_>, line: &Directive, keys: &mut Keys) {
    let with_port =
        |address: &String| if address.contains(':') { address.clone() } else { format!("{address}:53") };
    keys.set("dns.servers", toml::list(line.args.iter().map(|arg| with_port(&resolve(arg)))));
    context.carried(line);
}

/// Settings of a `transport`, as keys of `[upstream.NAME]`.
pub(crate) fn settings(
    context: &Context<'_>,
    transport: &Directive,
    state: &State<'_>,
    world: &World,
    servers: &[String],
    keys: &mut Keys,
) -> Result<(), String> {
    context.carried(transport);
    match transport.arg(0) {
        "http" => {}
        "fastcgi" => {
            fastcgi(context, transport, state, world, keys);
            return Ok(());
        }
        other => return Err(format!("brisk has no transport {other}")),
    }
    let is_tls = servers.iter().any(|server| server.contains("https://"));
    for line in transport.inner() {
        let value = resolve(line.arg(0));
        match line.name.as_str() {
            "tls" => context.carried(line),
            name if name.starts_with("tls_") => tls(context, line, is_tls, keys)?,
            "resolvers" => resolvers(context, line, keys),
            "versions" => {
                if is_tls && line.args.iter().all(|version| version == "2") {
                    keys.set("tls.protocol", "\"h2\"");
                }
                context.carried(line);
            }
            "proxy_protocol" => {
                keys.set("proxy_protocol", toml::text(&value));
                context.carried(line);
            }
            "max_conns_per_host" => connections(context, line, &value, keys),
            "keepalive" if value == "off" => {
                keys.set("pool.idle_connections", "0");
                context.carried(line);
            }
            "dial_timeout" | "response_header_timeout" | "read_timeout" | "keepalive" => {
                wait(context, line, &value, keys);
            }
            "write_timeout"
            | "expect_continue_timeout"
            | "dial_fallback_delay"
            | "keepalive_interval"
            | "read_buffer"
            | "write_buffer"
            | "compression"
            | "max_response_header"
            | "keepalive_idle_conns"
            | "keepalive_idle_conns_per_host" => {
                context.unneeded(
                    line,
                    "brisk has values of its own, and passes Accept-Encoding of the client on",
                );
            }
            "network_proxy" | "forward_proxy_url" | "local_address" => {
                context.carried(line);
                return Err(format!("brisk connects to servers directly, without {}", line.name));
            }
            _ => {}
        }
    }
    Ok(())
}

fn connections(context: &Context<'_>, line: &Directive, value: &str, keys: &mut Keys) {
    match toml::number(value).filter(|number| number != "0") {
        Some(number) => {
            keys.set("pool.max_connections", number);
            context.carried(line);
        }
        None => context.unneeded(line, "0 is no limit"),
    }
}

fn wait(context: &Context<'_>, line: &Directive, value: &str, keys: &mut Keys) {
    let key = match line.name.as_str() {
        "dial_timeout" => "timeouts.connect",
        "response_header_timeout" => "timeouts.head",
        "read_timeout" => "timeouts.body",
        _ => "pool.idle_timeout",
    };
    match units::milliseconds(value) {
        Some(0) => context.unneeded(line, "0 is no limit"),
        Some(time) => {
            keys.set(key, toml::duration(time.clamp(100, 86_400_000)));
            context.carried(line);
        }
        None => context.missing(line, "the time is not a number", "write it in [upstream.NAME.timeouts]"),
    }
}

/// TLS to servers.
fn tls(context: &Context<'_>, line: &Directive, is_tls: bool, keys: &mut Keys) -> Result<(), String> {
    let value = resolve(line.arg(0));
    match line.name.as_str() {
        _ if !is_tls => context.unneeded(line, "the servers have no TLS"),
        "tls_insecure_skip_verify" => {
            // brisk refuses authorities that have no effect.
            keys.0.retain(|(key, _)| key != "tls.ca");
            keys.set("tls.verify", "false");
            context.different(line, UNVERIFIED);
        }
        "tls_server_name" if !value.contains('{') => {
            keys.set("tls.server_name", toml::text(&value));
            context.carried(line);
        }
        "tls_server_name" => {
            context.different(line, "brisk sends and verifies the name in the URL of the server");
        }
        "tls_trusted_ca_certs" => return trust(context, line, &line.args, keys),
        "tls_trust_pool" => {
            let inner: Vec<String> = line.inner().iter().flat_map(|own| own.args.iter().cloned()).collect();
            let files: Vec<String> = line.args.iter().skip(1).cloned().chain(inner).collect();
            // Without them, brisk would trust all public authorities.
            let files = if line.arg(0) == "file" { files } else { Vec::new() };
            context.carried_whole(line);
            return trust(context, line, &files, keys);
        }
        "tls_client_auth" if line.args.len() == 2 => {
            let (chain, key) = (context.file(line.arg(0)), context.file(line.arg(1)));
            keys.set("tls.certificate", format!("{{ chain = {chain}, key = {key} }}"));
            context.carried(line);
        }
        "tls_client_auth" => {
            context.missing(line, "brisk obtains no client certificates", "write tls.certificate with files");
        }
        _ => context.unneeded(line, "brisk has values of its own"),
    }
    Ok(())
}

/// Authorities of servers. The error refuses the requests of the route.
fn trust(context: &Context<'_>, line: &Directive, files: &[String], keys: &mut Keys) -> Result<(), String> {
    if keys.get("tls.verify").is_some() {
        context.unneeded(line, "the servers are not verified");
        return Ok(());
    }
    let [one] = files else {
        let reason = "the authorities of a server are one file in brisk";
        context.missing(line, reason, "join them in a file, and write its path to tls.ca");
        return Err(reason.to_owned());
    };
    keys.set("tls.ca", context.file(one));
    context.carried(line);
    Ok(())
}

/// A server of `transport fastcgi`, without `php_fastcgi`: the table `cgi`.
fn fastcgi(context: &Context<'_>, transport: &Directive, state: &State<'_>, world: &World, keys: &mut Keys) {
    let mut cgi = Keys::default();
    let root =
        transport.inner().iter().find(|line| line.name == "root").map(|line| context.path(line.arg(0)));
    if let Some(root) = root.or_else(|| state.root.clone()) {
        cgi.set("root", environment::text(&root));
        cgi.set("path_info", "true");
    }
    let mut params = Keys::default();
    for line in transport.inner() {
        match line.name.as_str() {
            "env" => match template(line.arg(1), state, world, Use::Value) {
                Ok(value) => {
                    params.set(line.arg(0), environment::text(&value));
                    context.carried(line);
                }
                Err(reason) => context.missing(line, reason, "write the variable in cgi.params"),
            },
            "split" if line.args.iter().any(|arg| arg != ".php") => {
                cgi.set("suffixes", toml::list(line.args.iter().filter(|arg| !arg.is_empty())));
                context.carried(line);
            }
            "dial_timeout" => wait(context, line, &resolve(line.arg(0)), keys),
            _ => context.carried(line),
        }
    }
    if !params.is_empty() {
        cgi.set("params", params.inline());
    }
    if !cgi.is_empty() {
        keys.set("cgi", cgi.inline());
    }
}

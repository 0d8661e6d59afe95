//! Health of servers: active checks (`health_uri`) and passive ones (`fail_duration`) of `reverse_proxy`.

use crate::caddy::context::Context;
use crate::caddy::environment::resolve;
use crate::caddy::units;
use crate::directive::Directive;
use crate::toml::{self, Keys};

/// The table `health`: `health_uri /up` becomes `path = "/up"`, and `max_fails 3` becomes `max_failures = 3`.
pub(crate) fn settings(context: &Context<'_>, block: &[Directive], keys: &mut Keys) {
    let mut health = Keys::default();
    let is_active = block.iter().any(|line| matches!(&*line.name, "health_uri" | "health_path"));
    if is_active {
        // Values of Caddy without a setting.
        for (key, value) in [
            ("path", ""),
            ("interval", "\"30s\""),
            ("timeout", "\"5s\""),
            ("healthy_after", "1"),
            ("unhealthy_after", "1"),
        ] {
            health.set(key, value);
        }
    }
    let is_passive = block.iter().any(|line| line.name == "fail_duration");
    if is_passive {
        health.set("max_failures", "1");
    }
    for line in block {
        setting(context, line, is_active, &mut health, keys);
    }
    if is_active {
        limit(block, &mut health);
    }
    // `unhealthy_status` has no effect in Caddy without `fail_duration`.
    if is_passive {
        for unhealthy in block.iter().filter(|line| line.name == "unhealthy_status") {
            health.set("server_errors", "true");
            if unhealthy.args.iter().all(|status| status == "5xx") {
                context.carried(unhealthy);
            } else {
                context.different(unhealthy, "statuses from 500 to 599 count");
            }
        }
    }
    if !health.is_empty() {
        keys.set("health", health.inline());
    }
}

fn setting(context: &Context<'_>, line: &Directive, is_active: bool, health: &mut Keys, keys: &mut Keys) {
    let value = resolve(line.arg(0));
    let duration = || units::duration(&value, 100, 86_400_000);
    let own = match line.name.as_str() {
        "health_uri" | "health_path" => {
            let slash = if value.starts_with('/') { "" } else { "/" };
            Some(("path", Some(toml::text(&format!("{slash}{value}")))))
        }
        "health_interval" if is_active => Some(("interval", duration())),
        "health_timeout" if is_active => Some(("timeout", duration())),
        "health_passes" if is_active => Some(("healthy_after", toml::number(&value))),
        "health_fails" if is_active => Some(("unhealthy_after", toml::number(&value))),
        "health_status" if value.ends_with("xx") => {
            context.different(line, "brisk accepts statuses from 200 to 399");
            None
        }
        "health_status" if is_active => Some(("status", toml::number(&value))),
        "health_headers" => {
            headers(context, line, health);
            None
        }
        "health_port"
        | "health_upstream"
        | "health_body"
        | "health_method"
        | "health_request_body"
        | "health_follow_redirects" => {
            let reason = "a check of brisk is a GET at the address of the server, of which the status counts";
            context.missing(line, reason, "let the path respond so");
            None
        }
        "fail_duration" => Some(("failure_pause", duration())),
        "max_fails" => Some(("max_failures", toml::number(&value))),
        "unhealthy_request_count" => {
            if let Some(count) = toml::number(&value) {
                keys.set("pool.max_connections", count);
            }
            context.different(line, "further requests wait for a connection, or use another server");
            None
        }
        "unhealthy_latency" => {
            let action = "write timeouts.attempt in [upstream.NAME]";
            context.missing(line, "brisk has no limit of latency", action);
            None
        }
        _ => None,
    };
    match own {
        Some((key, Some(value))) => {
            health.set(key, value);
            context.carried(line);
        }
        Some((_, None)) => {
            context.missing(line, "the value is no number or time", "write it in [upstream.NAME.health]");
        }
        None => {}
    }
}

/// Lines of `health_headers`, of which brisk has `Host` as the key `host`.
fn headers(context: &Context<'_>, block: &Directive, health: &mut Keys) {
    context.carried(block);
    for header in block.inner() {
        if header.name.eq_ignore_ascii_case("host") {
            health.set("host", toml::text(header.arg(0)));
            context.carried(header);
        } else {
            let action = "let the server respond without it";
            context.missing(header, "checks of brisk have no further headers", action);
        }
    }
}

/// The `timeout` of a check, which brisk limits to the `interval` between two of them.
fn limit(block: &[Directive], health: &mut Keys) {
    let time = |name: &str, usual: u64| {
        let line = block.iter().find(|line| line.name == name);
        line.and_then(|line| units::milliseconds(&resolve(line.arg(0)))).unwrap_or(usual)
    };
    let (interval, timeout) = (time("health_interval", 30_000), time("health_timeout", 5000));
    if timeout > interval {
        health.set("timeout", toml::duration(interval.max(100)));
    }
}

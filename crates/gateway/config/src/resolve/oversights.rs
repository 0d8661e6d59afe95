//! Settings without the effect that their operator expects: warnings.

use std::collections::HashSet;
use std::net::IpAddr;

use brisk_answer::features::RouteKeys;
use brisk_answer::features::{consolidation, forward_auth, mirror, split};
use brisk_config_file::KeyPath;

use super::context::Context;
use crate::raw::{Config, Host};

/// Last labels of names that only this machine or network knows.
const LOCAL: [&str; 7] = ["home.arpa", "internal", "lan", "local", "localdomain", "localhost", "test"];

/// Warns of each oversight in `raw`.
pub(super) fn review(raw: &Config, context: &mut Context<'_>) {
    unused_upstreams(raw, context);
    repeated_servers(raw, context);
    for (index, host) in raw.host.iter().enumerate() {
        let path = KeyPath::of("host").index(index);
        if has_built_in_page(host)
            && let Some(name) = host.names().iter().find(|name| !is_local(name))
        {
            let warning = format!(
                "{path}: everybody gets the built-in page about the visitor's connection at {name}: write routes, as \
                 [[host.route]] path = \"/\" with upstream, static or redirect"
            );
            context.shared.findings.warn(warning);
        }
        for (number, route) in host.routes().iter().enumerate() {
            if let Some(warning) = unreachable(route, &path.key("route").index(number)) {
                context.shared.findings.warn(warning);
            }
        }
    }
}

fn unused_upstreams(raw: &Config, context: &mut Context<'_>) {
    let routes = raw.features().flat_map(|host| &host.site.route);
    let own = routes.filter_map(|route| route.action.any_upstream()).map(|(name, _)| name);
    let asked = consolidation::upstreams(raw.features()).chain(forward_auth::upstreams(raw.features()));
    let asked = asked.chain(split::upstreams(raw.features())).chain(mirror::upstreams(raw.features()));
    let asked = asked.chain(raw.tcp.iter().filter_map(|tcp| tcp.upstream.as_ref()));
    let asked: HashSet<_> = asked.map(String::as_str).chain(own).collect();
    for name in raw.upstream.keys().filter(|name| !asked.contains(name.as_str())) {
        // A group of TCP servers has no use in a route, so the warning names the other table.
        let user = if context.shared.streams.contains(name) { "[[tcp]]" } else { "route" };
        context.shared.findings.warn(format!("[upstream.{name}]: no {user} has upstream = \"{name}\""));
    }
}

fn repeated_servers(raw: &Config, context: &mut Context<'_>) {
    for (name, group) in &raw.upstream {
        let mut seen = HashSet::new();
        let urls = group.features.servers.servers.iter().map(|server| server.url.to_string());
        for url in urls.filter(|url| !seen.insert(url.clone())).collect::<Vec<_>>() {
            let warning = format!(
                "[upstream.{name}]: {url} is in `servers` more than once: write it once, with weight = 2 for twice the requests"
            );
            context.shared.findings.warn(warning);
        }
    }
}

fn has_built_in_page(host: &Host) -> bool {
    host.routes().is_empty()
        && host.own.upstream.is_none()
        && host.features.consolidation.consolidate.is_empty()
}

fn is_local(name: &str) -> bool {
    // Whole labels only: `mylocalhost` does not end with the label `localhost`.
    let ends_with =
        |end: &&str| name.strip_suffix(*end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    LOCAL.iter().any(ends_with) || name.parse::<IpAddr>().is_ok()
}

/// The warning of a route whose `path` no path has that `when.path_regex` permits.
fn unreachable(route: &RouteKeys, place: &KeyPath) -> Option<String> {
    let path = &*route.paths.path;
    let expression = route.conditions.when.as_ref()?.path_regex.as_deref()?;
    let start = literal_start(expression)?;
    // Either may be the longer one: a path that begins with the text, or a text that begins with the path.
    let meet = start.starts_with(path) || path.starts_with(&*start);
    (!meet).then(|| {
        format!(
            "{place}: no request uses this route, because no path that begins with {path:?} matches {expression:?}: path_regex \
             is compared with the whole path"
        )
    })
}

/// The text with which all paths begin that `expression` matches; `None` if the expression is not anchored or has alternatives.
fn literal_start(expression: &str) -> Option<String> {
    // An alternative outside of a group may begin with another text, so there is no common start to rely on.
    let rest = expression.strip_prefix('^').filter(|rest| !rest.contains('|'))?;
    let end = rest.find(|character| r"\.+*?()[]{}^$".contains(character)).unwrap_or(rest.len());
    let mut start = rest[..end].to_owned();
    // The last character is optional before these, so it is no part of every match.
    if rest[end..].starts_with(['*', '?', '{']) {
        start.pop();
    }
    Some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_an_expression_is_known_before_its_first_operator() {
        for (expression, start) in [
            ("^/a/b$", Some("/a/b")),
            ("^/ab?c", Some("/a")),
            ("^/ab+c", Some("/ab")),
            (r"^/a\.b", Some("/a")),
            ("^(?i)/a", Some("")),
            ("^/a|/b", None),
            ("/a", None),
        ] {
            assert_eq!(literal_start(expression).as_deref(), start, "{expression}");
        }
    }

    #[test]
    fn names_of_this_network_are_local() {
        for name in ["localhost", "app.localhost", "a.test", "10.0.0.1", "nas.home.arpa", "printer.local"] {
            assert!(is_local(name), "{name}");
        }
        for name in ["example.com", "mylocalhost", "latest", "test.example"] {
            assert!(!is_local(name), "{name}");
        }
    }
}

//! `when` of routes: conditions on more than the path.

use std::collections::{BTreeMap, HashSet};

use brisk_config_file::KeyPath;
use brisk_rules::{Conditions, Pattern, ValueTest};
use http::{HeaderName, Method, header};

use super::keys::{Test, When};
use crate::features::early_data::EarlyData;
use crate::features::{Context, HostScope, RouteKeys, RouteScope};

/// The conditions of a route.
pub(super) fn of_route(when: &When, route: &RouteScope<'_>, context: &mut Context<'_>) -> Conditions {
    let is_early = !matches!(&route.keys.early_data.early_data, None | Some(EarlyData::No));
    if is_early && !when.networks.is_empty() {
        let message = "not with `when.networks`: the address of a client is not verified before the end of a handshake over QUIC";
        context.findings.wrong(&route.key("early_data"), message);
    }
    let path = route.key("when");
    Conditions {
        methods: methods(&when.methods, &path.key("methods"), context),
        networks: when.networks.iter().map(|network| network.0).collect(),
        headers: headers(&when.headers, &path.key("headers"), context),
        cookies: tests(&when.cookies, &path.key("cookies"), context),
        query: tests(&when.query, &path.key("query"), context),
        path: when.path_regex.as_ref().and_then(|text| pattern(text, &path.key("path_regex"), context)),
    }
}

/// Whether the route has no early data, in spite of the default of its host.
pub(crate) fn forbids_early_data(route: &RouteKeys) -> bool {
    route.conditions.when.as_ref().is_some_and(|when| !when.networks.is_empty())
}

/// Warns of paths that are restricted to networks, but whose other requests reach a shorter path: a condition selects a
/// route and refuses nothing.
pub(crate) fn open_below(host: &HostScope<'_>, context: &mut Context<'_>) {
    let (routes, path) = (&host.keys.site.route, host.key("route"));
    // Only a route without conditions takes all other requests.
    let open = routes.iter().filter(|route| route.conditions.when.is_none());
    let open: HashSet<_> = open.map(|route| &*route.paths.path).collect();
    for (index, route) in routes.iter().enumerate().filter(|(_, route)| forbids_early_data(route)) {
        let route = &route.paths;
        let shorter = route.path.char_indices().rev().filter(|(_, character)| *character == '/');
        // A route for `/a/` and one for `/a` contain the paths below alike.
        let mut shorter = shorter.flat_map(|(at, _)| [&route.path[..=at], &route.path[..at]]);
        if !open.contains(&*route.path)
            && let Some(next) = shorter.find(|path| open.contains(path))
        {
            context.findings.warn(format!(
                "{}: requests from other networks use the route of {next:?}; to refuse them, add a route for {:?} with \
                 respond = {{ status = 403 }} and without `when`",
                path.index(index).key("when").key("networks"),
                route.path
            ));
        }
    }
}

fn methods(written: &[String], path: &KeyPath, context: &mut Context<'_>) -> Vec<Method> {
    let method = |(index, text): (usize, &String)| {
        // RFC 9110 section 9.1: methods are case-sensitive, so `get` would hold for no usual request.
        let method = Method::from_bytes(text.as_bytes()).ok().filter(|_| *text == text.to_ascii_uppercase());
        if method.is_none() {
            let message = format!("{text:?} is not a method: write one in capitals, as \"GET\"");
            context.findings.wrong(&path.index(index), message);
        }
        method
    };
    written.iter().enumerate().filter_map(method).collect()
}

type Tests = BTreeMap<String, Test>;

fn headers(written: &Tests, path: &KeyPath, context: &mut Context<'_>) -> Vec<(HeaderName, ValueTest)> {
    let tests = tests(written, path, context);
    let name = |(text, test): (String, ValueTest)| {
        let fault = match HeaderName::from_bytes(text.as_bytes()) {
            Ok(name) if name != header::HOST => return Some((name, test)),
            Ok(_) => "the `names` of hosts decide about it: add a host",
            Err(_) => "is not the name of a header: write one as \"Accept\"",
        };
        context.findings.wrong(&path.key(&text), fault);
        None
    };
    tests.into_iter().filter_map(name).collect()
}

fn tests(written: &Tests, path: &KeyPath, context: &mut Context<'_>) -> Vec<(String, ValueTest)> {
    let test = |(name, test): (&String, &Test)| {
        let test = match test {
            Test::Present(true) => ValueTest::Present,
            Test::Present(false) => ValueTest::Absent,
            Test::Text(text) => ValueTest::Is(text.clone()),
            Test::Regex(text) => ValueTest::Matches(pattern(text, &path.key(name).key("regex"), context)?),
        };
        Some((name.clone(), test))
    };
    written.iter().filter_map(test).collect()
}

pub(crate) fn pattern(text: &str, path: &KeyPath, context: &mut Context<'_>) -> Option<Pattern> {
    compiled(text, Pattern::new, path, context)
}

/// The expression that `compile` makes of `text`.
pub(crate) fn compiled<T>(
    text: &str,
    compile: impl Fn(&str) -> Result<T, String>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<T> {
    compile(text)
        .map_err(|reason| {
            context.findings.wrong(path, format!("{text:?} is not a usable regular expression: {reason}"));
        })
        .ok()
}

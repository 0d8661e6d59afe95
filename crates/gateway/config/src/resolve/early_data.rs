//! `early_data`: requests that may be answered before the TLS handshake is complete (RFC 8470), per host.

use brisk_answer::settings::{EarlyDataPolicy, EarlyPath, RoutePath};
use brisk_config_file::{KeyPath, Size};

use super::context::Context;
use super::{access, when};
use crate::raw;
use crate::values::EarlyData;

/// Early data accepted of one client unless another limit is written.
const USUAL: Size = Size(16 << 10);

/// Default of a host for its routes without `early_data`, and for the built-in page.
#[derive(Clone, Copy)]
pub(super) struct Inherited<'c>(&'c raw::Host);

impl<'c> Inherited<'c> {
    /// Resolves the default of `host`, whose table is at `path`.
    pub(super) fn of(host: &'c raw::Host, path: &KeyPath, context: &mut Context<'_>) -> Self {
        if let Some(EarlyData::Paths(paths)) = &host.early_data {
            paths_are_right(paths, None, &path.key("early_data"), context);
        }
        Self(host)
    }

    /// The policy of the route at `path`, which takes `taken` if that could be read.
    pub(super) fn policy(
        self,
        raw: &raw::Route,
        taken: Option<&RoutePath>,
        path: &KeyPath,
        context: &mut Context<'_>,
    ) -> EarlyDataPolicy {
        if let Some(EarlyData::Paths(paths)) = &raw.early_data {
            paths_are_right(paths, taken, &path.key("early_data"), context);
        }
        // The address decides, which is not verified yet (RFC 9000 section 8.1).
        if when::forbids_early_data(raw) || access::restricts_networks(raw, self.0) {
            return EarlyDataPolicy::Hold;
        }
        policy_of(raw.early_data.as_ref().or(self.0.early_data.as_ref()).unwrap_or(&EarlyData::No))
    }
}

fn policy_of(written: &EarlyData) -> EarlyDataPolicy {
    match written {
        EarlyData::No => EarlyDataPolicy::Hold,
        EarlyData::Safe => EarlyDataPolicy::Safe,
        EarlyData::Paths(paths) => {
            EarlyDataPolicy::Paths(paths.iter().filter_map(|path| path.parse().ok()).collect())
        }
    }
}

/// Reports `paths` that are invalid or outside `route`.
fn paths_are_right(paths: &[String], route: Option<&RoutePath>, path: &KeyPath, context: &mut Context<'_>) {
    if paths.is_empty() && !context.findings.written(&path.index(0)) {
        context.findings.wrong(path, "no path: write at least one, as \"/api/search\", or \"no\"");
    }
    for (index, text) in paths.iter().enumerate() {
        let path = path.index(index);
        let right = match text.parse::<EarlyPath>() {
            Err(error) => error.to_string(),
            Ok(_) if text.contains(['?', '#']) => "it ends before \"?\" and \"#\"".to_owned(),
            Ok(_) if text.contains('%') => "it is written decoded, without \"%\"".to_owned(),
            Ok(early) => {
                if let Some(route) = route.filter(|route| !meets(&early, route)) {
                    let message =
                        format!("the route takes nothing of {text:?}: its path is {:?}", route.as_str());
                    context.findings.wrong(&path, message);
                }
                continue;
            }
        };
        context.findings.wrong(&path, format!("{text:?} is not a path for early data: {right}"));
    }
}

/// Whether some request is both to a path of `early` and taken by `route`.
fn meets(early: &EarlyPath, route: &RoutePath) -> bool {
    match (early, route) {
        (EarlyPath::Exact(early), RoutePath::Exact(route)) => early == route,
        (EarlyPath::Prefix(early), RoutePath::Exact(route)) => route.starts_with(early.as_str()),
        (EarlyPath::Exact(early), RoutePath::Prefix(route)) => {
            let rest = early.strip_prefix(route.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || route.ends_with('/'))
        }
        (EarlyPath::Prefix(early), RoutePath::Prefix(route)) => {
            early.starts_with(route.as_str()) || route.starts_with(early.as_str())
        }
    }
}

/// Maximum early data per connection of the host whose table is at `path`, in bytes: 0 unless the host or one of its
/// routes allows early data.
pub(super) fn limit(raw: &raw::Config, host: &raw::Host, path: &KeyPath, context: &mut Context<'_>) -> u32 {
    let written = |early: Option<&EarlyData>| !matches!(early, None | Some(EarlyData::No));
    let route = host.route.iter().position(|route| written(route.early_data.as_ref()));
    let path = match route {
        _ if written(host.early_data.as_ref()) => path.key("early_data"),
        Some(index) => path.key("route").index(index).key("early_data"),
        None => return 0,
    };
    let findings = &mut context.findings;
    if host.client_certificates.is_some() {
        let message = "not on a host with client_certificates: a request would be answered before its client has proved \
                       again who it is";
        findings.wrong(&path, message);
    }
    if raw.tls.session_cache.entries == Some(0) && !findings.written(&KeyPath::of("sessions").key("redis")) {
        let message = "nothing keeps the sessions that early data comes with: tls.session_cache.entries is 0, and there \
                       is no [sessions.redis]";
        findings.wrong(&path, message);
    }
    if raw.tls.tickets_per_handshake == Some(0) {
        findings.wrong(&path, "has no effect with tls.tickets_per_handshake = 0: no client can resume");
    }
    raw.tls.early_data_size.unwrap_or(USUAL).0.try_into().unwrap_or(u32::MAX)
}

/// The limit that is written is one, and acts on something.
pub(super) fn size(raw: &raw::Config, context: &mut Context<'_>) {
    let path = KeyPath::of("tls").key("early_data_size");
    let sizes = Size(1 << 10)..=Size(1 << 20);
    context.findings.within(&path, raw.tls.early_data_size, USUAL, &sizes);
    let routes = raw.host.iter().flat_map(|host| &host.route).map(|route| &route.early_data);
    let mut all = raw.host.iter().map(|host| &host.early_data).chain(routes);
    let some = all.any(|early| !matches!(early, None | Some(EarlyData::No)));
    if raw.tls.early_data_size.is_some() && !some {
        context.findings.wrong(&path, "has no effect: no route has `early_data`");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_path_meets_a_route_if_some_request_fits_both() {
        let meets = |early: &str, route: &RoutePath| meets(&early.parse().expect("a path"), route);
        let prefix = |path: &str| RoutePath::Prefix(path.to_owned());
        let exact = |path: &str| RoutePath::Exact(path.to_owned());
        for (early, route) in [
            ("/api/search", prefix("/api")),
            ("/api", prefix("/api")),
            ("/api/x", prefix("/api/")),
            ("/a*", prefix("/api")),
            ("/api/img/*", prefix("/api")),
            ("/*", exact("/api")),
            ("/api", exact("/api")),
        ] {
            assert!(meets(early, &route), "{early} {route:?}");
        }
        for (early, route) in [
            ("/apix", prefix("/api")),
            ("/img/*", prefix("/api")),
            ("/api", prefix("/api/")),
            ("/api/search", exact("/api")),
            ("/api/*", exact("/api")),
        ] {
            assert!(!meets(early, &route), "{early} {route:?}");
        }
    }
}

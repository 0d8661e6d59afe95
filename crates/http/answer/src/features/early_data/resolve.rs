//! The policy of hosts and routes for early data.

use brisk_config_file::KeyPath;
use brisk_rules::{EarlyDataPolicy, EarlyPath, RoutePath};

use super::keys::{EarlyData, EarlyDataKeys};
use crate::features::{Context, HostScope, RouteScope, access, conditions};

/// The policy of a host for routes without their own.
pub(super) fn of_host(
    keys: &EarlyDataKeys,
    host: &HostScope<'_>,
    context: &mut Context<'_>,
) -> EarlyDataPolicy {
    if let Some(EarlyData::Paths(paths)) = &keys.early_data {
        paths_are_right(paths, None, &host.key("early_data"), context);
    }
    keys.early_data.as_ref().map_or(EarlyDataPolicy::Hold, policy_of)
}

/// The policy of a route.
pub(super) fn of_route(
    keys: &EarlyDataKeys,
    route: &RouteScope<'_>,
    context: &mut Context<'_>,
) -> EarlyDataPolicy {
    if let Some(EarlyData::Paths(paths)) = &keys.early_data {
        paths_are_right(paths, route.route_path, &route.key("early_data"), context);
    }
    // The address decides, which is not verified yet (RFC 9000 section 8.1).
    if conditions::forbids_early_data(route.keys) || access::restricts_networks(route.keys, route.host.keys) {
        return EarlyDataPolicy::Hold;
    }
    let own = keys.early_data.as_ref().map(policy_of);
    own.unwrap_or_else(|| route.host.settings.early_data.clone())
}

fn policy_of(written: &EarlyData) -> EarlyDataPolicy {
    match written {
        EarlyData::No => EarlyDataPolicy::Hold,
        EarlyData::Safe => EarlyDataPolicy::Safe,
        EarlyData::Paths(paths) => {
            // Wrong paths are reported by `paths_are_right`.
            EarlyDataPolicy::Paths(paths.iter().filter_map(|path| path.parse().ok()).collect())
        }
    }
}

/// Reports `paths` that are invalid or outside `route`.
fn paths_are_right(paths: &[String], route: Option<&RoutePath>, path: &KeyPath, context: &mut Context<'_>) {
    // A path that could not be read is missing in the list, and was reported already.
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

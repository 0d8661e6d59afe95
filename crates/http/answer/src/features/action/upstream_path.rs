//! The path of requests to upstreams, and of files.

use std::sync::Arc;

use brisk_config_file::KeyPath;
use brisk_rules::{GroupPattern, PathRewrite, UpstreamPath};

use super::keys::{self, ActionKeys, StripPrefix};
use crate::features::{Context, RouteScope, conditions};

/// The keys about the path that are written.
fn written(keys: &ActionKeys) -> impl Iterator<Item = &'static str> {
    let keys = [
        ("strip_prefix", keys.strip_prefix.is_some()),
        ("replace_prefix", keys.replace_prefix.is_some()),
        ("rewrite_path", keys.rewrite_path.is_some()),
    ];
    keys.into_iter().filter(|(_, is_written)| *is_written).map(|(key, _)| key)
}

/// Reports keys about the path of requests to an upstream in a route without one.
pub(super) fn refuse(route: &RouteScope<'_>, context: &mut Context<'_>) {
    let has_files = route.keys.action.directory.is_some();
    let slash = route.keys.action.final_slash.map(|_| "final_slash");
    for key in written(&route.keys.action).filter(|key| !has_files || *key != "rewrite_path").chain(slash) {
        context.findings.wrong(&route.key(key), "has no effect without `upstream`");
    }
}

/// The path of requests to the upstream of a route.
pub(super) fn of_route(route: &RouteScope<'_>, context: &mut Context<'_>) -> UpstreamPath {
    let (raw, path, route_path) = (&route.keys.action, route.path, &route.keys.paths.path);
    if let Some(rewrite) = &raw.rewrite_path {
        if let Some(other) = written(raw).find(|key| *key != "rewrite_path") {
            let message = format!("and `{other}` cannot both change the path: keep one");
            context.findings.wrong(&path.key("rewrite_path"), message);
        }
        let rewrite = self::rewrite(rewrite, &path.key("rewrite_path"), context);
        // Without it, the route is mistaken, so this path is never used.
        return rewrite.map_or(UpstreamPath::Whole, UpstreamPath::Rewritten);
    }
    let by = raw.replace_prefix.as_ref().and_then(|text| {
        let path = path.key("replace_prefix");
        text.parse().map_err(|error: String| context.findings.wrong(&path, error)).ok()
    });
    let prefix = match &raw.strip_prefix {
        None | Some(StripPrefix::No) if by.is_none() => return UpstreamPath::Whole,
        None | Some(StripPrefix::Route) => route_path,
        Some(StripPrefix::No) => {
            let message =
                "`false` contradicts `replace_prefix`, which replaces a prefix: remove one of the two";
            context.findings.wrong(&path.key("strip_prefix"), message);
            route_path
        }
        Some(StripPrefix::Path(prefix)) => {
            if !is_below(route_path, prefix) {
                let message = format!(
                    "{prefix:?} is not a prefix of whole segments of `path`, {route_path:?}: write such a prefix, or `true` for all of it"
                );
                context.findings.wrong(&path.key("strip_prefix"), message);
            }
            prefix
        }
    };
    UpstreamPath::Replaced { prefix: prefix.clone(), by }
}

/// Another path for the files of a route. With an upstream for paths without a file, the key is about the path for this upstream.
pub(super) fn of_files(route: &RouteScope<'_>, context: &mut Context<'_>) -> Option<Arc<PathRewrite>> {
    let raw = route.keys.action.rewrite_path.as_ref().filter(|_| !route.has_upstream())?;
    if route.keys.action.listing == Some(true) {
        let message = "has no effect with `rewrite_path`, with which the folders have other paths: remove one of the two";
        context.findings.wrong(&route.key("listing"), message);
    }
    rewrite(raw, &route.key("rewrite_path"), context)
}

/// Whether `path` is `prefix` or below it.
fn is_below(path: &str, prefix: &str) -> bool {
    // A slash at the end of the prefix has no meaning, because whole segments are removed.
    let rest = path.strip_prefix(prefix.trim_end_matches('/'));
    prefix.starts_with('/') && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn rewrite(raw: &keys::RewritePath, path: &KeyPath, context: &mut Context<'_>) -> Option<Arc<PathRewrite>> {
    let pattern = conditions::compiled(&raw.pattern, GroupPattern::new, &path.key("pattern"), context)?;
    match PathRewrite::new(pattern, &raw.to) {
        Ok(rewrite) => Some(Arc::new(rewrite)),
        Err(fault) => {
            let message = format!("{:?} is not a path for the matches: {fault}", raw.to);
            context.findings.wrong(&path.key("to"), message);
            None
        }
    }
}

//! The path of requests to upstreams, and of files.

use std::sync::Arc;

use brisk_config_file::KeyPath;
use brisk_rules::{GroupPattern, PathRewrite, UpstreamPath};

use super::keys::{ActionKeys, StripPrefix};
use super::rewrite_keys::{RewritePath, Rewrites};
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
    if let Some(rewrites) = &raw.rewrite_path {
        let path = path.key("rewrite_path");
        if let Some(other) = written(raw).find(|key| *key != "rewrite_path") {
            let message = format!("and `{other}` cannot both change the path: keep one");
            context.findings.wrong(&path, message);
        }
        for (entry, _) in rewrites.entries(&path).filter(|(_, rewrite)| rewrite.to.0.len() > 1) {
            context.findings.wrong(&entry.key("to"), "an upstream gets one path: a list is for files");
        }
        return UpstreamPath::Rewritten(self::rewrites(rewrites, &path, context));
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

/// Other paths for the files of a route. With an upstream for paths without a file, `rewrite_path` is about the path for this
/// upstream.
pub(super) fn of_files(route: &RouteScope<'_>, context: &mut Context<'_>) -> Option<Arc<[PathRewrite]>> {
    let keys = &route.keys.action;
    let of_path = keys.rewrite_path.as_ref().filter(|_| !route.has_upstream());
    if of_path.is_some() && keys.rewrite_files.is_some() {
        let message = "and `rewrite_path` cannot both change the path of files: keep one";
        context.findings.wrong(&route.key("rewrite_files"), message);
    }
    let key = if of_path.is_some() { "rewrite_path" } else { "rewrite_files" };
    let raw = of_path.or(keys.rewrite_files.as_ref())?;
    if keys.listing == Some(true) {
        let message = format!(
            "has no effect with `{key}`, with which the folders have other paths: remove one of the two"
        );
        context.findings.wrong(&route.key("listing"), message);
    }
    Some(rewrites(raw, &route.key(key), context))
}

/// Whether `path` is `prefix` or below it.
fn is_below(path: &str, prefix: &str) -> bool {
    // A slash at the end of the prefix has no meaning, because whole segments are removed.
    let rest = path.strip_prefix(prefix.trim_end_matches('/'));
    prefix.starts_with('/') && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn rewrites(raw: &Rewrites, path: &KeyPath, context: &mut Context<'_>) -> Arc<[PathRewrite]> {
    if raw.all.is_empty() {
        let message = "an empty list has no expression: remove the line, or write { pattern, to }";
        context.findings.wrong(path, message);
    }
    raw.entries(path).filter_map(|(path, raw)| rewrite(raw, &path, context)).collect()
}

fn rewrite(raw: &RewritePath, path: &KeyPath, context: &mut Context<'_>) -> Option<PathRewrite> {
    let pattern = conditions::compiled(&raw.pattern, GroupPattern::new, &path.key("pattern"), context)?;
    let place = path.key("to");
    let Some((first, others)) = raw.to.0.split_first() else {
        context.findings.wrong(&place, "an empty list has no path: write one as \"/{1}\"");
        return None;
    };
    let mut wrong = |to: &str, fault: &str| {
        context.findings.wrong(&place, format!("{to:?} is not a path for the matches: {fault}"));
    };
    let mut rewrite = PathRewrite::new(pattern, first).map_err(|fault| wrong(first, &fault)).ok()?;
    for to in others {
        rewrite.add(to).map_err(|fault| wrong(to, &fault)).ok()?;
    }
    Some(rewrite)
}

//! `strip_prefix`, `replace_prefix` and `rewrite_path` of routes, and the paths of servers.

use std::sync::Arc;

use brisk_answer::settings::{GroupPattern, PathRewrite, UpstreamPath};
use brisk_config_file::KeyPath;
use brisk_upstream::settings::ServerSettings;

use super::context::Context;
use super::when;
use crate::raw::{self, StripPrefix};

/// The path of requests to the upstream of the route at `path`.
pub(super) fn of_route(raw: &raw::Route, path: &KeyPath, context: &mut Context<'_>) -> UpstreamPath {
    let keys = [
        ("strip_prefix", raw.strip_prefix.is_some()),
        ("replace_prefix", raw.replace_prefix.is_some()),
        ("rewrite_path", raw.rewrite_path.is_some()),
    ];
    if raw.upstream.is_none() {
        for (key, _) in keys.iter().filter(|(_, is_written)| *is_written) {
            context.findings.wrong(&path.key(key), "has no effect without `upstream`");
        }
        return UpstreamPath::Whole;
    }
    if let Some(rewrite) = &raw.rewrite_path {
        if let Some((other, _)) = keys[..2].iter().find(|(_, is_written)| *is_written) {
            let message = format!("and `{other}` cannot both change the path: keep one");
            context.findings.wrong(&path.key("rewrite_path"), message);
        }
        return self::rewrite(rewrite, &path.key("rewrite_path"), context);
    }
    let by = raw.replace_prefix.as_ref().and_then(|text| {
        let path = path.key("replace_prefix");
        text.parse().map_err(|error: String| context.findings.wrong(&path, error)).ok()
    });
    let prefix = match &raw.strip_prefix {
        None | Some(StripPrefix::No) if by.is_none() => return UpstreamPath::Whole,
        None | Some(StripPrefix::Route) => &raw.path,
        Some(StripPrefix::No) => {
            let message =
                "`false` contradicts `replace_prefix`, which replaces a prefix: remove one of the two";
            context.findings.wrong(&path.key("strip_prefix"), message);
            &raw.path
        }
        Some(StripPrefix::Path(prefix)) => {
            if !is_below(&raw.path, prefix) {
                let message = format!(
                    "{prefix:?} is not a prefix of whole segments of `path`, {:?}: write such a prefix, or `true` for all of it",
                    raw.path
                );
                context.findings.wrong(&path.key("strip_prefix"), message);
            }
            prefix
        }
    };
    UpstreamPath::Replaced { prefix: prefix.clone(), by }
}

/// Whether `path` is `prefix` or below it.
fn is_below(path: &str, prefix: &str) -> bool {
    let rest = path.strip_prefix(prefix.trim_end_matches('/'));
    prefix.starts_with('/') && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn rewrite(raw: &raw::RewritePath, path: &KeyPath, context: &mut Context<'_>) -> UpstreamPath {
    let Some(pattern) = when::compiled(&raw.pattern, GroupPattern::new, &path.key("pattern"), context) else {
        return UpstreamPath::Whole;
    };
    match PathRewrite::new(pattern, &raw.to) {
        Ok(rewrite) => UpstreamPath::Rewritten(Arc::new(rewrite)),
        Err(fault) => {
            let message = format!("{:?} is not a path for the matches: {fault}", raw.to);
            context.findings.wrong(&path.key("to"), message);
            UpstreamPath::Whole
        }
    }
}

/// Checks that the servers of a group have the same path: a request that is sent again to another server has one path.
pub(super) fn check_servers(servers: &[ServerSettings], path: &KeyPath, context: &mut Context<'_>) {
    let Some(first) = servers.first() else { return };
    for (index, server) in servers.iter().enumerate() {
        if server.url.path() != first.url.path() {
            let message = format!(
                "has another path than {}: all servers of an upstream have the same; write a second upstream",
                first.url
            );
            context.findings.wrong(&path.index(index), message);
        }
    }
}

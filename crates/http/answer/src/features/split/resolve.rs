//! The split of a route, and checks that splits and mirrors share.

use brisk_config_file::KeyPath;
use brisk_rules::{Share, SplitSettings};
use brisk_upstream_group::features::sticky::cookie;

use super::keys;
use crate::features::{Context, RouteScope};

/// Name of the cookie of a split, unless another is written.
const COOKIE: &str = "brisk_split";

/// The split of a route.
pub(super) fn of_route(
    raw: &keys::Split,
    route: &RouteScope<'_>,
    context: &mut Context<'_>,
) -> Option<SplitSettings> {
    let path = route.key("split");
    let group = other_upstream(&raw.destination.upstream, route, &path, context);
    let share = share(raw.destination.percent, &path, context);
    let cookie = cookie(&raw.cookie, COOKIE, &path, &mut context.of_groups());
    Some(SplitSettings { group: group?, share: share?, cookie })
}

/// The name of another upstream than that of the route, which the table at `path` names.
pub(crate) fn other_upstream(
    name: &str,
    route: &RouteScope<'_>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<String> {
    let Some((own, _)) = route.keys.action.any_upstream() else {
        context.findings.wrong(path, "has no effect without `upstream` of the route");
        return None;
    };
    let path = path.key("upstream");
    if name == own {
        context.findings.wrong(&path, format!("{name:?} is the `upstream` of the route: name another one"));
        return None;
    }
    context.has_upstream(name, &path).then(|| name.to_owned())
}

/// The share that is written as `percent` in the table at `path`.
pub(crate) fn share(percent: f64, path: &KeyPath, context: &mut Context<'_>) -> Option<Share> {
    let share = Share::of_percent(percent);
    if share.is_none() {
        let message = format!("{percent} is no percentage: write a number from 0 to 100, as 12.5");
        context.findings.wrong(&path.key("percent"), message);
    }
    share
}

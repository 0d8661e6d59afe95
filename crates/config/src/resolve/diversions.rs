//! `split` of routes: another upstream.

use std::sync::Arc;

use brisk_answer::settings::{Share, SplitSettings};
use brisk_config_file::KeyPath;

use super::context::Context;
use super::routes::no_upstream;
use super::sticky::sticky;
use crate::raw;

/// Name of the cookie of a split, unless another is written.
const COOKIE: &str = "brisk_split";

/// The split of the route at `path`.
pub(super) fn split(
    route: &raw::Route,
    config: &raw::Config,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Arc<SplitSettings>> {
    let raw = route.split.as_ref()?;
    let path = path.key("split");
    let group = group(&raw.upstream, route, config, &path, context);
    let share = share(raw.percent, &path, context);
    let cookie = sticky(&raw.sticky(), COOKIE, &path, context);
    Some(Arc::new(SplitSettings { group: group?, share: share?, cookie }))
}

/// Names of the upstreams of splits.
pub(super) fn upstreams(config: &raw::Config) -> impl Iterator<Item = &String> {
    let routes = config.host.iter().flat_map(|host| &host.route);
    routes.filter_map(|route| route.split.as_ref().map(|split| &split.upstream))
}

/// The name of another upstream than that of the route.
fn group(
    name: &str,
    route: &raw::Route,
    config: &raw::Config,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<String> {
    let Some(own) = &route.upstream else {
        context.findings.wrong(path, "has no effect without `upstream` of the route");
        return None;
    };
    let path = path.key("upstream");
    if *name == **own {
        context.findings.wrong(&path, format!("{name:?} is the `upstream` of the route: name another one"));
        return None;
    }
    if !config.upstream.contains_key(name) {
        // An upstream that exists but is invalid has been reported already.
        if !context.findings.written(&KeyPath::of("upstream").key(name)) {
            no_upstream(name, config, &path, context);
        }
        return None;
    }
    Some(name.to_owned())
}

fn share(percent: f64, path: &KeyPath, context: &mut Context<'_>) -> Option<Share> {
    let share = Share::of_percent(percent);
    if share.is_none() {
        let message = format!("{percent} is no percentage: write a number from 0 to 100, as 12.5");
        context.findings.wrong(&path.key("percent"), message);
    }
    share
}

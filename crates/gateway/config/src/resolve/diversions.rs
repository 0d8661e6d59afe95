//! `split` and `mirror` of routes: further upstreams.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use brisk_answer::settings::{MirrorSettings, Share, SplitSettings};
use brisk_config_file::{KeyPath, Period, Size};
use brisk_net::FairShare;

use super::context::Context;
use super::limits::TIMEOUTS;
use super::routes::no_upstream;
use super::sticky::sticky;
use crate::raw;

/// Name of the cookie of a split, unless another is written.
const COOKIE: &str = "brisk_split";

/// Maximum size of mirrored bodies, unless another is written, and the permitted sizes. A copy is in memory.
const BODY: Size = Size(64 << 10);
const BODIES: RangeInclusive<Size> = Size(0)..=Size(8 << 20);

/// Maximum duration of a mirrored request, unless another is written.
const TIMEOUT: Period = Period(Duration::from_secs(10));

/// Maximum number of mirrored requests in progress, unless another is written, and the permitted numbers.
const REQUESTS: u32 = 256;
const NUMBERS: RangeInclusive<u32> = 2..=65_536;

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

/// The mirror of the route at `path`.
pub(super) fn mirror(
    route: &raw::Route,
    config: &raw::Config,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Arc<MirrorSettings>> {
    let raw = route.mirror.as_ref()?;
    let path = path.key("mirror");
    let group = group(&raw.upstream, route, config, &path, context);
    let share = raw.percent.map_or(Some(Share::ALL), |percent| share(percent, &path, context));
    let findings = &mut context.findings;
    let body_size = findings.within(&path.key("body_size"), raw.body_size, BODY, &BODIES).0 as usize;
    let timeout = findings.within(&path.key("timeout"), raw.timeout, TIMEOUT, &TIMEOUTS).0;
    let requests = findings.within(&path.key("requests"), raw.requests, REQUESTS, &NUMBERS);
    let requests = FairShare::new(requests as usize);
    Some(Arc::new(MirrorSettings { group: group?, share: share?, body_size, timeout, requests }))
}

/// Names of the upstreams of splits and mirrors.
pub(super) fn upstreams(config: &raw::Config) -> impl Iterator<Item = &String> {
    config.host.iter().flat_map(|host| &host.route).flat_map(|route| {
        let split = route.split.as_ref().map(|split| &split.upstream);
        split.into_iter().chain(route.mirror.as_ref().map(|mirror| &mirror.upstream))
    })
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

//! The mirror of a route.

use std::ops::RangeInclusive;
use std::time::Duration;

use brisk_config_file::{Period, Size};
use brisk_net::FairShare;
use brisk_rules::Share;

use super::keys;
use super::rule::MirrorSettings;
use crate::features::split::{other_upstream, share};
use crate::features::{Context, RouteScope, TIMEOUTS};

/// Maximum size of mirrored bodies, unless another is written, and the permitted sizes. A copy is in memory.
const BODY: Size = Size(64 << 10);
const BODIES: RangeInclusive<Size> = Size(0)..=Size(8 << 20);

/// Maximum duration of a mirrored request, unless another is written.
const TIMEOUT: Period = Period(Duration::from_secs(10));

/// Maximum number of mirrored requests in progress, unless another is written, and the permitted numbers.
const REQUESTS: u32 = 256;
const NUMBERS: RangeInclusive<u32> = 2..=65_536;

/// The mirror of a route.
pub(super) fn of_route(
    raw: &keys::Mirror,
    route: &RouteScope<'_>,
    context: &mut Context<'_>,
) -> Option<MirrorSettings> {
    let path = route.key("mirror");
    let group = other_upstream(&raw.upstream, route, &path, context)
        // A copy has no variables, without which an application server runs no script.
        .filter(|name| context.has_http_upstream(name, &path.key("upstream")));
    let share = raw.percent.map_or(Some(Share::ALL), |percent| share(percent, &path, context));
    let findings = &mut context.findings;
    let body_size = findings.within(&path.key("body_size"), raw.body_size, BODY, &BODIES).0 as usize;
    let timeout = findings.within(&path.key("timeout"), raw.timeout, TIMEOUT, &TIMEOUTS).0;
    let requests = findings.within(&path.key("requests"), raw.requests, REQUESTS, &NUMBERS);
    let requests = FairShare::new(requests as usize);
    Some(MirrorSettings { group: group?, share: share?, body_size, timeout, requests })
}

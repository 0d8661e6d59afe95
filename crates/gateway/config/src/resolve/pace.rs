//! `timeouts` and `bandwidth` of routes.

use std::num::NonZeroU64;
use std::ops::RangeInclusive;

use brisk_answer::settings::{Bandwidth, RouteTimeouts};
use brisk_config_file::{KeyPath, Period, Size};
use brisk_upstream::settings::RequestTimeouts;

use super::context::Context;
use super::limits::TIMEOUTS;
use crate::raw;

/// Permitted bandwidths. A client must read more than `limits.read_rate` bytes a second.
const RATES: RangeInclusive<Size> = Size(1 << 10)..=Size(1 << 40);

/// The timeouts of the route at `path`.
pub(super) fn timeouts(raw: &raw::Route, path: &KeyPath, context: &mut Context<'_>) -> RouteTimeouts {
    let (written, path) = (&raw.timeouts, path.key("timeouts"));
    if context.findings.written(&path) && raw.upstream.is_none() {
        context.findings.wrong(&path, "has no effect without `upstream`");
    }
    let mut limit = |key: &str, value: Option<Period>| {
        value.map(|value| context.findings.within(&path.key(key), Some(value), value, &TIMEOUTS).0)
    };
    let upstream = RequestTimeouts { head: limit("head", written.head), body: limit("body", written.body) };
    RouteTimeouts { upstream, request: limit("request", written.request) }
}

/// The bandwidth of the responses of the route at `path`.
pub(super) fn bandwidth(raw: &raw::Route, path: &KeyPath, context: &mut Context<'_>) -> Option<Bandwidth> {
    let written = raw.bandwidth.as_ref()?;
    let path = path.key("bandwidth").key("rate");
    let rate = context.findings.within(&path, Some(written.rate), *RATES.start(), &RATES);
    Some(Bandwidth { rate: NonZeroU64::new(rate.0)?, after: written.after.map_or(0, |after| after.0) })
}

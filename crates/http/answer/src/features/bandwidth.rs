//! The pace of responses.

mod keys;
pub(crate) mod stage;

use std::num::NonZeroU64;
use std::ops::RangeInclusive;

use brisk_config_file::Size;
use brisk_limits::Bandwidth;

use super::{Context, RouteFeature, RouteScope};
pub use keys::BandwidthKeys;

/// Permitted bandwidths. A client must read more than `limits.read_rate` bytes a second.
const RATES: RangeInclusive<Size> = Size(1 << 10)..=Size(1 << 40);

/// `bandwidth` of routes.
#[derive(Debug)]
pub struct BandwidthFeature;

impl RouteFeature for BandwidthFeature {
    type Keys = BandwidthKeys;
    type Settings = Option<Bandwidth>;

    fn resolve(keys: &BandwidthKeys, route: &RouteScope<'_>, context: &mut Context<'_>) -> Option<Bandwidth> {
        let written = keys.bandwidth.as_ref()?;
        let path = route.key("bandwidth").key("rate");
        let rate = context.findings.within(&path, Some(written.rate), *RATES.start(), &RATES);
        Some(Bandwidth { rate: NonZeroU64::new(rate.0)?, after: written.after.map_or(0, |after| after.0) })
    }
}

//! Measurements exposed to pages, and measurements of visits.

mod keys;
mod resolve;
pub(crate) mod stage;
pub(crate) mod timing_stage;

use super::{Context, HostFeature, HostScope};
use crate::timing::ServerTiming;
use crate::visits::HostVisits;
pub use keys::{ServerTimingKeys, VisitsKeys};

/// `server_timing` of hosts.
#[derive(Debug)]
pub struct ServerTimingFeature;

impl HostFeature for ServerTimingFeature {
    type Keys = ServerTimingKeys;
    type Settings = Option<ServerTiming>;

    fn resolve(
        keys: &ServerTimingKeys,
        host: &HostScope<'_>,
        context: &mut Context<'_>,
    ) -> Option<ServerTiming> {
        resolve::server_timing(keys, host, context)
    }
}

/// `visits` of hosts.
#[derive(Debug)]
pub struct VisitsFeature;

impl HostFeature for VisitsFeature {
    type Keys = VisitsKeys;
    type Settings = Option<HostVisits>;

    fn resolve(keys: &VisitsKeys, host: &HostScope<'_>, context: &mut Context<'_>) -> Option<HostVisits> {
        resolve::of_host(keys, host, context)
    }
}

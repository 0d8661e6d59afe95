//! Maintenance of hosts: a file switches 503 responses on and off while the gateway runs.

mod keys;
mod resolve;
pub(crate) mod stage;
mod switch;

use std::sync::Arc;

use super::{Context, HostFeature, HostScope};
pub use keys::MaintenanceKeys;
pub use switch::{Maintenance, MaintenanceSwitch};

/// `maintenance` of hosts.
#[derive(Debug)]
pub struct MaintenanceFeature;

impl HostFeature for MaintenanceFeature {
    type Keys = MaintenanceKeys;
    type Settings = Option<Arc<Maintenance>>;

    fn resolve(
        keys: &MaintenanceKeys,
        host: &HostScope<'_>,
        context: &mut Context<'_>,
    ) -> Option<Arc<Maintenance>> {
        Some(Arc::new(resolve::of_host(keys.maintenance.as_ref()?, host, context)))
    }
}

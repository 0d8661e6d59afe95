//! The switch of a host, and its response.

use std::time::Duration;

use brisk_config_file::Period;

use super::keys;
use super::switch::{Maintenance, MaintenanceSwitch};
use crate::features::{Context, HostScope, error_pages};

/// Default of `Retry-After`.
const RETRY_AFTER: Period = Period(Duration::from_mins(1));

/// The switch of a host. Its file is not read, and need not exist.
pub(super) fn of_host(
    raw: &keys::Maintenance,
    host: &HostScope<'_>,
    context: &mut Context<'_>,
) -> Maintenance {
    let path = host.key("maintenance");
    let seconds = Period(Duration::from_secs(1))..=Period(Duration::from_hours(24));
    let retry_after =
        context.findings.within(&path.key("retry_after"), raw.retry_after, RETRY_AFTER, &seconds);
    let page = raw.page.as_ref().and_then(|file| error_pages::page(file, &path.key("page"), context));
    Maintenance {
        switch: MaintenanceSwitch::new(context.base.join(&raw.file)),
        page,
        retry_after: retry_after.0,
        allow: raw.allow.iter().map(|network| network.0).collect(),
    }
}

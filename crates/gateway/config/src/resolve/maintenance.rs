//! `maintenance` of hosts.

use std::sync::Arc;
use std::time::Duration;

use brisk_answer::settings::{Maintenance, MaintenanceSwitch};
use brisk_config_file::{KeyPath, Period};

use super::context::Context;
use super::error_pages;
use crate::raw;

/// Default of `Retry-After`.
const RETRY_AFTER: Period = Period(Duration::from_mins(1));

/// The switch of the host at `path`. Its file is not read, and need not exist.
pub(super) fn of_host(
    host: &raw::Host,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Arc<Maintenance>> {
    let raw = host.maintenance.as_ref()?;
    let path = path.key("maintenance");
    let seconds = Period(Duration::from_secs(1))..=Period(Duration::from_hours(24));
    let retry_after =
        context.findings.within(&path.key("retry_after"), raw.retry_after, RETRY_AFTER, &seconds);
    let page = raw.page.as_ref().and_then(|file| error_pages::page(file, &path.key("page"), context));
    Some(Arc::new(Maintenance {
        switch: MaintenanceSwitch::new(context.base.join(&raw.file)),
        page,
        retry_after: retry_after.0,
        allow: raw.allow.iter().map(|network| network.0).collect(),
    }))
}

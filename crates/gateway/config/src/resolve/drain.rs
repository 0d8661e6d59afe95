//! Times of the drain: `server.drain_timeout` and `server.drain_delay`.

use std::time::Duration;

use brisk_answer::features::TIMEOUTS;
use brisk_config_file::{KeyPath, Period};

use super::context::Context;
use crate::raw;

/// Maximum time for running requests: `drain_timeout`.
pub(super) fn timeout(server: &raw::Server, path: &KeyPath, context: &mut Context<'_>) -> Duration {
    let (usual, range) = (Period(Duration::from_secs(30)), Period(Duration::ZERO)..=*TIMEOUTS.end());
    context.shared.findings.within(&path.key("drain_timeout"), server.drain_timeout, usual, &range).0
}

/// Time between the signal and the drain: `drain_delay`.
pub(super) fn delay(server: &raw::Server, path: &KeyPath, context: &mut Context<'_>) -> Duration {
    // 0 is permitted, unlike for the timeouts of clients: a drain may begin at once.
    let range = Period(Duration::ZERO)..=*TIMEOUTS.end();
    let path = path.key("drain_delay");
    context.shared.findings.within(&path, server.drain_delay, Period(Duration::ZERO), &range).0
}

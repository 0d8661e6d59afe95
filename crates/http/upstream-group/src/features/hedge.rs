//! `hedge`: second attempts of slow requests at another server.

mod keys;
mod race;

use std::time::Duration;

use brisk_config_file::Period;

use super::{Context, GroupFeature, GroupScope};
pub use keys::{AttemptKeys, HedgeKeys};
pub use race::{Raced, race};

/// Second attempts of safe requests (`GET` and `HEAD` without a body) at another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HedgeSettings {
    /// Time without a response after which the second attempt begins.
    pub after: Duration,
    /// Maximum number of second attempts in a hundred requests, for each worker, with a burst of ten.
    pub percent: u32,
}

/// `hedge` of groups.
#[derive(Debug)]
pub struct HedgeFeature;

impl GroupFeature for HedgeFeature {
    type Keys = HedgeKeys;
    type Settings = Option<HedgeSettings>;

    /// The delay is above the time of most responses, so that few requests are sent twice.
    fn resolve(
        keys: &HedgeKeys,
        group: &GroupScope<'_>,
        context: &mut Context<'_, '_>,
    ) -> Option<HedgeSettings> {
        let written = keys.hedge.as_ref()?;
        let path = group.key("hedge");
        let findings = &mut *context.findings;
        if group.keys.retry.is_off() {
            findings.wrong(&path, "has no effect with retry = false: requests are sent once");
        }
        let delays = Period(Duration::from_millis(1))..=Period(Duration::from_mins(1));
        let after = findings.within(&path.key("after"), Some(written.after), written.after, &delays).0;
        let percent = findings.within(&path.key("percent"), written.percent, 5, &(1..=100)).into();
        Some(HedgeSettings { after, percent })
    }
}

//! Limits per client that persist across reloads: connections, share of key operations, rates.

mod metrics;

use std::sync::Arc;

use brisk_keys::Engines;
use brisk_net::rates::{Rates, Refusals};
use brisk_net::{AddressLimit, FairShare};
use brisk_pressure::Pressure;
use brisk_telemetry::Metrics;
use brisk_tls::KeyGate;

use self::metrics::RateMetrics;
use crate::settings::GatewaySettings;

/// The limits of one client.
pub(crate) struct ClientLimits {
    /// Connections; `None` is no limit.
    pub(crate) connections: Option<AddressLimit>,
    /// Whether clients of this machine are not counted.
    pub(crate) spares_loopback: bool,
    /// Each client's share of the engine's queue.
    key_share: FairShare,
    rate_refusals: Arc<Refusals>,
    pressure: Arc<Pressure>,
}

impl ClientLimits {
    /// The limits of `settings` under `pressure`, and their metrics.
    pub(crate) fn new(
        settings: &GatewaySettings,
        engines: &dyn Engines,
        metrics: &Metrics,
        pressure: &Arc<Pressure>,
    ) -> Self {
        let rate_refusals = Arc::default();
        metrics.register(RateMetrics(Arc::clone(&rate_refusals)));
        Self {
            connections: settings.per_client.map(|limit| AddressLimit::new(limit.most)),
            spares_loopback: settings.per_client.is_some_and(|limit| limit.spares_loopback),
            key_share: FairShare::new(engines.queue().get()),
            rate_refusals,
            pressure: Arc::clone(pressure),
        }
    }

    /// The [`KeyGate`] of key operations. Keeps the counters of `before` if the limits are unchanged, and limits no rate
    /// if `settings` has none.
    pub(crate) fn key_gate(&self, settings: &GatewaySettings, before: Option<&Arc<Rates>>) -> KeyGate {
        let limits = settings.rates;
        // With a new table, each reload would fill the buckets of all clients again.
        let same = before.filter(|before| *before.limits() == limits).cloned();
        let new = || Arc::new(Rates::new(limits, Arc::clone(&self.rate_refusals)));
        let rates = same.or_else(|| (!limits.is_empty()).then(new));
        KeyGate { share: Some(self.key_share.clone()), rates, pressure: Some(Arc::clone(&self.pressure)) }
    }
}

//! Receiver of page measurements (beacons), started by the first configuration that measures visits.

use std::sync::{Arc, OnceLock};

use brisk_answer::settings::ServiceSettings;
use brisk_beacon::{BeaconMetrics, Beacons};
use brisk_telemetry::Metrics;
use brisk_visits::Visits;

/// The [`Beacons`], made once: page views that were answered before a reload send their beacons after it.
#[derive(Debug)]
pub(crate) struct BeaconReceiver {
    visits: Visits,
    metrics: Arc<Metrics>,
    beacons: OnceLock<Arc<Beacons>>,
}

impl BeaconReceiver {
    pub(crate) fn new(visits: Visits, metrics: &Arc<Metrics>) -> Self {
        Self { visits, metrics: Arc::clone(metrics), beacons: OnceLock::new() }
    }

    /// The store of visits.
    pub(crate) fn visits(&self) -> &Visits {
        &self.visits
    }

    /// The [`Beacons`] for the hosts of `service`; `None` if no host measures visits. New ones have no metrics yet.
    pub(crate) fn prepare(&self, service: &ServiceSettings) -> Option<Arc<Beacons>> {
        let is_wanted = service.hosts.iter().any(|host| host.visits.is_some());
        let new = || Beacons::new(self.visits.clone());
        is_wanted.then(|| self.beacons.get().cloned().unwrap_or_else(new))
    }

    /// Keeps a [prepared](Self::prepare) receiver.
    pub(crate) fn commit(&self, beacons: Option<Arc<Beacons>>) {
        // Metrics are registered here and not in `prepare`: a configuration that is refused
        // leaves no series on the page.
        if let Some(beacons) = beacons
            && self.beacons.set(Arc::clone(&beacons)).is_ok()
        {
            self.metrics.register(BeaconMetrics(beacons));
        }
    }
}

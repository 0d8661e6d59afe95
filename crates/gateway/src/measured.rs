//! What takes the beacons of pages, from the first configuration on that has visits measured.

use std::sync::{Arc, OnceLock};

use brisk_beacon::{BeaconMetrics, Beacons};
use brisk_proxy::settings::ServiceSettings;
use brisk_telemetry::Metrics;
use brisk_visits::Visits;

/// Makes it once: page views that were answered before a reload send their beacons after it.
#[derive(Debug)]
pub(crate) struct Measured {
    visits: Visits,
    metrics: Arc<Metrics>,
    beacons: OnceLock<Arc<Beacons>>,
}

impl Measured {
    pub(crate) fn new(visits: Visits, metrics: &Arc<Metrics>) -> Self {
        Self { visits, metrics: Arc::clone(metrics), beacons: OnceLock::new() }
    }

    /// The store of visits.
    pub(crate) fn visits(&self) -> &Visits {
        &self.visits
    }

    /// What takes the beacons of these hosts, if they have visits measured.
    pub(crate) fn beacons(&self, service: &ServiceSettings) -> Option<Arc<Beacons>> {
        let is_asked = service.hosts.iter().any(|host| host.visits.is_some());
        is_asked.then(|| Arc::clone(self.beacons.get_or_init(|| self.start())))
    }

    fn start(&self) -> Arc<Beacons> {
        let beacons = Beacons::new(self.visits.clone());
        self.metrics.register(BeaconMetrics(Arc::clone(&beacons)));
        beacons
    }
}

//! The hook of experiments on visitors: settings that vary between the connections of a host.

use std::sync::OnceLock;

use brisk_answer::settings::ServiceSettings;
use brisk_trials::{Assignment, Draws, Experiments};
use brisk_visits::Visits;

/// Settings of the variation: the experiments of one configuration. Without experiments, nothing varies.
#[derive(Clone, Debug, Default)]
pub struct VariationSettings(pub Experiments);

/// Variation of one configuration. Nothing varies before it [begins](Self::begin).
#[derive(Debug)]
pub(crate) struct Variation {
    experiments: Experiments,
    draws: OnceLock<Draws>,
}

impl Variation {
    /// The variation for `settings`.
    pub(crate) fn new(settings: &VariationSettings) -> Self {
        Self { experiments: settings.0.clone(), draws: OnceLock::new() }
    }

    /// Makes the experiments of this configuration the current ones, which ends all others, and gives the hosts of
    /// `service` the settings that they vary. Called before `service` is used and after everything that can fail, since
    /// another process may still run experiments.
    pub(crate) fn begin(&self, service: &ServiceSettings, visits: &Visits) {
        self.experiments.define(visits);
        let hosts = service.hosts.len();
        service.variants.set((0..hosts).map(|host| self.experiments.variants(host)).collect());
        if let Some(draws) = Draws::new(&self.experiments, hosts, visits) {
            self.draws.get_or_init(|| draws);
        }
    }

    /// The [`Assignment`] of the connection with this number. A connection that is not `of_visitor` has the configured
    /// settings.
    pub(crate) fn assignment(&self, connection: u64, of_visitor: bool) -> Assignment<'_> {
        Assignment::new(self.draws.get().filter(|_| of_visitor), connection)
    }
}

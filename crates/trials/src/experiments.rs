//! Definition of experiments: hosts, arms and the values that they try.

use std::sync::{Arc, OnceLock};

use brisk_coding::Coding;
use brisk_net::Congestion;
use brisk_tls::settings::Records;
use brisk_visits::{Experiment, ExperimentId, Visits};

/// The experiments of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Experiments {
    all: Vec<Arc<ExperimentSettings>>,
    /// Of each; none before they are defined.
    ids: OnceLock<Vec<ExperimentId>>,
}

/// One experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct ExperimentSettings {
    /// What is compared. Its first arm is the control: the configuration without the experiment.
    pub experiment: Experiment,
    /// Its hosts, by their places in `ServiceSettings::hosts`.
    pub hosts: Vec<usize>,
    /// What the other arms have in place of what is configured.
    pub values: Values,
}

/// The values of a setting, one for each arm beside the control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// The size of TLS records.
    Records(Vec<Records>),
    /// Tickets after a handshake.
    Tickets(Vec<usize>),
    /// Whether pages get hints before their answers. Routes that have none otherwise pass on those of their upstreams, and learn.
    EarlyHints(Vec<bool>),
    /// The level of a coding, where answers are compressed.
    Level(Coding, Vec<u8>),
    /// The congestion control of the kernel; of all arms, so that each gets its own in the same way.
    Congestion(Vec<Congestion>),
}

impl Experiments {
    /// Those that are not defined yet.
    pub fn new(all: Vec<ExperimentSettings>) -> Self {
        Self { all: all.into_iter().map(Arc::new).collect(), ids: OnceLock::new() }
    }

    /// All of them.
    pub fn all(&self) -> &[Arc<ExperimentSettings>] {
        &self.all
    }

    /// Makes them known to the store of visits as those of the configuration in force, once. Until then no connection is drawn.
    pub fn define(&self, visits: &Visits) {
        self.ids.get_or_init(|| {
            let all: Vec<_> = self.all.iter().map(|one| one.experiment.clone()).collect();
            visits.define(&all)
        });
    }

    /// The numbers of tickets that experiments of the host at `place` try.
    pub fn tickets(&self, place: usize) -> Vec<usize> {
        let of_host = self.all.iter().filter(|one| one.hosts.contains(&place));
        let tickets = of_host.filter_map(|one| match &one.values {
            Values::Tickets(values) => Some(values),
            _ => None,
        });
        tickets.flatten().copied().collect()
    }

    /// Those of the host at `place`, once they are defined.
    pub fn of_host(&self, place: usize) -> impl Iterator<Item = (ExperimentId, &Arc<ExperimentSettings>)> {
        let all = self.ids.get().into_iter().flatten().copied().zip(&self.all);
        all.filter(move |(_, one)| one.hosts.contains(&place))
    }
}

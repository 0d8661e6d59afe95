//! Definition of experiments: hosts, arms and the compared values.

use std::sync::{Arc, OnceLock};

use brisk_coding::Coding;
use brisk_net::Congestion;
use brisk_tls::settings::Records;
use brisk_variants::{HostVariants, RequestValues, VariedSetting};
use brisk_visits::{Experiment, ExperimentId, Visits};

/// Field of the access log with the arms of the connection.
const LOG_FIELD: &str = "experiments";

/// The experiments of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Experiments {
    all: Vec<Arc<ExperimentSettings>>,
    /// Ids of the experiments; empty before [`define`](Experiments::define).
    ids: OnceLock<Vec<ExperimentId>>,
}

/// One experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct ExperimentSettings {
    /// Name and arms. The first arm is the control: the configuration without the experiment.
    pub experiment: Experiment,
    /// Hosts of the experiment, by index in `ServiceSettings::hosts`.
    pub hosts: Vec<usize>,
    /// Values of the other arms, in place of the configured value.
    pub values: Values,
}

/// The values of a setting, one per arm except the control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// Maximum size of TLS records.
    Records(Vec<Records>),
    /// Number of tickets after a handshake.
    Tickets(Vec<usize>),
    /// Whether pages get early hints. Routes without configured hints then forward and learn those of their upstreams.
    EarlyHints(Vec<bool>),
    /// Level of a coding, where responses are compressed.
    Level(Coding, Vec<u8>),
    /// Congestion control of the kernel; here also for the control, so that all arms are set in the same way.
    Congestion(Vec<Congestion>),
}

impl Experiments {
    /// Experiments that are not yet [defined](Self::define).
    pub fn new(all: Vec<ExperimentSettings>) -> Self {
        Self { all: all.into_iter().map(Arc::new).collect(), ids: OnceLock::new() }
    }

    /// All experiments.
    pub fn all(&self) -> &[Arc<ExperimentSettings>] {
        &self.all
    }

    /// Registers the experiments in `visits` as the current ones, once ([`Visits::define`]). Before that, no connection is
    /// drawn.
    pub fn define(&self, visits: &Visits) {
        // Not in `new`: a configuration that is refused must not end the experiments in force.
        self.ids.get_or_init(|| {
            let all: Vec<_> = self.all.iter().map(|one| one.experiment.clone()).collect();
            visits.define(&all)
        });
    }

    /// Numbers of tickets compared by experiments of the host with index `place`.
    pub fn tickets(&self, place: usize) -> Vec<usize> {
        let of_host = self.all.iter().filter(|one| one.hosts.contains(&place));
        let tickets = of_host.filter_map(|one| match &one.values {
            Values::Tickets(values) => Some(values),
            _ => None,
        });
        tickets.flatten().copied().collect()
    }

    /// The settings of the host with index `place` that its experiments vary; none before [`define`](Self::define).
    pub fn variants(&self, place: usize) -> HostVariants {
        let settings = self.of_host(place).map(|(id, one)| VariedSetting {
            id,
            name: Arc::clone(&one.experiment.name),
            texts: one.experiment.arms.clone(),
            values: one.values.of_requests(),
        });
        HostVariants::new(LOG_FIELD, settings.collect())
    }

    /// Experiments of the host with index `place`; none before [`define`](Self::define).
    pub(crate) fn of_host(
        &self,
        place: usize,
    ) -> impl Iterator<Item = (ExperimentId, &Arc<ExperimentSettings>)> {
        // `define` returns the ids in the order of `all`.
        let all = self.ids.get().into_iter().flatten().copied().zip(&self.all);
        all.filter(move |(_, one)| one.hosts.contains(&place))
    }
}

impl Values {
    /// The values that each request looks up.
    fn of_requests(&self) -> RequestValues {
        match self {
            Self::Records(_) | Self::Tickets(_) | Self::Congestion(_) => RequestValues::None,
            Self::EarlyHints(values) => RequestValues::EarlyHints(values.clone()),
            Self::Level(coding, levels) => RequestValues::Level(*coding, levels.clone()),
        }
    }
}

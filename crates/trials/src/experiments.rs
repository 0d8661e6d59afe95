//! Experiments on visitors: settings of which connections that are drawn for it have another value than the others.
//!
//! What a connection got is drawn once, by the gateway that accepts it, when its handshake begins; requests on it look it up.
//! Where there is no experiment nothing is looked up.

use std::sync::{Arc, OnceLock};

use brisk_coding::Coding;
use brisk_http_connection::Connection;
use brisk_net::Congestion;
use brisk_tls::settings::Records;
use brisk_visits::{Arms, Experiment, ExperimentId, Visits};

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
    /// Its hosts, by their places in [`ServiceSettings::hosts`](crate::settings::ServiceSettings::hosts).
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

    /// Those of the host at `place`, once they are defined.
    pub fn of_host(&self, place: usize) -> impl Iterator<Item = (ExperimentId, &Arc<ExperimentSettings>)> {
        let all = self.ids.get().into_iter().flatten().copied().zip(&self.all);
        all.filter(move |(_, one)| one.hosts.contains(&place))
    }
}

/// The experiments of one host.
#[derive(Debug)]
pub(crate) struct HostExperiments(Vec<(ExperimentId, Arc<ExperimentSettings>)>);

impl HostExperiments {
    /// Those of the host at `place`.
    pub(crate) fn new(experiments: &Experiments, place: usize) -> Self {
        Self(experiments.of_host(place).map(|(id, one)| (id, Arc::clone(one))).collect())
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[(ExperimentId, Arc<ExperimentSettings>)] {
        &self.0
    }

    /// Their names and those of the arms, of a connection with these.
    pub(crate) fn named(&self, arms: &Arms) -> Vec<(Arc<str>, Arc<str>)> {
        let named = self.0.iter().filter_map(|(id, one)| {
            let arm = one.experiment.arms.get(usize::from(arms.get(*id)?))?;
            Some((Arc::clone(&one.experiment.name), Arc::clone(arm)))
        });
        named.collect()
    }
}

/// A setting that connections have by their arm.
#[derive(Debug)]
pub(crate) struct ByArm<T> {
    experiment: ExperimentId,
    /// Of the arms beside the control.
    values: Box<[T]>,
}

impl<T> ByArm<T> {
    pub(crate) fn new(experiment: ExperimentId, values: impl IntoIterator<Item = T>) -> Self {
        Self { experiment, values: values.into_iter().collect() }
    }

    /// The value for a connection; `None` for what is configured.
    pub(crate) fn of(&self, connection: &Connection) -> Option<&T> {
        let arm = connection.arms()?.get(self.experiment)?;
        self.values.get(usize::from(arm).checked_sub(1)?)
    }
}

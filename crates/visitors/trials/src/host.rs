//! Experiments of one host, prepared for its requests.

use std::sync::Arc;

use brisk_coding::Coding;
use brisk_visits::{Arms, ExperimentId};

use crate::experiments::{ExperimentSettings, Experiments, Values};

/// The experiments of one host.
#[derive(Debug)]
pub struct HostExperiments(Vec<(ExperimentId, Arc<ExperimentSettings>)>);

impl HostExperiments {
    /// The experiments of the host with index `place`.
    pub fn new(experiments: &Experiments, place: usize) -> Self {
        Self(experiments.of_host(place).map(|(id, one)| (id, Arc::clone(one))).collect())
    }

    /// Whether the host takes part in no experiment.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The experiments with their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(ExperimentId, Arc<ExperimentSettings>)> {
        self.0.iter()
    }

    /// Ids of the experiments.
    pub fn ids(&self) -> Vec<ExperimentId> {
        self.0.iter().map(|(id, _)| *id).collect()
    }

    /// Whether pages get early hints, by arm; `None` without an experiment on early hints.
    pub fn early_hints(&self) -> Option<ByArm<bool>> {
        self.0.iter().find_map(|(id, one)| match &one.values {
            Values::EarlyHints(values) => Some(ByArm::new(*id, values.iter().copied())),
            _ => None,
        })
    }

    /// Levels of codings, by arm, one entry per experiment on compression.
    pub fn levels(&self) -> Vec<(Coding, ByArm<u8>)> {
        let levels = self.0.iter().filter_map(|(id, one)| match &one.values {
            Values::Level(coding, levels) => Some((*coding, ByArm::new(*id, levels.iter().copied()))),
            _ => None,
        });
        levels.collect()
    }

    /// Names of the experiments and arms of a connection with `arms`.
    pub fn named(&self, arms: &Arms) -> Vec<(Arc<str>, Arc<str>)> {
        let named = self.0.iter().filter_map(|(id, one)| {
            let arm = one.experiment.arms.get(usize::from(arms.get(*id)?))?;
            Some((Arc::clone(&one.experiment.name), Arc::clone(arm)))
        });
        named.collect()
    }
}

/// A setting that depends on the arm of the connection.
#[derive(Debug)]
pub struct ByArm<T> {
    experiment: ExperimentId,
    /// Values of the arms, except the control.
    values: Box<[T]>,
}

impl<T> ByArm<T> {
    fn new(experiment: ExperimentId, values: impl IntoIterator<Item = T>) -> Self {
        Self { experiment, values: values.into_iter().collect() }
    }

    /// The value for a connection with `arms`; `None` for the configured value.
    pub fn of(&self, arms: Option<&Arms>) -> Option<&T> {
        let arm = arms?.get(self.experiment)?;
        self.values.get(usize::from(arm).checked_sub(1)?)
    }
}

//! Experiments of one host, prepared for its requests.

use std::sync::Arc;

use brisk_coding::Coding;
use brisk_visits::{Arms, ExperimentId};

use crate::experiments::{ExperimentSettings, Experiments, Values};

/// The experiments of one host.
#[derive(Debug)]
pub struct HostExperiments(Vec<(ExperimentId, Arc<ExperimentSettings>)>);

impl HostExperiments {
    /// Those of the host at `place`.
    pub fn new(experiments: &Experiments, place: usize) -> Self {
        Self(experiments.of_host(place).map(|(id, one)| (id, Arc::clone(one))).collect())
    }

    /// Whether the host takes part in none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ids of all of them.
    pub fn ids(&self) -> Vec<ExperimentId> {
        self.0.iter().map(|(id, _)| *id).collect()
    }

    /// Whether pages get hints before their responses, if an experiment tries that.
    pub fn early_hints(&self) -> Option<ByArm<bool>> {
        self.0.iter().find_map(|(id, one)| match &one.values {
            Values::EarlyHints(values) => Some(ByArm::new(*id, values.iter().copied())),
            _ => None,
        })
    }

    /// The levels of codings that experiments try.
    pub fn levels(&self) -> Vec<(Coding, ByArm<u8>)> {
        let levels = self.0.iter().filter_map(|(id, one)| match &one.values {
            Values::Level(coding, levels) => Some((*coding, ByArm::new(*id, levels.iter().copied()))),
            _ => None,
        });
        levels.collect()
    }

    /// Their names and those of the arms, of a connection with these.
    pub fn named(&self, arms: &Arms) -> Vec<(Arc<str>, Arc<str>)> {
        let named = self.0.iter().filter_map(|(id, one)| {
            let arm = one.experiment.arms.get(usize::from(arms.get(*id)?))?;
            Some((Arc::clone(&one.experiment.name), Arc::clone(arm)))
        });
        named.collect()
    }
}

/// A setting that connections have by their arm.
#[derive(Debug)]
pub struct ByArm<T> {
    experiment: ExperimentId,
    /// Of the arms beside the control.
    values: Box<[T]>,
}

impl<T> ByArm<T> {
    fn new(experiment: ExperimentId, values: impl IntoIterator<Item = T>) -> Self {
        Self { experiment, values: values.into_iter().collect() }
    }

    /// The value for a connection with these arms; `None` for the configured one.
    pub fn of(&self, arms: Option<&Arms>) -> Option<&T> {
        let arm = arms?.get(self.experiment)?;
        self.values.get(usize::from(arm).checked_sub(1)?)
    }
}

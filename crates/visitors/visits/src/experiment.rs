//! Experiments: settings assigned randomly per connection, and the arms assigned to connections.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

// An experiment varies one setting, and each arm is a value of it.
pub use brisk_variants::{
    Assigned as Arm, AssignedValues as Arms, MOST_ASSIGNED as ARMS_OF_A_VISIT, VariedId as ExperimentId,
};

use crate::metric::Metric;

/// Maximum number of arms of one [`Experiment`]; further ones are ignored.
pub const MOST_ARMS: usize = 8;
/// Maximum number of entries in [`Definitions`]; each change of an experiment by a reload adds one.
const MOST_DEFINITIONS: usize = 1_000;

/// Definition of an experiment. Two experiments are equal if they differ in `advice`, `hosts` and `share` only; the
/// name alone does not make them equal.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Name of the experiment.
    pub name: Arc<str>,
    /// Arms, each as the value of its setting in text. The first is the control. Arms beyond eight are ignored.
    pub arms: Vec<Arc<str>>,
    /// Instruction for serving each arm permanently, in a sentence. If missing, the arm's text is the value to
    /// configure.
    pub advice: Vec<Arc<str>>,
    /// Metric that decides; one for which [`Metric::is_compared`] returns `true`.
    pub metric: Metric,
    /// Relative difference that is irrelevant: `0.02` is 2 %.
    pub margin: f64,
    /// Hosts of the experiment, named as in [`Visit::host`](crate::Visit::host).
    pub hosts: Vec<Arc<str>>,
    /// Share of the connections that take part, 0 to 1. Each arm gets an equal part of them.
    pub share: f64,
}

impl PartialEq for Experiment {
    fn eq(&self, other: &Self) -> bool {
        let of = |one: &Self| (Arc::clone(&one.name), one.metric, one.margin.to_bits());
        of(self) == of(other) && self.arms == other.arms
    }
}

/// The id of an experiment that is not compared because there are too many.
pub(crate) const NOT_COMPARED: ExperimentId = ExperimentId(u16::MAX);

/// Experiments that this process has defined, by [`ExperimentId`].
#[derive(Debug, Default)]
pub(crate) struct Definitions(Mutex<Defined>);

#[derive(Debug, Default)]
struct Defined {
    /// Experiments, each with a flag for those in the current configuration.
    all: Vec<(Arc<Experiment>, bool)>,
    /// Whether [`Definitions::define`] was called.
    is_known: bool,
}

impl Defined {
    /// Experiments in the current configuration.
    fn current(&self) -> impl Iterator<Item = (ExperimentId, &Arc<Experiment>)> {
        let all = self.all.iter().enumerate().filter(|(_, (_, is_current))| *is_current);
        all.map(|(place, (experiment, _))| (ExperimentId(place as u16), experiment))
    }
}

impl Definitions {
    fn lock(&self) -> MutexGuard<'_, Defined> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the experiments of the configuration and returns their ids, [`NOT_COMPARED`] beyond [`MOST_DEFINITIONS`]. An
    /// unchanged definition keeps its id while it stays configured.
    pub(crate) fn define(&self, experiments: &[Experiment]) -> Vec<ExperimentId> {
        let mut defined = self.lock();
        defined.is_known = true;
        for (known, is_current) in &mut defined.all {
            // An ended definition stays ended: if it is configured again, it gets a new id and begins anew.
            *is_current = *is_current && experiments.contains(known);
        }
        experiments.iter().map(|experiment| defined.id(experiment)).collect()
    }

    /// Ids of the experiments in the configuration.
    pub(crate) fn ids(&self) -> Vec<ExperimentId> {
        self.lock().current().map(|(id, _)| id).collect()
    }

    /// Whether the experiment is in the configuration.
    pub(crate) fn is_current(&self, id: ExperimentId) -> bool {
        self.lock().all.get(usize::from(id.0)).is_some_and(|(_, is_current)| *is_current)
    }

    /// The [`Experiment`] with this id, also if it is no longer configured.
    pub(crate) fn get(&self, id: ExperimentId) -> Option<Arc<Experiment>> {
        self.lock().all.get(usize::from(id.0)).map(|(experiment, _)| Arc::clone(experiment))
    }

    /// Whether a configuration has been applied, so that the absence of an experiment means that it ended.
    pub(crate) fn is_known(&self) -> bool {
        self.lock().is_known
    }

    /// The configured experiments in which this host takes part.
    pub(crate) fn of_host(&self, host: &str) -> Vec<ExperimentId> {
        let defined = self.lock();
        let of_host = defined.current().filter(|(_, one)| one.hosts.iter().any(|name| **name == *host));
        of_host.map(|(id, _)| id).collect()
    }

    /// The configured experiment with this name and number of arms.
    pub(crate) fn named(&self, name: &str, arms: usize) -> Option<(ExperimentId, Arc<Experiment>)> {
        let defined = self.lock();
        let mut current = defined.current();
        let (id, experiment) = current.find(|(_, one)| *one.name == *name && one.arms.len() == arms)?;
        Some((id, Arc::clone(experiment)))
    }
}

impl Defined {
    fn id(&mut self, experiment: &Experiment) -> ExperimentId {
        let known = |(known, is_current): &(Arc<Experiment>, bool)| *is_current && **known == *experiment;
        if let Some(place) = self.all.iter().position(known) {
            // Replaced, since `advice`, `hosts` and `share`, which equality ignores, may have changed.
            self.all[place].0 = Arc::new(experiment.clone());
            return ExperimentId(place as u16);
        }
        if self.all.len() >= MOST_DEFINITIONS {
            tracing::warn!(
                experiment = %experiment.name,
                "not compared: experiments were changed {MOST_DEFINITIONS} times; restart brisk"
            );
            return NOT_COMPARED;
        }
        self.all.push((Arc::new(experiment.clone()), true));
        ExperimentId(self.all.len() as u16 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_experiment_is_another_one() {
        let definitions = Definitions::default();
        let one = |experiment: &Experiment| definitions.define(std::slice::from_ref(experiment))[0];
        let mut experiment = Experiment {
            name: "records".into(),
            arms: vec!["16 KiB".into(), "4 KiB".into()],
            advice: Vec::new(),
            metric: Metric::FirstByte,
            margin: 0.02,
            hosts: Vec::new(),
            share: 1.0,
        };
        let first = one(&experiment);
        experiment.advice = vec!["Keep it.".into()];
        assert_eq!(one(&experiment), first);
        assert_eq!(definitions.get(first).unwrap().advice, experiment.advice);
        experiment.arms[1] = "2 KiB".into();
        let second = one(&experiment);
        assert_ne!(first, second);
        assert!(definitions.ids() == [second] && !definitions.is_current(first));
        assert_eq!(*definitions.get(second).unwrap(), experiment);
        for number in 0..MOST_DEFINITIONS {
            experiment.margin = number as f64;
            one(&experiment);
        }
        experiment.margin = 0.5;
        assert_eq!(one(&experiment), NOT_COMPARED);
        assert_eq!(definitions.get(NOT_COMPARED), None);
    }
}

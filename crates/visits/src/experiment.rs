//! Experiments: settings drawn per connection, and the arms that connections got.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::metric::Metric;

/// Arms of one experiment.
pub const MOST_ARMS: usize = 8;
/// Experiments whose arms one visit can have.
pub const ARMS_OF_A_VISIT: usize = 4;
/// Definitions that one process remembers; each change of an experiment by a reload is one more.
const MOST_DEFINITIONS: usize = 1_000;

/// What is compared. Two experiments are different, even with the same name, unless they differ in advice, hosts and share alone.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Its name.
    pub name: Arc<str>,
    /// The arms, each with the value of the setting in its text. The first is the control. Eight at most count.
    pub arms: Vec<Arc<str>>,
    /// What to do to serve each of the arms, in a sentence. Where there is none the arm's text is to be written.
    pub advice: Vec<Arc<str>>,
    /// The metric that decides, [one that is compared](Metric::is_compared).
    pub metric: Metric,
    /// Relative differences up to this one do not matter: 0.02 is 2 %.
    pub margin: f64,
    /// Its hosts, by the names that visits have.
    pub hosts: Vec<Arc<str>>,
    /// Which part of the connections is drawn, from 0 to 1. Each arm gets as many of them as any other.
    pub share: f64,
}

impl PartialEq for Experiment {
    fn eq(&self, other: &Self) -> bool {
        let of = |one: &Self| (Arc::clone(&one.name), one.metric, one.margin.to_bits());
        of(self) == of(other) && self.arms == other.arms
    }
}

/// An experiment that the store knows, while the process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExperimentId(pub(crate) u16);

impl ExperimentId {
    /// Of an experiment that is not compared, as there are too many.
    pub(crate) const NONE: Self = Self(u16::MAX);
}

/// What a connection got in an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arm {
    /// The experiment.
    pub experiment: ExperimentId,
    /// The place of the arm in its list.
    pub arm: u8,
}

/// The arms of a visit, one for each experiment that its connection took part in; four at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Arms([Option<Arm>; ARMS_OF_A_VISIT]);

impl Arms {
    /// Adds an arm. Returns whether there was room.
    pub fn push(&mut self, arm: Arm) -> bool {
        let free = self.0.iter_mut().find(|place| place.is_none());
        free.map(|place| *place = Some(arm)).is_some()
    }

    /// The arm that the connection got in `experiment`, if it takes part.
    pub fn get(&self, experiment: ExperimentId) -> Option<u8> {
        self.iter().find(|arm| arm.experiment == experiment).map(|arm| arm.arm)
    }

    /// The same without those of other experiments than these.
    #[must_use]
    pub fn within(&self, experiments: &[ExperimentId]) -> Self {
        Self(self.0.map(|arm| arm.filter(|arm| experiments.contains(&arm.experiment))))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// The arms.
    pub fn iter(&self) -> impl Iterator<Item = Arm> + '_ {
        self.0.iter().filter_map(|arm| *arm)
    }
}

/// The experiments that this process has defined, by their ids.
#[derive(Debug, Default)]
pub(crate) struct Definitions(Mutex<Defined>);

#[derive(Debug, Default)]
struct Defined {
    /// With whether it is in the configuration.
    all: Vec<(Arc<Experiment>, bool)>,
    /// Whether a configuration has said which there are.
    is_known: bool,
}

impl Defined {
    /// Those in the configuration.
    fn current(&self) -> impl Iterator<Item = (ExperimentId, &Arc<Experiment>)> {
        let all = self.all.iter().enumerate().filter(|(_, (_, is_current))| *is_current);
        all.map(|(place, (experiment, _))| (ExperimentId(place as u16), experiment))
    }
}

impl Definitions {
    fn lock(&self) -> MutexGuard<'_, Defined> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ids of all `experiments` of the configuration: the same one for the same definition, as long as it stays there.
    pub(crate) fn define(&self, experiments: &[Experiment]) -> Vec<ExperimentId> {
        let mut defined = self.lock();
        defined.is_known = true;
        for (known, is_current) in &mut defined.all {
            *is_current = *is_current && experiments.contains(known);
        }
        experiments.iter().map(|experiment| defined.id(experiment)).collect()
    }

    /// The ids of those in the configuration.
    pub(crate) fn ids(&self) -> Vec<ExperimentId> {
        self.lock().current().map(|(id, _)| id).collect()
    }

    /// Whether it is in the configuration.
    pub(crate) fn is_current(&self, id: ExperimentId) -> bool {
        self.lock().all.get(usize::from(id.0)).is_some_and(|(_, is_current)| *is_current)
    }

    /// The experiment with this id.
    pub(crate) fn get(&self, id: ExperimentId) -> Option<Arc<Experiment>> {
        self.lock().all.get(usize::from(id.0)).map(|(experiment, _)| Arc::clone(experiment))
    }

    /// Whether a configuration has said which experiments there are.
    pub(crate) fn is_known(&self) -> bool {
        self.lock().is_known
    }

    /// The experiments of the configuration that this host takes part in.
    pub(crate) fn of_host(&self, host: &str) -> Vec<ExperimentId> {
        let defined = self.lock();
        let of_host = defined.current().filter(|(_, one)| one.hosts.iter().any(|name| **name == *host));
        of_host.map(|(id, _)| id).collect()
    }

    /// The experiment of the configuration that has this name and as many arms.
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
            self.all[place].0 = Arc::new(experiment.clone());
            return ExperimentId(place as u16);
        }
        if self.all.len() >= MOST_DEFINITIONS {
            tracing::warn!(
                experiment = %experiment.name,
                "not compared: experiments were changed {MOST_DEFINITIONS} times; restart brisk"
            );
            return ExperimentId::NONE;
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
        assert_eq!(one(&experiment), ExperimentId::NONE);
        assert_eq!(definitions.get(ExperimentId::NONE), None);
    }

    #[test]
    fn a_visit_has_four_arms_at_most() {
        let mut arms = Arms::default();
        let arm = |number| Arm { experiment: ExperimentId(number), arm: 1 };
        assert!((0..4).all(|number| arms.push(arm(number))));
        assert!(!arms.push(arm(4)));
        assert_eq!(arms.iter().count(), 4);
        assert_eq!([2, 4].map(|number| arms.get(ExperimentId(number))), [Some(1), None]);
        let within = arms.within(&[ExperimentId(2), ExperimentId(9)]);
        assert_eq!((within.iter().count(), within.get(ExperimentId(2))), (1, Some(1)));
        assert!(arms.within(&[]).is_empty() && !within.is_empty());
    }
}

//! Assignment of connections to arms of experiments, once per connection, when its host is known.
//!
//! The assignment depends only on the connection's number and a secret of the configuration, not on properties of the
//! client, so it cannot be used to recognize a visitor.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use brisk_net::Congestion;
use brisk_telemetry::Throttle;
use brisk_tls::Variant;
use brisk_visits::{Arm, Arms, ExperimentId, Visits};
use tokio::net::TcpStream;

use crate::experiments::{ExperimentSettings, Experiments, Values};

/// The [`Experiments`] of one configuration, by host.
#[derive(Debug)]
pub struct Draws {
    visits: Visits,
    /// Experiments by index of the host.
    hosts: Vec<Vec<(ExperimentId, Arc<ExperimentSettings>)>>,
    secret: RandomState,
}

/// Participation of one connection in experiments, from before its handshake until its settings are applied.
#[derive(Debug)]
pub struct Assignment<'d> {
    /// `None` for a connection outside of all experiments.
    draws: Option<&'d Draws>,
    connection: u64,
    drawn: RefCell<Drawn>,
}

impl<'d> Assignment<'d> {
    /// Creates the assignment of the connection with the number `connection`.
    pub fn new(draws: Option<&'d Draws>, connection: u64) -> Self {
        Self { draws, connection, drawn: RefCell::default() }
    }

    /// Draws the arms for the host with index `host`. Returns the [`Variant`] of the handshake; the default without
    /// experiments.
    pub fn draw(&self, host: usize) -> Variant {
        let Some(draws) = self.draws else { return Variant::default() };
        let drawn = draws.draw(self.connection, host);
        let variant = drawn.variant;
        self.drawn.replace(drawn);
        variant
    }

    /// Applies the settings of the socket and returns the [`Arms`]. If the socket refuses a setting, the connection leaves
    /// the experiment.
    pub fn apply(self, tcp: &TcpStream, warnings: &Throttle) -> Arms {
        let mut drawn = self.drawn.into_inner();
        if let Some((experiment, congestion)) = drawn.congestion.take()
            && let Err(error) = congestion.control(tcp)
        {
            drawn.leave(experiment);
            // Throttled, because each connection of the host would log it.
            if let Some(more) = warnings.pass() {
                tracing::warn!(%congestion, %error, more, "a connection takes no part in an experiment");
            }
        }
        drawn.arms
    }
}

/// Arms of one connection, and the settings that apply to the connection as a whole.
#[derive(Clone, Debug, Default)]
struct Drawn {
    arms: Arms,
    /// TLS settings.
    variant: Variant,
    /// Congestion control, and the experiment that sets it.
    congestion: Option<(ExperimentId, Congestion)>,
}

impl Draws {
    /// Prepares `experiments` for `hosts` hosts; `None` without experiments.
    pub fn new(experiments: &Experiments, hosts: usize, visits: &Visits) -> Option<Self> {
        let of_host = |host| experiments.of_host(host).map(|(id, one)| (id, Arc::clone(one))).collect();
        let hosts: Vec<Vec<_>> = (0..hosts).map(of_host).collect();
        let is_any = hosts.iter().any(|host| !host.is_empty());
        // Without experiments there is nothing to draw, and connections skip even the look-up of the host.
        is_any.then(|| Self { visits: visits.clone(), hosts, secret: RandomState::new() })
    }

    /// Draws the connection with this number for the host with index `place`.
    fn draw(&self, connection: u64, place: usize) -> Drawn {
        let mut drawn = Drawn::default();
        for (id, one) in self.hosts.get(place).into_iter().flatten() {
            // A decided experiment ends without a reload: connections are drawn until the decision is
            // known.
            if !self.visits.is_running(*id) {
                continue;
            }
            // With the name, so that the arms of two experiments are independent of each other.
            let number = self.secret.hash_one((connection, &one.experiment.name));
            // Without room for the arm the value must not apply: the visit would count as one of no arm.
            if let Some(arm) = arm(number, one.experiment.share, one.experiment.arms.len())
                && drawn.arms.push(Arm { setting: *id, value: arm })
            {
                drawn.give(*id, &one.values, usize::from(arm));
            }
        }
        drawn
    }
}

impl Drawn {
    /// Applies a value for the whole connection. Values for requests are looked up by arm per request.
    fn give(&mut self, id: ExperimentId, values: &Values, arm: usize) {
        // The control arm has no value: it keeps the configuration.
        let other = arm.checked_sub(1);
        match values {
            Values::Records(values) => {
                self.variant.records = other.and_then(|place| values.get(place)).copied();
            }
            Values::Tickets(values) => {
                self.variant.tickets = other.and_then(|place| values.get(place)).copied();
            }
            Values::Congestion(values) => {
                // Also for the control, so that all arms pass through the same system call.
                self.congestion = values.get(arm).map(|value| (id, value.clone()));
            }
            Values::EarlyHints(_) | Values::Level(..) => {}
        }
    }

    /// Removes the connection from an experiment whose value cannot be applied: it would otherwise be counted in the
    /// wrong arm.
    fn leave(&mut self, experiment: ExperimentId) {
        let others: Vec<_> = self.arms.iter().map(|arm| arm.setting).filter(|id| *id != experiment).collect();
        self.arms = self.arms.within(&others);
    }
}

/// The arm for a random number; `None` if the number is outside of the share.
fn arm(number: u64, share: f64, arms: usize) -> Option<u8> {
    // 53 bits, the precision of `f64`, so that every quotient is exact and below 1.
    let drawn = (number >> 11) as f64 / (1_u64 << 53) as f64;
    if drawn >= share {
        return None;
    }
    let arm = (drawn / share * arms as f64) as usize;
    // `drawn / share` may be rounded up to 1.
    u8::try_from(arm.min(arms.saturating_sub(1))).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use brisk_tls::settings::Records;
    use brisk_visits::{Experiment, Metric, Settings};

    use super::*;
    use crate::ExperimentSettings;

    fn experiment(name: &str, share: f64, hosts: &[usize], values: Values) -> ExperimentSettings {
        ExperimentSettings {
            experiment: Experiment {
                name: name.into(),
                arms: ["0", "1", "2"].map(Into::into).to_vec(),
                advice: Vec::new(),
                metric: Metric::FirstByte,
                margin: 0.02,
                hosts: Vec::new(),
                share,
            },
            hosts: hosts.to_vec(),
            values,
        }
    }

    fn draws(all: Vec<ExperimentSettings>, hosts: usize, visits: &Visits) -> Option<Draws> {
        let experiments = Experiments::new(all);
        assert!(Draws::new(&experiments, hosts, visits).is_none(), "not defined yet");
        experiments.define(visits);
        assert!(visits.flush(Duration::from_mins(1)));
        Draws::new(&experiments, hosts, visits)
    }

    #[test]
    fn arms_are_equally_likely_within_the_share_and_independent_of_one_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let visits = Visits::open(folder.path(), Settings::default()).expect("a store");
        let tickets = Values::Tickets(vec![2, 4]);
        let records = Values::Records(vec![Records::Full, Records::Full]);
        let all = vec![experiment("a", 0.6, &[0, 1], tickets), experiment("b", 1.0, &[1], records)];
        let draws = draws(all, 3, &visits).expect("experiments");
        let (mut counts, mut both) = ([0; 4], [[0; 3]; 3]);
        for connection in 0..30_000 {
            let drawn = draws.draw(connection, 1);
            let again = draws.draw(connection, 1);
            assert_eq!((drawn.arms, drawn.variant), (again.arms, again.variant));
            let arms: Vec<_> = drawn.arms.iter().map(|arm| usize::from(arm.value)).collect();
            if let [first, second] = arms[..] {
                both[first][second] += 1;
            }
            let first = if arms.len() == 2 { arms[0] } else { 3 };
            counts[first] += 1;
            assert_eq!(drawn.variant.tickets, [None, Some(2), Some(4), None][first]);
            assert_eq!(drawn.variant.records.is_some(), arms.last().is_some_and(|arm| *arm > 0));
        }
        for count in &counts[..3] {
            assert!((5_600..6_400).contains(count), "{counts:?}");
        }
        for count in both.as_flattened() {
            assert!((1_800..2_200).contains(count), "{both:?}");
        }
        assert!((0..100).all(|number| draws.draw(number, 2).arms.is_empty()), "of no experiment");
    }

    #[test]
    fn nothing_is_drawn_where_nothing_is_kept() {
        let all = vec![experiment("a", 1.0, &[0], Values::Tickets(vec![2, 4]))];
        let draws = draws(all, 1, &Visits::off()).expect("experiments");
        assert!((0..100).all(|number| draws.draw(number, 0).arms.is_empty()));
    }

    #[test]
    fn a_connection_leaves_one_experiment_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let visits = Visits::open(folder.path(), Settings::default()).expect("a store");
        let all = ["a", "b"].map(|name| experiment(name, 1.0, &[0], Values::EarlyHints(vec![true, false])));
        let draws = draws(all.to_vec(), 1, &visits).expect("experiments");
        let mut drawn = draws.draw(1, 0);
        let first = drawn.arms.iter().next().expect("an arm").setting;
        drawn.leave(first);
        assert_eq!((drawn.arms.iter().count(), drawn.arms.get(first)), (1, None));
    }
    #[test]
    fn hosts_have_the_settings_of_their_experiments_and_their_field_of_the_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let visits = Visits::open(folder.path(), Settings::default()).expect("a store");
        let experiments =
            Experiments::new(vec![experiment("a", 1.0, &[1], Values::EarlyHints(vec![true, false]))]);
        assert!(experiments.variants(1).is_empty(), "not defined yet");
        experiments.define(&visits);
        assert!(experiments.variants(0).is_empty(), "of no experiment");
        let variants = experiments.variants(1);
        let (id, _) = experiments.of_host(1).next().expect("an experiment");
        let mut arms = Arms::default();
        assert!(arms.push(Arm { setting: id, value: 2 }));
        assert_eq!(variants.early_hints(Some(&arms)), Some(false));
        let labels = variants.labels(&arms);
        assert_eq!((labels.field, &*labels.pairs), ("experiments", &[("a".into(), "2".into())][..]));
    }
}

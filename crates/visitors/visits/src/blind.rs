//! Causes for which an experiment has no visits to compare although its hosts have visitors, with their remedies.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::agent::Browser;
use crate::experiment::{Experiment, ExperimentId};
use crate::kinds::Connection;
use crate::metric::{METRICS, Metric};
use crate::sequential::FEWEST;
use crate::visit::Visit;

/// Page views from which the absence of a kind is significant for [`Sight::blindness`].
const ENOUGH: u64 = 100;
/// Expected number of visits in the [`Experiment`] from which their absence is significant.
const EXPECTED: f64 = 50.0;
/// A count below `1 / FAR_FEWER` of the expected one is reported.
const FAR_FEWER: u64 = 10;
/// Time without visits of a host before [`Blindness::Unmeasured`] is logged.
const SILENCE: Duration = Duration::from_hours(1);

/// Page views of the hosts of an experiment since this process knows the experiment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sight {
    measured: u64,
    /// Page views by humans whose navigation opened the connection.
    opened: u64,
    /// Page views in `opened` whose connection has an arm of the experiment.
    counted: u64,
}

/// Number of visits by [`Metric`], of all arms.
pub(crate) type ByMetric = [u64; METRICS];

/// Cause for which an [`Experiment`] has no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blindness {
    /// No page of the experiment's hosts sends measurements.
    Unmeasured,
    /// All page views use connections that were open already.
    Reused,
    /// No connection is assigned to an arm.
    NotDrawn,
    /// Almost all visitors share a few addresses.
    FewAddresses,
    /// Browsers do not report [`Experiment::metric`].
    NoMetric,
}

impl Sight {
    /// Counts a visit to one of the hosts of `experiment`.
    pub(crate) fn count(&mut self, visit: &Visit, experiment: ExperimentId) {
        self.measured += 1;
        if visit.connection != Connection::Reused && visit.browser != Browser::Robot {
            self.opened += 1;
            self.counted += u64::from(visit.assigned.get(experiment).is_some());
        }
    }

    /// The cause for which `experiment` cannot be decided, from its stored visits by metric; `None` if there is none.
    pub(crate) fn blindness(&self, experiment: &Experiment, by_metric: &ByMetric) -> Option<Blindness> {
        let stored = by_metric.iter().copied().max().unwrap_or_default();
        let expected = self.opened as f64 * experiment.share;
        if stored >= FEWEST * experiment.arms.len() as u64 {
            // With enough visits stored, only their metric can be missing.
            let is_rare = by_metric[experiment.metric as usize] * FAR_FEWER < stored;
            return is_rare.then_some(Blindness::NoMetric);
        }
        match self {
            // The counts here begin with the process, and the stored visits with the experiment: after a
            // restart, these show that pages are measured.
            Self { measured: 0, .. } => (stored == 0).then_some(Blindness::Unmeasured),
            Self { measured, opened: 0, .. } => (*measured >= ENOUGH).then_some(Blindness::Reused),
            Self { counted: 0, .. } => (expected >= EXPECTED).then_some(Blindness::NotDrawn),
            _ => {
                let most = self.counted as f64 * FAR_FEWER as f64;
                (expected >= EXPECTED * FAR_FEWER as f64 && most < expected)
                    .then_some(Blindness::FewAddresses)
            }
        }
    }

    /// The cause as text, with the remedy.
    pub(crate) fn words(
        &self,
        blindness: Blindness,
        experiment: &Experiment,
        by_metric: &ByMetric,
    ) -> String {
        let Self { measured, opened, counted } = self;
        match blindness {
            Blindness::Unmeasured => {
                "Nothing to compare: no page view of its hosts was measured yet. If they have visitors, \
                 brisk_beacon_scripts_total says whether pages get the script, and brisk_beacons_refused_total why \
                 beacons were dropped."
                    .to_owned()
            }
            Blindness::Reused => format!(
                "Nothing to compare: {measured} page views came on connections that were open already, and only those count \
                 that open one. What is before brisk keeps connections to it open: compare where the connections of visitors \
                 end."
            ),
            Blindness::NotDrawn => format!(
                "Nothing to compare: of {opened} page views that opened their connection none counts. Connections of \
                 trusted_proxies are drawn if the PROXY protocol names their client: have it sent, and write proxy_protocol \
                 under [server]."
            ),
            Blindness::FewAddresses => format!(
                "Little to compare: of {opened} page views that opened their connection {counted} count, as of one address one \
                 counts in ten minutes. If these are addresses of proxies, have them send the PROXY protocol, and write \
                 proxy_protocol under [server]."
            ),
            Blindness::NoMetric => {
                let (metric, all) = (experiment.metric, by_metric.iter().max().copied().unwrap_or_default());
                let of = |metric: &Metric| by_metric[*metric as usize];
                let others = Metric::ALL.iter().filter(|one| one.is_compared() && of(one) * 2 > all);
                let others: Vec<_> = others.map(|one| format!("{one} of {}", of(one))).collect();
                format!(
                    "Little to compare: {} of {all} visits have {metric}, and pages of the others do not report it. They have {}: \
                     write another `metric`, which begins the experiment anew.",
                    of(&metric),
                    others.join(", ")
                )
            }
        }
    }
}

/// The last [`Blindness`] logged for each experiment, with the time.
#[derive(Debug, Default)]
pub(crate) struct Said(HashMap<ExperimentId, (Instant, Option<Blindness>)>);

impl Said {
    /// Whether to log at `now` that an experiment has no data: once per cause, and for missing visits only after
    /// [`SILENCE`].
    pub(crate) fn is_news(&mut self, id: ExperimentId, found: Option<Blindness>, now: Instant) -> bool {
        let (since, last) = self.0.entry(id).or_insert((now, None));
        let is_early = found == Some(Blindness::Unmeasured) && now.duration_since(*since) < SILENCE;
        if is_early || *last == found {
            return false;
        }
        *last = found;
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Arm;

    const ID: ExperimentId = ExperimentId(3);

    fn experiment(metric: Metric, share: f64) -> Experiment {
        Experiment {
            name: "records".into(),
            arms: vec!["16 KiB".into(), "4 KiB".into()],
            advice: Vec::new(),
            metric,
            margin: 0.02,
            hosts: vec!["a".into()],
            share,
        }
    }

    fn sight(visits: u64, of: impl Fn(&mut Visit)) -> Sight {
        let mut sight = Sight::default();
        for _ in 0..visits {
            let mut visit = Visit::new("a".into(), "/".into());
            visit.connection = Connection::New;
            of(&mut visit);
            sight.count(&visit, ID);
        }
        sight
    }

    fn by_metric(of: &[(Metric, u64)]) -> ByMetric {
        let mut counts = [0; METRICS];
        for (metric, count) in of {
            counts[*metric as usize] = *count;
        }
        counts
    }

    #[test]
    fn what_keeps_visits_from_being_compared_is_found() {
        let none = by_metric(&[]);
        let half = experiment(Metric::FirstByte, 0.5);
        let reused = |visit: &mut Visit| visit.connection = Connection::Reused;
        let drawn = |visit: &mut Visit| assert!(visit.assigned.push(Arm { setting: ID, value: 1 }));
        let robot = |visit: &mut Visit| visit.browser = Browser::Robot;
        for (sight, expected) in [
            (sight(0, |_| ()), Some(Blindness::Unmeasured)),
            (sight(99, reused), None),
            (sight(100, reused), Some(Blindness::Reused)),
            (sight(100, robot), Some(Blindness::Reused)),
            (sight(99, |_| ()), None),
            (sight(100, |_| ()), Some(Blindness::NotDrawn)),
            (sight(1, drawn), None),
            (sight(100, drawn), None),
        ] {
            assert_eq!(sight.blindness(&half, &none), expected, "{sight:?}");
        }
        let few = Sight { measured: 2_000, opened: 1_000, counted: 49 };
        assert_eq!(few.blindness(&half, &none), Some(Blindness::FewAddresses));
        assert_eq!(Sight { counted: 50, ..few }.blindness(&half, &none), None);
        let rare = experiment(Metric::FirstByte, 0.001);
        assert_eq!(sight(1_000, |_| ()).blindness(&rare, &none), None, "there need not be any yet");
        // From before the process was started.
        assert_eq!(Sight::default().blindness(&half, &by_metric(&[(Metric::FirstByte, 3)])), None);
    }

    #[test]
    fn a_metric_that_browsers_do_not_report_is_found_with_those_that_they_do() {
        let paint = experiment(Metric::LargestPaint, 1.0);
        let (sight, wait) = (Sight { measured: 600, opened: 600, counted: 600 }, (Metric::FirstByte, 600));
        let counts = |paints| by_metric(&[wait, (Metric::Load, 580), (Metric::LargestPaint, paints)]);
        assert_eq!(sight.blindness(&paint, &counts(60)), None);
        let found = counts(59);
        assert_eq!(sight.blindness(&paint, &found), Some(Blindness::NoMetric));
        let text = sight.words(Blindness::NoMetric, &paint, &found);
        let start = "Little to compare: 59 of 600 visits have lcp, and pages of the others do not report it. They have ttfb of \
                     600, load of 580: write";
        assert!(text.starts_with(start), "{text}");
        assert_eq!(sight.blindness(&experiment(Metric::FirstByte, 1.0), &found), None);
    }

    #[test]
    fn each_cause_is_said_once() {
        let (mut said, begin) = (Said::default(), Instant::now());
        let unmeasured = Some(Blindness::Unmeasured);
        assert!(!said.is_news(ID, unmeasured, begin));
        assert!(!said.is_news(ID, unmeasured, begin + SILENCE / 2));
        assert!(said.is_news(ID, unmeasured, begin + SILENCE));
        assert!(!said.is_news(ID, unmeasured, begin + 2 * SILENCE));
        assert!(said.is_news(ID, Some(Blindness::Reused), begin + 2 * SILENCE));
        assert!(!said.is_news(ID, None, begin + 2 * SILENCE));
        assert!(said.is_news(ID, Some(Blindness::Reused), begin + 2 * SILENCE), "again, after it was over");
    }
}

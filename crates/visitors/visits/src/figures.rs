//! Metrics of visits. A scraper can add up the series of several gateways.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brisk_telemetry::metrics::{Collector, Encoder, Histogram};

use crate::agent::Browser;
use crate::blind::Sight;
use crate::experiment::{Definitions, ExperimentId};
use crate::kinds::Connection;
use crate::metric::Metric;
use crate::sequential::Decision;
use crate::shared::Shared;
use crate::visit::Visit;

/// Number of hosts with series of their own; all other hosts share one, so that a scrape stays bounded.
const MOST_HOSTS: usize = 200;

/// Counters since the start of the process. The writer thread increments them, and a scrape reads them.
#[derive(Debug, Default)]
pub(crate) struct Figures(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    hosts: BTreeMap<Arc<str>, [OfHost; CONNECTIONS.len()]>,
    arms: BTreeMap<(ExperimentId, u8), OfArm>,
    /// Page views for each configured experiment since [`Definitions::define`] added it.
    sights: BTreeMap<ExperimentId, Sight>,
}

/// Values of the `connection` label.
const CONNECTIONS: [&str; 4] = ["unknown", "full", "resumed", "reused"];

#[derive(Debug, Default)]
struct OfHost {
    visits: u64,
    first_byte: Histogram,
    largest_paint: Histogram,
    interaction: Histogram,
}

#[derive(Debug)]
struct OfArm {
    experiment: Arc<str>,
    arm: Arc<str>,
    time: Histogram,
}

fn connection(visit: &Visit) -> usize {
    match (visit.connection, visit.session.is_resumed()) {
        (Connection::Reused, _) => 3,
        (_, Some(resumed)) => 1 + usize::from(resumed),
        (_, None) => 0,
    }
}

fn observe(histogram: &Histogram, visit: &Visit, metric: Metric) {
    if let Some(ms) = visit.measures.get(metric) {
        histogram.observe(Duration::from_secs_f64(ms / 1_000.0));
    }
}

impl Figures {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the arms of experiments that are no longer configured.
    pub(crate) fn forget_arms(&self, definitions: &Definitions) {
        let mut counts = self.counts();
        counts.arms.retain(|(experiment, _), _| definitions.is_current(*experiment));
        counts.sights.retain(|experiment, _| definitions.is_current(*experiment));
    }

    /// Page views of the hosts of an experiment, for [`Sight::blindness`].
    pub(crate) fn sight(&self, experiment: ExperimentId) -> Sight {
        self.counts().sights.get(&experiment).copied().unwrap_or_default()
    }

    /// Counts a visit.
    pub(crate) fn count(&self, visit: &Visit, definitions: &Definitions) {
        let mut counts = self.counts();
        let is_known = counts.hosts.contains_key(&visit.host) || counts.hosts.len() < MOST_HOSTS;
        let host = if is_known { Arc::clone(&visit.host) } else { "other".into() };
        let figures = &mut counts.hosts.entry(host).or_default()[connection(visit)];
        figures.visits += 1;
        observe(&figures.first_byte, visit, Metric::FirstByte);
        observe(&figures.largest_paint, visit, Metric::LargestPaint);
        observe(&figures.interaction, visit, Metric::Interaction);
        // Other views are of a page whose load has been counted.
        let loads = visit.navigation.is_load().then(|| definitions.of_host(&visit.host));
        for experiment in loads.into_iter().flatten() {
            counts.sights.entry(experiment).or_default().count(visit, experiment);
        }
        // As in `Gathered::add_to_arms`: an arm is of the connection, whose later visits are not
        // independent of the first.
        if visit.connection != Connection::Reused && visit.browser != Browser::Robot {
            counts.count_arms(visit, definitions);
        }
    }
}

impl Counts {
    fn count_arms(&mut self, visit: &Visit, definitions: &Definitions) {
        for arm in visit.assigned.iter().filter(|arm| definitions.is_current(arm.setting)) {
            let Some(experiment) = definitions.get(arm.setting) else { continue };
            let Some(name) = experiment.arms.get(usize::from(arm.value)) else { continue };
            let figures = self.arms.entry((arm.setting, arm.value)).or_insert_with(|| OfArm {
                experiment: Arc::clone(&experiment.name),
                arm: Arc::clone(name),
                time: Histogram::default(),
            });
            observe(&figures.time, visit, experiment.metric);
        }
    }
}

/// [`Collector`] of [`Figures`] and decisions.
#[derive(Debug)]
pub(crate) struct VisitsCollector(pub(crate) Arc<Shared>);

impl Collector for VisitsCollector {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let shared = &self.0;
        let mut family = page.counter("visits_dropped", "Measured page views that were lost.")?;
        family.counter(&[], shared.dropped.load(Ordering::Relaxed))?;
        let mut family = page.bytes_gauge("visits_store", "Size of the database of visits.")?;
        family.gauge(&[], shared.bytes.load(Ordering::Relaxed))?;
        let mut family = page.gauge("visits_store_failing", "1 if visits cannot be stored, otherwise 0.")?;
        let is_failing = shared.error.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        family.gauge(&[], u64::from(is_failing))?;
        let counts = shared.figures.counts();
        let mut family = page.counter("visits", "Measured page views.")?;
        for (host, connection, figures) in counts.series() {
            family.counter(&[("host", host), ("connection", connection)], figures.visits)?;
        }
        for (name, help, of) in HISTOGRAMS {
            let mut family = page.seconds(name, help)?;
            for (host, connection, figures) in counts.series() {
                family.durations(&[("host", host), ("connection", connection)], of(figures))?;
            }
        }
        counts.write_arms(page)?;
        drop(counts);
        decisions(shared, page)
    }
}

/// The [`Decision`]s on configured experiments, one series each.
fn decisions(shared: &Shared, page: &mut Encoder<'_, '_>) -> fmt::Result {
    let help = "1 for what each experiment of the configuration has shown, with the arm to be written into the configuration; \
                until then the control is served.";
    let mut family = page.gauge("experiment_decision", help)?;
    let decisions = shared.decisions.load();
    for id in shared.definitions.ids() {
        let Some(experiment) = shared.definitions.get(id) else { continue };
        // Not known until the database has been read; no connection takes part before.
        let Some(decision) = decisions.get(&id) else { continue };
        let (decision, arm) = match decision {
            None => ("go-on", None),
            Some(Decision::Better { arm, .. }) => ("better", Some(*arm)),
            Some(Decision::ControlBetter { .. }) => ("control-better", Some(0)),
            Some(Decision::NoDifference { .. }) => ("no-difference", Some(0)),
        };
        let arm = arm.and_then(|arm| experiment.arms.get(usize::from(arm))).map(|arm| ("arm", &**arm));
        let labels = [("experiment", &*experiment.name), ("decision", decision)];
        let labels: Vec<_> = labels.into_iter().chain(arm).collect();
        family.gauge(&labels, 1_u64)?;
    }
    Ok(())
}

type Of = fn(&OfHost) -> &Histogram;

const HISTOGRAMS: [(&str, &str, Of); 3] = [
    ("visit_first_byte", "Time to first byte as pages measured it.", |figures| &figures.first_byte),
    ("visit_largest_paint", "Largest Contentful Paint as pages measured it.", |figures| {
        &figures.largest_paint
    }),
    ("visit_interaction", "Interaction to Next Paint as pages measured it.", |figures| &figures.interaction),
];

impl Counts {
    fn series(&self) -> impl Iterator<Item = (&str, &'static str, &OfHost)> {
        self.hosts.iter().flat_map(|(host, of_host)| {
            let all = CONNECTIONS.into_iter().zip(of_host);
            let counted = all.filter(|(_, figures)| figures.visits > 0);
            counted.map(|(connection, figures)| (&**host, connection, figures))
        })
    }

    fn write_arms(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let mut family = page.seconds("experiment", "The time that decides, by arm of the experiment.")?;
        for figures in self.arms.values() {
            family
                .durations(&[("experiment", &*figures.experiment), ("arm", &*figures.arm)], &figures.time)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use brisk_telemetry::Metrics;

    use super::*;
    use crate::experiment::{Arm, Experiment};
    use crate::{Session, Settings, Visits};

    fn page(visits: impl IntoIterator<Item = Visit>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let store = Visits::open(folder.path(), Settings::default()).unwrap();
        let experiment = Experiment {
            name: "records".into(),
            arms: vec!["16 KiB".into(), "4 KiB".into()],
            advice: Vec::new(),
            metric: Metric::FirstByte,
            margin: 0.02,
            hosts: Vec::new(),
            share: 1.0,
        };
        let ids = store.define(&[experiment]);
        for mut visit in visits {
            visit.assigned.push(Arm { setting: ids[0], value: 1 });
            store.record(visit);
        }
        assert!(store.flush(Duration::from_mins(1)));
        let metrics = Metrics::new();
        metrics.register(store.collector().unwrap());
        metrics.render()
    }

    fn visit(host: &str, session: Session) -> Visit {
        let mut visit = Visit::new(host.into(), "/".into());
        visit.session = session;
        visit.measures.set(Metric::FirstByte, 150.0);
        visit
    }

    #[test]
    fn visits_are_on_the_page_by_host_and_connection() {
        let mut reused = visit("a", Session::Psk);
        reused.connection = Connection::Reused;
        let page = page([
            visit("a", Session::Psk),
            visit("a", Session::Expired),
            visit("b", Session::Unknown),
            reused,
        ]);
        for line in [
            "brisk_visits_total{host=\"a\",connection=\"resumed\"} 1",
            "brisk_visits_total{host=\"a\",connection=\"full\"} 1",
            "brisk_visits_total{host=\"a\",connection=\"reused\"} 1",
            "brisk_visits_total{host=\"b\",connection=\"unknown\"} 1",
            "brisk_visit_first_byte_seconds_bucket{le=\"0.2\",host=\"b\",connection=\"unknown\"} 1",
            "brisk_visit_largest_paint_seconds_count{host=\"b\",connection=\"unknown\"} 0",
            "brisk_experiment_seconds_count{experiment=\"records\",arm=\"4 KiB\"} 3",
            "brisk_experiment_decision{experiment=\"records\",decision=\"go-on\"} 1",
            "brisk_visits_dropped_total 0",
            "brisk_visits_store_failing 0",
        ] {
            assert!(page.lines().any(|found| found == line), "no line {line} in\n{page}");
        }
    }

    #[test]
    fn experiments_that_are_gone_have_no_series() {
        let folder = tempfile::tempdir().unwrap();
        let store = Visits::open(folder.path(), Settings::default()).unwrap();
        let experiment = |arm: &str| Experiment {
            name: "records".into(),
            arms: vec!["16 KiB".into(), arm.into()],
            advice: Vec::new(),
            metric: Metric::FirstByte,
            margin: 0.02,
            hosts: Vec::new(),
            share: 1.0,
        };
        let metrics = Metrics::new();
        metrics.register(store.collector().unwrap());
        let count = |id| {
            let mut visit = visit("a", Session::Psk);
            visit.assigned.push(Arm { setting: id, value: 1 });
            store.record(visit);
            assert!(store.flush(Duration::from_mins(1)));
            let page = metrics.render();
            let counts = page.lines().filter(|line| line.starts_with("brisk_experiment_seconds_count"));
            counts.map(str::to_owned).collect::<Vec<_>>()
        };
        let line =
            |arm: &str| format!("brisk_experiment_seconds_count{{experiment=\"records\",arm=\"{arm}\"}} 1");
        let first = store.define(&[experiment("4 KiB")])[0];
        assert_eq!(count(first), [line("4 KiB")]);
        let second = store.define(&[experiment("2 KiB")])[0];
        assert_eq!(count(first), [""; 0], "it takes no more");
        assert_eq!(count(second), [line("2 KiB")]);
    }

    #[test]
    fn hosts_beyond_the_limit_are_one() {
        let page = page((0..MOST_HOSTS + 10).map(|number| visit(&format!("host{number}"), Session::Psk)));
        assert!(page.contains("brisk_visits_total{host=\"other\",connection=\"resumed\"} 10\n"));
    }

    #[test]
    fn every_metric_is_documented() {
        let documentation = include_str!("../../../../docs/metrics.md");
        let page = page([visit("a", Session::Psk)]);
        let names = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let names: BTreeSet<_> = names.filter_map(|line| line.split_once(' ')).collect();
        let of_visits =
            names.iter().filter(|(name, _)| name.contains("visit") || name.contains("experiment"));
        let mut checked = 0;
        for (name, kind) in of_visits {
            let shown = if *kind == "counter" { format!("{name}_total") } else { (*name).to_owned() };
            assert!(
                documentation.contains(&format!("| `{shown}` | {kind} |")),
                "{shown} is not in docs/metrics.md"
            );
            checked += 1;
        }
        assert_eq!(checked, 9);
    }
}

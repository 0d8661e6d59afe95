//! Decisions on experiments, made once when the figures allow it, and stored.

use std::collections::HashMap;

use rusqlite::{Transaction, TransactionBehavior, params};

use super::Store;
use crate::blind::ByMetric;
use crate::error::VisitsError;
use crate::experiment::{Definitions, Experiment, ExperimentId, MOST_ARMS};
use crate::gather::ArmSums;
use crate::metric::METRICS;
use crate::sequential::{Decision, decide};
use crate::shared::Decisions;

/// [`Decisions`] on the configured experiments, with their visits by metric.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    pub(crate) decisions: Decisions,
    pub(crate) by_metric: HashMap<ExperimentId, ByMetric>,
}

impl Store {
    /// Returns the decisions on the configured experiments, and makes those that are possible at `now`. Decisions in
    /// `before` remain valid if the database was lost.
    pub(crate) fn decide(
        &mut self,
        definitions: &Definitions,
        before: &Decisions,
        now: i64,
    ) -> Result<Decided, VisitsError> {
        let mut decided = Decided::default();
        if !definitions.is_known() {
            return Ok(decided);
        }
        let ids = definitions.ids();
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let names = &mut self.names;
        let all = || -> Result<(), VisitsError> {
            // Repeated at every call: a process that is shutting down may have restored some of them.
            names.end_experiments(&transaction, definitions, now)?;
            for id in ids {
                let number = names.go_on(&transaction, id, definitions, now)?;
                let Some(experiment) = definitions.get(id).filter(|_| number != 0) else { continue };
                let known = before.get(&id).copied().flatten();
                let (sums, by_metric) = sums(&transaction, number, &experiment)?;
                decided.by_metric.insert(id, by_metric);
                decided
                    .decisions
                    .insert(id, decision(&transaction, number, &sums, experiment.margin, known, now)?);
            }
            Ok(())
        };
        let done = all().and_then(|()| Ok(transaction.commit()?));
        if done.is_err() {
            self.names.forget();
        }
        done.map(|()| decided)
    }
}

fn decision(
    transaction: &Transaction<'_>,
    number: u16,
    sums: &[ArmSums],
    margin: f64,
    known: Option<Decision>,
    now: i64,
) -> Result<Option<Decision>, VisitsError> {
    let text = "SELECT decision FROM experiment WHERE id = ?";
    let decided: Option<String> = transaction.prepare_cached(text)?.query_row([number], |row| row.get(0))?;
    // A stored decision is final: since then no connection has been drawn, so the sums have no new
    // information.
    if let Some(decision) = decided.as_deref().and_then(Decision::from_text) {
        return Ok(Some(decision));
    }
    let decision = match known {
        Some(known) => Some(known),
        None => decide(sums, margin),
    };
    if let Some(decision) = decision {
        let text = "UPDATE experiment SET decided = ?, decision = ? WHERE id = ?";
        transaction.prepare_cached(text)?.execute(params![now, decision.to_text(), number])?;
    }
    Ok(decision)
}

/// Sums of each arm of an experiment for its metric, and the number of visits by metric.
fn sums(
    transaction: &Transaction<'_>,
    number: u16,
    experiment: &Experiment,
) -> Result<(Vec<ArmSums>, ByMetric), VisitsError> {
    let mut arms = vec![ArmSums::default(); experiment.arms.len().min(MOST_ARMS)];
    let mut by_metric = [0; METRICS];
    let text = "SELECT arm, metric, visits, sum, squares FROM arm WHERE experiment = ?";
    let mut statement = transaction.prepare_cached(text)?;
    let mut found = statement.query([number])?;
    while let Some(row) = found.next()? {
        // Skips rows with invalid numbers.
        let (Ok(arm), Ok(metric)) = (row.get::<_, u8>(0), row.get::<_, u8>(1)) else { continue };
        let visits = row.get::<_, i64>(2)? as u64;
        if let Some(all) = by_metric.get_mut(usize::from(metric)) {
            *all += visits;
        }
        if let Some(arm) = arms.get_mut(usize::from(arm)).filter(|_| metric == experiment.metric as u8) {
            *arm = ArmSums { visits, sum: row.get(3)?, squares: row.get(4)? };
        }
    }
    Ok((arms, by_metric))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use crate::experiment::Arm;
    use crate::metric::Metric;
    use crate::random::Random;
    use crate::visit::Visit;
    use crate::{Settings, Visits};

    const LONG: Duration = Duration::from_mins(1);

    fn experiment(name: &str) -> Experiment {
        Experiment {
            name: name.into(),
            arms: vec!["16 KiB".into(), "4 KiB".into()],
            advice: vec!["Keep 16 KiB.".into(), "Write 4 KiB.".into()],
            metric: Metric::FirstByte,
            margin: 0.01,
            hosts: Vec::new(),
            share: 1.0,
        }
    }

    /// Visits whose second arm takes `factor` of the time of the first.
    fn record(visits: &Visits, id: ExperimentId, factor: f64, random: &mut Random) {
        for _ in 0..2_000 {
            let arm = random.below(2) as u8;
            let mut visit = Visit::new("example.com".into(), "/".into());
            let ms = 100.0 * (0.5 + random.unit()) * if arm == 1 { factor } else { 1.0 };
            visit.measures.set(Metric::FirstByte, ms);
            visit.assigned.push(Arm { setting: id, value: arm });
            visits.record(visit);
        }
        assert!(visits.flush(LONG), "{:?}", visits.status());
    }

    fn open(folder: &Path) -> (Visits, ExperimentId, ExperimentId) {
        let visits = Visits::open(folder, Settings::default()).unwrap();
        let ids = visits.define(&[experiment("records"), experiment("hints")]);
        (visits, ids[0], ids[1])
    }

    #[test]
    fn a_decision_is_made_by_itself_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let mut random = Random::seeded(5);
        let (visits, records, hints) = open(folder.path());
        assert!(visits.flush(LONG));
        assert_eq!(visits.decision(records), None);
        assert!(visits.is_running(records) && visits.is_running(hints));
        record(&visits, records, 0.8, &mut random);
        record(&visits, hints, 1.0, &mut random);
        let decided = visits.decision(records);
        let Some(Decision::Better { arm: 1, by }) = decided else { panic!("{decided:?}") };
        assert!(by.low < -0.2 && by.high > -0.2 && by.high < 0.0, "{by:?}");
        assert_eq!(visits.decision(hints), None, "equal arms go on");
        assert!(!visits.is_running(records) && visits.is_running(hints));
        // What comes later, or a restart, does not change it.
        record(&visits, records, 2.0, &mut random);
        assert_eq!(visits.decision(records), decided);
        let reports = visits.reader().unwrap().experiments().unwrap();
        let report = reports.iter().find(|report| report.name == "records").unwrap();
        assert_eq!((report.decision, report.arms.len()), (decided, 2));
        assert!(report.decided.is_some() && report.text.contains("is better than"), "{}", report.text);
        assert_eq!(report.advice.as_deref(), Some("Write 4 KiB."));
        drop(visits);
        let (visits, records, hints) = open(folder.path());
        assert!(visits.flush(LONG));
        assert_eq!((visits.decision(records), visits.decision(hints)), (decided, None));
    }

    #[test]
    fn what_an_experiment_cannot_see_is_in_its_report() {
        let folder = tempfile::tempdir().unwrap();
        let visits = Visits::open(folder.path(), Settings::default()).unwrap();
        let of = |name: &str, metric, host: &str| Experiment {
            metric,
            hosts: vec![host.into()],
            ..experiment(name)
        };
        let paint = of("paint", Metric::LargestPaint, "example.com");
        let all = [
            paint.clone(),
            of("wait", Metric::Wait, "example.com"),
            of("other", Metric::Load, "other.example"),
        ];
        let ids = visits.define(&all);
        assert!(visits.flush(LONG));
        let text = |name: &str| {
            let reports = visits.reader().unwrap().experiments().unwrap();
            reports.into_iter().find(|report| report.name == name).unwrap().text
        };
        let no_views = "Nothing to compare: no page view of its hosts was measured yet.";
        assert!(text("paint").starts_with(no_views) && text("other").starts_with(no_views));
        // All of them have TTFB alone, and one experiment gets none of them.
        record(&visits, ids[0], 1.0, &mut Random::seeded(3));
        let expected = "Little to compare: 0 of 2000 visits have lcp, and pages of the others do not report it. They have ttfb of 2000: ";
        assert!(text("paint").starts_with(expected), "{}", text("paint"));
        let expected = "Nothing to compare: of 2000 page views that opened their connection none counts.";
        assert!(text("wait").starts_with(expected), "{}", text("wait"));
        assert!(text("other").starts_with(no_views), "{}", text("other"));
        // It begins anew with what pages report.
        let again = visits.define(&[Experiment { metric: Metric::FirstByte, ..paint }]);
        assert!(visits.flush(LONG));
        record(&visits, again[0], 1.0, &mut Random::seeded(3));
        assert_eq!(text("paint"), "Go on: nothing is decided yet.");
    }

    #[test]
    fn a_decision_outlives_the_loss_of_its_database() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("visits");
        let (visits, records, hints) = open(&inside);
        record(&visits, records, 0.8, &mut Random::seeded(5));
        let decided = visits.decision(records);
        assert!(decided.is_some());
        std::fs::remove_dir_all(&inside).unwrap();
        assert!(visits.flush(LONG) && visits.flush(LONG), "{:?}", visits.status());
        assert_eq!((visits.decision(records), visits.is_running(hints)), (decided, true));
        drop(visits);
        let (visits, records, _) = open(&inside);
        assert!(visits.flush(LONG));
        assert_eq!(visits.decision(records), decided, "it was written again");
    }

    #[test]
    fn an_experiment_that_another_process_has_ended_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut random = Random::seeded(5);
        let (visits, records, _) = open(folder.path());
        record(&visits, records, 0.8, &mut random);
        let decided = visits.decision(records);
        assert!(decided.is_some());
        let other = Visits::open(folder.path(), Settings::default()).unwrap();
        other.define(&[experiment("hints")]);
        assert!(other.flush(LONG));
        let ended = || {
            let reports = visits.reader().unwrap().experiments().unwrap();
            let of_name = reports.into_iter().filter(|report| report.name == "records");
            of_name.map(|report| (report.ended.is_some(), report.decision)).collect::<Vec<_>>()
        };
        assert_eq!(ended(), [(true, decided)]);
        assert!(visits.flush(LONG));
        assert_eq!((ended(), visits.decision(records)), (vec![(false, decided)], decided));
        // Who has it last says whether it has ended: the other one stays.
        assert!(visits.close(LONG) && other.flush(LONG));
        assert_eq!(ended(), [(true, decided)]);
    }

    #[test]
    fn what_has_ended_gets_no_more_visits_and_no_verdict() {
        let folder = tempfile::tempdir().unwrap();
        let mut random = Random::seeded(5);
        let (visits, records, hints) = open(folder.path());
        record(&visits, hints, 1.0, &mut random);
        visits.define(&[experiment("records")]);
        record(&visits, hints, 0.1, &mut random);
        record(&visits, records, 1.0, &mut random);
        let reports = visits.reader().unwrap().experiments().unwrap();
        let report = reports.iter().find(|report| report.name == "hints").unwrap();
        assert_eq!(report.arms.iter().map(|arm| arm.visits).sum::<u64>(), 2_000);
        assert_eq!((report.decision, report.advice.as_deref()), (None, None));
        assert_eq!(report.text, "Ended before it was decided.");
    }

    #[test]
    fn an_experiment_that_left_the_configuration_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let mut random = Random::seeded(5);
        let (visits, records, hints) = open(folder.path());
        record(&visits, records, 0.8, &mut random);
        record(&visits, hints, 1.0, &mut random);
        assert!(visits.decision(records).is_some());
        // Gone by a reload, and back by the next, before anything is written.
        visits.define(&[experiment("hints")]);
        assert!(!visits.is_running(records));
        let again = visits.define(&[experiment("records"), experiment("hints")]);
        assert!(visits.flush(LONG));
        assert_eq!((again[1], again[0] == records), (hints, false));
        assert_eq!(visits.decision(again[0]), None);
        let reports = || visits.reader().unwrap().experiments().unwrap();
        let running = |name: &str| {
            let of_name = reports().into_iter().filter(|report| report.name == name);
            of_name.map(|report| (report.ended.is_some(), report.arms[0].visits > 0)).collect::<Vec<_>>()
        };
        assert_eq!(running("records"), [(false, false), (true, true)]);
        assert_eq!(running("hints"), [(false, true)]);
        // Left while the process was not there.
        assert!(visits.close(LONG));
        let visits = Visits::open(folder.path(), Settings::default()).unwrap();
        assert!(visits.flush(LONG));
        let reports = || visits.reader().unwrap().experiments().unwrap();
        assert_eq!(reports().iter().filter(|report| report.ended.is_none()).count(), 2, "not known yet");
        visits.define(&[]);
        assert!(visits.flush(LONG));
        assert_eq!(reports().iter().filter(|report| report.ended.is_none()).count(), 0);
    }
}

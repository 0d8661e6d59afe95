//! What the database is asked: series of quantiles, samples of visits, experiments.

mod sample;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use serde::Serialize;

use crate::blind::ByMetric;
use crate::clock::unix_seconds;
use crate::cuts::{Cuts, cuts};
use crate::error::VisitsError;
use crate::experiments::{ExperimentReport, report};
use crate::gather::{ArmSums, SERIES};
use crate::histogram::TimeHistogram;
use crate::metric::{METRICS, Metric};
use crate::sequential::{Decision, is_uneven};
use crate::shared::Shared;
use crate::store::{ALL_HOSTS, DAY, FILE, HOUR, Kind, LEVEL_MINUTE, SERIES_HOUR, SERIES_TEN_MINUTES};
use crate::worth::{Worth, worth};

/// How long a query waits for a lock; there is none but while the database is recovered after a crash.
const BUSY: Duration = Duration::from_secs(2);

/// Over which time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Span {
    /// The last hour, by minutes.
    Hour,
    /// The last day, from the start of an hour on, by ten minutes.
    Day,
    /// The last 30 days, by hours.
    Month,
}

impl Span {
    /// Its name in queries; `None` for another text.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "hour" => Some(Self::Hour),
            "day" => Some(Self::Day),
            "month" => Some(Self::Month),
            _ => None,
        }
    }

    /// Seconds in all.
    const fn seconds(self) -> i64 {
        match self {
            Self::Hour => HOUR,
            Self::Day => DAY,
            Self::Month => 30 * DAY,
        }
    }

    /// Seconds of a point.
    const fn step(self) -> i64 {
        match self {
            Self::Hour => 60,
            Self::Day => 600,
            Self::Month => HOUR,
        }
    }

    /// The start of its first point when it ends at `now`. Of a day it is the start of an hour: what is known by hours alone
    /// begins there, and all figures of a span are to be of the same time.
    pub(crate) const fn start(self, now: i64) -> i64 {
        match self {
            Self::Day => (now - DAY).div_euclid(HOUR) * HOUR,
            Self::Hour | Self::Month => {
                (now - self.seconds()).div_euclid(self.step()) * self.step() + self.step()
            }
        }
    }

    /// Seconds of the periods within which visits are compared.
    const fn period(self) -> i64 {
        match self {
            Self::Hour | Self::Day => HOUR,
            Self::Month => DAY,
        }
    }
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Query {
    /// The host; `None` for all of them.
    pub host: Option<String>,
    /// Over which time.
    pub span: Span,
    /// Of what.
    pub metric: Metric,
}

/// Quantiles over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// The name of the metric.
    pub metric: &'static str,
    /// Seconds of a point.
    pub step: i64,
    /// The start of the span in Unix seconds.
    pub start: i64,
    /// Its end.
    pub end: i64,
    /// The points that have visits, in order of time.
    pub points: Vec<Point>,
}

/// The visits of some time. Times are in milliseconds, to within 1 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// Its start in Unix seconds.
    pub start: i64,
    /// Visits with a value.
    pub count: u64,
    /// The median.
    pub p50: f64,
    /// 95 % of visits took no longer.
    pub p95: f64,
    /// 99 % of visits took no longer.
    pub p99: f64,
}

/// Asks the database, with a connection of its own for each question. Calls block, up to a second or two for a month of many
/// hosts, and one at a time is answered that looks at single visits: they belong on threads that may wait, and their results are worth keeping for a minute.
#[derive(Debug, Clone)]
pub struct Reader {
    folder: Arc<Path>,
    /// Held by the one who asks for a sample: each takes tens of megabytes.
    turn: Arc<Mutex<()>>,
    /// What the configuration says of experiments.
    shared: Arc<Shared>,
}

impl Reader {
    pub(crate) fn new(folder: &Arc<Path>, turn: &Arc<Mutex<()>>, shared: &Arc<Shared>) -> Self {
        Self { folder: Arc::clone(folder), turn: Arc::clone(turn), shared: Arc::clone(shared) }
    }

    /// The hosts that have visits, by name.
    pub fn hosts(&self) -> Result<Vec<String>, VisitsError> {
        Database::open(&self.folder)?.hosts()
    }

    /// The quantiles of a metric over time. Fails for a metric that has no histograms: handshake, ttfb, lcp and inp have.
    pub fn series(&self, query: &Query) -> Result<Series, VisitsError> {
        Database::open(&self.folder)?.series(query, unix_seconds())
    }

    /// Visits by the values of every dimension, with medians of the metric.
    pub fn cuts(&self, query: &Query) -> Result<Cuts, VisitsError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let sample = Database::open(&self.folder)?.sample(query, unix_seconds())?;
        Ok(cuts(&sample, query.metric))
    }

    /// What it would be worth if more visits had what others have.
    pub fn worth(&self, query: &Query) -> Result<Worth, VisitsError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let sample = Database::open(&self.folder)?.sample(query, unix_seconds())?;
        Ok(worth(&sample, query.metric))
    }

    /// The experiments, the latest first, and what they have shown.
    pub fn experiments(&self) -> Result<Vec<ExperimentReport>, VisitsError> {
        let mut reports = Database::open(&self.folder)?.experiments()?;
        for Stored { report, by_metric, is_uneven } in &mut reports {
            if report.ended.is_some() {
                continue;
            }
            let found = self.shared.definitions.named(&report.name, report.arms.len());
            let Some((id, experiment)) = found else { continue };
            match &report.decision {
                Some(decision) => report.advice = Some(decision.advice(&experiment)),
                None if *is_uneven => {}
                None => {
                    let sight = self.shared.figures.sight(id);
                    if let Some(blindness) = sight.blindness(&experiment, by_metric) {
                        report.text = sight.words(blindness, &experiment, by_metric);
                    }
                }
            }
        }
        Ok(reports.into_iter().map(|stored| stored.report).collect())
    }
}

/// What the database has of an experiment.
struct Stored {
    report: ExperimentReport,
    by_metric: ByMetric,
    is_uneven: bool,
}

/// The database, open for reading.
#[derive(Debug)]
pub(crate) struct Database {
    connection: Connection,
}

impl Database {
    pub(crate) fn open(folder: &Path) -> Result<Self, VisitsError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(folder.join(FILE), flags)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        // All that one question reads is of one moment, whatever is removed meanwhile.
        connection.execute_batch("BEGIN")?;
        Ok(Self { connection })
    }

    fn hosts(&self) -> Result<Vec<String>, VisitsError> {
        let text = "SELECT text FROM name WHERE kind = ? ORDER BY text";
        let mut statement = self.connection.prepare(text)?;
        let names = statement.query_map([Kind::Host as u8], |row| row.get(0))?;
        Ok(names.collect::<Result<_, _>>()?)
    }

    pub(crate) fn series(&self, query: &Query, now: i64) -> Result<Series, VisitsError> {
        if !SERIES.contains(&query.metric) {
            return Err(VisitsError::NoSeries(query.metric));
        }
        let (start, step) = (query.span.start(now), query.span.step());
        let mut bins = BTreeMap::<i64, TimeHistogram>::new();
        if let Some(host) = self.host(query.host.as_deref())? {
            let level = match query.span {
                Span::Hour => LEVEL_MINUTE,
                Span::Day => SERIES_TEN_MINUTES,
                Span::Month => SERIES_HOUR,
            };
            // What no level above has yet is in the minutes.
            let text = "SELECT start, histogram FROM series WHERE metric = ?1 AND host = ?2
                AND start >= ?3 AND start <= ?4 AND level IN (0, ?5) AND (level = ?5 OR rolled = 0)";
            let mut statement = self.connection.prepare(text)?;
            let mut found = statement.query(params![query.metric as u8, host, start, now, level])?;
            while let Some(row) = found.next()? {
                let at: i64 = row.get(0)?;
                bins.entry(at - at.rem_euclid(step)).or_default().merge(&row.get::<_, Vec<u8>>(1)?);
            }
        }
        let points = bins.iter().map(|(start, histogram)| Point {
            start: *start,
            count: histogram.count(),
            p50: histogram.quantile(0.5),
            p95: histogram.quantile(0.95),
            p99: histogram.quantile(0.99),
        });
        Ok(Series { metric: query.metric.name(), step, start, end: now, points: points.collect() })
    }

    fn experiments(&self) -> Result<Vec<Stored>, VisitsError> {
        let mut arms = HashMap::<i64, Vec<(u8, ArmSums)>>::new();
        let mut all = HashMap::<i64, ByMetric>::new();
        let text = "SELECT a.experiment, a.arm, a.visits, a.sum, a.squares, a.metric, e.metric FROM arm a
            JOIN experiment e ON e.id = a.experiment";
        let mut statement = self.connection.prepare(text)?;
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            let sums =
                ArmSums { visits: row.get::<_, i64>(2)? as u64, sum: row.get(3)?, squares: row.get(4)? };
            // Rows that no version of brisk wrote are not its own.
            let (Ok(metric), Ok(decides)) = (row.get::<_, u8>(5), row.get::<_, u8>(6)) else { continue };
            let by_metric = all.entry(row.get(0)?).or_insert([0; METRICS]);
            if let Some(visits) = by_metric.get_mut(usize::from(metric)) {
                *visits += sums.visits;
            }
            if metric == decides {
                arms.entry(row.get(0)?).or_default().push((row.get(1)?, sums));
            }
        }
        let text = "SELECT id, name, metric, margin, arms, since, decided, decision, ended FROM experiment
            ORDER BY id DESC";
        let mut statement = self.connection.prepare(text)?;
        let mut found = statement.query([])?;
        let mut reports = Vec::new();
        while let Some(row) = found.next()? {
            let names: String = row.get(4)?;
            let names: Vec<_> = names.lines().map(str::to_owned).collect();
            let mut sums = vec![ArmSums::default(); names.len()];
            for (arm, of_arm) in arms.get(&row.get(0)?).into_iter().flatten() {
                if let Some(place) = sums.get_mut(usize::from(*arm)) {
                    *place = *of_arm;
                }
            }
            let metric =
                Metric::ALL.get(usize::from(row.get::<_, u8>(2)?)).copied().unwrap_or(Metric::FirstByte);
            let decision: Option<String> = row.get(7)?;
            let decision = decision.as_deref().and_then(Decision::from_text);
            let ended = row.get(8)?;
            let mut report = report(row.get(1)?, metric, row.get(3)?, names, &sums, decision, ended);
            report.since = row.get(5)?;
            report.decided = row.get(6)?;
            let by_metric = all.get(&row.get(0)?).copied().unwrap_or([0; METRICS]);
            reports.push(Stored { report, by_metric, is_uneven: is_uneven(&sums) });
        }
        Ok(reports)
    }

    /// The number of a host; `None` if it has no visits.
    fn host(&self, name: Option<&str>) -> Result<Option<i64>, VisitsError> {
        let Some(name) = name else { return Ok(Some(ALL_HOSTS)) };
        let text = "SELECT number FROM name WHERE kind = ? AND text = ?";
        let mut statement = self.connection.prepare(text)?;
        Ok(statement.query_row(params![Kind::Host as u8, name], |row| row.get(0)).optional()?)
    }
}

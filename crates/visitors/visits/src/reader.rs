//! Queries of the database: series of quantiles, samples of visits, experiments.

mod changes;
mod page_series;
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
use crate::lines::SHARE;
use crate::metric::{METRICS, Metric};
use crate::sequential::{Decision, is_uneven};
use crate::shared::Shared;
use crate::store::{ALL_HOSTS, DAY, FILE, HOUR, Kind, LEVEL_MINUTE, SERIES_HOUR, SERIES_TEN_MINUTES};
use crate::worth::{Worth, worth};

/// Timeout for a lock; locks occur only while the database is recovered after a crash.
const BUSY: Duration = Duration::from_secs(2);

pub use changes::{Analysis, Change, Percentile};

/// Time span of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Span {
    /// The last hour, per minute.
    Hour,
    /// The last day, starting at a full hour, per ten minutes.
    Day,
    /// The last 30 days, per hour.
    Month,
}

impl Span {
    /// The span with this `name`: `hour`, `day` or `month`; `None` for any other text.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "hour" => Some(Self::Hour),
            "day" => Some(Self::Day),
            "month" => Some(Self::Month),
            _ => None,
        }
    }

    /// Length in seconds.
    const fn seconds(self) -> i64 {
        match self {
            Self::Hour => HOUR,
            Self::Day => DAY,
            Self::Month => 30 * DAY,
        }
    }

    /// Seconds per point.
    const fn step(self) -> i64 {
        match self {
            Self::Hour => 60,
            Self::Day => 600,
            Self::Month => HOUR,
        }
    }

    /// The start of the first point of a span that ends at `now`. A day starts at a full hour: some figures are
    /// stored per hour only, and all figures of a span must cover the same time.
    pub(crate) const fn start(self, now: i64) -> i64 {
        match self {
            Self::Day => (now - DAY).div_euclid(HOUR) * HOUR,
            Self::Hour | Self::Month => {
                // The interval in which the span begins is left out: a part of it would look like a drop of
                // visits.
                (now - self.seconds()).div_euclid(self.step()) * self.step() + self.step()
            }
        }
    }

    /// Seconds per point of [`Lines`](crate::Lines), which are estimated from samples.
    const fn line_step(self) -> i64 {
        match self {
            Self::Hour => 600,
            Self::Day => HOUR,
            Self::Month => DAY,
        }
    }

    /// Length of the periods within which visits are compared, in seconds.
    const fn period(self) -> i64 {
        match self {
            Self::Hour | Self::Day => HOUR,
            Self::Month => DAY,
        }
    }
}

/// Selection of visits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Query {
    /// Host; `None` for all hosts.
    pub host: Option<String>,
    /// Name of a page; `None` for all pages. Applies to figures from samples only.
    pub page: Option<String>,
    /// Time span.
    pub span: Span,
    /// Metric.
    pub metric: Metric,
}

/// Quantiles over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// The [name](Metric::name) of the metric.
    pub metric: &'static str,
    /// Seconds per point.
    pub step: i64,
    /// Start of the span, in Unix seconds.
    pub start: i64,
    /// End of the span, in Unix seconds.
    pub end: i64,
    /// Points with visits, in order of time.
    pub points: Vec<Point>,
}

/// Visits of one interval of a [`Series`]. Times are in milliseconds, with an error of at most 1 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// Start of the interval, in Unix seconds.
    pub start: i64,
    /// Visits with a value.
    pub count: u64,
    /// The median.
    pub p50: f64,
    /// The 75th percentile, which Web Vitals use.
    pub p75: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
}

/// Reads the database, with one connection per query. Methods block, for one or two seconds for a month of many
/// hosts, and methods that read individual visits run one at a time. Call them on threads that may block, and cache
/// their results for a minute.
#[derive(Debug, Clone)]
pub struct Reader {
    folder: Arc<Path>,
    /// Held while a sample is read, since each takes tens of megabytes.
    turn: Arc<Mutex<()>>,
    /// State shared with the writer, for the configured experiments.
    shared: Arc<Shared>,
}

impl Reader {
    pub(crate) fn new(folder: &Arc<Path>, turn: &Arc<Mutex<()>>, shared: &Arc<Shared>) -> Self {
        Self { folder: Arc::clone(folder), turn: Arc::clone(turn), shared: Arc::clone(shared) }
    }

    /// Names of the hosts that have visits.
    pub fn hosts(&self) -> Result<Vec<String>, VisitsError> {
        Database::open(&self.folder)?.hosts()
    }

    /// Quantiles of a metric over time.
    ///
    /// # Errors
    ///
    /// Returns [`VisitsError::NoSeries`] for metrics without histograms; `handshake`, `ttfb`, `lcp`, `inp`, `wait`, `fcp`
    /// and `cls` have them.
    pub fn series(&self, query: &Query) -> Result<Series, VisitsError> {
        Database::open(&self.folder)?.series(query, unix_seconds())
    }

    /// Visits by the values of every [`Dimension`](crate::Dimension), with medians of [`Query::metric`].
    pub fn cuts(&self, query: &Query) -> Result<Cuts, VisitsError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let sample = Database::open(&self.folder)?.sample(query, unix_seconds())?;
        Ok(cuts(&sample, query.metric))
    }

    /// Estimated gain if visits with one value had the other value of a dimension instead.
    pub fn worth(&self, query: &Query) -> Result<Worth, VisitsError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let sample = Database::open(&self.folder)?.sample(query, unix_seconds())?;
        Ok(worth(&sample, query.metric))
    }

    /// Experiments with their results, latest first.
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

/// Stored data of an experiment.
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
        // The lock of `SQLite` itself is left out: one thread uses the connection.
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(folder.join(FILE), flags)?;
        connection.busy_timeout(BUSY)?;
        // The schema is in the file, which another program may have written: it must not call functions
        // with side effects.
        connection.pragma_update(None, "trusted_schema", false)?;
        // One transaction: a query sees one state, also if the writer removes rows meanwhile.
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
        let (bins, scale) = (self.histograms(query, now)?, query.metric.histogram_scale());
        let points = bins.iter().map(|(start, histogram)| Point {
            start: *start,
            count: histogram.count(),
            p50: histogram.quantile(0.5) / scale,
            p75: histogram.quantile(SHARE) / scale,
            p95: histogram.quantile(0.95) / scale,
            p99: histogram.quantile(0.99) / scale,
        });
        let (start, step) = (query.span.start(now), query.span.step());
        Ok(Series { metric: query.metric.name(), step, start, end: now, points: points.collect() })
    }

    /// Histograms of the metric by the start of each interval.
    fn histograms(&self, query: &Query, now: i64) -> Result<BTreeMap<i64, TimeHistogram>, VisitsError> {
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
            // Minutes that are not rolled up yet are added from level 0.
            let text = "SELECT start, histogram FROM series WHERE metric = ?1 AND host = ?2
                AND start >= ?3 AND start <= ?4 AND level IN (0, ?5) AND (level = ?5 OR rolled = 0)";
            let mut statement = self.connection.prepare(text)?;
            let mut found = statement.query(params![query.metric as u8, host, start, now, level])?;
            while let Some(row) = found.next()? {
                let at: i64 = row.get(0)?;
                bins.entry(at - at.rem_euclid(step)).or_default().merge(&row.get::<_, Vec<u8>>(1)?);
            }
        }
        Ok(bins)
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
            // Skips rows that brisk cannot have written.
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
        name.map_or(Ok(Some(ALL_HOSTS)), |name| self.number(Kind::Host, name))
    }

    /// The number of a name; `None` if it is unknown.
    fn number(&self, kind: Kind, name: &str) -> Result<Option<i64>, VisitsError> {
        let text = "SELECT number FROM name WHERE kind = ? AND text = ?";
        let mut statement = self.connection.prepare(text)?;
        Ok(statement.query_row(params![kind as u8, name], |row| row.get(0)).optional()?)
    }
}

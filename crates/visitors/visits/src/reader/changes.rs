//! Queries of charts: all results of one sample, marks, and visits before and after a moment.

use std::sync::PoisonError;

use serde::Serialize;

use super::page_series::series;
use super::{Database, Query, Reader, Series};
use crate::clock::unix_seconds;
use crate::cuts::{Cuts, Dimension, cuts};
use crate::distributions::{Distribution, distributions};
use crate::error::VisitsError;
use crate::histogram::TimeHistogram;
use crate::lines::{Lines, SHARE, Table, lines, table};
use crate::marks::{self, Mark};
use crate::worth::{Worth, worth};

/// Results from a sample of visits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Analysis {
    /// Visits by the values of every [`Dimension`].
    pub cuts: Cuts,
    /// Estimated gains.
    pub worth: Worth,
    /// The 75th percentile over time by the values of a dimension.
    pub lines: Lines,
    /// The 75th percentile by the values of two dimensions.
    pub table: Table,
    /// Distributions of the metrics with [thresholds](crate::Metric::thresholds).
    pub distributions: Vec<Distribution>,
    /// Quantiles over time of the queried page; empty for all pages, whose quantiles are more precise in
    /// [`Reader::series`].
    pub series: Vec<Series>,
}

/// Visits before and after a moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// The compared moment, in Unix seconds.
    pub at: i64,
    /// Length of the compared times in seconds.
    pub length: i64,
    /// Visits before; `None` without any.
    pub before: Option<Percentile>,
    /// Visits after; `None` without any.
    pub after: Option<Percentile>,
}

/// The 75th percentile of some visits, with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Percentile {
    /// Visits with a value.
    pub count: u64,
    /// The percentile.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Percentile {
    /// The percentile of a histogram; its bounds are order statistics by the binomial distribution.
    fn of(histogram: &TimeHistogram, scale: f64) -> Option<Self> {
        let count = histogram.count();
        if count == 0 {
            return None;
        }
        let spread = 1.96 * (SHARE * (1.0 - SHARE) / count as f64).sqrt();
        let at = |share: f64| histogram.quantile(share.clamp(0.0, 1.0)) / scale;
        Some(Self { count, value: at(SHARE), low: at(SHARE - spread), high: at(SHARE + spread) })
    }
}

impl Reader {
    /// All results from one sample of visits: cuts, estimated gains, lines of the first dimension, and a table of both.
    pub fn analysis(&self, query: &Query, dimensions: [Dimension; 2]) -> Result<Analysis, VisitsError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let sample = Database::open(&self.folder)?.sample(query, unix_seconds())?;
        let metric = query.metric;
        Ok(Analysis {
            cuts: cuts(&sample, metric),
            worth: worth(&sample, metric),
            lines: lines(&sample, metric, dimensions[0], query.span.line_step()),
            table: table(&sample, metric, dimensions),
            distributions: distributions(&sample),
            series: if query.page.is_some() { series(&sample, query.span.line_step()) } else { Vec::new() },
        })
    }

    /// [`Mark`]s of deployments and reloads within [`Query::span`].
    pub fn marks(&self, query: &Query) -> Result<Vec<Mark>, VisitsError> {
        Ok(marks::read(&self.folder, query.span.start(unix_seconds()))?)
    }

    /// Visits before and after the moment `at`: equal times within the span, at most up to now.
    ///
    /// # Errors
    ///
    /// Returns [`VisitsError::NoSeries`] for metrics without histograms, as [`series`](Self::series).
    pub fn change(&self, query: &Query, at: i64) -> Result<Change, VisitsError> {
        Database::open(&self.folder)?.change(query, at, unix_seconds())
    }
}

impl Database {
    fn change(&self, query: &Query, at: i64, now: i64) -> Result<Change, VisitsError> {
        let step = query.span.step();
        // Intervals are compared as a whole; that of the moment is omitted.
        let (end, next) = (at - at.rem_euclid(step), at - at.rem_euclid(step) + step);
        let length = (end - query.span.start(now)).min(now - next).max(0);
        let (bins, scale) = (self.histograms(query, now)?, query.metric.histogram_scale());
        let merged = |from: i64, to: i64| {
            let mut all = TimeHistogram::default();
            bins.range(from..to.max(from)).for_each(|(_, histogram)| all.merge(&histogram.encode()));
            Percentile::of(&all, scale)
        };
        Ok(Change { at, length, before: merged(end - length, end), after: merged(next, next + length) })
    }
}

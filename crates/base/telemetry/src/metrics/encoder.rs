//! [`Encoder`] for the text of a scrape.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::histogram::{Histogram, Totals};

/// A component with metrics of its own. [`Metrics::register`](super::Metrics::register) adds them to the page.
pub trait Collector: fmt::Debug + Send + Sync + 'static {
    /// Writes the present values. Called at every scrape, on the thread of the admin listener: it may take locks that no
    /// worker holds for long, and must not wait.
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result;
}

impl<C: Collector> Collector for Arc<C> {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        C::collect(self, page)
    }
}

/// The page of one scrape. Starts metric families, each at most once; adds the prefix `brisk_`, the unit and `_total` to names.
#[derive(Debug)]
pub struct Encoder<'a, 'b>(pub(super) &'a mut DescriptorEncoder<'b>);

const BYTES: &Unit = &Unit::Bytes;
const SECONDS: &Unit = &Unit::Seconds;

impl Encoder<'_, '_> {
    /// A counter, whose series have the suffix `_total`.
    pub fn counter<'s>(&'s mut self, name: &'static str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, MetricType::Counter).map(Family)
    }

    /// A counter of bytes, with the suffix `_bytes_total`.
    pub fn bytes_counter<'s>(&'s mut self, name: &'static str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, Some(BYTES), MetricType::Counter).map(Family)
    }

    /// A counter of time, with the suffix `_seconds_total`.
    pub fn seconds_counter<'s>(
        &'s mut self,
        name: &'static str,
        help: &str,
    ) -> Result<Family<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, Some(SECONDS), MetricType::Counter).map(Family)
    }

    /// A gauge, whose name is `brisk_` and `name`.
    pub fn gauge<'s>(&'s mut self, name: &'static str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge).map(Family)
    }

    /// A gauge of bytes, with the suffix `_bytes`.
    pub fn bytes_gauge<'s>(&'s mut self, name: &'static str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, Some(BYTES), MetricType::Gauge).map(Family)
    }

    /// A gauge of time, with the suffix `_seconds`.
    pub fn seconds_gauge<'s>(&'s mut self, name: &'static str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, Some(SECONDS), MetricType::Gauge).map(Family)
    }

    /// A histogram of durations, with the suffix `_seconds` and the buckets of [`Histogram`].
    pub fn seconds<'s>(&'s mut self, name: &'static str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, Some(SECONDS), MetricType::Histogram).map(Family)
    }
}

/// The series of one metric, each with its [`Labels`].
#[derive(Debug)]
pub struct Family<'a>(MetricEncoder<'a>);

/// Labels of a series with their values.
pub type Labels<'a> = [(&'static str, &'a str)];

impl Family<'_> {
    /// Writes `value` as the series with these labels.
    pub fn counter(&mut self, labels: &Labels<'_>, value: u64) -> fmt::Result {
        // The library writes `{}` for a family with an empty list of labels.
        if labels.is_empty() {
            return self.0.encode_counter::<NoLabelSet, u64, f64>(&value, None);
        }
        self.0.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(&value, None)
    }

    /// Like [`counter`](Self::counter), for a duration in seconds.
    pub fn seconds_counter(&mut self, labels: &Labels<'_>, value: Duration) -> fmt::Result {
        let seconds = value.as_secs_f64();
        if labels.is_empty() {
            return self.0.encode_counter::<NoLabelSet, f64, f64>(&seconds, None);
        }
        self.0.encode_family(&labels)?.encode_counter::<NoLabelSet, f64, f64>(&seconds, None)
    }

    /// Like [`counter`](Self::counter), for a gauge.
    pub fn gauge(&mut self, labels: &Labels<'_>, value: impl EncodeGaugeValue + Copy) -> fmt::Result {
        if labels.is_empty() {
            return self.0.encode_gauge(&value);
        }
        self.0.encode_family(&labels)?.encode_gauge(&value)
    }

    /// Writes the observations of a [`Histogram`] as the series with these labels.
    pub fn durations(&mut self, labels: &Labels<'_>, histogram: &Histogram) -> fmt::Result {
        self.histogram(labels, &Totals::of([histogram]))
    }

    /// The [`Totals`] of the series with these labels.
    pub(super) fn histogram(&mut self, labels: &Labels<'_>, totals: &Totals) -> fmt::Result {
        let buckets: Vec<_> = totals.buckets().collect();
        let (sum, count) = (totals.sum_seconds(), totals.count());
        if labels.is_empty() {
            return self.0.encode_histogram::<NoLabelSet>(sum, count, &buckets, None);
        }
        self.0.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }
}

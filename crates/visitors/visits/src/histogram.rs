//! Histograms of times in the form of the database: recorded values with their counts, a few bytes each.

use std::borrow::Cow;

use hdrhistogram::Histogram;

/// Units per millisecond: values are recorded in units of 10 µs.
const UNITS_PER_MS: f64 = 100.0;
/// Greatest value, ten minutes, in units of 10 µs; greater ones are clamped.
const GREATEST: u64 = 60_000_000;
/// Significant decimal digits of recorded values.
const DIGITS: u8 = 2;

/// Number of values stored individually; below it, a full histogram is many times larger.
const FEW: usize = 100;

/// Histogram of times in milliseconds with an error of at most 1 %. Merging is exact.
#[derive(Debug, Clone)]
pub(crate) enum TimeHistogram {
    /// Individual values in units.
    Few(Vec<u32>),
    Many(Histogram<u32>),
}

impl Default for TimeHistogram {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

fn counted(values: &[u32]) -> Histogram<u32> {
    let mut histogram =
        Histogram::new(DIGITS).expect("the number of digits is one that a histogram can have");
    for value in values {
        add(&mut histogram, (*value).into(), 1);
    }
    histogram
}

fn add(histogram: &mut Histogram<u32>, value: u64, count: u32) {
    // The histogram grows up to the greatest value; greater ones are clamped.
    let recorded = histogram.record_n(value.min(GREATEST), count);
    debug_assert!(recorded.is_ok(), "a histogram that resizes itself takes every value");
}

impl TimeHistogram {
    /// Records a time in milliseconds.
    pub(crate) fn record(&mut self, ms: f64) {
        let value = ((ms * UNITS_PER_MS).round() as u64).min(GREATEST);
        match self {
            Self::Few(values) if values.len() < FEW => values.push(value as u32),
            _ => add(self.many(), value, 1),
        }
    }

    /// Converts to a full histogram and returns it.
    fn many(&mut self) -> &mut Histogram<u32> {
        if let Self::Few(values) = self {
            *self = Self::Many(counted(values));
        }
        match self {
            Self::Many(histogram) => histogram,
            Self::Few(_) => unreachable!("it was replaced just now"),
        }
    }

    fn whole(&self) -> Cow<'_, Histogram<u32>> {
        match self {
            Self::Few(values) => Cow::Owned(counted(values)),
            Self::Many(histogram) => Cow::Borrowed(histogram),
        }
    }

    /// Memory of the values, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let values = match self {
            Self::Few(values) => values.capacity(),
            Self::Many(histogram) => histogram.distinct_values(),
        };
        values * size_of::<u32>()
    }

    /// Number of recorded times.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Few(values) => values.len() as u64,
            Self::Many(histogram) => histogram.len(),
        }
    }

    /// The time in milliseconds that a share of `quantile`, 0 to 1, of all times does not exceed.
    pub(crate) fn quantile(&self, quantile: f64) -> f64 {
        self.whole().value_at_quantile(quantile) as f64 / UNITS_PER_MS
    }

    /// Encodes the histogram: for each recorded value the distance from the previous one and the count, in LEB128.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut last = 0;
        // Only recorded values: most of the thousands of classes of a histogram are empty.
        for step in self.whole().iter_recorded() {
            let value = step.value_iterated_to();
            put(&mut bytes, value - last);
            put(&mut bytes, step.count_at_value().into());
            last = value;
        }
        bytes
    }

    /// Adds a histogram encoded by [`encode`](Self::encode). Stops silently at invalid data: a damaged database must
    /// not prevent further operation.
    pub(crate) fn merge(&mut self, mut bytes: &[u8]) {
        let histogram = self.many();
        let mut value = 0_u64;
        while let (Some(distance), Some(count)) = (take(&mut bytes), take(&mut bytes)) {
            value = value.saturating_add(distance);
            add(histogram, value, u32::try_from(count).unwrap_or(u32::MAX));
        }
    }
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    // Nine bytes hold 63 bits, more than any value or count; a longer number is damaged.
    for shift in (0..63).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_histograms_are_the_histogram_of_all() {
        let (mut all, mut merged) = (TimeHistogram::default(), TimeHistogram::default());
        for part in 0..10 {
            let mut one = TimeHistogram::default();
            for index in 0..1000 {
                let ms = f64::from(index * 10 + part) / 7.0;
                one.record(ms);
                all.record(ms);
            }
            merged.merge(&one.encode());
        }
        assert_eq!(merged.count(), 10_000);
        for quantile in [0.0, 0.5, 0.95, 0.99, 1.0] {
            assert_eq!(merged.quantile(quantile).to_bits(), all.quantile(quantile).to_bits());
        }
        let median = merged.quantile(0.5);
        assert!((median / 714.0 - 1.0).abs() < 0.01, "{median}");
    }

    #[test]
    fn a_histogram_is_small() {
        let mut histogram = TimeHistogram::default();
        for ms in 0..100_000 {
            histogram.record(f64::from(ms % 5_000));
        }
        let bytes = histogram.encode().len();
        assert!(bytes < 3_500, "{bytes} bytes");
    }

    #[test]
    fn extreme_values_and_damaged_bytes_do_no_harm() {
        let mut histogram = TimeHistogram::default();
        histogram.record(0.0);
        histogram.record(1e9);
        let mut copy = TimeHistogram::default();
        copy.merge(&histogram.encode());
        assert_eq!(copy.count(), 2);
        for bytes in [
            &[0xff; 40][..],
            &[0x80],
            &[1],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0x7f],
        ] {
            TimeHistogram::default().merge(bytes);
        }
    }
}

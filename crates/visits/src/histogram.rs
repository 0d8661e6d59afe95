//! Histograms of times as the database holds them: the recorded values with their counts, a few bytes each.

use std::borrow::Cow;

use hdrhistogram::Histogram;

/// Values are counted in units of 10 us.
const UNITS_PER_MS: f64 = 100.0;
/// Ten minutes, in those units.
const GREATEST: u64 = 60_000_000;
/// Decimal digits to which values are kept.
const DIGITS: u8 = 2;

/// Values that are held as they are; a histogram of so few is many times as large.
const FEW: usize = 100;

/// A histogram of times in milliseconds, to within 1 %. Merging several is exact.
#[derive(Debug, Clone)]
pub(crate) enum TimeHistogram {
    /// In units.
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
    // It grows up to the greatest value; what exceeds that counts as that.
    let recorded = histogram.record_n(value.min(GREATEST), count);
    debug_assert!(recorded.is_ok(), "a histogram that resizes itself takes every value");
}

impl TimeHistogram {
    /// Adds a time.
    pub(crate) fn record(&mut self, ms: f64) {
        let value = ((ms * UNITS_PER_MS).round() as u64).min(GREATEST);
        match self {
            Self::Few(values) if values.len() < FEW => values.push(value as u32),
            _ => add(self.many(), value, 1),
        }
    }

    /// The histogram, from now on.
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

    /// Bytes that its values take in memory.
    pub(crate) fn bytes(&self) -> usize {
        let values = match self {
            Self::Few(values) => values.capacity(),
            Self::Many(histogram) => histogram.distinct_values(),
        };
        values * size_of::<u32>()
    }

    /// Times recorded.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Few(values) => values.len() as u64,
            Self::Many(histogram) => histogram.len(),
        }
    }

    /// The time in milliseconds that the share `quantile` of all does not exceed.
    pub(crate) fn quantile(&self, quantile: f64) -> f64 {
        self.whole().value_at_quantile(quantile) as f64 / UNITS_PER_MS
    }

    /// All of it as bytes: for each recorded value the distance to the one before and its count, as LEB128.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut last = 0;
        for step in self.whole().iter_recorded() {
            let value = step.value_iterated_to();
            put(&mut bytes, value - last);
            put(&mut bytes, step.count_at_value().into());
            last = value;
        }
        bytes
    }

    /// Adds what [`encode`](Self::encode) wrote. What is not of that form is left out from there on: a damaged database must
    /// not stop anything.
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

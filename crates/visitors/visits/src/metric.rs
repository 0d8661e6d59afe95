//! Metrics of a visit and their encoding: two bytes per value, with an error of at most 0.02 %.

use crate::closed::closed;

closed! {
    /// One measured value of a visit. Times are in milliseconds.
    Metric {
        /// From the page: name resolution.
        Dns = "dns",
        /// From the page: the TCP connection.
        Connect = "connect",
        /// From the page: the TLS handshake.
        Tls = "tls",
        /// From the page: from the request to the first byte of the response.
        Wait = "wait",
        /// From the page: from the start of the navigation to the first byte of the response (TTFB).
        FirstByte = "ttfb",
        /// From the page: from the start of the navigation to the end of the load event.
        Load = "load",
        /// From the page: First Contentful Paint.
        FirstPaint = "fcp",
        /// From the page: Largest Contentful Paint.
        LargestPaint = "lcp",
        /// From the page: Interaction to Next Paint.
        Interaction = "inp",
        /// From the page: Cumulative Layout Shift, without a unit.
        Shift = "cls",
        /// From the page: number of connections opened to this host.
        Connections = "connections",
        /// From the page: bytes transferred from this host.
        Bytes = "bytes",
        /// From the gateway: from the first byte of the `ClientHello` to the client's `Finished`.
        Handshake = "handshake",
        /// From the gateway: the round-trip time measured by the kernel.
        RoundTrip = "rtt",
        /// From the gateway: the wait for the key operation.
        Queue = "queue",
        /// From the gateway: from sending the request to the upstream to the head of its response.
        Upstream = "upstream",
    }
}

/// Number of [`Metric`]s.
pub(crate) const METRICS: usize = Metric::ALL.len();

/// Greatest time, ten minutes: no visitor waits longer.
const LONGEST_MS: f64 = 600_000.0;

impl Metric {
    /// Greatest value that [`Measures::set`] stores.
    pub const fn limit(self) -> f64 {
        match self {
            Self::Shift => 1_000.0,
            Self::Connections => 10_000.0,
            Self::Bytes => 4e9,
            _ => LONGEST_MS,
        }
    }

    /// Unit for display; empty for plain numbers.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Shift | Self::Connections => "",
            Self::Bytes => "B",
            _ => "ms",
        }
    }

    /// The thresholds of Web Vitals: values up to the first are good, above the second poor. `None` for other metrics.
    pub const fn thresholds(self) -> Option<[f64; 2]> {
        match self {
            Self::LargestPaint => Some([2_500.0, 4_000.0]),
            Self::Interaction => Some([200.0, 500.0]),
            Self::Shift => Some([0.1, 0.25]),
            Self::FirstPaint => Some([1_800.0, 3_000.0]),
            Self::FirstByte => Some([800.0, 1_800.0]),
            _ => None,
        }
    }

    /// Factor of values in histograms, whose unit is a hundredth: layout shifts are small numbers.
    pub(crate) const fn histogram_scale(self) -> f64 {
        match self {
            Self::Shift => 1000.0,
            _ => 1.0,
        }
    }

    /// Whether an [`Experiment`](crate::Experiment) can be decided by this metric: a time that visitors wait for, and not
    /// one of its parts, which an arm may shift to another part.
    pub const fn is_compared(self) -> bool {
        matches!(
            self,
            Self::Wait
                | Self::FirstByte
                | Self::Load
                | Self::FirstPaint
                | Self::LargestPaint
                | Self::Interaction
                | Self::Handshake
        )
    }

    /// The value encoded as code 2; the approximate error of smaller values.
    const fn grain(self) -> f64 {
        match self {
            Self::Shift => 1e-4,
            Self::Bytes => 100.0,
            _ => 0.01,
        }
    }
}

/// Codes per factor of `e`, so that the greatest value of each metric has a code of 16 bits.
const STEPS: f64 = 3_600.0;

/// Measured values of one visit; each may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measures([u16; METRICS]);

impl Default for Measures {
    fn default() -> Self {
        Self([0; METRICS])
    }
}

impl Measures {
    /// Sets a value. Returns `false` if it cannot be stored because it is negative or above the
    /// [limit](Metric::limit).
    pub fn set(&mut self, metric: Metric, value: f64) -> bool {
        let is_kept = (0.0..=metric.limit()).contains(&value);
        if is_kept {
            // Logarithmic, so that milliseconds and minutes have the same relative error. `ln_1p` maps 0 to
            // code 1; code 0 is a missing value.
            self.0[metric as usize] = 1 + ((value / metric.grain()).ln_1p() * STEPS).round() as u16;
        }
        is_kept
    }

    /// The value of `metric`; `None` if it is missing.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        let code = self.0[metric as usize].checked_sub(1)?;
        let value = (f64::from(code) / STEPS).exp_m1() * metric.grain();
        // The code of a count has a rounding error, but the count is whole.
        Some(if metric == Metric::Connections { value.round() } else { value })
    }

    /// Removes a value.
    pub fn remove(&mut self, metric: Metric) {
        self.0[metric as usize] = 0;
    }

    /// Copies all values present in `others`.
    pub fn extend(&mut self, others: &Self) {
        for (own, other) in self.0.iter_mut().zip(&others.0).filter(|(_, other)| **other > 0) {
            *own = *other;
        }
    }

    pub(crate) fn codes(&self) -> &[u16; METRICS] {
        &self.0
    }

    pub(crate) fn of_codes(codes: [u16; METRICS]) -> Self {
        Self(codes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_to_within_a_fiftieth_of_a_percent() {
        for metric in Metric::ALL {
            let mut measures = Measures::default();
            assert_eq!(measures.get(*metric), None);
            for value in [0.0, 1.0, 3.0, 47.11, 999.9, metric.limit()] {
                assert!(measures.set(*metric, value));
                let kept = measures.get(*metric).unwrap();
                let off = (kept - value).abs();
                let rounded = if *metric == Metric::Connections { 0.5 } else { 0.0 };
                assert!(
                    off <= rounded + 0.0002 * (value + metric.grain()),
                    "{metric}: {value} is kept as {kept}"
                );
            }
        }
    }

    #[test]
    fn values_that_cannot_be_are_not_kept() {
        let mut measures = Measures::default();
        for value in [-1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 600_001.0] {
            assert!(!measures.set(Metric::FirstByte, value), "{value}");
        }
        assert_eq!(measures, Measures::default());
    }
}

//! What is measured of a visit, and how it is kept: each value in two bytes, to within 0.02 %.

use crate::closed::closed;

closed! {
    /// One measured value of a visit. Times are in milliseconds.
    Metric {
        /// The page's: name resolution.
        Dns = "dns",
        /// The page's: the TCP connection.
        Connect = "connect",
        /// The page's: the TLS handshake.
        Tls = "tls",
        /// The page's: from the request to the first byte of the response.
        Wait = "wait",
        /// The page's: from the start of the navigation to the first byte of the response (TTFB).
        FirstByte = "ttfb",
        /// The page's: from the start of the navigation to the end of the load event.
        Load = "load",
        /// The page's: First Contentful Paint.
        FirstPaint = "fcp",
        /// The page's: Largest Contentful Paint.
        LargestPaint = "lcp",
        /// The page's: Interaction to Next Paint.
        Interaction = "inp",
        /// The page's: Cumulative Layout Shift, without a unit.
        Shift = "cls",
        /// The page's: connections opened to this host.
        Connections = "connections",
        /// The page's: bytes transferred from this host.
        Bytes = "bytes",
        /// The gateway's: from the first byte of the `ClientHello` to the client's `Finished`.
        Handshake = "handshake",
        /// The gateway's: the round-trip time that the kernel measured.
        RoundTrip = "rtt",
        /// The gateway's: the wait for the key operation.
        Queue = "queue",
        /// The gateway's: from handing the request to the upstream to the head of its response.
        Upstream = "upstream",
    }
}

/// The number of metrics.
pub(crate) const METRICS: usize = Metric::ALL.len();

/// Ten minutes: what takes longer is no visitor's wait.
const LONGEST_MS: f64 = 600_000.0;

impl Metric {
    /// The greatest value that is kept.
    pub const fn limit(self) -> f64 {
        match self {
            Self::Shift => 1_000.0,
            Self::Connections => 10_000.0,
            Self::Bytes => 4e9,
            _ => LONGEST_MS,
        }
    }

    /// The unit in which it is shown; empty for what is a number.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Shift | Self::Connections => "",
            Self::Bytes => "B",
            _ => "ms",
        }
    }

    /// Whether it is a time, in milliseconds.
    pub const fn is_time(self) -> bool {
        !matches!(self, Self::Shift | Self::Connections | Self::Bytes)
    }

    /// Whether the arms of experiments can be compared by it: a time that a visitor waits, and not a part of one that the arm may
    /// shift to another.
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

    /// The value that has the second code: smaller ones are kept to within about this.
    const fn grain(self) -> f64 {
        match self {
            Self::Shift => 1e-4,
            Self::Bytes => 100.0,
            _ => 0.01,
        }
    }
}

/// Steps per factor of e, so that the greatest value of each metric has a code.
const STEPS: f64 = 3_600.0;

/// The measured values of one visit. Any of them may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measures([u16; METRICS]);

impl Default for Measures {
    fn default() -> Self {
        Self([0; METRICS])
    }
}

impl Measures {
    /// Sets a value. Returns whether it is one that can be kept: neither negative nor beyond [the limit](Metric::limit).
    pub fn set(&mut self, metric: Metric, value: f64) -> bool {
        let is_kept = (0.0..=metric.limit()).contains(&value);
        if is_kept {
            self.0[metric as usize] = 1 + ((value / metric.grain()).ln_1p() * STEPS).round() as u16;
        }
        is_kept
    }

    /// The value, if there is one.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        let code = self.0[metric as usize].checked_sub(1)?;
        let value = (f64::from(code) / STEPS).exp_m1() * metric.grain();
        Some(if metric == Metric::Connections { value.round() } else { value })
    }

    /// Takes a value out.
    pub fn remove(&mut self, metric: Metric) {
        self.0[metric as usize] = 0;
    }

    /// Takes over all values that `others` has.
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

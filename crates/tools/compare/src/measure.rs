//! Measures for the comparison of two runs.

use std::str::FromStr;

use brisk_report::figures;

macro_rules! measures {
    ($($(#[$doc:meta])* $measure:ident = $name:literal, $title:literal;)+) => {
        /// One figure of a run.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Measure {
            $($(#[$doc])* $measure,)+
        }

        impl Measure {
            /// All measures in the order of definition.
            pub const ALL: &'static [Self] = &[$(Self::$measure),+];

            /// Name in plans and in JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$measure => $name,)+
                }
            }

            /// Name and unit in tables.
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$measure => $title,)+
                }
            }
        }
    };
}

measures! {
    /// Operations per second.
    Rate = "rate", "rate /s";
    /// Processor time of the server per operation, in microseconds.
    ServerCpu = "server-cpu", "server CPU µs";
    /// Processor time of the client per operation, in microseconds.
    ClientCpu = "client-cpu", "client CPU µs";
    /// Processor time of the server divided by wall-clock time; above one if it used several cores.
    ServerBusy = "server-busy", "server busy";
    /// Mean latency of an operation, in microseconds, as are all latencies below.
    Mean = "mean", "mean µs";
    /// Median latency.
    P50 = "p50", "p50 µs";
    /// 90th percentile of the latency.
    P90 = "p90", "p90 µs";
    /// 99th percentile.
    P99 = "p99", "p99 µs";
    /// 99.9th percentile.
    P999 = "p99.9", "p99.9 µs";
    /// Median duration of the handshake.
    TlsP50 = "tls-p50", "TLS p50 µs";
    /// Mean duration of the handshake.
    TlsMean = "tls-mean", "TLS mean µs";
    /// Median time until the first byte of the response.
    FirstByteP50 = "first-byte-p50", "first byte p50 µs";
    /// Bytes sent for a handshake.
    HandshakeSent = "handshake-sent", "bytes sent";
    /// Bytes received for a handshake.
    HandshakeReceived = "handshake-received", "bytes received";
    /// Body bytes received per second of the server's processor time.
    BytesPerCpu = "bytes-per-cpu", "MB per CPU second";
    /// Peak memory of the server, in bytes.
    Memory = "memory", "memory MiB";
}

impl FromStr for Measure {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().copied().find(|measure| measure.name() == text);
        let names = || Self::ALL.iter().map(|measure| measure.name()).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| format!("{text:?} is no measure: write one of {}", names()))
    }
}

impl Measure {
    /// Formats a value without its unit, which is in [`title`](Self::title).
    pub fn show(self, value: f64) -> String {
        match self {
            Self::ServerBusy => figures::percent(value),
            Self::BytesPerCpu => figures::number(value / 1e6),
            Self::Memory => figures::number(value / f64::from(1 << 20)),
            _ => figures::number(value),
        }
    }
}

/// The value of each [`Measure`] of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample(Vec<Option<f64>>);

impl Sample {
    /// Collects the value of every [`Measure::ALL`]; `None` for measures that the run does not have.
    pub fn new(value: impl FnMut(Measure) -> Option<f64>) -> Self {
        Self(Measure::ALL.iter().copied().map(value).collect())
    }

    /// The value of `measure`; `None` if the run does not have it.
    pub fn get(&self, measure: Measure) -> Option<f64> {
        // `ALL` has the order of definition, so the discriminant is the index.
        self.0[measure as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measure_is_found_by_its_name() {
        for (index, measure) in Measure::ALL.iter().enumerate() {
            assert_eq!(measure.name().parse(), Ok(*measure));
            assert_eq!(*measure as usize, index);
        }
        assert!("speed".parse::<Measure>().unwrap_err().contains("rate, server-cpu, client-cpu"));
    }
}

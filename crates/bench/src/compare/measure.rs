//! What can be compared of two runs.

use std::str::FromStr;

use brisk_report::figures;

use crate::result::{RunResult, Unit};

macro_rules! measures {
    ($($(#[$doc:meta])* $measure:ident = $name:literal, $title:literal;)+) => {
        /// One figure of a run.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Measure {
            $($(#[$doc])* $measure,)+
        }

        impl Measure {
            /// All, in the order of definition.
            pub const ALL: &'static [Self] = &[$(Self::$measure),+];

            /// Its name in plans and in JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$measure => $name,)+
                }
            }

            /// Its name and unit in tables.
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
    /// Part of the time in which the server computed; above one with several cores.
    ServerBusy = "server-busy", "server busy";
    /// Mean latency of an operation, in microseconds; likewise below.
    Mean = "mean", "mean µs";
    /// Median latency.
    P50 = "p50", "p50 µs";
    /// 90 % take no longer.
    P90 = "p90", "p90 µs";
    /// 99 % take no longer.
    P99 = "p99", "p99 µs";
    /// 99.9 % take no longer.
    P999 = "p99.9", "p99.9 µs";
    /// Median time of the handshake.
    TlsP50 = "tls-p50", "TLS p50 µs";
    /// Mean time of the handshake.
    TlsMean = "tls-mean", "TLS mean µs";
    /// Median time until the first byte of the response.
    FirstByteP50 = "first-byte-p50", "first byte p50 µs";
    /// Bytes sent for a handshake.
    HandshakeSent = "handshake-sent", "bytes sent";
    /// Bytes received for a handshake.
    HandshakeReceived = "handshake-received", "bytes received";
    /// Body bytes received per second of the server's processor time.
    BytesPerCpu = "bytes-per-cpu", "MB per CPU second";
    /// The most memory of the server, in bytes.
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
    /// A value of it without the unit, which the title has.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::ServerBusy => figures::percent(value),
            Self::BytesPerCpu => figures::number(value / 1e6),
            Self::Memory => figures::number(value / f64::from(1 << 20)),
            _ => figures::number(value),
        }
    }
}

/// All measures of one run; those that it does not have are missing.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample(Vec<Option<f64>>);

impl Sample {
    /// Of a run.
    pub fn of(result: &RunResult) -> Self {
        Self(Measure::ALL.iter().map(|measure| value(*measure, result)).collect())
    }

    /// One measure.
    pub fn get(&self, measure: Measure) -> Option<f64> {
        self.0[measure as usize]
    }
}

fn value(measure: Measure, result: &RunResult) -> Option<f64> {
    let phases = &result.phases;
    let quantile = |histogram: &hdrhistogram::Histogram<u64>, quantile| {
        (!histogram.is_empty()).then(|| histogram.value_at_quantile(quantile) as f64)
    };
    let mean = |histogram: &hdrhistogram::Histogram<u64>| (!histogram.is_empty()).then(|| histogram.mean());
    let seconds = result.elapsed.as_secs_f64().max(1e-9);
    let traffic = &result.traffic;
    let each = |bytes: u64| (traffic.handshakes > 0).then(|| bytes as f64 / traffic.handshakes as f64);
    let microseconds = |time: std::time::Duration| time.as_secs_f64() * 1e6;
    let server = result.server.as_ref();
    match measure {
        Measure::Rate => Some(result.rate()),
        Measure::ServerCpu => {
            let per_operation = |usage: &crate::result::ServerUsage| match result.unit {
                Unit::Handshake => usage.cpu_per_handshake,
                Unit::Request => usage.cpu_per_request,
            };
            server.and_then(per_operation).map(microseconds)
        }
        Measure::ClientCpu => {
            let operations = result.operations + result.error_count();
            (operations > 0).then(|| microseconds(result.client_cpu) / operations as f64)
        }
        Measure::ServerBusy => server.map(|usage| usage.cpu.as_secs_f64() / seconds),
        Measure::Mean => mean(&phases.total),
        Measure::P50 => quantile(&phases.total, 0.5),
        Measure::P90 => quantile(&phases.total, 0.9),
        Measure::P99 => quantile(&phases.total, 0.99),
        Measure::P999 => quantile(&phases.total, 0.999),
        Measure::TlsP50 => quantile(&phases.tls, 0.5),
        Measure::TlsMean => mean(&phases.tls),
        Measure::FirstByteP50 => quantile(&phases.first_byte, 0.5),
        Measure::HandshakeSent => each(traffic.handshake_sent),
        Measure::HandshakeReceived => each(traffic.handshake_received),
        Measure::BytesPerCpu => {
            let time = server.map(|usage| usage.cpu.as_secs_f64()).filter(|time| *time > 0.0);
            time.map(|time| result.responses.body_bytes as f64 / time)
        }
        Measure::Memory => server.map(|usage| usage.memory_peak as f64),
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

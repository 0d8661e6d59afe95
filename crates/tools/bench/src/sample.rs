//! A finished run as one sample of a comparison.

use std::time::Duration;

use brisk_compare::{Measure, Run, Sample};
use hdrhistogram::Histogram;

use crate::result::{RunResult, ServerUsage, Unit};

impl From<&RunResult> for Run {
    fn from(result: &RunResult) -> Self {
        let error = result.errors.first();
        Self {
            sample: Sample::new(|measure| value(measure, result)),
            operations: result.operations,
            errors: result.error_count(),
            error: error.map(|error| format!("{}: {}", error.cause, error.example)),
        }
    }
}

fn value(measure: Measure, result: &RunResult) -> Option<f64> {
    let phases = &result.phases;
    let quantile = |histogram: &Histogram<u64>, quantile| {
        (!histogram.is_empty()).then(|| histogram.value_at_quantile(quantile) as f64)
    };
    let mean = |histogram: &Histogram<u64>| (!histogram.is_empty()).then(|| histogram.mean());
    let seconds = result.elapsed.as_secs_f64().max(1e-9);
    let traffic = &result.traffic;
    let each = |bytes: u64| (traffic.handshakes > 0).then(|| bytes as f64 / traffic.handshakes as f64);
    let microseconds = |time: Duration| time.as_secs_f64() * 1e6;
    let server = result.server.as_ref();
    match measure {
        Measure::Rate => Some(result.rate()),
        Measure::ServerCpu => {
            let per_operation = |usage: &ServerUsage| match result.unit {
                Unit::Handshake => usage.cpu_per_handshake,
                Unit::Request => usage.cpu_per_request,
            };
            server.and_then(per_operation).map(microseconds)
        }
        Measure::ClientCpu => {
            // Failed operations cost the client processor time too.
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
    use crate::report::tests::sample;

    #[test]
    fn a_run_has_its_figures_and_its_first_error() {
        let run = Run::from(&sample());
        assert_eq!((run.operations, run.errors), (93_000, 12));
        assert!(run.error.unwrap().starts_with("not-resumed: ticket was asked for"));
        assert_eq!(run.sample.get(Measure::Rate), Some(2325.0));
        assert_eq!(run.sample.get(Measure::ServerCpu), Some(334.0));
        assert_eq!(run.sample.get(Measure::HandshakeReceived), Some(1841.0));
        let without_server = RunResult { server: None, ..sample() };
        assert_eq!(Run::from(&without_server).sample.get(Measure::Memory), None);
    }
}

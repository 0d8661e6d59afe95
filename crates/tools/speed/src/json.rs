//! A finished run as JSON. `docs/speed.md` describes names and units. They are stable; fields may be added.

use brisk_keys::BatchChoice;
use brisk_report::json::document;
use serde::Serialize;

use crate::result::{Cost, Figure, Forecast, Row, SpeedResult};

/// Value of the field `schema`. Incremented when a field changes its meaning or is removed.
pub const SCHEMA: u32 = 1;

/// The run as an indented JSON object with a line break at its end. `machine` describes the machine, `program` is the
/// name and version of the measuring program.
pub fn text(result: &SpeedResult, machine: &impl Serialize, program: &str) -> String {
    let report = Report {
        schema: SCHEMA,
        program,
        machine,
        core: result.core,
        seconds: result.time.as_secs_f64(),
        rounds: result.rounds,
        operations: result.rows.iter().map(Measured::of).collect(),
        rsa_batches: result.choices.iter().map(Chosen::of).collect(),
        handshakes: result.handshakes.iter().map(Expected::of).collect(),
    };
    document(&report)
}

#[derive(Serialize)]
struct Report<'a, M> {
    schema: u32,
    program: &'a str,
    machine: &'a M,
    core: usize,
    seconds: f64,
    rounds: u32,
    operations: Vec<Measured>,
    rsa_batches: Vec<Chosen>,
    handshakes: Vec<Expected>,
}

/// Missing figures are `null`; `missing` contains the reason.
#[derive(Serialize)]
struct Measured {
    algorithm: &'static str,
    operation: &'static str,
    batch: usize,
    bytes: Option<usize>,
    count: Option<u64>,
    per_s: Option<f64>,
    us_median: Option<f64>,
    us_p99: Option<f64>,
    mb_per_s: Option<f64>,
    missing: Option<String>,
}

impl Measured {
    fn of(row: &Row) -> Self {
        let operation = row.operation;
        let figure: Option<Figure> = row.figure.ok();
        Self {
            algorithm: operation.algorithm.name(),
            operation: operation.action.name(),
            batch: operation.batch,
            bytes: operation.bytes,
            count: figure.map(|figure| figure.count),
            per_s: figure.map(|figure| figure.rate),
            us_median: figure.map(|figure| figure.median),
            us_p99: figure.map(|figure| figure.p99),
            mb_per_s: row.megabytes(),
            missing: row.figure.err().map(|missing| missing.to_string()),
        }
    }
}

/// How `brisk serve` performs RSA operations of one size. `size` is 1 without batches.
#[derive(Serialize)]
struct Chosen {
    bits: usize,
    size: usize,
    engine: Option<&'static str>,
    gain: Option<f64>,
}

impl Chosen {
    fn of(choice: &BatchChoice) -> Self {
        Self {
            bits: choice.bits(),
            size: choice.operations(),
            engine: choice.instructions_name(),
            gain: choice.gain(),
        }
    }
}

#[derive(Serialize)]
struct Expected {
    handshake: &'static str,
    derived: bool,
    count: Option<u64>,
    cpu_us: Option<f64>,
    per_s_and_core: Option<f64>,
    missing: Option<String>,
}

impl Expected {
    fn of(forecast: &Forecast) -> Self {
        let cost: Option<Cost> = forecast.cost.ok();
        Self {
            handshake: forecast.handshake.name(),
            derived: forecast.handshake.is_derived(),
            count: cost.map(|cost| cost.count),
            cpu_us: cost.map(|cost| cost.cpu),
            per_s_and_core: cost.map(|cost| cost.rate()),
            missing: forecast.cost.err().map(|missing| missing.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::result::{Action, Handshake, Missing, Operation};
    use crate::subject::Algorithm;

    #[test]
    fn what_is_missing_is_null_and_says_why() {
        let operation =
            Operation { algorithm: Algorithm::Rsa2048, action: Action::Sign, batch: 1, bytes: None };
        let figure = Figure { count: 40, rate: 4000.0, median: 250.0, p99: 260.0 };
        let together = Operation { batch: 4, ..operation };
        let result = SpeedResult {
            core: 3,
            time: Duration::from_millis(1500),
            rounds: 20,
            rows: vec![
                Row { operation, figure: Ok(figure) },
                Row { operation: together, figure: Err(Missing::Lanes) },
            ],
            choices: Vec::new(),
            handshakes: vec![Forecast {
                handshake: Handshake::Resumed,
                cost: Ok(Cost { count: 9, cpu: 80.0 }),
            }],
        };
        let text = text(&result, &json!({ "cores": 8 }), "brisk 1");
        let wanted = json!({
            "schema": 1, "program": "brisk 1", "machine": { "cores": 8 }, "core": 3, "seconds": 1.5, "rounds": 20,
            "operations": [
                {
                    "algorithm": "rsa2048", "operation": "sign", "batch": 1, "bytes": null, "count": 40,
                    "per_s": 4000.0, "us_median": 250.0, "us_p99": 260.0, "mb_per_s": null, "missing": null,
                },
                {
                    "algorithm": "rsa2048", "operation": "sign", "batch": 4, "bytes": null, "count": null,
                    "per_s": null, "us_median": null, "us_p99": null, "mb_per_s": null,
                    "missing": "no AVX2 and FMA",
                },
            ],
            "rsa_batches": [],
            "handshakes": [{
                "handshake": "resumed-ticket", "derived": false, "count": 9, "cpu_us": 80.0,
                "per_s_and_core": 12500.0, "missing": null,
            }],
        });
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), wanted);
        assert!(text.ends_with("}\n"));
    }
}

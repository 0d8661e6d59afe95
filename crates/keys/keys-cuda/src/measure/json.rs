//! Report of a run as JSON. `docs/speed.md` describes names and units, which are stable; fields may be added.

use std::time::Duration;

use brisk_keys::device::Width;
use serde::Serialize;
use serde_json::{Value, json};

use super::{CudaResult, CudaRow, Point, Variant};

/// Version of the format.
const SCHEMA: u32 = 1;

/// The report as an indented JSON object with a final line break. `machine` describes the machine, `program` is the
/// name and version of the program.
pub fn text(result: &CudaResult, machine: &impl Serialize, program: &str) -> String {
    let settings = &result.settings;
    let report = json!({
        "schema": SCHEMA,
        "program": program,
        "machine": machine,
        "gpu": result.gpu,
        "processor_threads": result.processor_threads,
        "seconds": result.time.as_secs_f64(),
        "wait_us": micros(settings.wait),
        "streams": settings.streams,
        "rsa": result.rows.iter().map(row).collect::<Vec<_>>(),
        "verified": result.verified.iter().map(|verified| json!({
            "algorithm": name(verified.width),
            "keys": verified.keys,
            "operations": verified.operations,
            "on_gpu": verified.on_gpu,
            "faults": verified.faults,
            "wrong": verified.wrong,
        })).collect::<Vec<_>>(),
        "variants": result.variants.iter().map(variant).collect::<Vec<_>>(),
    });
    format!("{report:#}\n")
}

fn row(row: &CudaRow) -> Value {
    let times = &row.times;
    json!({
        "algorithm": name(row.width),
        "gpu_per_s": row.rate(),
        "processor_per_s": row.processor_rate(),
        "threshold": row.threshold,
        "launch_of_one_us": micros(times.one),
        "launch_us": micros(times.wave),
        "launch_operations": times.wave_operations,
        "resident_operations": times.layout.resident,
        "threads": times.layout.threads,
        "block": times.layout.block,
        "window": times.layout.window,
        "registers": times.layout.registers,
        "spilled_bytes": times.layout.spilled,
        "at_80_percent": point(&row.paced),
        "gpu": row.gpu.iter().map(point).collect::<Vec<_>>(),
        "processor": row.processor.iter().map(point).collect::<Vec<_>>(),
    })
}

fn point(point: &Point) -> Value {
    json!({
        "under_way": point.under_way,
        "offered_per_s": point.offered,
        "per_s": point.rate,
        "us_median": point.median,
        "us_p99": point.p99,
    })
}

fn variant(variant: &Variant) -> Value {
    let (layout, point) = (&variant.layout, variant.outcome.as_ref().ok());
    json!({
        "algorithm": name(variant.width),
        "threads": layout.threads,
        "block": layout.block,
        "window": layout.window,
        "registers": layout.registers,
        "spilled_bytes": layout.spilled,
        "resident_operations": layout.resident,
        "per_s": point.map(|point| point.rate),
        "us_median": point.map(|point| point.median),
        "us_p99": point.map(|point| point.p99),
        "missing": variant.outcome.as_ref().err(),
    })
}

/// Name of the algorithm, as in `brisk speed`.
fn name(width: Width) -> String {
    format!("rsa{}", width.bits())
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

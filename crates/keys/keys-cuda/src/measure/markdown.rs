//! Report of a run as Markdown tables.

use std::fmt::Write;

use super::{CudaResult, CudaRow, Point, Variant};

/// The tables, after a line about the machine.
pub fn text(result: &CudaResult, machine: &str) -> String {
    let mut text = format!("{}; {} threads of {machine}\n\n", result.gpu, result.processor_threads);
    text += "| | GPU, operations/s | processor, operations/s | at 80 %: median, ms | p99, ms | launch of 1, ms | launch, ms | of operations |\n";
    text += "|---|---:|---:|---:|---:|---:|---:|---:|\n";
    for row in &result.rows {
        text += &summary(row);
    }
    for row in &result.rows {
        text += &curve(row);
    }
    if !result.verified.is_empty() {
        text +=
            "\n| compared with AWS-LC | keys | operations | on the GPU | failed the GPU's check | wrong |\n";
        text += "|---|---:|---:|---:|---:|---:|\n";
    }
    for verified in &result.verified {
        let counts = [
            verified.keys as u64,
            verified.operations as u64,
            verified.on_gpu,
            verified.faults,
            verified.wrong,
        ];
        text += &line(&verified.width.to_string(), counts.map(|count| grouped(count as f64)));
    }
    if !result.variants.is_empty() {
        text += "\n| layout | threads | block | window | registers | spilled, bytes | room for | operations/s | p99, ms |\n";
        text += "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
    }
    for variant in result.variants.iter().filter(|variant| variant.outcome.is_ok()) {
        text += &layout(variant);
    }
    text
}

fn summary(row: &CudaRow) -> String {
    let (times, paced) = (&row.times, &row.paced);
    let milliseconds = |time: std::time::Duration| format!("{:.2}", time.as_secs_f64() * 1e3);
    line(
        &row.width.to_string(),
        [
            grouped(row.rate()),
            grouped(row.processor_rate()),
            self::milliseconds(paced.median),
            self::milliseconds(paced.p99),
            milliseconds(times.one),
            milliseconds(times.wave),
            grouped(times.wave_operations as f64),
        ],
    )
}

/// Latency against load.
fn curve(row: &CudaRow) -> String {
    let mut text = format!("\n| {}, under way | operations/s | median, ms | p99, ms |\n", row.width);
    text += "|---|---:|---:|---:|\n";
    for (name, points) in [("processor", &row.processor), ("GPU", &row.gpu)] {
        for point in points {
            let under_way = point.under_way.unwrap_or_default();
            text += &line(&format!("{name}, {}", grouped(under_way as f64)), of_point(point));
        }
    }
    text
}

fn of_point(point: &Point) -> [String; 3] {
    [grouped(point.rate), milliseconds(point.median), milliseconds(point.p99)]
}

fn layout(variant: &Variant) -> String {
    let layout = &variant.layout;
    let numbers = [layout.threads, layout.block, layout.window, layout.registers, layout.spilled];
    let mut cells: Vec<_> = numbers.map(|number| number.to_string()).to_vec();
    cells.push(grouped(layout.resident as f64));
    if let Ok(point) = &variant.outcome {
        cells.extend([grouped(point.rate), milliseconds(point.p99)]);
    }
    line(&variant.width.to_string(), cells)
}

fn line(first: &str, cells: impl IntoIterator<Item = String>) -> String {
    let mut line = format!("| {first} |");
    for cell in cells {
        write!(line, " {cell} |").expect("text takes all that is written to it");
    }
    line + "\n"
}

/// Formats microseconds as milliseconds.
fn milliseconds(micros: f64) -> String {
    format!("{:.2}", micros / 1e3)
}

/// Formats an integer with commas.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(|group| String::from_utf8_lossy(group)).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use brisk_keys::device::Width;
    use serde_json::Value;

    use super::*;
    use crate::measure::{Comparison, json};
    use crate::{CudaLayout, CudaSettings, CudaTimes};

    fn result() -> CudaResult {
        let point = |under_way, rate: f64| Point {
            under_way: Some(under_way),
            offered: None,
            rate,
            median: 2500.0,
            p99: 4321.0,
        };
        let layout =
            CudaLayout { threads: 4, block: 32, window: 4, registers: 96, spilled: 0, resident: 7392 };
        let times = CudaTimes {
            one: Duration::from_micros(1500),
            wave: Duration::from_micros(3250),
            wave_operations: 3696,
            processor: Duration::from_micros(60),
            layout,
        };
        let width = Width::Rsa2048;
        CudaResult {
            gpu: "A GPU, 132 multiprocessors".into(),
            processor_threads: 16,
            settings: CudaSettings::default(),
            time: Duration::from_secs(1),
            rows: vec![CudaRow {
                width,
                times,
                threshold: Some(934),
                processor: vec![point(1, 5000.0), point(64, 250_000.0)],
                gpu: vec![point(1, 300.0), point(22_176, 1_234_567.0)],
                paced: Point { under_way: None, offered: Some(987_654.0), ..point(0, 987_000.0) },
            }],
            variants: vec![
                Variant { width, layout, outcome: Ok(point(22_176, 1_200_000.0)) },
                Variant { width, layout, outcome: Err("too much".into()) },
            ],
            verified: vec![Comparison {
                width,
                keys: 1000,
                operations: 100_000,
                on_gpu: 99_666,
                faults: 0,
                wrong: 0,
            }],
        }
    }

    #[test]
    fn tables_hold_what_was_measured() {
        let expected = "\
A GPU, 132 multiprocessors; 16 threads of a machine

| | GPU, operations/s | processor, operations/s | at 80 %: median, ms | p99, ms | launch of 1, ms | launch, ms | of operations |
|---|---:|---:|---:|---:|---:|---:|---:|
| RSA-2048 | 1,234,567 | 250,000 | 2.50 | 4.32 | 1.50 | 3.25 | 3,696 |

| RSA-2048, under way | operations/s | median, ms | p99, ms |
|---|---:|---:|---:|
| processor, 1 | 5,000 | 2.50 | 4.32 |
| processor, 64 | 250,000 | 2.50 | 4.32 |
| GPU, 1 | 300 | 2.50 | 4.32 |
| GPU, 22,176 | 1,234,567 | 2.50 | 4.32 |

| compared with AWS-LC | keys | operations | on the GPU | failed the GPU's check | wrong |
|---|---:|---:|---:|---:|---:|
| RSA-2048 | 1,000 | 100,000 | 99,666 | 0 | 0 |

| layout | threads | block | window | registers | spilled, bytes | room for | operations/s | p99, ms |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
| RSA-2048 | 4 | 32 | 4 | 96 | 0 | 7,392 | 1,200,000 | 4.32 |
";
        assert_eq!(text(&result(), "a machine"), expected);
    }

    #[test]
    fn programs_read_the_same() {
        let text = json::text(&result(), &serde_json::json!({ "cores": 16 }), "brisk 1");
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["machine"]["cores"], 16);
        let row = &value["rsa"][0];
        assert_eq!((&row["gpu_per_s"], &row["threshold"]), (&1_234_567.0.into(), &934.into()));
        assert_eq!(row["at_80_percent"]["offered_per_s"], 987_654.0);
        assert_eq!(row["gpu"][1]["under_way"], 22_176);
        assert_eq!(row["launch_of_one_us"], 1500.0);
        assert_eq!(value["variants"][1]["missing"], "too much");
        assert_eq!((&value["variants"][1]["per_s"], &value["wait_us"]), (&Value::Null, &2000.0.into()));
        assert_eq!(value["verified"][0]["wrong"], 0);
    }
}

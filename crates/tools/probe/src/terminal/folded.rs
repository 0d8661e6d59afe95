//! Steps with the records of a body on one line.

use brisk_handshake_view::{StepRow, Waited};

/// Fewest consecutive data records of one side that become one line.
const FEWEST: usize = 3;

/// The steps; consecutive records with data of one side are one step with their sum. The times are those of the last.
pub(super) fn folded(steps: &[StepRow]) -> Vec<StepRow> {
    let is_data = |row: &StepRow| row.name == "application_data";
    let runs = steps.chunk_by(|one, next| is_data(one) && is_data(next) && one.from == next.from);
    runs.flat_map(|run| if run.len() < FEWEST { run.to_vec() } else { vec![sum(run)] }).collect()
}

fn sum(run: &[StepRow]) -> StepRow {
    let (first, last) = (&run[0], &run[run.len() - 1]);
    StepRow {
        name: format!("{} ({})", first.name, run.len()),
        bytes: run.iter().map(|row| row.bytes).sum(),
        records: last.record + last.records - first.record,
        wire_bytes: run.iter().map(|row| row.wire_bytes).sum(),
        at_ms: last.at_ms,
        since_ms: run.iter().map(|row| row.since_ms).sum(),
        round: last.round,
        waited: waited(run),
        at: last.at,
        ..first.clone()
    }
}

fn waited(run: &[StepRow]) -> Waited {
    let mut sums: Option<(f64, f64)> = None;
    for row in run {
        if let Waited::Server { network_ms, server_ms } = row.waited {
            let (network, server) = sums.unwrap_or_default();
            sums = Some((network + network_ms, server + server_ms));
        }
    }
    let is_client = run.iter().any(|row| row.waited == Waited::Client);
    match sums {
        Some((network_ms, server_ms)) => Waited::Server { network_ms, server_ms },
        None if is_client => Waited::Client,
        None => Waited::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use brisk_handshake_view::Party;

    use super::*;

    fn row(record: usize, name: &str, from: Party) -> StepRow {
        StepRow {
            from,
            name: name.to_owned(),
            offset: 0,
            bytes: 100,
            record,
            records: 1,
            wire_bytes: 122,
            is_encrypted: true,
            at_ms: record as f64,
            since_ms: 1.0,
            round: 2,
            waited: Waited::Server { network_ms: 0.5, server_ms: 0.25 },
            at: Instant::now(),
        }
    }

    #[test]
    fn three_data_records_of_a_side_are_one_line() {
        let data = "application_data";
        let mut steps: Vec<_> = (3..7).map(|record| row(record, data, Party::Server)).collect();
        steps.insert(0, row(2, "Finished", Party::Server));
        steps.extend([row(1, data, Party::Client), row(7, data, Party::Server), row(8, data, Party::Server)]);
        let folded = folded(&steps);
        let names: Vec<_> = folded.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["Finished", "application_data (4)", data, data, data]);
        let one = &folded[1];
        assert_eq!((one.bytes, one.wire_bytes, one.record, one.records), (400, 488, 3, 4));
        assert_eq!((one.at_ms, one.since_ms), (6.0, 4.0));
        assert_eq!(one.waited, Waited::Server { network_ms: 2.0, server_ms: 1.0 });
    }
}

//! A finished run as text for a terminal.

use brisk_report::figures::number;
use brisk_report::terminal::WIDTH;
use brisk_report::{Machine, Table};

use crate::result::{Forecast, Handshake, Row, SpeedResult};

/// A table of the operations and, if they were measured, one of the handshakes. Lines have at most [`WIDTH`]
/// characters.
pub fn text(result: &SpeedResult, machine: &Machine) -> String {
    let tables = [operations(result, machine), handshakes(result)];
    let tables = tables.iter().filter(|table| !table.is_empty());
    tables.map(|table| table.to_text(WIDTH)).collect::<Vec<_>>().join("\n")
}

fn operations(result: &SpeedResult, machine: &Machine) -> Table {
    let mut table = Table::new(format!("Core {} of {}", result.core, machine.line()))
        .text("algorithm")
        .text("operation")
        .figures(["operations/s", "µs, median", "µs, p99", "MB/s"]);
    for row in &result.rows {
        table.row(operation(row));
    }
    for choice in &result.choices {
        table.note(format!("brisk serve performs RSA with {choice}."));
    }
    table
}

fn operation(row: &Row) -> Vec<String> {
    let mut cells = vec![row.operation.algorithm.to_string(), row.operation.description()];
    match row.figure {
        Ok(figure) => cells.extend([figure.rate, figure.median, figure.p99].map(number)),
        Err(missing) => cells.push(missing.to_string()),
    }
    cells.extend(row.megabytes().map(number));
    cells
}

fn handshakes(result: &SpeedResult) -> Table {
    let mut table = Table::new("TLS 1.3 handshakes that this core can be expected to serve")
        .text("handshake")
        .figures(["µs of CPU", "per second"])
        .text("");
    for forecast in &result.handshakes {
        table.row(handshake(forecast));
    }
    table.note(
        "The server's thread, its connections over loopback: the kernel's work is in, HTTP is not. docs/speed.md has more.",
    );
    table
}

fn handshake(forecast: &Forecast) -> Vec<String> {
    let mut cells = vec![forecast.handshake.title().to_owned()];
    match forecast.cost {
        Ok(cost) => cells.extend([cost.cpu, cost.rate()].map(number)),
        Err(missing) => cells.extend([String::new(), missing.to_string()]),
    }
    if forecast.handshake == Handshake::Rsa2048Batched && forecast.cost.is_ok() {
        cells.push("derived, not measured".to_owned());
    }
    cells
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::result::{Action, Cost, Figure, Missing, Operation};
    use crate::subject::Algorithm;

    fn result() -> SpeedResult {
        let operation =
            Operation { algorithm: Algorithm::Rsa2048, action: Action::Sign, batch: 1, bytes: None };
        let seal = Operation {
            algorithm: Algorithm::Aes128Gcm,
            action: Action::Seal,
            batch: 1,
            bytes: Some(16 * 1024),
        };
        let figure = |median: f64| Ok(Figure { count: 9, rate: 1e6 / median, median, p99: median * 1.1 });
        let forecast = |handshake, cpu| Forecast { handshake, cost: Ok(Cost { count: 9, cpu }) };
        SpeedResult {
            core: 1,
            time: Duration::from_secs(1),
            rounds: 20,
            rows: vec![
                Row { operation, figure: figure(250.0) },
                Row { operation: Operation { batch: 4, ..operation }, figure: Err(Missing::Lanes) },
                Row { operation: seal, figure: figure(2.0) },
            ],
            choices: Vec::new(),
            handshakes: vec![
                forecast(Handshake::Rsa2048, 400.0),
                Forecast { handshake: Handshake::Rsa2048Batched, cost: Err(Missing::Lanes) },
                forecast(Handshake::Resumed, 80.0),
            ],
        }
    }

    fn machine() -> Machine {
        let [processor, system, kernel] = ["A processor", "a system", "Linux 1"].map(str::to_owned);
        Machine { processor, cores: 2, system, kernel }
    }

    #[test]
    fn tables_say_what_is_missing_and_why() {
        let expected = "\
Core 1 of A processor, 2 cores, Linux 1, a system
  algorithm    operation              operations/s  µs, median  µs, p99   MB/s
  RSA-2048     sign                          4,000         250      275
  RSA-2048     sign, batches of 4  no AVX2 and FMA
  AES-128-GCM  seal 16 KiB                 500,000        2.00     2.20  8,192

TLS 1.3 handshakes that this core can be expected to serve
  handshake                          µs of CPU       per second
  full, RSA-2048, X25519                   400            2,500
  full, RSA-2048 in batches, X25519             no AVX2 and FMA
  resumed by ticket, X25519               80.0           12,500
  The server's thread, its connections over loopback: the kernel's work is in, HTTP is not.
  docs/speed.md has more.
";
        assert_eq!(text(&result(), &machine()), expected);
    }

    #[test]
    fn without_handshakes_there_is_one_table() {
        let result = SpeedResult { handshakes: Vec::new(), ..result() };
        assert!(!text(&result, &machine()).contains("handshakes"));
    }

    #[test]
    fn what_is_derived_says_so() {
        let forecast =
            Forecast { handshake: Handshake::Rsa2048Batched, cost: Ok(Cost { count: 0, cpu: 200.0 }) };
        assert_eq!(handshake(&forecast)[3], "derived, not measured");
    }
}

//! `brisk speed`: measures every algorithm and real handshakes, and refuses unknown names.

use std::process::Command;

use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::LIMIT;
use brisk_testkit::process::{Finished, run};
use serde_json::Value;

/// All operations, in their order: algorithm, operation, batch (2 for RSA that goes together, two or four), bytes.
const OPERATIONS: [(&str, &str, u64, Option<u64>); 33] = [
    ("rsa2048", "sign", 1, None),
    ("rsa2048", "sign", 2, None),
    ("rsa2048", "verify", 1, None),
    ("rsa3072", "sign", 1, None),
    ("rsa3072", "sign", 2, None),
    ("rsa3072", "verify", 1, None),
    ("rsa4096", "sign", 1, None),
    ("rsa4096", "sign", 2, None),
    ("rsa4096", "verify", 1, None),
    ("p256", "sign", 1, None),
    ("p256", "sign", 8, None),
    ("p256", "verify", 1, None),
    ("p384", "sign", 1, None),
    ("p384", "verify", 1, None),
    ("ed25519", "sign", 1, None),
    ("ed25519", "verify", 1, None),
    ("x25519", "keygen", 1, None),
    ("x25519", "keygen", 8, None),
    ("x25519", "exchange", 1, None),
    ("x25519", "exchange", 8, None),
    ("x25519mlkem768", "keygen", 1, None),
    ("x25519mlkem768", "exchange", 1, None),
    ("x25519mlkem768", "exchange", 8, None),
    ("mlkem768", "encapsulate", 1, None),
    ("mlkem768", "encapsulate", 8, None),
    ("aes128gcm", "seal", 1, Some(16384)),
    ("aes128gcm", "seal", 1, Some(1350)),
    ("aes256gcm", "seal", 1, Some(16384)),
    ("aes256gcm", "seal", 1, Some(1350)),
    ("chacha20poly1305", "seal", 1, Some(16384)),
    ("chacha20poly1305", "seal", 1, Some(1350)),
    ("sha256", "hash", 1, Some(16384)),
    ("sha256", "hash", 1, Some(1350)),
];

const HANDSHAKES: [&str; 5] =
    ["full-ecdsa-p256", "full-ecdsa-p256-mlkem768", "full-rsa2048", "full-rsa2048-batched", "resumed-ticket"];

fn speed(options: &str) -> Finished {
    let mut command = Command::new(brisk_program());
    command.arg("speed").args(options.split_whitespace());
    run(&mut command, b"", LIMIT)
}

fn measured(options: &str) -> Value {
    let text = speed(&format!("{options} --json")).success();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn list<'a>(result: &'a Value, name: &str) -> &'a [Value] {
    result[name].as_array().expect("a list")
}

/// Operations per second of an algorithm, the first of its kind.
fn rate(result: &Value, algorithm: &str, operation: &str) -> f64 {
    let is = |row: &&Value| row["algorithm"] == algorithm && row["operation"] == operation;
    let row = list(result, "operations").iter().find(is).expect("an operation");
    row["per_s"].as_f64().expect("a number")
}

#[test]
fn every_algorithm_is_measured_and_the_strong_ones_are_slower() {
    let result = measured("--seconds 0.05");
    let operations = list(&result, "operations").iter().map(|row| {
        let text = |name: &str| row[name].as_str().expect("a name");
        (
            text("algorithm"),
            text("operation"),
            match row["batch"].as_u64() {
                Some(4) => 2,
                other => other.expect("a number"),
            },
            row["bytes"].as_u64(),
        )
    });
    assert!(operations.eq(OPERATIONS), "{result}");
    for row in list(&result, "operations") {
        let missing = if row["batch"] == 8 { "no AVX-512" } else { "no AVX2 and FMA" };
        // What else runs on the machine may make a batch seem slower.
        if row["batch"] != 1 && [missing, "slower here"].iter().any(|reason| row["missing"] == *reason) {
            assert!(row["per_s"].is_null(), "{row}");
            continue;
        }
        let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name} in {row}"));
        assert!(number("count") >= 3.0 && number("per_s") > 0.0, "{row}");
        assert!(number("us_median") > 0.0 && number("us_p99") >= number("us_median"), "{row}");
        assert_eq!(row["mb_per_s"].is_null(), row["bytes"].is_null(), "{row}");
        assert!(row["missing"].is_null(), "{row}");
    }
    let sign = |algorithm| rate(&result, algorithm, "sign");
    assert!(sign("rsa2048") > sign("rsa3072") && sign("rsa3072") > sign("rsa4096"), "{result}");
    assert!(sign("p256") > sign("p384") && sign("p256") > sign("rsa2048"), "{result}");
    let exchange = |algorithm| rate(&result, algorithm, "exchange");
    assert!(exchange("x25519") > exchange("x25519mlkem768"), "{result}");
    assert!(result["machine"]["cores"].as_u64().expect("a number") >= 1, "{result}");
    handshakes_are_sane(&result);
}

fn handshakes_are_sane(result: &Value) {
    let handshakes = list(result, "handshakes");
    let names = handshakes.iter().map(|row| row["handshake"].as_str().expect("a name"));
    assert!(names.eq(HANDSHAKES), "{result}");
    let cost = |name: &str| {
        let row = handshakes.iter().find(|row| row["handshake"] == name).expect("a handshake");
        let cpu = row["cpu_us"].as_f64().expect("a number");
        let product = cpu * row["per_s_and_core"].as_f64().expect("a number");
        assert!((product - 1e6).abs() < 1.0, "{row}");
        cpu
    };
    assert!(cost("full-rsa2048") > cost("full-ecdsa-p256"), "{result}");
    assert!(cost("full-ecdsa-p256") > 0.0 && cost("full-ecdsa-p256-mlkem768") > 0.0, "{result}");
    assert!(cost("resumed-ticket") < cost("full-rsa2048"), "{result}");
    for row in handshakes {
        let is_derived = row["handshake"] == "full-rsa2048-batched";
        assert_eq!(row["derived"], is_derived, "{row}");
        assert!(is_derived || row["count"].as_u64() > Some(0), "{row}");
    }
}

#[test]
fn names_restrict_what_is_measured() {
    let result = measured("SHA-256 p256 --seconds 0.01");
    let mut names: Vec<_> = list(&result, "operations").iter().map(|row| &row["algorithm"]).collect();
    names.dedup();
    assert_eq!(names, ["p256", "sha256"], "in the order of the table, not of the command line");
    assert!(list(&result, "handshakes").is_empty(), "{result}");
}

#[test]
fn handshakes_come_with_the_signatures_they_are_made_of() {
    let text = speed("handshakes --seconds 0.01").success();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("Core "), "{text}");
    assert!(
        lines[2].trim_start().starts_with("RSA-2048") && lines[3].contains("sign, batches of "),
        "{text}"
    );
    assert!(text.contains("  resumed by ticket, X25519"), "{text}");
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (options, hint) in [
        ("rsa2049", "'rsa2048'"),
        ("--core 100000", "core 100000 is none of those that this process may run on: "),
        ("--seconds 0", "write seconds"),
    ] {
        let finished = speed(options);
        assert_eq!(finished.status.code(), Some(2), "{options}: {finished:?}");
        assert!(finished.stderr.contains(hint), "{options}: {finished:?}");
    }
}

#[cfg(feature = "cuda")]
#[test]
fn without_a_gpu_its_measurement_says_in_a_line_what_is_missing() {
    let output = speed("--engine cuda --device 999");
    assert_eq!(output.status.code(), Some(1), "{}", output.text());
    assert!(output.stderr.starts_with("no N") && output.stderr.lines().count() == 1, "{}", output.stderr);
    let output = speed("p256 --engine cuda");
    assert_eq!(output.status.code(), Some(2), "{}", output.text());
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_program_that_knows_no_gpu_says_so() {
    let output = speed("--engine cuda");
    assert_eq!(output.status.code(), Some(2), "{}", output.text());
    assert!(output.stderr.contains("--features cuda"), "{}", output.stderr);
}

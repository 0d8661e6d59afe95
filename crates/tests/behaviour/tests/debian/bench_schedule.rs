//! Schedule of `brisk bench`: start times of operations, and the start of their latency.

use std::thread::sleep;
use std::time::{Duration, Instant};

use brisk_testkit::process::{Process, wait_until};
use rustix::process::Signal;
use serde_json::Value;

use crate::bench::{Target, bench, finished, json};

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The result of a run with `options` at a server that stands still for a second. `is_early` decides by the number of requests and
/// the time before the stall whether the run outlasts the stall; `None` if not, as on a machine that stands still itself.
fn with_a_stall(options: &str, is_early: impl Fn(usize, Duration) -> bool) -> Option<Value> {
    let target = Target::new("");
    // No operation fails because the machine stands still too.
    let mut command = target.command(&format!("--warmup 0 --timeout 50s --json {options}"));
    let begun = Instant::now();
    let mut running = Process::start(&mut command);
    wait_until("requests at nginx", || (target.nginx.requests().len() > 10).then_some(()));
    let server = target.nginx.process();
    server.pause();
    let is_early = is_early(target.nginx.requests().len(), begun.elapsed());
    // The stall is what is measured, so that it has a length.
    sleep(Duration::from_secs(1));
    let has_ended = running.ended().is_some();
    server.signal(Signal::CONT);
    let status = running.wait();
    let result = json(&running.stdout());
    assert_eq!(status.code(), Some(0), "{result}");
    (is_early && !has_ended).then_some(result)
}

#[test]
fn a_stall_is_in_the_tail_of_a_fixed_rate_as_long_as_it_was() {
    // A number, since operations that are due before the end of a time may remain unstarted on a slow machine.
    for options in ["", "-r 1", "--h2 4", "-c 8 -t 2"] {
        let result = wait_until("a stall in the first half of a run", || {
            with_a_stall(&format!("--rate 50 -n 200 {options}"), |requests, _| requests < 100)
        });
        assert_eq!(result["operations"], 200, "{options}: {result}");
        assert_eq!(result["unstarted"], 0, "{options}: {result}");
        let total = &result["latency_us"]["total"];
        // Of 200 operations 50 were due in the stall, and waited for what was left of it.
        assert!(number(&total["max"]) > 950_000.0, "{options}: {result}");
        assert!(number(&total["p99"]) > 800_000.0, "{options}: {result}");
        assert!(number(&total["p90"]) > 350_000.0, "{options}: {result}");
    }
}

#[test]
fn a_closed_loop_sees_a_stall_once_per_connection() {
    let run = |seconds: u64| {
        with_a_stall(&format!("-c 2 -d {seconds}s"), |_, time| time < Duration::from_secs(seconds / 2))
    };
    let result = [4, 20, 100].into_iter().find_map(run).expect("a stall in the first half of a run");
    let total = &result["latency_us"]["total"];
    assert!(number(&total["max"]) > 950_000.0, "{result}");
    // Of all the others none waited for it.
    assert!(number(&total["p50"]) < 950_000.0, "{result}");
    assert!(result["operations"].as_u64() > Some(4), "{result}");
}

#[test]
fn a_fixed_rate_is_kept() {
    let target = Target::new("");
    let result = target.result("--rate 50 -n 150 --warmup 500ms");
    assert_eq!(result["operations"], 150, "{result}");
    // The last one is due after 149 intervals.
    assert!(number(&result["elapsed_s"]) >= 2.97, "{result}");
    for second in result["series"].as_array().expect("a list") {
        assert_eq!(second["offered_per_s"], 50.0, "{second}");
    }
}

#[test]
fn what_cannot_be_started_is_counted() {
    // Half of the response comes at once and half a second later, so that two connections do two in a second.
    let target = Target::new("limit_rate 512k;");
    let options = "--rate 50 -d 2s --warmup 0 -c 2 --backlog 10 --json";
    let finished = finished(&mut bench(&target.ca, target.nginx.address().port(), "/1m", options));
    assert_eq!(finished.status.code(), Some(1), "{}", finished.text());
    let result = json(&finished.stdout);
    let count = |name: &str| result[name].as_u64().expect("a number");
    assert_eq!(count("operations") + count("unstarted"), 100, "{result}");
    assert!(count("unstarted") > 50, "{result}");
}

/// The result of three seconds on a machine that did not stand still meanwhile.
fn undisturbed(target: &Target, options: &str) -> Value {
    wait_until("a run with a result for each second", || {
        let result = json(&finished(&mut target.command(&format!("--json {options}"))).stdout);
        let series = result["series"].as_array().expect("a list");
        let is_whole = |second: &Value| number(&second["length_s"]) < 1.5;
        let is_undisturbed = result["unstarted"] == 0 && series.len() >= 3 && series.iter().all(is_whole);
        is_undisturbed.then_some(result)
    })
}

#[test]
fn a_ramp_goes_up_in_steps() {
    let target = Target::new("");
    let result = undisturbed(&target, "--ramp 20:60:20/1s --warmup 200ms");
    assert_eq!(result["operations"], 120, "{result}");
    let series = result["series"].as_array().expect("a list");
    let offered: Vec<_> = series.iter().map(|second| second["offered_per_s"].clone()).collect();
    assert_eq!(offered[..3], [20.0, 40.0, 60.0], "{result}");
    let result = undisturbed(&target, "--ramp-connections 1:3:1/1s --warmup 0");
    let series = result["series"].as_array().expect("a list");
    let connections: Vec<_> = series.iter().map(|second| second["concurrency"].clone()).collect();
    assert_eq!(connections[..3], [1, 2, 3], "{result}");
    assert_eq!(result["traffic"]["handshake"]["count"], 3, "{result}");
}

#[test]
fn a_count_is_met_exactly() {
    let target = Target::new("");
    for options in
        ["-n 100 -c 7", "-n 100 -c 4 -t 3", "-n 100 -c 3 -r 1", "-n 100 --rate 400", "-n 100 --h2 7 -c 3"]
    {
        let result = target.result(options);
        assert_eq!(result["operations"], 100, "{options}: {result}");
    }
    let lines = wait_until("all lines of nginx's log", || {
        let lines = target.nginx.requests().len();
        (lines >= 505).then_some(lines)
    });
    assert_eq!(lines, 505, "each run has one first contact besides");
}

#[test]
fn the_time_is_kept() {
    let target = Target::new("");
    let result = target.result("-d 1.5s --warmup 500ms -c 2");
    let elapsed = number(&result["elapsed_s"]);
    assert!(elapsed >= 1.49, "{result}");
    let lengths: Vec<_> = result["series"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|second| number(&second["length_s"]))
        .collect();
    assert!((lengths.iter().sum::<f64>() - elapsed).abs() < 0.01, "{result}");
}

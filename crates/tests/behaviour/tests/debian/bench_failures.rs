//! Failures of `brisk bench`: one clear line, the right exit code, and no flood of text.

use std::net::TcpListener;

use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::{NAME, NAMES};
use brisk_testkit::ca::TestCa;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{Finished, Process, wait_until};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::Signal;
use serde_json::Value;

use crate::bench::{Target, bench, finished, json};

/// A run that ended before it began: one line that says all of this.
#[track_caller]
fn is_one_line(finished: &Finished, code: i32, hints: &[&str]) {
    assert_eq!(finished.status.code(), Some(code), "{}", finished.text());
    assert_eq!(finished.stdout, "");
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    for hint in hints {
        assert!(finished.stderr.contains(hint), "no {hint:?} in {}", finished.stderr);
    }
}

fn causes(result: &Value) -> Vec<(&str, u64)> {
    let errors = result["errors"].as_array().expect("a list");
    errors
        .iter()
        .map(|error| (error["cause"].as_str().expect("a cause"), error["count"].as_u64().expect("a number")))
        .collect()
}

/// The result of a run with failures.
fn failed(finished: &Finished) -> Value {
    assert_eq!(finished.status.code(), Some(1), "{}", finished.text());
    assert_eq!(finished.stderr, "");
    json(&finished.stdout)
}

#[test]
fn a_target_that_does_not_listen() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("bind").local_addr().expect("address");
    let ca = TestCa::new();
    let finished = finished(&mut bench(&ca, closed.port(), "/", "-d 30s"));
    is_one_line(&finished, 1, &["cannot connect to", &closed.to_string(), "refused"]);
}

#[test]
fn a_name_without_an_address() {
    let ca = TestCa::new();
    let mut command = bench(&ca, 1, "/", "-d 30s");
    let finished = finished(command.args(["--connect", "nothing.invalid:1"]));
    assert_eq!(finished.status.code(), Some(2), "--connect cannot be given twice: {}", finished.text());
    let mut command = std::process::Command::new(brisk_program());
    let finished = crate::bench::finished(command.args(["bench", "https://nothing.invalid/", "-d", "30s"]));
    is_one_line(&finished, 1, &["nothing.invalid"]);
}

#[test]
fn a_certificate_that_is_wrong() {
    let (ca, other) = (TestCa::new(), TestCa::new());
    let wrong_name = Nginx::https(&ca.server(&["other.test"]).issue());
    let expired = Nginx::https(&ca.server(&NAMES).expired().issue());
    let early = Nginx::https(&ca.server(&NAMES).not_yet_valid().issue());
    let unknown = Nginx::https(&other.server(&NAMES).issue());
    for (nginx, hint) in [
        (&wrong_name, &["not valid for", NAME][..]),
        (&expired, &["has expired"]),
        (&early, &["not valid yet"]),
        (&unknown, &["authority", "--ca", "--insecure"]),
    ] {
        let mut command = bench(&ca, nginx.address().port(), "/1k", "-d 30s");
        is_one_line(&finished(&mut command), 1, hint);
    }
    let mut command = std::process::Command::new(brisk_program());
    let url = format!("{}/1k", expired.url());
    finished(command.args(["bench", &url, "--insecure", "-n", "5"])).success();
}

#[test]
fn a_protocol_that_the_server_refuses() {
    let target = Target::new("");
    let refused = finished(&mut target.command("-d 30s --alpn spdy/3"));
    is_one_line(&refused, 1, &["application protocols", "no_application_protocol"]);
    let other = finished(&mut target.command("-d 30s --alpn h2"));
    is_one_line(&other, 1, &["the server chose h2 by ALPN; http/1.1 is needed"]);
}

#[test]
fn a_server_that_resets_each_connection() {
    let origin = Origin::raw(|stream| {
        // Closing then sends a reset.
        set_socket_linger(&stream, Some(std::time::Duration::ZERO))?;
        Ok(())
    });
    let ca = TestCa::new();
    let finished = finished(&mut bench(&ca, origin.address().port(), "/", "-d 30s"));
    is_one_line(&finished, 1, &["reset"]);
    assert!(origin.connections() <= 2, "{} connections", origin.connections());
}

#[test]
fn a_server_that_speaks_no_tls() {
    let nginx = Nginx::http();
    let ca = TestCa::new();
    let finished = finished(&mut bench(&ca, nginx.address().port(), "/1k", "-d 30s"));
    is_one_line(&finished, 1, &["does not speak TLS"]);
}

#[test]
fn a_server_that_goes_away_during_the_run() {
    // On a busy machine, a short run may end before its server.
    let found = [5, 30, 150].into_iter().find_map(|seconds| Some((seconds, result_without_server(seconds)?)));
    let (seconds, result) = found.expect("a run that outlives its server");
    assert!(result["operations"].as_u64().expect("a number") > 0, "{result}");
    let causes = causes(&result);
    assert!(causes.iter().any(|(cause, _)| *cause == "connection-refused"), "{result}");
    assert!(causes.len() <= 4, "each cause once: {result}");
    // A slot rests after a failure.
    assert!(causes.iter().map(|(_, count)| count).sum::<u64>() < 16 * 120 * seconds, "{result}");
}

/// The result of a run of this duration whose server goes away; `None` if the run ended before.
fn result_without_server(seconds: u64) -> Option<Value> {
    let Target { ca, nginx } = Target::new("");
    let options = format!("-d {seconds}s --warmup 0 -r 1 --json");
    let mut running = Process::start(&mut bench(&ca, nginx.address().port(), "/1k", &options));
    wait_until("requests at nginx", || (nginx.requests().len() > 5).then_some(()));
    drop(nginx);
    let status = running.wait();
    assert_eq!(running.stderr(), "");
    if status.success() {
        return None;
    }
    assert_eq!(status.code(), Some(1));
    Some(json(&running.stdout()))
}

#[test]
fn a_session_that_is_not_resumed_is_a_failure_each_time() {
    let nothing = Target::new("ssl_session_cache off; ssl_session_tickets off;");
    let forgets = Target::new("ssl_session_cache none; ssl_session_tickets off;");
    for (target, options, cause) in [
        (&nothing, "--mix ticket --tls 1.2", "no-session"),
        (&nothing, "--mix session-id", "no-session"),
        (&forgets, "--mix session-id", "not-resumed"),
    ] {
        let result = failed(&finished(&mut target.command(&format!("-n 20 -c 1 -r 1 --json {options}"))));
        assert_eq!(result["operations"], 20, "{result}");
        let (first, count) = causes(&result)[0];
        assert_eq!(first, cause, "{options}: {result}");
        assert!(count >= 10, "{options}: {result}");
        let all: u64 = causes(&result).iter().map(|(_, count)| count).sum();
        assert_eq!(all, 20, "{options}: {result}");
    }
}

#[test]
fn early_data_that_is_refused_is_a_failure_each_time() {
    let target = Target::new("ssl_protocols TLSv1.3; ssl_early_data off;");
    let result = failed(&finished(&mut target.command("-n 20 -c 1 -r 1 --mix 0-rtt --json")));
    assert_eq!(causes(&result), [("early-data-refused", 20)], "{result}");
    assert_eq!(result["responses"]["2xx"], 20, "{result}");
}

#[test]
fn a_run_with_failures_says_so_in_its_tables() {
    let target = Target::new("ssl_session_cache off; ssl_session_tickets off;");
    let finished = finished(&mut target.command("-n 20 -c 1 -r 1 --mix session-id"));
    assert_eq!(finished.status.code(), Some(1), "{}", finished.text());
    let line = finished.stdout.lines().find(|line| line.contains("no-session"));
    let line = line.unwrap_or_else(|| panic!("no such line: {}", finished.stdout));
    assert!(line.contains("20") && line.contains("no session to resume"), "{line}");
    assert!(finished.stdout.lines().count() < 60, "{}", finished.stdout);
}

#[test]
fn what_makes_no_sense_ends_with_code_2() {
    let ca = TestCa::new();
    for (options, hint) in [
        ("--mix session-id --tls 1.3", "session-id needs TLS 1.2"),
        ("--mix 0-rtt --handshake-only", "0-rtt sends a request"),
        ("--server-pid 4000000000", "there is no process 4000000000"),
        ("--body /nonexistent/body", "cannot read /nonexistent/body"),
        ("--urls /nonexistent/urls", "cannot read /nonexistent/urls"),
        ("--client-cert /nonexistent/c --client-key /nonexistent/k", "/nonexistent/c"),
        ("--ramp-connections 1:2:0.5/1s", "whole numbers"),
    ] {
        is_one_line(&finished(&mut bench(&ca, 1, "/", options)), 2, &[hint]);
    }
}

#[test]
fn what_is_about_tls_is_refused_without_it() {
    let plain = |url: &str, options: &str| {
        let mut command = std::process::Command::new(brisk_program());
        finished(command.arg("bench").arg(url).args(options.split(' ')))
    };
    let refused = plain("http://127.0.0.1:1/", "--tls 1.2 --tls 1.3 --insecure --mix full -n 1");
    is_one_line(&refused, 2, &["https://: --mix, --tls, --insecure"]);
    is_one_line(&plain("http://127.0.0.1:1/", "--handshake-only"), 2, &["https://: --handshake-only"]);
    let nginx = Nginx::http();
    let refused = plain(&format!("http://{}/1k", nginx.address()), "--h2 2 -d 30s");
    is_one_line(&refused, 1, &["http://127.0.0.1"]);
}

#[test]
fn a_signal_ends_the_run_and_what_was_measured_is_told() {
    let target = Target::new("");
    let mut command = target.command("-d 1h --warmup 0 --json");
    let mut running = Process::start(&mut command);
    wait_until("requests at nginx", || (target.nginx.requests().len() > 20).then_some(()));
    running.signal(Signal::INT);
    assert_eq!(running.wait().code(), Some(0));
    let result = json(&running.stdout());
    assert_eq!(result["interrupted"], true);
    assert!(result["operations"].as_u64().expect("a number") > 0, "{result}");
}

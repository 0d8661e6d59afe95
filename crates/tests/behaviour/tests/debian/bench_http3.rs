//! Load of `brisk bench --h3`, verified by the log and the metrics of brisk.

use std::net::{TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use brisk_behaviour::site::Site;
use brisk_testkit::ca::TestCa;
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::wait_until;
use serde_json::Value;

use crate::bench::{bench, finished, handshakes, result};

const EARLY: &str = "\n[[host.route]]\npath = \"/\"\nearly_data = \"safe\"\nrespond = { body = \"hello\" }\n";

fn site(tables: &str) -> Site {
    Site::custom("server.http3 = true\n", tables, |setup| setup)
}

/// The result of a run without failures. Each line of the log is one over HTTP/3.
fn run(site: &Site, options: &str) -> Value {
    let before = site.brisk.access_log().len();
    let result = result(&mut bench(&site.ca, site.brisk.https().port(), "/", options));
    let responses = result["responses"]["2xx"].as_u64().expect("a number") as usize;
    let lines = wait_until("lines of the access log", || {
        let lines = site.brisk.access_log().split_off(before);
        (lines.len() >= responses).then_some(lines)
    });
    assert!(lines.iter().all(|line| line.contains("\"HTTP/3.0\"")), "{options}: {lines:#?}");
    result
}

#[test]
fn handshakes_are_of_the_kind_that_was_asked_for() {
    let site = site(EARLY);
    for kind in ["full", "psk", "0-rtt"] {
        let result = run(&site, &format!("--h3 1 -n 60 -c 4 -r 1 --mix {kind}"));
        assert_eq!(handshakes(&result, kind, kind), 60, "{kind}: {result}");
        assert_eq!(result["responses"]["2xx"], 60, "{result}");
        let milestones = &result["latency_us"];
        for milestone in ["tls", "first_byte", "request", "total"] {
            assert_eq!(milestones[milestone]["count"], 60, "{milestone}: {result}");
        }
        assert!(result.pointer("/latency_us/connect/count").is_none_or(|count| *count == 0), "{result}");
        let negotiated = result["negotiated"][0]["name"].as_str().expect("a description");
        assert!(negotiated.starts_with("TLS 1.3 ") && negotiated.ends_with(" h3"), "{negotiated}");
        assert_eq!(result["traffic"]["handshake"]["count"], 60);
    }
    let accepted = site.brisk.metrics().sum("brisk_early_data_total", &["outcome=\"accepted\""]);
    assert!(accepted >= 60.0, "{accepted}");
}

#[test]
fn a_mix_has_the_shares_that_were_asked_for() {
    let result = run(&site(EARLY), "--h3 1 -n 200 -c 8 -r 1 --mix full=20,ticket=50,0-rtt=30");
    for (asked, got, wanted) in [("full", "full", 40), ("ticket", "psk", 100), ("0-rtt", "0-rtt", 60)] {
        let count = handshakes(&result, asked, got);
        assert!(count.abs_diff(wanted) <= 4, "{count} were {asked}: {result}");
    }
}

#[test]
fn early_data_that_the_server_refuses_is_sent_again() {
    // The sessions permit early data, but the route does not take it before the handshake is complete.
    let site = site("\n[[host.route]]\npath = \"/\"\nrespond = { body = \"hello\" }\n");
    let finished = finished(&mut bench(
        &site.ca,
        site.brisk.https().port(),
        "/",
        "--h3 1 -n 20 -c 2 -r 1 --mix 0-rtt --json",
    ));
    let result = crate::bench::json(&finished.stdout);
    assert_eq!(result["responses"]["2xx"], 20, "{result}");
    assert_eq!(result["errors"][0]["cause"], "early-data-refused", "{result}");
}

#[test]
fn handshakes_alone_send_no_request() {
    let site = site("");
    for kind in ["full", "psk"] {
        let result = run(&site, &format!("--h3 1 -n 30 -c 3 --handshake-only --mix {kind}"));
        assert_eq!((&result["unit"], &result["operations"]), (&"handshakes".into(), &30.into()));
        assert_eq!(handshakes(&result, kind, kind), 30, "{result}");
    }
    assert_eq!(site.brisk.access_log(), [""; 0]);
}

#[test]
fn connections_are_kept_for_as_many_requests_as_asked_for() {
    let site = site("");
    for (options, wanted) in [
        ("-n 60 -c 3 --h3 1", 1..=3),
        ("-n 60 -c 3 --h3 1 -r 1", 60..=60),
        ("-n 60 -c 1 --h3 1 -r 5", 12..=12),
        ("-n 60 -c 1 --h3 5 -r 10", 6..=6),
        // More than the streams that brisk permits at the same time.
        ("-n 600 -c 1 --h3 300", 1..=1),
        ("-n 60 -c 4 --h3 2 -t 2", 1..=4),
    ] {
        let result = run(&site, options);
        let operations = result["operations"].as_u64().expect("a number");
        assert!(operations == 60 || operations == 600, "{options}: {result}");
        let handshakes = result["traffic"]["handshake"]["count"].as_u64().expect("a number");
        assert!(wanted.contains(&handshakes), "{options}: {result}");
    }
}

#[test]
fn a_fixed_rate_starts_every_operation() {
    // A number, since operations that are due before the end of a time may remain unstarted on a slow machine.
    let site = site("");
    let started = Instant::now();
    let result = run(&site, "--h3 4 -c 4 --rate 200 -n 200 --warmup 0");
    assert!(started.elapsed() >= Duration::from_millis(900), "the rate is ignored: {result}");
    assert_eq!((&result["operations"], &result["unstarted"]), (&200.into(), &0.into()), "{result}");
}

#[test]
fn bodies_go_in_both_directions() {
    let origin = Origin::answering(|message, stream| write_response(stream, &message.body));
    let site =
        Site::custom("server.http3 = true\n", &brisk_behaviour::site::proxy_to(&[&origin.url()]), |setup| {
            setup
        });
    let body = site.brisk.folder().join("body");
    // More than the server's window of one stream.
    std::fs::write(&body, vec![b'a'; 3 << 20]).expect("a file");
    let mut command = bench(&site.ca, site.brisk.https().port(), "/", "--h3 1 -n 2 -c 1");
    let result = result(command.arg("--body").arg(&body));
    assert_eq!(result["responses"]["2xx"], 2, "{result}");
    assert_eq!(result["responses"]["body_bytes"], 2 * (3 << 20), "{result}");
    assert!(origin.last_request().head.line.starts_with("POST / "));
}

#[test]
fn a_server_without_http_3_is_one_clear_line() {
    let site = Site::new();
    let finished = finished(&mut bench(&site.ca, site.brisk.https().port(), "/", "--h3 1 -d 30s"));
    assert_eq!((finished.status.code(), &finished.stdout[..]), (Some(1), ""), "{}", finished.text());
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    assert!(finished.stderr.contains("over UDP: it has no HTTP/3"), "{}", finished.stderr);
}

#[test]
fn a_network_that_drops_udp_is_one_clear_line() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = silent.local_addr().expect("an address").port();
    let _tcp = TcpListener::bind(("127.0.0.1", port));
    let finished = finished(&mut bench(&TestCa::new(), port, "/", "--h3 1 -d 30s --timeout 500ms"));
    assert_eq!(finished.status.code(), Some(1), "{}", finished.text());
    assert!(finished.stderr.contains("UDP is blocked on the way"), "{}", finished.stderr);
}

#[test]
fn certificates_are_verified_as_over_tcp() {
    let site = site("");
    let other = TestCa::new();
    let finished = finished(&mut bench(&other, site.brisk.https().port(), "/", "--h3 1 -d 30s"));
    assert_eq!(finished.status.code(), Some(1), "{}", finished.text());
    for hint in ["authority", "--ca", "--insecure"] {
        assert!(finished.stderr.contains(hint), "{}", finished.stderr);
    }
}

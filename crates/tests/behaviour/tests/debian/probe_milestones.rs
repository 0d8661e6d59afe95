//! Milestones of `brisk probe`, compared with the access log of the probed brisk.

use std::io::{self, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use brisk_behaviour::site::{Site, proxy_to};
use brisk_testkit::origin::Origin;
use brisk_testkit::relay::Relay;
use serde_json::Value;

use crate::probe::{probe, report};

/// How long the server's bytes travel, and what an origin waits before its head, and before the rest of its body. A slow
/// processor adds little to that.
const TRAVEL: Duration = Duration::from_millis(200);
const HEAD: Duration = Duration::from_millis(200);
const BODY: Duration = Duration::from_millis(300);

/// Part of these by which the two may differ.
const NEAR: f64 = 0.25;

/// On a busy machine one side is late now and then.
const TRIES: usize = 20;

/// Answers after a while, in two pieces.
fn answer(stream: &mut TcpStream) -> io::Result<()> {
    thread::sleep(HEAD);
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst")?;
    thread::sleep(BODY);
    stream.write_all(b"after")
}

/// A handshake, and what the request took until the first byte and until the end: as the client saw it, of the request without
/// the way of the answer, and as the server wrote it down, in milliseconds.
fn pairs(report: &Value, line: &Value) -> [(f64, f64); 3] {
    let steps = report["steps"].as_array().expect("steps");
    let at = |name: &str| {
        let ours = steps.iter().find(|step| step["from"] == "client" && step["name"] == name);
        ours.and_then(|step| step["at_ms"].as_f64()).expect("a time")
    };
    let phase = |name: &str| report["phases"][name].as_f64().expect("a time");
    let logged = |name: &str| line[name].as_f64().expect("a time") / 1000.0;
    [
        (at("Finished") - at("ClientHello"), logged("handshake_us")),
        (phase("wait_ms") - millis(TRAVEL), logged("upstream_us")),
        (phase("wait_ms") + phase("body_ms") - millis(TRAVEL), logged("duration_us")),
    ]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[test]
fn the_access_log_of_brisk_has_the_same_milestones() {
    let origin = Origin::answering(|_, stream| answer(stream));
    let tables = proxy_to(&[&origin.url()]);
    let site = Site::custom("access_log.format = \"json\"", &tables, |setup| setup);
    let relay = Relay::to(&[site.brisk.https()]);
    relay.set_delay(TRAVEL);
    // A handshake of TLS 1.3 waits once for what the server sends.
    let waits = [TRAVEL, HEAD, HEAD + BODY].map(millis);
    // Of each pair the nearest: a processor that is busy elsewhere adds to one of them, and takes nothing away.
    let mut nearest = [f64::INFINITY; 3];
    for attempt in 0..TRIES {
        let path = format!("/?probe={attempt}");
        let report = report(&mut probe(&site.ca, relay.address().port(), &path, ""));
        let line: Value = serde_json::from_str(&site.brisk.logged(&path)).expect("JSON");
        let tls = &report["tls"];
        for (ours, theirs) in [
            (&tls["version"], "tls"),
            (&tls["suite"], "suite"),
            (&tls["group"], "group"),
            (&tls["scheme"], "scheme"),
        ] {
            assert_eq!(ours, &line[theirs], "{line}");
        }
        assert_eq!(
            (&report["answer"]["body_bytes"], &line["bytes_sent"]),
            (&10.into(), &10.into()),
            "{line}"
        );
        let pairs = pairs(&report, &line);
        for ((nearest, wait), (ours, theirs)) in nearest.iter_mut().zip(waits).zip(pairs) {
            // Reports have whole microseconds.
            let least = wait - 0.01;
            assert!(ours >= least && theirs >= least, "at least {wait} ms: {pairs:?}");
            *nearest = nearest.min((ours - theirs).abs() / wait);
        }
        if nearest.iter().all(|difference| *difference < NEAR) {
            return;
        }
    }
    panic!("parts of the waits: handshake, first byte, end: {nearest:?}");
}

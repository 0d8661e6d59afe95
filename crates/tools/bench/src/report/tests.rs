//! All reports of an artificial run that fills every table.

use std::time::{Duration, SystemTime};

use brisk_report::Machine;
use brisk_report::terminal::WIDTH;
use brisk_telemetry::Resumption;
use serde_json::Value;

use super::{html, json, tables, terminal};
use crate::result::{
    Cause, ErrorCount, HandshakeCount, Interval, Negotiated, Phases, Responses, RunResult, ServerUsage,
    Traffic, Unit, histogram,
};

/// A run of a ramp from 1000 to 4000 in steps of 10 seconds; the last step exceeds the server's capacity.
pub(crate) fn sample() -> RunResult {
    let mut phases = Phases::new();
    let series: Vec<_> = (0..40).map(|second| interval(second, &mut phases)).collect();
    RunResult {
        target: "https://bench.test:8443/1k".to_owned(),
        started: SystemTime::UNIX_EPOCH + Duration::from_hours(500_000),
        elapsed: Duration::from_secs(40),
        interrupted: false,
        settings: vec![("--ramp", "1000:4000:1000/10s".to_owned()), ("--insecure", String::new())],
        plain: false,
        unit: Unit::Request,
        operations: series.iter().map(|interval| interval.operations).sum(),
        negotiated: vec![Negotiated {
            description: "TLS 1.3 TLS_AES_128_GCM_SHA256 X25519MLKEM768 ecdsa_secp256r1_sha256 http/1.1".to_owned(),
            count: 93_000,
        }],
        phases,
        handshakes: vec![
            HandshakeCount { asked: Resumption::Ticket, got: Resumption::Psk, count: 70_000 },
            HandshakeCount { asked: Resumption::Full, got: Resumption::Full, count: 23_000 },
        ],
        primed: 24,
        responses: Responses { classes: [0, 92_990, 0, 10, 0], body_bytes: 95_000_000 },
        errors: vec![ErrorCount {
            cause: Cause::NotResumed,
            count: 12,
            example: "ticket was asked for and became a full handshake; is the session <cache> of the server too small for \
                      this rate?"
                .to_owned(),
        }],
        alerts: vec![("handshake_failure".to_owned(), 3)],
        traffic: Traffic {
            sent: 40_000_000,
            received: 160_000_000,
            segments_sent: 700_000,
            segments_received: 600_000,
            handshakes: 93_000,
            handshake_sent: 93_000 * 612,
            handshake_received: 93_000 * 1_841,
            handshake_segments_sent: 93_000 * 5,
            handshake_segments_received: 93_000 * 4,
            ..Traffic::default()
        },
        connections: Vec::new(),
        unstarted: 5,
        series,
        server: Some(ServerUsage {
            cpu: Duration::from_secs(31),
            cpu_per_handshake: Some(Duration::from_micros(210)),
            cpu_per_request: Some(Duration::from_micros(334)),
            memory_before: 9 << 20,
            memory_peak: 24 << 20,
        }),
        client_cpu: Duration::from_secs(12),
    }
}

fn interval(second: u64, phases: &mut Phases) -> Interval {
    let offered = 1000.0 * (1 + second / 10) as f64;
    let operations = (offered as u64).min(3300);
    let late = offered as u64 - operations;
    let mut latency = histogram();
    for index in 0..operations {
        // Most take between 1 and 3 ms, one in a hundred ten times as long, and the backlog adds to all.
        let usual = 1000 + index * 7919 % 2000;
        let total = if index % 100 == 99 { usual * 10 } else { usual } + late * second.saturating_sub(29);
        latency.record(total).unwrap();
        phases.connect.record(40 + index % 30).unwrap();
        phases.tls.record(total / 2).unwrap();
        phases.first_byte.record(total - 20).unwrap();
        phases.request.record(total / 3).unwrap();
    }
    phases.total.add(&latency).unwrap();
    Interval {
        at: Duration::from_secs(second),
        length: Duration::from_secs(1),
        operations,
        requests: operations,
        handshakes: operations,
        errors: u64::from(late > 0),
        offered: Some(offered),
        concurrency: 256,
        in_flight: 24,
        backlog: late as usize,
        latency,
    }
}

fn machine() -> Machine {
    Machine {
        processor: "AMD EPYC".to_owned(),
        cores: 2,
        system: "Debian GNU/Linux 12".to_owned(),
        kernel: "Linux 6.1.0".to_owned(),
    }
}

#[test]
fn the_text_fits_a_terminal_and_has_every_table() {
    for width in [80, WIDTH, 120] {
        let text = terminal::text(&sample(), width);
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= width, "{longest} characters:\n{text}");
    }
    let text = terminal::text(&sample(), WIDTH);
    for part in [
        "https://bench.test:8443/1k\n",
        "  requests     93,000, 2,325 per second\n",
        "  errors       12, <0.1 %\n",
        "  prepared     24 full handshakes for sessions to resume, in no figure\n",
        "Latency, µs\n",
        "  step          p50    p90    p99   p99.9   mean  stdev     max   count\n",
        "Steps\n",
        "  full       full    23,000   25 %         575\n",
        "  ticket     psk     70,000   75 %       1,750\n",
        "  each handshake      612 B   1,841 B          5.00              4.00\n",
        "  CPU per handshake  210 µs\n",
        "  handshake_failure      3\n",
        "  not-resumed     12  <0.1 %  ticket was asked for and became a full handshake; is the session\n",
        "\n                              <cache> of the server too small for this rate?\n",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn what_fast_open_gained_is_said() {
    let mut result = sample();
    let note = |result: &RunResult| {
        let text = terminal::text(result, WIDTH).split_whitespace().collect::<Vec<_>>().join(" ");
        let begin = text.find("TCP Fast Open:")?;
        Some(text[begin..].split(" Responses").next().unwrap_or_default().to_owned())
    };
    assert_eq!(note(&result), None);
    result.settings.push(("--fast-open", String::new()));
    assert_eq!(
        note(&result).as_deref(),
        Some(
            "TCP Fast Open: no SYN carried data. The server gave no cookie, or one of the two kernels has it off \
             (net.ipv4.tcp_fastopen)."
        )
    );
    (result.traffic.syn_data, result.traffic.syn_whole) = (92_000, 92_000);
    (result.traffic.syn_flights, result.traffic.syn_bytes) = (92_000 * 330, 92_000 * 330);
    assert_eq!(
        note(&result).as_deref(),
        Some("TCP Fast Open: 92,000 of 93,000 first flights went with their SYN, each a round trip less.")
    );
    result.traffic.syn_whole = 0;
    (result.traffic.syn_flights, result.traffic.syn_bytes) = (92_000 * 1481, 92_000 * 1420);
    assert_eq!(
        note(&result).as_deref(),
        Some(
            "TCP Fast Open: 92,000 of 93,000 SYNs carried data, 0 of them the whole first flight. The others save no round \
             trip: of 1,481 B, 1,420 went with the SYN, and the server waits for the rest. Without X25519MLKEM768 the \
             hello fits (--group X25519)."
        )
    );
}

#[test]
fn tables_with_nothing_to_show_are_left_out() {
    let mut result = sample();
    result.errors.clear();
    result.alerts.clear();
    result.server = None;
    result.series.truncate(10);
    let text = terminal::text(&result, WIDTH);
    for title in ["Errors\n", "Alerts", "Server process", "Steps\n"] {
        assert!(!text.contains(title), "{title} in\n{text}");
    }
    assert!(text.contains("  errors       none\n"), "{text}");
}

#[test]
fn without_tls_there_are_connections_in_place_of_handshakes() {
    let mut result = sample();
    result.plain = true;
    (result.handshakes, result.negotiated) = (Vec::new(), Vec::new());
    (result.errors, result.alerts) = (Vec::new(), Vec::new());
    (result.primed, result.traffic.handshakes) = (0, 0);
    result.phases.tls = histogram();
    result.server = None;
    let text = terminal::text(&result, WIDTH);
    assert!(text.contains("  connections  93,000, 2,325 per second\n"), "{text}");
    assert!(!text.contains("andshake") && !text.contains("tls"), "{text}");
    let value: Value = serde_json::from_str(&json::text(&result, &machine(), "brisk 1.2.3")).unwrap();
    assert_eq!(value["handshakes_per_s"], Value::Null);
}

#[test]
fn a_ramp_is_reported_step_by_step() {
    let steps = tables::ramp(&sample().series);
    let levels: Vec<_> = steps.iter().map(|step| (step.level() as u64, step.rate() as u64)).collect();
    assert_eq!(levels, [(1000, 1000), (2000, 2000), (3000, 3000), (4000, 3300)]);
    assert_eq!(steps[3].errors, 10);
}

#[test]
fn a_ramp_of_connections_with_streams_counts_operations() {
    let mut result = sample();
    for interval in &mut result.series {
        (interval.offered, interval.concurrency) = (None, 10 * (1 + interval.at.as_secs() as usize / 10));
    }
    let text = terminal::text(&result, WIDTH);
    assert!(text.contains("at once"), "{text}");
    let page = html::run(&result, &machine(), "brisk 1.2.3");
    assert!(page.contains("operations at once") && !page.contains("connections at once"));
}

#[test]
fn a_long_latency_is_shown_in_milliseconds() {
    let mut result = sample();
    result.phases.total.record(2_000_000).unwrap();
    let text = terminal::text(&result, WIDTH);
    assert!(text.contains("Latency, ms\n"), "{text}");
}

/// Programs read these names: removing one is a change to announce.
#[test]
fn the_fields_of_the_json_stay() {
    let value: Value = serde_json::from_str(&json::text(&sample(), &machine(), "brisk 1.2.3")).unwrap();
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(
        names(&value),
        "alerts client_cpu_s elapsed_s errors handshakes handshakes_per_s interrupted latency_us machine negotiated \
         operations primed program rate_per_s responses schema series server settings started target traffic unit \
         unstarted"
    );
    assert_eq!(names(&value["latency_us"]), "connect first_byte request tls total");
    assert_eq!(names(&value["latency_us"]["tls"]), "count max mean min p50 p90 p99 p999 stdev");
    assert_eq!(names(&value["machine"]), "cores kernel processor system");
    assert_eq!(names(&value["handshakes"][0]), "asked count got");
    assert_eq!(names(&value["errors"][0]), "cause count example");
    assert_eq!(names(&value["alerts"][0]), "count name");
    assert_eq!(names(&value["settings"][0]), "option value");
    assert_eq!(names(&value["responses"]), "1xx 2xx 3xx 4xx 5xx body_bytes");
    assert_eq!(
        names(&value["traffic"]),
        "fast_open handshake packets_received packets_sent received_bytes reconnects sent_bytes"
    );
    assert_eq!(
        names(&value["traffic"]["handshake"]),
        "count packets_received packets_sent received_bytes sent_bytes"
    );
    assert_eq!(
        names(&value["series"][0]),
        "at_s backlog concurrency errors handshakes in_flight latency_us length_s offered_per_s operations requests"
    );
    assert_eq!(
        names(&value["server"]),
        "busy cpu_per_handshake_us cpu_per_request_us cpu_s memory_before_bytes memory_peak_bytes"
    );
    assert_eq!(value["schema"], 1);
    assert_eq!(value["started"], "2027-01-15T08:00:00Z");
    assert_eq!(value["unit"], "requests");
    assert_eq!(value["rate_per_s"], 2325.0);
    assert_eq!(value["traffic"]["handshake"]["received_bytes"], 1841.0);
    assert_eq!(value["handshakes"][0]["asked"], "ticket");
}

#[test]
fn what_there_is_not_is_null_and_never_an_invalid_number() {
    let mut result = sample();
    result.server = None;
    result.traffic = Traffic::default();
    result.phases = Phases::new();
    result.operations = 0;
    result.elapsed = Duration::ZERO;
    let value: Value = serde_json::from_str(&json::text(&result, &machine(), "brisk")).unwrap();
    assert!(value["server"].is_null() && value["traffic"]["handshake"].is_null());
    assert_eq!(value["latency_us"].as_object().unwrap().len(), 0);
    assert_eq!(value["rate_per_s"], 0.0);
}

#[test]
fn the_page_has_every_chart_and_needs_nothing_from_elsewhere() {
    let page = html::run(&sample(), &machine(), "brisk 1.2.3");
    for part in [
        "Latency over time",
        "Rate over time",
        "Ramp: rate",
        "Ramp: latency",
        "Distribution: tls, 93,000 values",
        "Percentiles",
        "2,325</b>requests per second",
        "334 µs</b>server CPU per request",
        "the session &lt;cache&gt; of the server",
        "AMD EPYC, 2 cores",
    ] {
        assert!(page.contains(part), "no {part:?}");
    }
    let outside = ["http://", "url(", "<script", "src=", "href=", "@import"];
    let page = page.replace("http://www.w3.org/2000/svg", "");
    for part in outside {
        assert!(!page.contains(part), "{part} in the page");
    }
    assert!(!page.contains("NaN") && !page.contains("inf "), "a number that is none");
}

#[test]
fn a_run_in_which_nothing_succeeded_has_reports_too() {
    let mut result = sample();
    result.operations = 0;
    result.phases = Phases::new();
    result.series.clear();
    result.negotiated.clear();
    result.handshakes.clear();
    result.responses = Responses::default();
    result.traffic = Traffic::default();
    let text = terminal::text(&result, WIDTH);
    assert!(text.contains("  requests     0, 0 per second\n"), "{text}");
    assert!(!html::run(&result, &machine(), "brisk").contains("NaN"));
}

#[test]
fn a_last_second_of_a_few_milliseconds_is_not_drawn() {
    let whole = html::run(&sample(), &machine(), "brisk");
    let mut result = sample();
    let mut sliver = result.series[39].clone();
    (sliver.at, sliver.length) = (Duration::from_secs(40), Duration::from_millis(4));
    sliver.operations = 1000;
    result.series.push(sliver);
    let page = html::run(&result, &machine(), "brisk");
    let points = |page: &str| page.matches("class=\"h c1\"").count();
    assert_eq!(points(&page), points(&whole));
}

/// `BRISK_PAGES=folder cargo test -p brisk-bench pages_to_look_at` writes pages to be viewed in a browser.
#[test]
fn pages_to_look_at() {
    let Some(folder) = std::env::var_os("BRISK_PAGES").map(std::path::PathBuf::from) else { return };
    std::fs::write(folder.join("run.html"), html::run(&sample(), &machine(), "brisk 1.2.3")).unwrap();
    std::fs::write(folder.join("run.txt"), terminal::text(&sample(), WIDTH)).unwrap();
}

//! Records of the gateway and of the load generator beside the packets, and the comparison of two captures.

use super::*;

/// Connections of each run of the load generator.
const CONNECTIONS: usize = 40;

/// Milestones that all three programs record.
const MILESTONES: [&str; 5] =
    ["tcp-established", "client-hello", "handshake-finished", "first-request", "first-response"];

#[test]
fn serve_bench_and_capture_record_the_milestones_of_the_same_connections() {
    let Some(link) = link("delay=2ms") else { return };
    let recordings = tempfile::tempdir().expect("a folder");
    let keylog = recordings.path().join("keys").display().to_string();
    let keys = format!("server.https = [\"{SERVER}:0\"]\naccess_log.milestones = true");
    let site = Site::custom(&keys, "", |setup| {
        let setup = setup.option("--keylog").environment("SSLKEYLOGFILE", &keylog);
        setup.behind(&words_before(&link.server("")))
    });
    let recorder = Recorder::start(&link, &recordings);
    let (port, mut files) = (site.brisk.https().port(), Vec::new());
    for (name, options) in
        [("http1", &["--tls", "1.3"][..]), ("http2", &["--h2", "1"]), ("tls12", &["--tls", "1.2"])]
    {
        let file = recordings.path().join(name).display().to_string();
        let mut bench = link.client(brisk_program());
        bench.args(["bench", &format!("https://{NAME}:{port}/"), "--connect", &format!("{SERVER}:{port}")]);
        bench.args(["-n", &CONNECTIONS.to_string(), "-c", "4", "-r", "1", "--records", &file]).args(options);
        run(bench.args(["--timeout", "150s"]).arg("--ca").arg(site.ca.root_file()), b"", LIMIT).success();
        files.push(file);
    }
    // bench opens one connection of its own in each run.
    let file = recorder.end(3 * (CONNECTIONS + 1));
    let log = site.brisk.folder().join("access.log").display().to_string();
    wait_until("the lines of the access log", || {
        (site.brisk.access_log().len() >= 3 * (CONNECTIONS + 1)).then_some(())
    });
    let mut options = vec!["--keylog", &keylog, "--join", &log];
    options.extend(files.iter().flat_map(|file| ["--join", file]));
    let lines = json(&file, &options);
    let mut recorded = 0;
    for connection in lines.iter().filter(|line| line["event"] == "connection") {
        let records =
            connection["records"].as_array().unwrap_or_else(|| panic!("no records: {connection:#}"));
        let is_log = |record: &&Value| record["source"] == "access.log";
        assert_eq!(records.iter().filter(is_log).count(), 1, "{connection:#}");
        for record in records {
            for name in MILESTONES {
                let after = &record["after_packets_us"][name];
                assert!(after.is_i64(), "{name}: {record:#} {}", connection["milestones_us"]);
            }
        }
        recorded += records.len() - 1;
    }
    assert_eq!(recorded, 3 * CONNECTIONS, "{:#}", lines.last().expect("a summary"));
    let counts = &lines.last().expect("a summary")["records"];
    assert_eq!(
        (counts["records"].as_u64(), counts["unreadable"].as_u64()),
        (counts["joined"].as_u64(), Some(0))
    );
    let ladder = text(&file, &["--ladder", "1", "--keylog", &keylog, "--join", &log, "--join", &files[0]]);
    for event in ["access.log: client-hello", "http1: handshake-finished", "access.log: end of GET / 200"] {
        assert!(ladder.contains(event), "{event}: {ladder}");
    }
    let printed = text(&file, &["--join", &log]);
    assert!(printed.contains("access.log line 1: GET / 200,"), "{printed}");
    let picture = recordings.path().join("ladder.svg").display().to_string();
    text(&file, &["--ladder", "1", "--svg", &picture, "--join", &log]);
    let svg = fs::read_to_string(picture).expect("a file");
    assert!(svg.starts_with("<svg ") && svg.contains("access.log: client-hello"), "{svg}");
}

#[test]
fn captures_of_a_quick_and_of_a_slow_link_differ_in_round_trips() {
    // The slow link exceeds the delays that a busy machine adds to the quick one.
    let files = ["5ms", "300ms"].map(|delay| {
        let link = link(&format!("delay={delay}"))?;
        let recordings = tempfile::tempdir().expect("a folder");
        let site = Site::custom(&format!("server.https = [\"{SERVER}:0\"]"), "", |setup| {
            setup.behind(&words_before(&link.server("")))
        });
        let recorder = Recorder::start(&link, &recordings);
        let port = site.brisk.https().port();
        let mut bench = link.client(brisk_program());
        bench.args(["bench", &format!("https://{NAME}:{port}/"), "--connect", &format!("{SERVER}:{port}")]);
        bench.args(["-n", "20", "-c", "4", "-r", "1", "--timeout", "150s", "--ca"]).arg(site.ca.root_file());
        run(&mut bench, b"", LIMIT).success();
        Some((recorder.end(21), recordings))
    });
    let [Some((quick, _one)), Some((slow, _other))] = files else { return };
    let slow_name = slow.display().to_string();
    let lines = json(&quick, &["--compare", &slow_name]);
    let [comparison] = &lines[..] else { panic!("{lines:#?}") };
    assert_eq!(comparison["connections"], serde_json::json!([21, 21]));
    let verdict = |name: &str, kind: &str| {
        let rows = comparison["rows"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["name"] == name && row["kind"] == kind);
        row.unwrap_or_else(|| panic!("no {name}: {comparison:#}"))["verdict"].clone()
    };
    assert_eq!(verdict("TCP handshake", "median"), "higher");
    assert_eq!(verdict("cause round-trip", "median"), "higher");
    assert_eq!(verdict("TLS 1.3", "share"), "unclear");
    let printed = text(&quick, &["--compare", &slow_name]);
    assert!(printed.contains("TCP handshake") && printed.contains("higher"), "{printed}");
}

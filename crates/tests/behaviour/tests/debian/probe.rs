//! Reports of `brisk probe`, compared with the view of other programs on the wire.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::{LIMIT, NAME, NAMES, Site};
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::{Finished, Process, command, run, serve_on_free_port, wait_until};
use serde_json::Value;

/// `brisk probe` of a path of `site.test` at this port. A machine that stands still for some seconds ends no probe without
/// a timeout in `options`.
pub(crate) fn probe(ca: &TestCa, port: u16, path: &str, options: &str) -> Command {
    let mut command = Command::new(brisk_program());
    command.arg("probe").arg(format!("https://{NAME}:{port}{path}"));
    command.arg("--connect").arg("127.0.0.1").arg("--ca").arg(ca.root_file());
    if !options.contains("--timeout") {
        command.args(["--timeout", "50"]);
    }
    command.args(options.split_whitespace());
    command
}

fn finished(command: &mut Command) -> Finished {
    run(command, b"", LIMIT)
}

pub(crate) fn report(command: &mut Command) -> Value {
    let text = finished(command.arg("--json")).success();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Name and bytes of each handshake message that `party` sent, in order.
pub(crate) fn messages(report: &Value, party: &str) -> Vec<(String, u64)> {
    let steps = report["steps"].as_array().expect("steps");
    let is_message = |step: &&Value| {
        let name = step["name"].as_str().expect("a name");
        step["from"] == party
            && !name.starts_with("alert")
            && !["application_data", "change_cipher_spec"].contains(&name)
    };
    // To openssl a HelloRetryRequest is the ServerHello that it is on the wire.
    let of = |step: &Value| {
        (
            step["name"].as_str().expect("a name").replace("HelloRetryRequest", "ServerHello"),
            step["bytes"].as_u64().expect("a number"),
        )
    };
    steps.iter().filter(is_message).map(of).collect()
}

/// The same of what `openssl s_server -msg` printed: `<<<` it received, `>>>` it sent.
pub(crate) fn seen(output: &str, arrow: &str) -> Vec<(String, u64)> {
    let line = |line: &str| {
        let rest = line.strip_prefix(arrow)?.split_once("Handshake [length ")?.1;
        let (length, name) = rest.split_once("], ")?;
        Some((name.trim().to_owned(), u64::from_str_radix(length, 16).expect("a length")))
    };
    output.lines().filter_map(line).collect()
}

/// An `openssl s_server` that prints each message and answers with a page.
pub(crate) fn s_server(ca: &TestCa, options: &[&str]) -> (Process, u16) {
    s_server_with(&ca.server(&NAMES).issue(), options)
}

/// The same with this certificate.
pub(crate) fn s_server_with(leaf: &Leaf, options: &[&str]) -> (Process, u16) {
    let (process, address) = serve_on_free_port(|port| {
        let mut openssl = command("openssl");
        openssl.args(["s_server", "-msg", "-www", "-accept"]).arg(format!("127.0.0.1:{port}"));
        openssl.arg("-cert").arg(&leaf.chain).arg("-cert_chain").arg(&leaf.chain).arg("-key").arg(&leaf.key);
        openssl.args(options);
        openssl
    });
    (process, address.port())
}

/// What the server printed between the hello of this probe and its answer: other connections asked whether it was up.
fn agrees(options: &str, server: &[&str]) -> Value {
    let ca = TestCa::new();
    let (process, port) = s_server(&ca, server);
    let before = process.stdout().len();
    let report = report(&mut probe(&ca, port, "/", options));
    let (ours, theirs) = (messages(&report, "client"), messages(&report, "server"));
    wait_until("what openssl saw of the last message", || {
        let output = process.stdout();
        (seen(&output[before..], "<<<") == ours && seen(&output[before..], ">>>") == theirs).then_some(())
    });
    assert!(theirs.len() > 3, "{report}");
    report
}

#[test]
fn messages_of_tls13_are_those_that_openssl_saw() {
    let report = agrees("", &[]);
    let tls = &report["tls"];
    assert_eq!((tls["version"].as_str(), tls["distrust"].is_null()), (Some("TLS 1.3"), true), "{tls}");
    assert_eq!(tls["tickets"].as_array().map(Vec::len), Some(2), "{tls}");
    assert_eq!(report["answer"]["status"], 200);
}

#[test]
fn messages_of_tls12_are_those_that_openssl_saw() {
    let report = agrees("--tls 1.2", &["-tls1_2"]);
    assert_eq!(report["tls"]["version"], "TLS 1.2");
    assert_eq!(report["tls"]["false_start"], false, "openssl chooses no protocol: {report}");
}

#[test]
fn a_hello_retry_request_is_named_as_a_lost_round_trip() {
    let report = agrees("", &["-groups", "P-384"]);
    assert_eq!(report["tls"]["hello_retry"], "secp384r1");
    let findings = report["findings"].as_array().expect("findings");
    let lost = findings.iter().find(|finding| finding["id"] == "hello-retry").expect("a finding");
    assert_eq!(lost["round_trips"], 1);
    let rounds = report["steps"].as_array().expect("steps").iter().map(|step| step["round"].as_u64());
    assert!(rounds.max().flatten() >= Some(4), "TCP, two of TLS, the request: {report}");
}

#[test]
fn the_terminal_shows_phases_steps_and_findings() {
    let site = Site::new();
    let mut command = probe(&site.ca, site.brisk.https().port(), "/", "");
    let text = finished(&mut command).success();
    for part in [
        "TLS 1.3",
        "X25519MLKEM768",
        "ClientHello",
        "EncryptedExtensions",
        "Finished",
        "200 over h2",
        "total",
    ] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    assert!(!text.contains('\x1b'), "colours without a terminal: {text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn a_key_log_is_written_for_the_owner_alone() {
    use std::os::unix::fs::PermissionsExt;

    let site = Site::new();
    let file = site.ca.folder().join("keys.log");
    let mut command = probe(&site.ca, site.brisk.https().port(), "/", "");
    finished(command.arg("--keylog").arg(&file)).success();
    let text = fs::read_to_string(&file).expect("a key log");
    for label in ["CLIENT_HANDSHAKE_TRAFFIC_SECRET ", "SERVER_TRAFFIC_SECRET_0 "] {
        assert!(text.contains(label), "{text}");
    }
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
}

/// A server that sends these bytes to each connection, and then waits, or closes it.
fn stranger(bytes: &'static [u8], closes: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(bytes);
            if !closes {
                held.push(stream);
            }
        }
    });
    port
}

#[test]
fn failures_have_one_clear_line_and_their_exit_codes() {
    let ca = TestCa::new();
    // The port of a client is taken, and has no listener.
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let held = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let unused = held.local_addr().expect("an address").port();
    let other = TestCa::new();
    let site = Site::new();
    let trusted = site.brisk.https().port();
    for (ca, port, options, code, hint) in [
        (&ca, unused, "", 4, "refused"),
        (&ca, stranger(b"HTTP/1.1 400 Bad Request\r\n\r\n", false), "", 5, "serves plain HTTP, not TLS"),
        (&ca, stranger(b"", true), "", 5, "closed the connection"),
        (&ca, stranger(b"\x15\x03\x03\0\x02\x02\x28", true), "", 5, "handshake_failure"),
        (&other, trusted, "", 9, "NOT TRUSTED"),
        (&other, trusted, "--insecure", 0, "NOT TRUSTED"),
        (&other, trusted, "--resume", 9, "NOT TRUSTED"),
        (&other, trusted, "--timing -n 1", 9, "NOT TRUSTED"),
        (&other, trusted, "--compare --http1 -n 1", 9, "B: NOT TRUSTED"),
        (&other, trusted, "--compare --http1 -n 1 --insecure", 0, "A: NOT TRUSTED"),
    ] {
        let finished = finished(&mut probe(ca, port, "/", options));
        let text = finished.text();
        assert_eq!(finished.status.code(), Some(code), "{text}");
        assert!(text.contains(hint), "no {hint}: {text}");
    }
    let silent = stranger(b"", false);
    wait_until("a timeout in the TLS handshake", || {
        let finished = finished(&mut probe(&ca, silent, "/", "--timeout 0.5"));
        assert_eq!(finished.status.code(), Some(7), "{}", finished.text());
        finished.text().contains("timed out after 500ms in the TLS handshake").then_some(())
    });
    let closed = finished(probe(&ca, unused, "/", "").arg("--json"));
    let closed: Value = serde_json::from_str(&closed.stdout).expect("JSON");
    assert_eq!(closed["findings"], Value::Array(Vec::new()), "no other address serves: {closed}");
    let mut unknown = Command::new(brisk_program());
    let finished = finished(unknown.args(["probe", "--timeout", "10", "https://no-such-host.invalid/"]));
    // Where no name server can be asked, the time may be over first.
    assert!(matches!(finished.status.code(), Some(3 | 7)), "{}", finished.text());
    assert!(finished.stderr.contains("resolv"), "{}", finished.text());
}

#[test]
fn a_handshake_that_breaks_behind_the_certificate_shows_that_it_is_not_trusted() {
    let (ca, other) = (TestCa::new(), TestCa::new());
    let (_process, port) = s_server(&ca, &["-tls1_2", "-Verify", "1"]);
    for (ca, trust) in [(&other, "NOT TRUSTED"), (&ca, "no staple, trusted")] {
        let finished = finished(&mut probe(ca, port, "/", ""));
        let text = finished.text();
        assert_eq!(finished.status.code(), Some(5), "{text}");
        assert!(text.contains(trust) && text.contains("the handshake was not completed"), "{text}");
        assert!(!text.contains("False Start") && !text.contains("session that could"), "{text}");
    }
}

#[test]
fn an_answer_over_a_connection_that_ends_is_read_and_one_that_is_late_is_shown() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let ends = Nginx::https_with(&leaf, "keepalive_requests 1; limit_rate 500k;");
    let whole = report(&mut probe(&ca, ends.address().port(), "/1m", ""));
    assert_eq!(
        (&whole["answer"]["protocol"], &whole["answer"]["body_bytes"]),
        (&"h2".into(), &1_048_576.into())
    );
    let slow = Nginx::https_with(&leaf, "limit_rate 1k;");
    for (options, protocol) in [("--timeout 3", "h2"), ("--timeout 3 --http1", "http/1.1")] {
        // On a slow machine, a handshake or a head may be late too.
        let report = wait_until("a report of a late body", || {
            let finished = finished(probe(&ca, slow.address().port(), "/1m", options).arg("--json"));
            assert_eq!(finished.status.code(), Some(7), "{}", finished.text());
            let report: Value = serde_json::from_str(&finished.stdout).expect("JSON");
            (report["failure"]["step"] == "body").then_some(report)
        });
        let answer = &report["answer"];
        assert_eq!((&answer["status"], &answer["protocol"]), (&200.into(), &protocol.into()), "{report}");
        assert_eq!(report["frames"].as_array().expect("frames").is_empty(), protocol != "h2", "{report}");
    }
}

#[test]
fn sessions_are_resumed_and_early_data_is_sent() {
    let site = Site::with("early_data = \"safe\"\n");
    let port = site.brisk.https().port();
    let resumed = report(&mut probe(&site.ca, port, "/", "--resume"));
    assert_eq!(
        (resumed["tls"]["resumption"].as_str(), resumed["tls"]["chain"].is_null()),
        (Some("psk"), true)
    );
    let early = report(&mut probe(&site.ca, port, "/", "--0rtt"));
    assert_eq!(
        (&early["tls"]["resumption"], &early["tls"]["early_data"]),
        (&"0-rtt".into(), &"accepted".into())
    );
    assert_eq!(early["answer"]["status"], 200);
    let names = messages(&early, "client");
    assert_eq!(
        names.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["ClientHello", "EndOfEarlyData", "Finished"]
    );
}

#[test]
fn frames_page_and_browser_are_shown() {
    let site = Site::new();
    let (port, page) = (site.brisk.https().port(), site.ca.folder().join("probe.html"));
    let mut command = probe(&site.ca, port, "/", "--frames --browser");
    let text = finished(command.arg("--html").arg(&page)).success();
    for part in [
        "SETTINGS",
        "HEADERS",
        ":status: 200",
        "END_STREAM",
        "window",
        "A client like Chrome",
        "✓ hello",
        "completed",
    ] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    assert!(!text.contains("✗"), "{text}");
    let html = fs::read_to_string(page).expect("a page");
    assert!(html.contains("<svg") && html.contains("ClientHello") && !html.contains("<script"), "{html}");
    assert!(html.ends_with("</html>\n"));
}

#[test]
fn a_late_first_byte_has_its_exit_code() {
    let site = Site::new();
    let port = site.brisk.https().port();
    for options in ["--max-ttfb 0.001", "--max-ttfb 0.001 --timing -n 1"] {
        let finished = finished(&mut probe(&site.ca, port, "/", options));
        assert_eq!(finished.status.code(), Some(8), "{}", finished.text());
        assert!(finished.stderr.contains("--max-ttfb"), "{}", finished.text());
    }
    let text = finished(&mut probe(&site.ca, port, "/", "--timing -n 2 --max-ttfb 60000")).success();
    for part in ["namelookup", "appconnect", "starttransfer", "resumed (2)", "kept (2)"] {
        assert!(text.contains(part), "no {part}: {text}");
    }
}

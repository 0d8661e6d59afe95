//! Load of `brisk bench`, verified by the logs of nginx and brisk.

use std::path::Path;
use std::process::Command;

use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::{LIMIT, NAME, NAMES, Site};
use brisk_testkit::ca::TestCa;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{Finished, run, wait_until};
use serde_json::Value;

/// An nginx that takes early data and resumes by ID and ticket, and the CA of its certificate.
pub(crate) struct Target {
    pub(crate) ca: TestCa,
    pub(crate) nginx: Nginx,
}

/// What was agreed on when the request came, not when its line was written.
const EARLY: &str = "ssl_protocols TLSv1.2 TLSv1.3; ssl_early_data on; set $unused $early;";

impl Target {
    pub(crate) fn new(directives: &str) -> Self {
        let ca = TestCa::new();
        let nginx = Nginx::https_with(&ca.server(&NAMES).issue(), directives);
        Self { ca, nginx }
    }

    fn resuming() -> Self {
        Self::new(&format!("{EARLY} ssl_session_cache shared:all:1m;"))
    }

    /// `brisk bench` of `/1k` with these options.
    pub(crate) fn command(&self, options: &str) -> Command {
        bench(&self.ca, self.nginx.address().port(), "/1k", options)
    }

    /// The result of a run without failures.
    pub(crate) fn result(&self, options: &str) -> Value {
        result(&mut self.command(options))
    }

    /// How many lines of the log say that version, resumption (`r` or `.`) and early data (`1` or `-`) were these.
    fn count(&self, kind: &str) -> u64 {
        self.nginx.requests().iter().filter(|line| line.starts_with(kind)).count() as u64
    }
}

/// `brisk bench` of a path of `site.test` at this port.
pub(crate) fn bench(ca: &TestCa, port: u16, path: &str, options: &str) -> Command {
    let mut command = Command::new(brisk_program());
    command.arg("bench").arg(format!("https://{NAME}:{port}{path}"));
    command.arg("--connect").arg(format!("127.0.0.1:{port}")).arg("--ca").arg(ca.root_file());
    if !options.contains("--timeout ") {
        // No operation fails because the machine stands still.
        command.args(["--timeout", "150s"]);
    }
    command.args(options.split_whitespace());
    command
}

pub(crate) fn finished(command: &mut Command) -> Finished {
    run(command, b"", LIMIT)
}

pub(crate) fn result(command: &mut Command) -> Value {
    json(&finished(command.arg("--json")).success())
}

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// How many handshakes were asked to be of one kind and became another.
pub(crate) fn handshakes(result: &Value, asked: &str, got: &str) -> u64 {
    let kinds = result["handshakes"].as_array().expect("a list");
    let of = |kind: &&Value| kind["asked"] == asked && kind["got"] == got;
    kinds.iter().filter(of).map(|kind| kind["count"].as_u64().expect("a number")).sum()
}

fn negotiated(result: &Value) -> &str {
    result["negotiated"][0]["name"].as_str().expect("a description")
}

/// One kind of handshake, as client and nginx saw it. Besides the measured ones there are the first contact, up to two
/// that show how often a session may be resumed, and those that fetch sessions.
fn is_seen_by_nginx(target: &Target, options: &str, got: &str, line: &str) {
    let before = target.nginx.requests().len() as u64;
    let counted = target.count(line);
    let result = target.result(&format!("-n 40 -c 4 -r 1 --mix {options}"));
    let asked = options.split(' ').next().expect("a kind");
    assert_eq!(handshakes(&result, asked, got), 40, "{result}");
    assert_eq!(result["responses"]["2xx"], 40, "{result}");
    let primed = result["primed"].as_u64().expect("a number");
    let besides = if asked == "full" { 1..=1 } else { primed + 1..=primed + 3 };
    wait_until("all lines of nginx's log", || {
        let all = target.nginx.requests().len() as u64 - before;
        besides.contains(&all.checked_sub(40)?).then_some(())
    });
    let counted = target.count(line) - counted;
    let wanted = match asked {
        "full" => 41..=41,
        // Where the handshake is complete before nginx looks at the request, nginx calls the data early no more.
        "0-rtt" => 1..=42,
        _ => 40..=42,
    };
    assert!(wanted.contains(&counted), "{options}: {counted} of {:#?}", target.nginx.requests());
}

#[test]
fn full_handshakes_are_full() {
    let target = Target::resuming();
    is_seen_by_nginx(&target, "full --tls 1.3", "full", "TLSv1.3 . - ");
    is_seen_by_nginx(&target, "full --tls 1.2", "full", "TLSv1.2 . - ");
    is_seen_by_nginx(&target, "full", "full", "TLSv1.3 . - ");
}

#[test]
fn tls_1_2_resumes_by_id_where_there_are_no_tickets() {
    let target = Target::new(&format!("{EARLY} ssl_session_cache shared:all:1m; ssl_session_tickets off;"));
    is_seen_by_nginx(&target, "session-id", "session-id", "TLSv1.2 r - ");
}

#[test]
fn tls_1_2_resumes_by_ticket_where_there_is_no_cache() {
    let target = Target::new(&format!("{EARLY} ssl_session_cache none;"));
    is_seen_by_nginx(&target, "ticket --tls 1.2", "ticket", "TLSv1.2 r - ");
}

#[test]
fn tls_1_3_resumes_by_ticket_which_is_a_pre_shared_key() {
    let target = Target::resuming();
    is_seen_by_nginx(&target, "ticket", "psk", "TLSv1.3 r - ");
    is_seen_by_nginx(&target, "psk", "psk", "TLSv1.3 r - ");
    is_seen_by_nginx(&target, "psk --sessions once", "psk", "TLSv1.3 r - ");
    is_seen_by_nginx(&target, "psk --sessions many", "psk", "TLSv1.3 r - ");
}

#[test]
fn a_request_goes_as_early_data() {
    let target = Target::resuming();
    is_seen_by_nginx(&target, "0-rtt", "0-rtt", "TLSv1.3 r 1 ");
    is_seen_by_nginx(&target, "0-rtt --h2 1", "0-rtt", "TLSv1.3 r 1 ");
}

#[test]
fn sessions_that_the_server_takes_once_are_used_once() {
    let tables = "\n[[host.route]]\npath = \"/\"\nearly_data = \"safe\"\nrespond = { body = \"hello\" }\n";
    let site = Site::with(tables);
    for options in
        ["--mix 0-rtt -r 1", "--mix 0-rtt -r 1 --h2 1", "--mix psk -r 1", "--mix psk --handshake-only"]
    {
        let result =
            result(&mut bench(&site.ca, site.brisk.https().port(), "/", &format!("-n 60 -c 4 {options}")));
        let kind = options.split(' ').nth(1).expect("a kind");
        assert_eq!(handshakes(&result, kind, kind), 60, "{options}: {result}");
    }
    let accepted = site.brisk.metrics().sum("brisk_early_data_total", &["outcome=\"accepted\""]);
    assert!(accepted >= 120.0, "{accepted}");
}

#[test]
fn a_mix_has_the_shares_that_were_asked_for() {
    let target = Target::resuming();
    let result = target.result("-n 200 -c 8 -r 1 --mix full=20,ticket=50,0-rtt=30");
    for (asked, got, wanted) in [("full", "full", 40), ("ticket", "psk", 100), ("0-rtt", "0-rtt", 60)] {
        let count = handshakes(&result, asked, got);
        assert!(count.abs_diff(wanted) <= 4, "{count} were {asked}: {result}");
    }
    let [late, early] = wait_until("all lines of nginx's log", || {
        let counts = ["TLSv1.3 r - ", "TLSv1.3 r 1 "].map(|kind| target.count(kind));
        (counts.iter().sum::<u64>() >= 160 - 8).then_some(counts)
    });
    // nginx calls early data late where the handshake is complete before it looks at the request.
    assert!(late >= 96 && (1..=68).contains(&early), "{late} {early}");
}

#[test]
fn handshakes_alone_send_no_request() {
    let target = Target::resuming();
    for kind in ["full", "session-id", "ticket --tls 1.2", "psk", "psk --sessions once"] {
        let result = target.result(&format!("-n 30 -c 3 --handshake-only --mix {kind}"));
        assert_eq!((&result["unit"], &result["operations"]), (&"handshakes".into(), &30.into()));
    }
    assert_eq!(target.nginx.requests(), [""; 0]);
}

#[test]
fn connections_are_kept_for_as_many_requests_as_asked_for() {
    let target = Target::resuming();
    // The first of several connections may have done all there is before the last one comes.
    for (options, wanted) in [
        ("-n 60 -c 3", 1..=3),
        ("-n 60 -c 3 -r 1", 60..=60),
        ("-n 60 -c 1 -r 5", 12..=12),
        ("-n 60 -c 2 --h2 5", 1..=2),
        ("-n 60 -c 1 --h2 5 -r 10", 6..=6),
        ("-n 60 -c 4 -t 2", 1..=4),
    ] {
        let result = target.result(options);
        assert_eq!(result["operations"], 60, "{options}: {result}");
        let handshakes = result["traffic"]["handshake"]["count"].as_u64().expect("a number");
        assert!(wanted.contains(&handshakes), "{options}: {result}");
    }
}

#[test]
fn a_server_that_closes_kept_connections_is_no_failure() {
    let target = Target::new("keepalive_requests 10;");
    for (options, least) in [("-n 100 -c 2", 10), ("-n 100 -c 1 --h2 1", 10)] {
        let result = target.result(options);
        let handshakes = result["traffic"]["handshake"]["count"].as_u64().expect("a number");
        assert!((least..=least + 2).contains(&handshakes), "{options}: {result}");
    }
}

#[test]
fn version_suite_group_and_certificate_are_those_asked_for() {
    let target = Target::resuming();
    for (options, line) in [
        ("--tls 1.3 --suite TLS_CHACHA20_POLY1305_SHA256", "TLSv1.3 . - TLS_CHACHA20_POLY1305_SHA256 "),
        (
            "--tls 1.2 --suite TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "TLSv1.2 . - ECDHE-ECDSA-AES256-GCM-SHA384 ",
        ),
        (
            "--group P-256 --tls 1.3 --suite TLS_AES_128_GCM_SHA256",
            "TLSv1.3 . - TLS_AES_128_GCM_SHA256 prime256v1 ",
        ),
        (
            "--group x25519 --tls 1.3 --suite TLS_AES_256_GCM_SHA384",
            "TLSv1.3 . - TLS_AES_256_GCM_SHA384 X25519 ",
        ),
    ] {
        target.result(&format!("-n 5 -r 1 {options}"));
        let seen = || (target.count(line) == 6).then_some(());
        wait_until(&format!("{line:?} in nginx's log"), seen);
    }
    let site = Site::with_both_certificates("");
    for (kind, scheme) in [("rsa", " rsa_pss_rsae_sha256 "), ("ecdsa", " ecdsa_secp256r1_sha256 ")] {
        let mut command =
            bench(&site.ca, site.brisk.https().port(), "/", &format!("-n 5 -r 1 --cert {kind}"));
        let result = result(&mut command);
        assert!(negotiated(&result).contains(scheme), "{result}");
    }
}

#[test]
fn key_shares_of_every_origin_are_accepted() {
    let target = Target::resuming();
    for (options, line) in [
        ("--group x25519", "TLSv1.3 . - TLS_AES_128_GCM_SHA256 X25519 "),
        ("--group x25519 --fresh-keys", "TLSv1.3 . - TLS_AES_128_GCM_SHA256 X25519 "),
        ("--group x25519 --unit-keys", "TLSv1.3 . - TLS_AES_128_GCM_SHA256 X25519 "),
        ("--group P-256 --unit-keys", "TLSv1.3 . - TLS_AES_128_GCM_SHA256 prime256v1 "),
    ] {
        let before = target.count(line);
        target.result(&format!("-n 10 -r 1 --tls 1.3 --suite TLS_AES_128_GCM_SHA256 {options}"));
        wait_until(&format!("{line:?} in nginx's log"), || (target.count(line) == before + 11).then_some(()));
    }
}

#[test]
fn without_tls_there_are_requests_and_no_handshakes() {
    for (nginx, options, connections) in [
        (Nginx::http(), "-n 60 -c 1", 1),
        (Nginx::http(), "-n 60 -c 3 -r 1", 60),
        (Nginx::h2c(), "-n 60 -c 1 --h2 4", 1),
        (Nginx::h2c(), "-n 60 -c 1 --h2 4 -r 20", 3),
    ] {
        let command = || {
            let mut command = Command::new(brisk_program());
            command.arg("bench").arg(format!("http://{}/1k", nginx.address())).args(options.split(' '));
            command.args(["--timeout", "150s"]);
            command
        };
        let result = result(&mut command());
        assert_eq!(
            (&result["operations"], &result["responses"]["2xx"]),
            (&60.into(), &60.into()),
            "{result}"
        );
        assert_eq!(result["latency_us"]["connect"]["count"], connections, "{options}: {result}");
        for absent in
            ["/latency_us/tls", "/handshakes_per_s", "/traffic/handshake", "/handshakes/0", "/negotiated/0"]
        {
            assert_eq!(*result.pointer(absent).unwrap_or(&Value::Null), Value::Null, "{absent} in {result}");
        }
        let received = result["traffic"]["received_bytes"].as_u64().expect("a number");
        assert!((60 << 10..90 << 10).contains(&received), "{options}: {result}");
        let text = finished(&mut command()).success();
        assert!(text.contains("connections") && !text.to_lowercase().contains("handshake"), "{text}");
    }
}

#[test]
fn the_name_is_told_or_not() {
    let site = Site::new();
    let port = site.brisk.https().port();
    for (options, told) in [("", Some(NAME)), ("--sni localhost", Some("localhost")), ("--no-sni", None)] {
        let before = site.brisk.access_log().len();
        result(&mut bench(&site.ca, port, "/connection.json", &format!("-n 1 -r 1 {options}")));
        let lines = wait_until("lines of the access log", || {
            let lines = site.brisk.access_log().split_off(before);
            (lines.len() == 2).then_some(lines)
        });
        let name = told.map(|name| format!("\"server_name\":\"{name}\""));
        let is_right = |line: &String| match &name {
            Some(name) => line.contains(name),
            None => !line.contains("server_name"),
        };
        assert!(lines.iter().all(is_right), "{options}: {lines:#?}");
    }
}

#[test]
fn a_client_certificate_is_shown() {
    let ca = TestCa::new();
    let directives = format!("ssl_verify_client on; ssl_client_certificate {};", ca.root_file().display());
    let nginx = Nginx::https_with(&ca.server(&NAMES).issue(), &format!("{directives} ssl_verify_depth 2;"));
    let leaf = ca.client("a client").issue();
    let mut command = bench(&ca, nginx.address().port(), "/1k", "-n 5 -r 1");
    command.arg("--client-cert").arg(&leaf.chain).arg("--client-key").arg(&leaf.key);
    result(&mut command);
    wait_until("verified clients", || {
        let verified = nginx.requests().iter().filter(|line| line.contains(" SUCCESS ")).count();
        (verified == 6).then_some(())
    });
}

#[test]
fn requests_come_with_method_headers_and_body() {
    let origin = Origin::fixed("hello");
    let site = Site::proxying(&[&origin.url()]);
    let body = site.brisk.folder().join("order.json");
    std::fs::write(&body, "{\"number\": 1}").expect("a file");
    for version in ["", "--h2 2"] {
        let mut command =
            bench(&site.ca, site.brisk.https().port(), "/orders?a=b", &format!("-n 3 {version}"));
        result(command.arg("--body").arg(&body).args(["-H", "X-Own: yes", "-X", "put"]));
        let request = origin.last_request();
        assert!(request.head.line.starts_with("PUT /orders?a=b "), "{}", request.head.line);
        assert_eq!(request.text(), "{\"number\": 1}");
        assert_eq!(request.header("x-own"), Some("yes"));
        assert_eq!(request.header("user-agent"), Some("brisk-bench"));
    }
}

#[test]
fn requests_of_a_list_come_in_proportion_to_their_weights() {
    let target = Target::resuming();
    let list = target.ca.folder().join("urls");
    std::fs::write(&list, "# paths\n7 /1k\n2 /name\n1 POST /headers @urls\n").expect("a file");
    result(target.command("-n 200").arg("--urls").arg(&list));
    let requests = wait_until("all lines of nginx's log", || {
        let requests = target.nginx.requests();
        (requests.len() >= 201).then_some(requests)
    });
    for (path, wanted) in [("/1k", 140_usize), ("/name", 40), ("/headers", 20)] {
        let count = requests.iter().filter(|line| line.ends_with(path)).count();
        assert!(count.abs_diff(wanted) <= 3, "{count} for {path}");
    }
}

#[test]
fn fast_open_works_whether_the_server_does_it_or_not() {
    let target = Target::resuming();
    let result = target.result("-n 20 -r 1 --fast-open");
    assert_eq!(result["operations"], 20);
    // A SYN on loopback has room for every hello.
    let gained = &result["traffic"]["fast_open"];
    assert!(gained["with_syn"].is_u64(), "{result}");
    assert_eq!(gained["with_syn"], gained["whole"]);
    assert!(target.result("-n 1 -r 1")["traffic"]["fast_open"].is_null());
}

#[test]
fn what_the_server_uses_is_measured() {
    let target = Target::resuming();
    let id = target.nginx.process().id();
    // A busy machine needs a longer run for handshakes that take more than a tick of the processor's time.
    let result = [1, 10, 100].into_iter().find_map(|seconds| {
        let options = format!("-d {seconds}s --warmup 0 --handshake-only --server-pid {id}");
        Some(target.result(&options)).filter(|result| result["operations"].as_u64() >= Some(50))
    });
    let result = result.expect("fifty handshakes");
    let server = &result["server"];
    let cost = server["cpu_per_handshake_us"].as_f64().expect("a number");
    assert!((10.0..100_000.0).contains(&cost), "{result}");
    assert!(server["memory_peak_bytes"].as_u64().expect("a number") > 1_000_000, "{result}");
    assert!(result["client_cpu_s"].as_f64().expect("a number") > 0.0, "{result}");
}

#[test]
fn bytes_and_packets_are_those_of_the_wire() {
    let target = Target::resuming();
    let result = target.result("-n 50 -c 1 -r 1 --tls 1.3 --group x25519");
    let traffic = &result["traffic"];
    let number = |value: &Value| value.as_f64().expect("a number");
    let per = &traffic["handshake"];
    assert!((250.0..800.0).contains(&number(&per["sent_bytes"])), "{traffic}");
    assert!((600.0..4000.0).contains(&number(&per["received_bytes"])), "{traffic}");
    assert!((3.0..8.0).contains(&number(&per["packets_sent"])), "{traffic}");
    // 1 KiB of body each, and what is around it.
    let rest = number(&traffic["received_bytes"]) / 50.0 - number(&per["received_bytes"]);
    assert!((1024.0..2500.0).contains(&rest), "{traffic}");
    assert_eq!(result["responses"]["body_bytes"], 50 * 1024);
}

#[test]
fn the_page_and_the_tables_are_written() {
    let target = Target::resuming();
    let page = target.ca.folder().join("page.html");
    let text = finished(target.command("-n 20 -r 1").arg("--html").arg(&page)).success();
    assert!(text.contains("20, ") && text.contains("total"), "{text}");
    assert!(Path::new(&page).metadata().expect("a page").len() > 2000);
}

//! Admin listener: `/metrics` after known traffic, health, recent connections, and ticket keys.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{SystemTime, UNIX_EPOCH};

use brisk_behaviour::site::{NAME, Site, facts, proxy_to};
use brisk_testkit::process::wait_until;
use rustls::HandshakeKind;
use serde_json::{Value, json};

const PLAIN: &[u8] = b"GET / HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\n\r\n";

#[test]
fn health_and_readiness() {
    let site = Site::new();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(site.brisk.ask_admin(path).status(), 200, "{path}");
    }
    assert_eq!(site.brisk.ask_admin("/other").status(), 404);
}

#[test]
fn the_page_is_what_prometheus_reads() {
    let page = Site::new().brisk.ask_admin("/metrics");
    assert!(page.header("content-type").unwrap_or_default().starts_with("application/openmetrics-text"));
    let text = page.text();
    assert!(text.ends_with("# EOF\n"), "{text}");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        assert!(name.starts_with("brisk_") && value.parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn traffic_is_counted() {
    let nginx = brisk_testkit::nginx::Nginx::http();
    let site = Site::with(&proxy_to(&[&nginx.url()]));
    for _ in 0..3 {
        assert_eq!(site.get("/1k").status(), 200);
    }
    assert_eq!(site.get("/none").status(), 404);
    let full = [
        "version=\"TLS 1.3\"",
        "group=\"X25519MLKEM768\"",
        "scheme=\"ecdsa_secp256r1_sha256\"",
        "resumption=\"full\"",
    ];
    for (name, labels, expected) in [
        ("brisk_handshakes_total", &full[..], 4.0),
        ("brisk_handshake_seconds_count", &[], 4.0),
        ("brisk_key_operations_total", &["outcome=\"ok\""], 4.0),
        ("brisk_key_operation_compute_seconds_count", &[], 4.0),
        ("brisk_requests_total", &["status=\"200\""], 3.0),
        ("brisk_requests_total", &["status=\"404\""], 1.0),
        ("brisk_request_seconds_count", &[], 4.0),
        ("brisk_upstream_response_seconds_count", &[], 4.0),
        ("brisk_upstream_requests_total", &["group=\"app\""], 4.0),
        ("brisk_upstream_healthy", &["group=\"app\""], 1.0),
        ("brisk_connections_accepted_total", &[], 4.0),
        ("brisk_connections_open", &[], 0.0),
        ("brisk_handshakes_failed_total", &[], 0.0),
    ] {
        // A connection is counted as closed a moment after its client closed it.
        wait_until(&format!("{name} {labels:?} {expected}"), || {
            let found = site.brisk.metrics().sum(name, labels);
            ((found - expected).abs() < 0.5).then_some(())
        });
    }
    let metrics = site.brisk.metrics();
    assert!(metrics.sum("brisk_sent_bytes_total", &[]) > 3072.0, "{}", metrics.0);
    let expiry = metrics.sum("brisk_certificate_expiry_timestamp_seconds", &[]);
    assert!(expiry > 1.7e9, "{}", metrics.0);
    assert!(metrics.0.contains(NAME), "{}", metrics.0);
}

fn tickets(site: &Site) -> Value {
    let page = site.brisk.ask_admin("/tickets");
    assert_eq!((page.status(), page.header("content-type")), (200, Some("application/json")));
    facts(&page.text())
}

/// Ids of all keys, the sealing one first.
fn ids(tickets: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = tickets["keys"].as_array().expect("a list").iter().collect();
    keys.sort_by_key(|key| key["seals"] != true);
    keys.iter().map(|key| key["id"].as_str().expect("an id")).collect()
}

/// The recent connections for which `wanted` holds, once there are as many.
fn recent(site: &Site, count: usize, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    // A connection ends a moment after its client has closed it.
    wait_until("connections that have ended", || {
        let page = site.brisk.ask_admin("/connections");
        assert_eq!((page.status(), page.header("content-type")), (200, Some("application/json")));
        let all = facts(&page.text());
        let all = all["connections"].as_array().expect("a list").iter();
        let found: Vec<_> = all.filter(|one| wanted(one)).cloned().collect();
        (found.len() == count).then_some(found)
    })
}

fn since_1970() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    u64::try_from(now.as_micros()).expect("a time")
}

#[test]
fn recent_connections_are_shown_with_how_they_went_and_nothing_that_is_asked_for() {
    let begun = since_1970();
    let site = Site::new();
    let client = site.client();
    let mut full = client.connect(site.brisk.https()).expect("a handshake");
    for _ in 0..3 {
        assert_eq!(full.get(NAME, "/none?password=swordfish").status(), 404);
    }
    drop(full);
    client.connect(site.brisk.https()).expect("a handshake").get(NAME, "/");
    let [resumed, full] = &recent(&site, 2, |one| one["handshake"] == true)[..] else { panic!("two") };
    assert_eq!(
        (&full["requests"], &full["end"], &full["listener"]),
        (&json!(3), &json!("closed"), &json!("https"))
    );
    let tls = &full["tls"];
    assert_eq!(
        (&tls["version"], &tls["resumption"], &tls["server_name"]),
        (&json!("TLS 1.3"), &json!("full"), &json!(NAME))
    );
    assert_eq!((&resumed["requests"], &resumed["tls"]["resumption"]), (&json!(1), &json!("psk")));
    let micros = |value: &Value| value.as_u64().expect("microseconds");
    let steps = [
        "client-hello",
        "certificate-chosen",
        "key-operation-started",
        "key-operation-finished",
        "handshake-finished",
    ]
    .map(|step| micros(&full["steps_us"][step]));
    assert!(steps.is_sorted() && steps[4] <= micros(&full["duration_us"]), "{full}");
    assert!(resumed["steps_us"]["key-operation-started"].is_null(), "{resumed}");
    assert!((begun..=since_1970()).contains(&micros(&full["started_us"])), "{full}");
    assert!(micros(&full["bytes_received"]) > 300 && micros(&full["bytes_sent"]) > 300, "{full}");
    for (name, field) in
        [("brisk_received_bytes_total", "bytes_received"), ("brisk_sent_bytes_total", "bytes_sent")]
    {
        let sum = micros(&full[field]) + micros(&resumed[field]);
        wait_until(&format!("{sum} as {name}"), || {
            (site.brisk.metrics().sum(name, &[]).round() as u64 == sum).then_some(())
        });
    }
    assert!(!site.brisk.ask_admin("/connections").text().contains("swordfish"));
}

#[test]
fn failed_handshakes_and_plain_http_are_among_the_recent_connections() {
    let site = Site::new();
    let mut stranger = TcpStream::connect(site.brisk.https()).expect("a listener");
    stranger.write_all(PLAIN).expect("written");
    let mut answer = Vec::new();
    stranger.read_to_end(&mut answer).expect("an answer");
    drop(stranger);
    let [refused] = &recent(&site, 1, |one| one["handshake"] == false)[..] else { panic!("one") };
    assert_eq!((&refused["end"], &refused["tls"]), (&json!("plain-http"), &Value::Null));
    // Bytes of handshakes that are refused count as well.
    assert_eq!(
        (&refused["bytes_received"], &refused["bytes_sent"]),
        (&json!(PLAIN.len()), &json!(answer.len()))
    );
    wait_until("the bytes of the connection in the metrics", || {
        let metrics = site.brisk.metrics();
        let bytes = ["brisk_received_bytes_total", "brisk_sent_bytes_total"]
            .map(|name| metrics.sum(name, &[]).round() as usize);
        (bytes == [PLAIN.len(), answer.len()]).then_some(())
    });
    let mut plain = TcpStream::connect(site.brisk.http()).expect("a listener");
    plain.write_all(PLAIN).expect("written");
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).expect("an answer");
    drop(plain);
    let [redirected] = &recent(&site, 1, |one| one["listener"] == "http")[..] else { panic!("one") };
    assert_eq!((&redirected["requests"], &redirected["end"]), (&json!(1), &json!("closed")));
    let bytes = (&redirected["bytes_received"], &redirected["bytes_sent"]);
    assert_eq!(bytes, (&json!(PLAIN.len()), &json!(answer.len())));
}

#[test]
fn plain_http_connections_end_with_their_reason() {
    let site = Site::custom("server.timeouts.head = \"300ms\"\n", "", |setup| setup);
    // Of its own: a client that is paused before its request would be idle too.
    let hasty = Site::custom("server.timeouts.idle = \"1s\"\n", "", |setup| setup);
    let upload = format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 100000\r\n\r\n");
    for (site, request, begin, end) in [
        (&hasty, "", "", "idle"),
        (&site, "GET / HT", "", "head-timeout"),
        (&site, "GET /\r\n\r\n", "HTTP/1.1 400 ", "malformed"),
        // The rest of the body is not awaited.
        (&site, &upload, "HTTP/1.1 308 ", "closed"),
    ] {
        let mut plain = TcpStream::connect(site.brisk.http()).expect("a listener");
        plain.write_all(request.as_bytes()).expect("written");
        let mut answer = String::new();
        plain.read_to_string(&mut answer).expect("an answer");
        drop(plain);
        assert!(answer.starts_with(begin) && answer.is_empty() == begin.is_empty(), "{end}: {answer}");
        recent(site, 1, |one| one["listener"] == "http" && one["end"] == end);
    }
}

#[test]
fn however_many_connections_there_were_some_hundred_are_shown() {
    let site = Site::new();
    for _ in 0..600 {
        drop(TcpStream::connect(site.brisk.https()).expect("a listener"));
    }
    let metrics = || site.brisk.metrics().sum("brisk_handshakes_failed_total", &[]).round() as u64;
    wait_until("the end of all connections", || (metrics() == 600).then_some(()));
    let all = recent(&site, 256, |one| one["end"] == "client-closed");
    let ids: Vec<_> = all.iter().map(|one| one["connection"].as_u64().expect("a number")).collect();
    assert!(ids.iter().all(|id| *id > 80), "the latest are kept: {ids:?}");
}

#[test]
fn ticket_keys_are_shown_and_changed() {
    let site = Site::new();
    let client = site.client();
    let connect = || client.connect(site.brisk.https()).expect("a handshake");
    connect().get(NAME, "/");
    let before = tickets(&site);
    assert_eq!((&before["sealed"], &before["lifetime"]), (&json!(1), &json!(86_400)));
    assert_eq!(before["keys"][0]["origin"], "memory");
    let rotated = site.brisk.post_admin("/tickets/rotate");
    assert_eq!((rotated.status(), rotated.text().as_str()), (200, "a new key seals from now on\n"));
    let after = tickets(&site);
    assert_eq!(ids(&after)[1..], ids(&before)[..]);
    // What was sealed before still opens.
    let mut resumed = connect();
    resumed.get(NAME, "/");
    assert_eq!(resumed.tls().handshake_kind(), Some(HandshakeKind::Resumed));
    assert_eq!(tickets(&site)["opened"], 1);
    let metrics = site.brisk.metrics();
    for id in ids(&after) {
        assert!(metrics.0.contains(id), "{id} is not in the metrics: {}", metrics.0);
    }
}

#[test]
fn keys_of_the_operator_are_the_operators_to_change() {
    let secret = "sessions.secret = \"fleet.secret\"\nsessions.ticket_keys = \"secret\"\n";
    let derived = Site::custom(secret, "", |setup| setup.file("fleet.secret", [7; 32]));
    let files =
        Site::custom("sessions.ticket_keys = [\"a.key\"]\n", "", |setup| setup.file("a.key", [7; 80]));
    for (site, what) in [(&derived, "put a new secret"), (&files, "put a new key first")] {
        let before = tickets(site);
        let refused = site.brisk.post_admin("/tickets/rotate");
        assert_eq!(refused.status(), 409);
        assert!(refused.text().contains(what), "{}", refused.text());
        assert_eq!(ids(&tickets(site)), ids(&before));
    }
}

#[test]
fn nothing_else_is_changed_over_the_admin_listener() {
    let brisk = Site::new().brisk;
    for path in ["/metrics", "/tickets", "/healthz", "/other"] {
        let refused = brisk.post_admin(path);
        assert_eq!((refused.status(), refused.header("allow")), (405, Some("GET, HEAD")), "{path}");
    }
    let refused = brisk.ask_admin("/tickets/rotate");
    assert_eq!((refused.status(), refused.header("allow")), (405, Some("POST")));
    // A page of a stranger in a browser on this machine.
    let foreign = "POST /tickets/rotate HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.test\r\nContent-Length: 0\r\n\
                   Connection: close\r\n\r\n";
    assert_eq!(brisk.send_admin(foreign).status(), 403);
}

/// What a name of a stranger that leads to this machine shows to the stranger's page in a browser.
#[test]
fn connections_and_tickets_are_not_shown_to_who_asks_by_a_name() {
    let brisk = Site::new().brisk;
    let ask = |path: &str, host: &str| {
        brisk.send_admin(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    };
    for path in ["/connections", "/tickets"] {
        let refused = ask(path, "evil.test:9443");
        assert_eq!(refused.status(), 421, "{path}");
        assert!(refused.text().contains("IP address"), "{}", refused.text());
        assert_eq!(ask(path, &brisk.admin().to_string()).status(), 200, "{path}");
    }
    assert_eq!(ask("/metrics", "gateway.test:9443").status(), 200);
}

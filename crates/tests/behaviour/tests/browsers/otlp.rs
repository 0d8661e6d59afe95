//! Export of log records and spans over OTLP, received with the definitions of the project OpenTelemetry.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{Process, command, serve_on_free_port, wait_until};
use brisk_testkit::programs::python_modules;
use serde_json::Value;
use tempfile::TempDir;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../clients/otlp/receiver.py");
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

struct Receiver {
    process: Process,
    address: SocketAddr,
    folder: TempDir,
}

impl Receiver {
    fn start() -> Self {
        let folder = TempDir::with_prefix("brisk-otlp-").expect("a temporary folder");
        let (process, address) = serve_on_free_port(|port| {
            let mut command = command("python3");
            command.arg(SCRIPT).arg(port.to_string()).arg(folder.path().join("status"));
            command.env("PYTHONPATH", python_modules("opentelemetry"));
            command
        });
        Self { process, address, folder }
    }

    /// The file with the status of responses.
    fn status(&self) -> PathBuf {
        self.folder.path().join("status")
    }

    /// The records of a signal so far: `log` or `span`.
    fn records(&self, signal: &str) -> Vec<Value> {
        let text = self.process.stdout();
        let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        records.filter(|record| record["signal"] == signal).collect()
    }

    /// Waits for a record of this kind.
    fn record(&self, signal: &str, is_searched: impl Fn(&Value) -> bool) -> Value {
        wait_until("a record", || self.records(signal).into_iter().find(&is_searched))
    }

    fn span(&self, path: &str) -> Value {
        self.record("span", |span| span["attributes"]["url.path"] == path)
    }
}

fn site(receiver: &Receiver, keys: &str, tables: &str) -> Site {
    let keys = format!(
        "otlp.endpoint = \"http://{}\"\notlp.timeout = \"1m\"\notlp.service_name = \"shop\"\notlp.headers = {{ x-key = \"k\" }}\n{keys}\n",
        receiver.address
    );
    Site::custom(&keys, tables, |setup| setup)
}

/// Sends a request with this header and returns the `traceparent` that the upstream received.
fn traced(site: &Site, origin: &Origin, path: &str, parent: &str) -> String {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {NAME}\r\nUser-Agent: test\r\n{parent}Connection: close\r\n\r\n"
    );
    assert_eq!(site.connect().request(&request).status(), 200);
    origin.last_request().head.header("traceparent").expect("a trace").to_owned()
}

#[test]
fn spans_continue_the_trace_of_the_client_and_lead_to_that_of_the_upstream() {
    let (receiver, origin) = (Receiver::start(), Origin::fixed("reached"));
    let site = site(&receiver, "", &format!("trace = true\n{}", proxy_to(&[&origin.url()])));
    let sent = traced(&site, &origin, "/headers?a=b", &format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n"));
    let server = receiver.span("/headers");
    for (key, value) in
        [("name", "GET"), ("trace", TRACE), ("parent", PARENT), ("scope", "brisk"), ("key", "k")]
    {
        assert_eq!(server[key], value, "{key} in {server}");
    }
    assert_eq!((&server["kind"], &server["status"]), (&2.into(), &0.into()), "{server}");
    for (key, value) in [
        ("http.request.method", "GET"),
        ("url.scheme", "https"),
        ("url.query", "a=b"),
        ("server.address", NAME),
        ("network.protocol.name", "http"),
        ("network.protocol.version", "1.1"),
        ("user_agent.original", "test"),
        ("client.address", "127.0.0.1"),
        ("tls.protocol.version", "1.3"),
        ("tls.client.server_name", NAME),
    ] {
        assert_eq!(server["attributes"][key], value, "{key} in {server}");
    }
    assert_eq!(server["attributes"]["http.response.status_code"], 200);
    assert_eq!(server["attributes"]["tls.resumed"], false);
    assert_eq!(server["resource"]["service.name"], "shop");
    // The upstream's parent is the span of the upstream, a child of the request's.
    let client = receiver.record("span", |span| span["kind"] == 3);
    assert_eq!((&client["trace"], &client["parent"]), (&server["trace"], &server["span"]), "{client}");
    assert_eq!(sent, format!("00-{TRACE}-{}-01", client["span"].as_str().expect("an ID")));
    assert_eq!(client["attributes"]["server.port"], origin.address().port());
    let time = |span: &Value, key: &str| span[key].as_u64().expect("a time");
    assert!(time(&server, "start") <= time(&client, "start") && time(&client, "end") <= time(&server, "end"));
    assert!(time(&client, "start") < time(&client, "end"), "{client}");
    // The connection has a trace of its own.
    let connection = receiver.record("span", |span| span["name"] == "connection");
    assert_eq!(server["links"], serde_json::json!([[connection["trace"], connection["span"]]]));
    let handshake = receiver.record("span", |span| span["name"] == "TLS handshake");
    assert_eq!((&handshake["trace"], &handshake["parent"]), (&connection["trace"], &connection["span"]));
    assert!(time(&connection, "start") <= time(&handshake, "start"));
    assert!(time(&handshake, "end") <= time(&connection, "end"));
    // The log record of the request belongs to its span.
    let log = receiver.record("log", |log| log["attributes"]["url.path"] == "/headers");
    assert_eq!((&log["trace"], &log["span"], &log["flags"]), (&server["trace"], &server["span"], &1.into()));
    assert_eq!((&log["event"], &log["severity_text"]), (&"brisk.request".into(), &"INFO".into()));
    assert!(
        log["body"].as_str().is_some_and(|body| body.contains("\"GET /headers?a=b HTTP/1.1\" 200")),
        "{log}"
    );
}

#[test]
fn spans_are_recorded_as_the_flag_of_the_client_or_a_share_demands() {
    let (receiver, origin) = (Receiver::start(), Origin::fixed("reached"));
    let tables = format!("trace = true\n{}", proxy_to(&[&origin.url()]));
    let site = site(&receiver, "otlp.sample = 0.000000001", &tables);
    let flags = |parent: &str| {
        traced(&site, &origin, "/headers", parent).rsplit_once('-').expect("flags").1.to_owned()
    };
    assert_eq!(flags(&format!("traceparent: 00-{TRACE}-{PARENT}-00\r\n")), "00");
    assert_eq!(flags(""), "02", "a new trace outside of the share, whose ID is random");
    assert_eq!(flags(&format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n")), "01");
    // Requests are recorded in their order on one worker at least; log records come for all.
    wait_until("three log records", || (receiver.records("log").len() == 3).then_some(()));
    receiver.span("/headers");
    let spans = receiver.records("span");
    assert!(spans.iter().all(|span| span["trace"] == TRACE), "{spans:?}");
    assert_eq!(spans.iter().filter(|span| span["kind"] == 2).count(), 1, "{spans:?}");
}

#[test]
fn failures_have_a_type() {
    let receiver = Receiver::start();
    let site = site(&receiver, "", &format!("trace = true\n{}", proxy_to(&["http://127.0.0.1:9"])));
    assert_eq!(site.get("/fails").status(), 502);
    let server = receiver.span("/fails");
    assert_eq!(
        (&server["status"], &server["attributes"]["error.type"]),
        (&2.into(), &"connect".into()),
        "{server}"
    );
    let log = receiver.record("log", |log| log["attributes"]["url.path"] == "/fails");
    assert_eq!(log["severity_text"], "ERROR");
    let plain = format!("http://{NAME}:{}/", site.brisk.https().port());
    site.curl_url(&[], &plain);
    let handshake = receiver.record("span", |span| span["attributes"]["error.type"] == "plain-http");
    assert_eq!((&handshake["name"], &handshake["status"]), (&"TLS handshake".into(), &2.into()));
    let log = receiver.record("log", |log| log["event"] == "brisk.handshake");
    assert_eq!(log["attributes"]["error.type"], "plain-http");
}

#[test]
fn records_wait_for_a_receiver_that_is_overloaded_and_those_that_it_refuses_are_counted() {
    let receiver = Receiver::start();
    let site = site(&receiver, "", "\n[[host.route]]\npath = \"/\"\nrespond = {}\n");
    fs::write(receiver.status(), "503").expect("a file");
    site.get("/waits");
    site.brisk.log_with("the receiver of the access log is down");
    fs::remove_file(receiver.status()).expect("a file");
    receiver.record("log", |log| log["attributes"]["url.path"] == "/waits");
    let lost = || site.brisk.metrics().sum("brisk_access_log_lost_lines_total", &["v1/logs"]);
    assert!(lost() < 0.5);
    fs::write(receiver.status(), "400").expect("a file");
    site.get("/refused");
    wait_until("a count", || (lost() > 0.5).then_some(()));
    fs::remove_file(receiver.status()).expect("a file");
    site.get("/later");
    receiver.record("log", |log| log["attributes"]["url.path"] == "/later");
    assert!(receiver.records("log").iter().all(|log| log["attributes"]["url.path"] != "/refused"));
}

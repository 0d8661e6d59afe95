//! Requests in early data (0-RTT) to a real upstream, from a client that delays its Finished: forwarding before it, and
//! marking.

use std::io::{Read, Write};
use std::net::TcpStream;

use brisk_behaviour::h2::{Frames, get, post, preface};
use brisk_behaviour::site::{NAME, Site, upstream};
use brisk_testkit::client::TlsClient;
use brisk_testkit::early::Unfinished;
use brisk_testkit::http1::Message;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::wait_until;
use serde_json::Value;

/// A gateway in front of an nginx; `/held` has no early data. With one worker, what comes first is done first.
struct Stage {
    nginx: Nginx,
    site: Site,
    client: TlsClient,
}

impl Stage {
    fn new() -> Self {
        Self::speaking(&[])
    }

    /// With a client that offers these protocols and has a session.
    fn speaking(protocols: &[&str]) -> Self {
        let nginx = Nginx::recording();
        let routes = "
[[host.route]]
path = \"/\"
upstream = \"app\"
early_data = \"safe\"
[[host.route]]
path = \"/held\"
upstream = \"app\"
[[host.route]]
path = \"/limited\"
upstream = \"app\"
early_data = \"safe\"
limits = [\"many\"]
[limit.many]
rate = \"100/h\"
";
        let tables = format!("{routes}{}", upstream(&[&nginx.url()]));
        // Clients finish their handshakes when nginx has logged their early requests.
        let keys = "server.workers = 1\nserver.timeouts.hello = \"10m\"\n";
        let site = Site::custom(keys, &tables, |setup| setup);
        let client = site.client().alpn(protocols);
        let mut first = client.connect(site.brisk.https()).expect("a handshake");
        if protocols.is_empty() {
            assert_eq!(first.get(NAME, "/name?first").status(), 200);
        } else {
            Frames::exchange(&mut first, &[&preface()[..], &get(1, "/name?first")].concat(), 1);
        }
        let stage = Self { nginx, site, client };
        stage.wait_for("GET /name?first -");
        stage
    }

    /// Sends this as early data, and checks that it is accepted as such.
    #[track_caller]
    fn send(&self, early: &[u8]) -> Unfinished {
        let flight = self.client.first_flight(early);
        let mut unfinished = flight.send(self.site.brisk.https()).expect("a gateway that listens");
        assert!(unfinished.is_accepted().expect("the server's flight"));
        unfinished
    }

    /// Requests that the upstream has answered and noted.
    fn arrived(&self) -> Vec<String> {
        self.nginx.requests()
    }

    #[track_caller]
    fn wait_for(&self, request: &str) {
        wait_until(request, || self.arrived().iter().any(|arrived| arrived == request).then_some(()));
    }

    #[track_caller]
    fn logged(&self, path: &str) -> Value {
        let line = self.site.brisk.logged(&format!("\"path\":\"{path}\""));
        serde_json::from_str(&line).expect("JSON")
    }

    /// Another client's request comes early, is forwarded and answered: whatever came before it had its turn.
    #[track_caller]
    fn overtake(&self, path: &str) {
        let other = self.site.client();
        other.connect(self.site.brisk.https()).expect("a handshake").get(NAME, "/name?other");
        let flight = other.first_flight(request("GET", path).as_bytes());
        let mut unfinished = flight.send(self.site.brisk.https()).expect("a gateway that listens");
        assert_eq!(answer(&mut unfinished).status(), 200);
    }
}

fn request(method: &str, path: &str) -> String {
    let body = if method == "POST" { "Content-Length: 4\r\n\r\nbody" } else { "\r\n" };
    format!("{method} {path} HTTP/1.1\r\nHost: {NAME}\r\n{body}")
}

#[track_caller]
fn answer(from: &mut impl Read) -> Message {
    Message::read_response(from).expect("a response")
}

#[test]
fn a_get_is_forwarded_and_answered_before_the_client_has_finished() {
    let stage = Stage::new();
    let mut unfinished = stage.send(request("GET", "/name?early").as_bytes());
    stage.wait_for("GET /name?early 1");
    assert_eq!(answer(&mut unfinished).status(), 200);
    let mut connection = unfinished.finish().expect("the rest of the handshake");
    assert_eq!(connection.get(NAME, "/name?late").status(), 200);
    stage.wait_for("GET /name?late -");
    let (early, late) = (stage.logged("/name?early"), stage.logged("/name?late"));
    assert_eq!((&early["early"], &early["resumption"]), (&"forwarded".into(), &"0-rtt".into()), "{early}");
    assert_eq!((&late["early"], &late["resumption"]), (&Value::Null, &"0-rtt".into()), "{late}");
    let metrics = stage.site.brisk.metrics();
    for (name, label) in [
        ("brisk_early_data_total", "outcome=\"accepted\""),
        ("brisk_early_requests_total", "treatment=\"forwarded\""),
        ("brisk_handshakes_total", "resumption=\"0-rtt\""),
    ] {
        assert!((metrics.sum(name, &[label]) - 1.0).abs() < 0.5, "{name}: {}", metrics.0);
    }
}

/// This request, sent early, waits for the end of the handshake and goes on without a mark.
#[track_caller]
fn is_held(method: &str, path: &str) {
    let stage = Stage::new();
    let unfinished = stage.send(request(method, path).as_bytes());
    stage.overtake("/name?overtaking");
    stage.wait_for("GET /name?overtaking 1");
    let before = stage.arrived();
    assert!(!before.iter().any(|request| request.contains(path)), "{before:?}");
    let mut connection = unfinished.finish().expect("the rest of the handshake");
    answer(&mut connection);
    stage.wait_for(&format!("{method} {path} -"));
    let line = stage.logged(path);
    assert_eq!((&line["early"], &line["resumption"]), (&"held".into(), &"0-rtt".into()), "{line}");
}

#[test]
fn a_post_waits_until_the_client_has_finished() {
    is_held("POST", "/headers?posted");
}

#[test]
fn a_route_without_early_data_waits_until_the_client_has_finished() {
    is_held("GET", "/held");
}

#[test]
fn a_route_with_limits_charges_no_request_that_may_be_a_replay() {
    is_held("GET", "/limited");
}

#[test]
fn too_early_is_for_the_client_to_hear() {
    let stage = Stage::new();
    let mut unfinished = stage.send(request("GET", "/not-early").as_bytes());
    let refusal = answer(&mut unfinished);
    assert_eq!((refusal.status(), refusal.text().as_str()), (425, "too early"));
    // RFC 8470 section 5.2: the client asks again when its handshake is complete.
    let mut connection = unfinished.finish().expect("the rest of the handshake");
    assert_eq!(connection.get(NAME, "/not-early").text(), "late enough");
    stage.wait_for("GET /not-early 1");
    stage.wait_for("GET /not-early -");
    assert_eq!(stage.logged("/not-early")["status"], 425);
}

#[test]
fn http_2_forwards_one_request_and_holds_the_other() {
    let stage = Stage::speaking(&["h2"]);
    let early = [&preface()[..], &post(1, "/headers?posted"), &get(3, "/name?early")].concat();
    let mut unfinished = stage.send(&early);
    let mut frames = Frames::default();
    frames.read_until_end(&mut unfinished, 3);
    stage.wait_for("GET /name?early 1");
    assert!(!frames.has_ended(1), "the answer to what came first and changes something");
    assert!(!stage.arrived().iter().any(|request| request.starts_with("POST")));
    let mut connection = unfinished.finish().expect("the rest of the handshake");
    frames.read_until_end(&mut connection, 1);
    stage.wait_for("POST /headers?posted -");
    assert!(frames.body(1).contains("method: POST"), "{}", frames.body(1));
    assert_eq!(stage.logged("/headers?posted")["early"], "held");
    assert_eq!(stage.logged("/name?early")["early"], "forwarded");
}

#[test]
fn too_early_is_for_the_client_of_http_2_to_hear() {
    let stage = Stage::speaking(&["h2"]);
    let mut unfinished = stage.send(&[&preface()[..], &get(1, "/not-early")].concat());
    let mut frames = Frames::default();
    frames.read_until_end(&mut unfinished, 1);
    assert_eq!(frames.body(1), "too early");
    let mut connection = unfinished.finish().expect("the rest of the handshake");
    Write::write_all(&mut connection, &get(3, "/not-early")).expect("a server that reads");
    frames.read_until_end(&mut connection, 3);
    assert_eq!(frames.body(3), "late enough");
    assert_eq!(stage.logged("/not-early")["status"], 425);
}

#[test]
fn a_copy_that_nobody_finishes_is_counted_and_logged() {
    let stage = Stage::new();
    let early = request("GET", "/name?copied");
    let flight = stage.client.first_flight(early.as_bytes());
    let bytes = flight.bytes().to_vec();
    let mut original = flight.send(stage.site.brisk.https()).expect("a gateway that listens");
    assert!(original.is_accepted().expect("the server's flight"));
    let replays = || stage.site.brisk.metrics().sum("brisk_early_data_replays_total", &[]).round() as u64;
    assert_eq!(replays(), 0);
    let copies = [(); 3].map(|()| {
        let mut copy = TcpStream::connect(stage.site.brisk.https()).expect("a gateway that listens");
        copy.write_all(&bytes).expect("a gateway that reads");
        copy.read_exact(&mut [0; 5]).expect("the server's flight");
        copy
    });
    assert_eq!(replays(), 3, "while their connections are open");
    drop(copies);
    let lines = wait_until("three failed handshakes", || {
        let mut lines = stage.site.brisk.access_log();
        lines.retain(|line| line.contains("\"event\":\"handshake\""));
        (lines.len() == 3).then_some(lines)
    });
    for line in lines {
        assert!(line.contains("\"resumption_failure\":\"used\""), "{line}");
    }
    let used = ["reason=\"used\""];
    let failures = stage.site.brisk.metrics().sum("brisk_resumption_failures_total", &used);
    assert_eq!(failures.round() as u64, 3);
    assert_eq!(stage.arrived().iter().filter(|request| request.contains("copied")).count(), 1);
}

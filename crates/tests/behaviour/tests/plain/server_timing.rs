//! `Server-Timing`: facts of connections for browsers.

use std::collections::BTreeMap;

use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::origin::Origin;
use serde_json::Value;

const ROUTE: &str = "\n[[host.route]]\npath = \"/\"\nrespond = { body = \"ok\" }\n";

/// The entries of a header: name, description and duration in milliseconds.
fn entries(value: &str) -> BTreeMap<&str, (&str, Option<f64>)> {
    let entry = |text| {
        let mut parts = str::split(text, ';').map(str::trim);
        let name = parts.next().expect("a name");
        let (mut description, mut duration) = ("", None);
        for part in parts {
            match part.split_once('=').expect("a parameter") {
                ("desc", text) => description = text.trim_matches('"'),
                ("dur", number) => duration = Some(number.parse().expect("milliseconds")),
                other => panic!("{other:?} in {value}"),
            }
        }
        (name, (description, duration))
    };
    value.split(", ").map(entry).collect()
}

#[test]
fn answers_say_what_their_time_consists_of() {
    let origin = Origin::answering(|_, stream| {
        use std::io::Write as _;
        std::thread::sleep(std::time::Duration::from_millis(20));
        write!(stream, "HTTP/1.1 200 OK\r\nServer-Timing: db;dur=5\r\nContent-Length: 2\r\n\r\nok")
    });
    let tables = "server_timing = { allow_origins = [\"https://www.test\"] }\n".to_owned();
    let site = Site::with(&(tables + &proxy_to(&[&origin.url()])));
    let mut stream = site.connect();
    for number in 1..=2 {
        let answer = stream.get(NAME, "/page");
        assert_eq!(answer.header("timing-allow-origin"), Some("https://www.test"));
        let timings = answer.head.all("server-timing");
        assert_eq!((timings.len(), timings[0]), (2, "db;dur=5"), "the upstream's own stays");
        let said = entries(timings[1]);
        assert_eq!(said["tls"].0, "TLS 1.3");
        assert_eq!(said["session"].0, "full");
        assert_eq!(said["connection"].0, if number == 1 { "new" } else { "reused" });
        assert!(said["upstream"].1.is_some_and(|time| time >= 20.0), "{said:?}");
        assert!(said["queue"].1.is_some() && said["rtt"].1.is_some_and(|time| time > 0.0), "{said:?}");
        // The same facts are in the log, under the same id.
        let line: Value =
            serde_json::from_str(&site.brisk.logged(said["request"].0)).expect("a line of JSON");
        let micros = line["handshake_us"].as_f64().expect("a time");
        assert!(said["tls"].1.is_some_and(|time| (time * 1e3 - micros).abs() < 1.0), "{line} {said:?}");
        assert_eq!(line["connection_requests"], number);
    }
}

#[test]
fn a_resumed_session_says_so_and_files_have_no_upstream() {
    let site = Site::with(&format!("server_timing = true\n{ROUTE}"));
    let client = site.client();
    let mut kinds = Vec::new();
    for _ in 0..2 {
        let answer = client.connect(site.brisk.https()).expect("a handshake").get(NAME, "/");
        let timing = answer.header("server-timing").expect("a timing").to_owned();
        assert!(!timing.contains("upstream") && answer.header("timing-allow-origin").is_none(), "{timing}");
        kinds.push(entries(&timing)["session"].0.to_owned());
    }
    assert_eq!(kinds, ["full", "psk"]);
}

#[test]
fn hosts_that_do_not_ask_for_it_say_nothing() {
    let site = Site::with(ROUTE);
    let answer = site.get("/");
    assert_eq!((answer.header("server-timing"), answer.header("timing-allow-origin")), (None, None));
}

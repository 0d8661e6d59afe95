//! Malformed requests, which are refused before a route is known: each has a line of the access log and is counted.

use std::io::{Read, Write};
use std::net::TcpStream;

use brisk_behaviour::h2::{self, get_with};
use brisk_behaviour::h2_client::Client;
use brisk_behaviour::h3_client::{self as h3, head, response};
use brisk_behaviour::site::Site;
use brisk_testkit::process::wait_until;
use quinn_proto::Dir;
use serde_json::Value;

const FIXED: &str = "\n[[host.route]]\npath = \"/\"\nrespond = { body = \"here\" }\n";

#[track_caller]
fn assert_logged(site: &Site, excerpt: &str, error: &str, status: u64) {
    let line = site.brisk.logged(&format!("\"excerpt\":{}", Value::from(excerpt)));
    let line: Value = serde_json::from_str(&line).expect("a line of JSON");
    assert_eq!((line["event"].as_str(), line["error"].as_str()), (Some("malformed"), Some(error)), "{line}");
    assert_eq!(
        (line["status"].as_u64(), line["error_side"].as_str()),
        (Some(status), Some("client")),
        "{line}"
    );
    assert_eq!(line["client"], "127.0.0.1");
    let label = format!("reason=\"{error}\"");
    assert!(site.brisk.metrics().sum("brisk_requests_malformed_total", &[&label]) > 0.5, "{error}");
}

#[test]
fn malformed_requests_of_every_protocol_have_a_line() {
    let site = h3::h3_site("", FIXED);
    let converse = |mut stream: Box<dyn ReadWrite>, bytes: &str| {
        stream.write_all(bytes.as_bytes()).expect("a server that reads");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("a response");
        assert!(answer.starts_with(b"HTTP/1.1 4"), "{}", answer.escape_ascii());
    };
    let secure = || Box::new(site.connect());
    converse(secure(), "GET /one HTTP/1.1\r\nbad name: secret\r\n\r\n");
    assert_logged(&site, "GET /one HTTP/1.1", "header-name", 400);
    converse(secure(), &format!("GET /long HTTP/1.1\r\nX-Own: {}\r\n\r\n", "a".repeat(70_000)));
    assert_logged(&site, "GET /long HTTP/1.1", "head-too-large", 431);
    converse(Box::new(TcpStream::connect(site.brisk.http()).expect("a listener")), "GET /a\u{1b}\"\r\n\r\n");
    assert_logged(&site, "GET /a\u{1b}\"", "head-syntax", 400);

    let mut client = Client::connect(&site);
    client.send(&get_with(1, "/two", &[("connection", "close")]));
    assert_logged(&site, "GET /two", "malformed-fields", 0);
    client.send(&get_with(3, "/two-length", &[("content-length", "5")]));
    assert_logged(&site, "GET /two-length", "content-length", 0);

    let mut connection = h3::connect(&h3::client(&site), site.brisk.https());
    for (path, field) in [("/three", ("connection", "close")), ("/three-length", ("content-length", "5"))] {
        let stream = connection.connection.streams().open(Dir::Bi).expect("a stream");
        let mut sending = connection.connection.send_stream(stream);
        sending.write(&head("GET", path, &[field])).expect("an open stream");
        sending.finish().expect("an open stream");
        let answer = response(&mut connection, stream);
        assert!(answer.is_ok_and(|answer| answer.sections.is_empty()), "a stream without a response");
    }
    assert_logged(&site, "GET /three", "malformed-fields", 0);
    assert_logged(&site, "GET /three-length", "content-length", 0);
    let lines = site.brisk.access_log();
    assert!(lines.iter().all(|line| !line.contains("secret")), "{lines:?}");
}

trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

#[test]
fn a_flood_of_malformed_requests_is_counted_and_not_logged_line_by_line() {
    let site = Site::custom("server.limits.h2_resets = 10000\n", FIXED, |setup| setup);
    let mut client = Client::connect(&site);
    let malformed = |number: u32| get_with(2 * number + 1, "/flood", &[("connection", "close")]);
    client.send(&(0..300).flat_map(malformed).collect::<Vec<_>>());
    let mut sent = 300;
    let line = wait_until("a line with the number of suppressed lines", || {
        client.send(&malformed(sent));
        sent += 1;
        site.brisk.access_log().into_iter().find(|line| line.contains("\"suppressed\":"))
    });
    let line: Value = serde_json::from_str(&line).expect("a line of JSON");
    assert!(line["suppressed"].as_u64().is_some_and(|lines| lines > 0), "{line}");
    client.send(&h2::get(2 * sent + 1, "/"));
    assert_eq!(client.status(2 * sent + 1), 200);
    let counted = site.brisk.metrics().sum("brisk_requests_malformed_total", &[]);
    assert!((counted - f64::from(sent)).abs() < 0.5, "{counted} of {sent}");
    assert!(site.brisk.access_log().len() < sent as usize);
}

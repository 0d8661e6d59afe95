//! The access log: a line per request with the record of its connection, one per failed handshake, in text and JSON.

use std::fs;
use std::io::Write;
use std::net::TcpStream;

use brisk_behaviour::site::{NAME, Site};
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[test]
fn json_lines_tell_the_request_and_its_connection() {
    let site = Site::new();
    site.curl(
        &["--http2", "--user-agent", "a \"quoted\" agent", "--header", "Referer: https://from.test/"],
        "/?q=1",
    );
    let line: Value = serde_json::from_str(&site.brisk.logged("/?q=1")).expect("a line of JSON");
    for (key, value) in [
        ("event", "request"),
        ("client", "127.0.0.1"),
        ("method", "GET"),
        ("path", "/?q=1"),
        ("protocol", "HTTP/2.0"),
        ("user_agent", "a \"quoted\" agent"),
        ("referer", "https://from.test/"),
        ("tls", "TLS 1.3"),
        ("group", "x25519"),
        ("scheme", "ecdsa_secp256r1_sha256"),
        ("resumption", "full"),
        ("server_name", NAME),
        ("alpn", "h2"),
    ] {
        assert_eq!(line[key], value, "{key} in {line}");
    }
    assert_eq!(line["status"], 200);
    for key in ["bytes_sent", "handshake_us", "rtt_us", "duration_us"] {
        assert!(line[key].as_u64().is_some_and(|number| number > 0), "{key} in {line}");
    }
}

#[test]
fn text_lines_are_the_combined_format_and_more() {
    let site = Site::custom("", "", |setup| setup.option("--access-log").option("text"));
    site.curl(&["--http1.1", "--user-agent", "agent \u{e9}\"\\"], "/a\"b");
    let line = site.brisk.logged("/a");
    assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
    assert!(line.contains("\"GET /a\\x22b HTTP/1.1\" 404 "), "{line}");
    assert!(line.contains("\"agent \\xC3\\xA9\\x22\\x5C\"") && line.contains("tls=\"TLS 1.3\""), "{line}");
    assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{line}");
}

#[test]
fn upstreams_are_named_with_their_time() {
    let nginx = Nginx::http();
    let site = Site::proxying(&[&nginx.url()]);
    site.get("/1k");
    let line: Value = serde_json::from_str(&site.brisk.logged("/1k")).expect("a line of JSON");
    assert!(line["upstream"].as_str().unwrap_or_default().contains(&nginx.address().to_string()), "{line}");
    assert!(line["upstream_us"].as_u64().is_some(), "{line}");
    assert_eq!(line["bytes_sent"], 1024);
}

#[test]
fn failed_handshakes_have_a_line() {
    let site = Site::new();
    let mut stream = TcpStream::connect(site.brisk.https()).expect("a listener");
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("a connection");
    let line: Value = serde_json::from_str(&site.brisk.logged("plain-http")).expect("a line of JSON");
    assert_eq!((line["event"].as_str(), line["outcome"].as_str()), (Some("handshake"), Some("plain-http")));
    assert_eq!(line["reached"], "tcp-established", "{line}");
}

#[test]
fn the_file_is_opened_anew_after_rotation() {
    let site = Site::new();
    site.get("/first");
    site.brisk.logged("/first");
    let folder = site.brisk.folder();
    fs::rename(folder.join("access.log"), folder.join("access.log.1")).expect("a log");
    let id = i32::try_from(site.brisk.process().id()).expect("a process id");
    kill_process(Pid::from_raw(id).expect("a process id"), Signal::HUP).expect("a running brisk");
    wait_until("a new access log", || {
        site.get("/second");
        site.brisk.access_log().into_iter().find(|line| line.contains("/second"))
    });
}

#[test]
fn it_can_be_off() {
    let site = Site::custom("", "", |setup| setup.option("--access-log").option("off"));
    site.get("/");
    assert_eq!(site.brisk.access_log(), Vec::<String>::new());
    assert!(!site.brisk.process().stdout().contains("GET"));
}

const COMBINED: &str = "access_log.format = { template = '{client.address} - {user} [{time.common}] \"{request.line}\" \
                        {response.status} {response.bytes} \"{request.header.referer}\" \"{request.header.user-agent}\"' }";

#[test]
fn a_template_writes_the_combined_line_of_nginx() {
    let route = "\n[[host.route]]\npath = \"/\"\nrespond = { body = \"hello\" }\n";
    let site = Site::custom(COMBINED, route, |setup| setup);
    let nginx =
        Nginx::http_with("access_log FOLDER/access.log combined; location ~ ^/ { return 200 hello; }");
    let without_time = |line: &str| {
        let (start, rest) = line.split_once(" [").expect("a time");
        let (time, end) = rest.split_once("] ").expect("a time");
        assert!(time.ends_with(" +0000") && time.len() == "21/Nov/2025:02:22:10 +0000".len(), "{line}");
        format!("{start} {end}")
    };
    for (number, request) in [
        "GET /1?a=b%20c HTTP/1.1\r\nUser-Agent: curl/8 (x; \"y\\z\")\r\nReferer: https://a.test/?b=c",
        "POST /2 HTTP/1.1\r\nContent-Length: 0\r\nUser-Agent: \u{e9}\u{202e}\tx",
        "GET /3 HTTP/1.1\r\nReferer: ",
        "DELETE /4?x=';%zz HTTP/1.1",
    ]
    .into_iter()
    .enumerate()
    {
        let message = format!("{request}\r\nHost: {NAME}\r\nConnection: close\r\n\r\n");
        assert!(site.connect().request(&message).text() == "hello", "{request}");
        let mut stream = TcpStream::connect(nginx.address()).expect("nginx");
        stream.write_all(message.as_bytes()).expect("nginx");
        let theirs = wait_until("a line of nginx", || nginx.requests().into_iter().nth(number));
        let ours = site.brisk.logged(&format!(" /{}", number + 1));
        assert_eq!(without_time(&ours), without_time(&theirs), "{request}");
    }
}

#[test]
fn a_share_of_the_requests_has_lines_and_all_failures_have() {
    let routes = "\n[[host.route]]\npath = \"/\"\nrespond = { body = \"x\" }\n\
                  \n[[host.route]]\npath = \"/fails\"\nrespond = { status = 503 }\n";
    let site = Site::custom("access_log.sample = 0.000000001", routes, |setup| setup);
    let all = Site::custom("access_log.sample = 1.0", routes, |setup| setup);
    for _ in 0..50 {
        site.get("/");
    }
    site.get("/fails");
    site.brisk.logged("/fails");
    assert_eq!(site.brisk.access_log().len(), 1);
    all.get("/");
    all.brisk.logged("\"/\"");
}

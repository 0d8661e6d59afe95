//! Timeouts and bandwidth of routes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use brisk_behaviour::site::{NAME, Site, upstream};
use brisk_testkit::http1::Head;
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::wait_until;
use serde_json::Value;

/// An origin whose responses begin late, pause, or never end, according to their paths.
fn slow() -> Origin {
    Origin::answering(|request, stream| {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
        // Ends when the client has gone, or with the test.
        let trickle = |stream: &mut TcpStream| -> io::Result<()> {
            loop {
                stream.write_all(b"x")?;
                thread::sleep(Duration::from_millis(20));
            }
        };
        match request.head.line.split(' ').nth(1).unwrap_or_default() {
            "/late" | "/late-whole" => {
                let _ = stream.read(&mut [0]);
                Ok(())
            }
            "/pausing" => {
                // At once, or a pause of the machine could come in between.
                stream.write_all(&[head, &b"half"[..]].concat())?;
                let _ = stream.read(&mut [0]);
                Ok(())
            }
            "/endless" => {
                stream.write_all(head)?;
                trickle(stream)
            }
            _ => write_response(stream, b"here"),
        }
    })
}

fn reason(site: &Site, path: &str) -> Value {
    let line: Value =
        serde_json::from_str(&site.brisk.logged(&format!("\"{path}\""))).expect("a line of JSON");
    line["error"].clone()
}

#[test]
fn a_route_has_timeouts_of_its_own() {
    let origin = slow();
    let route = |path: &str, timeouts: &str| {
        format!("\n[[host.route]]\npath = \"{path}\"\nupstream = \"app\"\ntimeouts = {{ {timeouts} }}\n")
    };
    let tables = [
        route("/", "head = \"10m\""),
        route("/late", "head = \"300ms\""),
        route("/pausing", "body = \"300ms\""),
        route("/late-whole", "request = \"500ms\""),
        route("/endless", "request = \"500ms\", body = \"10m\""),
        upstream(&[&origin.url()]),
    ];
    let site = Site::with(&tables.concat());
    assert_eq!(site.get("/").text(), "here");
    assert_eq!(site.get("/late").status(), 504);
    assert_eq!(reason(&site, "/late"), "response-timeout");
    assert_eq!(site.get("/late-whole").status(), 504);
    assert_eq!(reason(&site, "/late-whole"), "request-timeout");
    for (path, expected) in [("/pausing", "response-body-timeout"), ("/endless", "request-timeout")] {
        let body = wait_until("a response that begins in time", || beginning(&site, path));
        assert!(body.len() < 1_000_000, "{}", body.len());
        assert_eq!(reason(&site, path), expected);
    }
}

/// The body of a response of 1,000,000 bytes up to its end. `None` if a pause of the machine used up its time before.
fn beginning(site: &Site, path: &str) -> Option<Vec<u8>> {
    let mut connection = site.connect();
    write!(connection, "GET {path} HTTP/1.1\r\nHost: {NAME}\r\n\r\n").expect("a server");
    let head = Head::read(&mut connection).expect("a response").expect("a head");
    if !head.line.starts_with("HTTP/1.1 200 ") {
        return None;
    }
    assert_eq!(head.length(), Some(1_000_000));
    let mut body = Vec::new();
    // The connection ends before the body does.
    let _ = connection.read_to_end(&mut body);
    (!body.is_empty()).then_some(body)
}

#[test]
fn a_response_without_length_that_takes_too_long_does_not_seem_complete() {
    let origin = Origin::raw(|mut stream| {
        Head::read(&mut stream)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")?;
        let _ = stream.read(&mut [0]);
        Ok(())
    });
    let tables =
        format!("\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n{}", upstream(&[&origin.url()]));
    let site = Site::custom("server.timeouts.request = \"500ms\"\n", &tables, |setup| setup);
    let mut connection = site.connect();
    // A client of HTTP/1.0 knows the end of the body by the end of the connection only.
    write!(connection, "GET /a HTTP/1.0\r\nHost: {NAME}\r\n\r\n").expect("a server");
    let mut received = Vec::new();
    let end = connection.read_to_end(&mut received).expect_err("no close_notify");
    assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof, "{}", String::from_utf8_lossy(&received));
    assert_eq!(reason(&site, "/a"), "request-timeout");
}

#[test]
fn a_download_with_a_bandwidth_is_overtaken_by_one_without() {
    const LENGTH: usize = 4 << 20;
    let tables = "
[[host.route]]
path = \"/paced\"
static = \"www\"
bandwidth = { rate = \"16KiB\", after = \"1MiB\" }
[[host.route]]
path = \"/\"
static = \"www\"
";
    let site = Site::custom("", tables, |setup| setup.file("www/file", vec![b'x'; LENGTH]));
    let received = Arc::new(AtomicUsize::new(0));
    let (mut paced, counter) = (site.connect(), Arc::clone(&received));
    // Ends with the gateway.
    thread::spawn(move || {
        write!(paced, "GET /paced/file HTTP/1.1\r\nHost: {NAME}\r\n\r\n").expect("a server");
        let head = Head::read(&mut paced).expect("a response").expect("a head");
        assert_eq!(head.length(), Some(LENGTH));
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = paced.read(&mut buffer) {
            counter.fetch_add(length, Ordering::SeqCst);
        }
    });
    wait_until("the part without a bandwidth", || (received.load(Ordering::SeqCst) >= 1 << 20).then_some(()));
    assert_eq!(site.get("/file").body.len(), LENGTH);
    let received = received.load(Ordering::SeqCst);
    assert!((1 << 20..LENGTH).contains(&received), "{received}");
}

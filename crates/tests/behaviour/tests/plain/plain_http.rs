//! Hosts that serve plain HTTP.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use brisk_behaviour::h2::{self, Frames};
use brisk_behaviour::site::{NAME, Site, setup, upstream};
use brisk_testkit::http1::{Head, Message};
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::TIMEOUT;

const HOST: &str = "plain = \"serve\"\nhsts = { max_age = \"365d\" }\n";

fn site(origin: &Origin, more: &str) -> Site {
    let route = "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n[[host.route]]\npath = \"/files\"\nstatic = \"www\"\n";
    let tables = format!("{HOST}{route}{}{more}", upstream(&[&origin.url()]));
    Site::custom("", &tables, |setup| setup.file("www/large", "x".repeat(1 << 20)))
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a listener");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream
}

/// Sends a request and returns its response.
fn exchange(stream: &mut TcpStream, request: &str) -> Message {
    stream.write_all(request.as_bytes()).expect("a server");
    Message::read_response(stream).expect("a response")
}

#[test]
fn requests_over_plain_http_reach_the_application() {
    let origin = Origin::answering(|request, stream| write_response(stream, &request.body));
    let site = site(&origin, "");
    let mut stream = connect(site.brisk.http());
    let response = exchange(&mut stream, &format!("GET /a HTTP/1.1\r\nHost: {NAME}\r\n\r\n"));
    assert_eq!((response.status(), response.header("strict-transport-security")), (200, None));
    assert_eq!(origin.last_request().header("x-forwarded-proto"), Some("http"));
    // The connection is kept, and bodies in both forms are read.
    let posted = format!("POST /b HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(exchange(&mut stream, &posted).text(), "hello");
    let chunked = format!(
        "POST /c HTTP/1.1\r\nHost: {NAME}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    );
    assert_eq!(exchange(&mut stream, &chunked).text(), "abcde");
    let large = exchange(&mut stream, &format!("GET /files/large HTTP/1.1\r\nHost: {NAME}\r\n\r\n"));
    assert_eq!((large.status(), large.body.len()), (200, 1 << 20));
    let line = site.brisk.logged("/files/large");
    assert!(!line.contains("\"tls\""), "{line}");
    assert_eq!(site.get("/a").header("strict-transport-security"), Some("max-age=31536000"));
}

#[test]
fn http2_by_prior_knowledge_is_spoken_without_tls() {
    let origin = Origin::answering(|request, stream| write_response(stream, &request.body));
    let site = site(&origin, "");
    let mut stream = connect(site.brisk.http());
    // In pieces, as the preface may arrive.
    let bytes = [h2::preface(), h2::post(1, "/a")].concat();
    let (first, rest) = bytes.split_at(7);
    stream.write_all(first).expect("a server");
    let mut frames = Frames::exchange(&mut stream, rest, 1);
    assert_eq!(frames.body(1), "body");
    let window = |stream| h2::frame(h2::WINDOW_UPDATE, 0, stream, &(1_u32 << 21).to_be_bytes());
    let large = [h2::get(3, "/files/large"), window(0), window(3)].concat();
    stream.write_all(&large).expect("a server");
    frames.read_until_end(&mut stream, 3);
    assert_eq!(frames.body(3).len(), 1 << 20);
}

#[test]
fn a_protocol_can_be_switched_without_tls() {
    let origin = Origin::raw(|mut stream| {
        Head::read(&mut stream)?;
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")?;
        let mut byte = [0; 4];
        stream.read_exact(&mut byte)?;
        stream.write_all(&byte)
    });
    let site = site(&origin, "");
    let mut stream = connect(site.brisk.http());
    write!(stream, "GET /a HTTP/1.1\r\nHost: {NAME}\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
        .expect("a server");
    let head = Head::read(&mut stream).expect("a head").expect("a head");
    assert!(head.line.contains("101"), "{}", head.line);
    stream.write_all(b"ping").expect("a server");
    let mut back = [0; 4];
    stream.read_exact(&mut back).expect("an echo");
    assert_eq!(&back, b"ping");
}

#[test]
fn a_truncated_response_is_no_complete_one_without_tls() {
    let origin = Origin::raw(|mut stream| {
        Head::read(&mut stream)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
    });
    let site = site(&origin, "");
    let mut stream = connect(site.brisk.http());
    // A client of HTTP/1.0 knows the end of the body by the end of the connection only.
    write!(stream, "GET /a HTTP/1.0\r\nHost: {NAME}\r\n\r\n").expect("a server");
    let mut received = Vec::new();
    assert!(stream.read_to_end(&mut received).is_err(), "{}", String::from_utf8_lossy(&received));
}

#[test]
fn hosts_that_do_not_serve_plain_http_are_redirected() {
    let origin = Origin::fixed("reached");
    let site = site(&origin, "");
    let file = site.brisk.folder().join("brisk.toml");
    let config = std::fs::read_to_string(&file).expect("the configuration");
    let pair = config.lines().find(|line| line.starts_with("certificates")).expect("certificates");
    let other = format!("\n[[host]]\nnames = [\"other.test\"]\n{pair}\n");
    std::fs::write(&file, format!("{config}{other}")).expect("a file");
    assert!(site.brisk.reload().contains("reloaded"));
    let mut stream = connect(site.brisk.http());
    let ask = |stream: &mut TcpStream, host: &str, path: &str| {
        let response = exchange(stream, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        (response.status(), response.header("location").map(str::to_owned))
    };
    assert_eq!(ask(&mut stream, NAME, "/a"), (200, None));
    // The port is that of the configuration.
    assert_eq!(ask(&mut stream, "other.test", "/a?b"), (308, Some("https://other.test:0/a?b".to_owned())));
    // A path of certificate authorities without a challenge is one of the host.
    let mut stream = connect(site.brisk.http());
    assert_eq!(ask(&mut stream, NAME, "/.well-known/acme-challenge/unknown"), (200, None));
}

#[test]
fn behind_a_proxy_that_ends_tls_no_certificate_is_needed() {
    let origin = Origin::fixed("reached");
    let config = format!(
        "[server]\nhttp = [\"127.0.0.1:0\"]\ntrusted_proxies = [\"127.0.0.1\"]\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[host]]\nnames = [\"{NAME}\"]\nplain = \"serve\"\nupstream = \"{}\"\n",
        origin.url()
    );
    let brisk = setup().config(&config).start();
    let mut stream = connect(brisk.http());
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {NAME}\r\nX-Forwarded-Proto: https\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n"
    );
    assert_eq!(exchange(&mut stream, &request).text(), "reached");
    let asked = origin.last_request();
    assert_eq!(asked.header("x-forwarded-proto"), Some("https"));
    assert_eq!(asked.header("x-forwarded-for"), Some("192.0.2.7, 127.0.0.1"));
    assert!(!brisk.process().stderr().contains("self-signed"), "{}", brisk.process().stderr());
}

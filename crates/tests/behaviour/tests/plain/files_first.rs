//! Routes with files, and an upstream for paths without a file.

use std::io::Write as _;

use brisk_behaviour::h2;
use brisk_behaviour::h2_client::Client;
use brisk_behaviour::h3_client as h3;
use brisk_behaviour::site::{NAME, Site, upstream};
use brisk_testkit::http1::{Head, Message};
use brisk_testkit::origin::Origin;

const ROUTE: &str = r#"
[[host.route]]
path = "/"
static = "www"
fallback = { upstream = "app" }
compression = { least = "1B" }
request_headers = { set = { X-Env = "live" } }
response_headers = { set = { X-Route = "1" } }
"#;

fn site(app: &Origin) -> Site {
    let tables = format!("{ROUTE}{}", upstream(&[&app.url()]));
    Site::custom("server.http3 = true\n", &tables, |setup| {
        setup
            .file("www/index.html", "index")
            .file("www/a.js", "script")
            .file("www/.env", "secret")
            .file("www/users/7.txt", "seven")
            .file("www/docs/index.html", "docs")
    })
}

fn send(site: &Site, head: &str) -> Message {
    let mut connection = site.connect();
    write!(connection, "{head} HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n").expect("a server");
    Message::read_response(&mut connection).expect("a response")
}

#[test]
fn files_and_the_application_may_have_other_paths() {
    let app = Origin::answering(|request, stream| {
        let line = &request.head.line;
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{line}", line.len())
    });
    let route = r#"
[[host.route]]
path = "/"
static = "www"
rewrite_files = [{ pattern = "^/videos/(.*)$", to = "/v/{1}" }, { pattern = "^.*$", to = ["{0}", "{0}.html"] }]
rewrite_path = [{ pattern = "^/videos/(.*)$", to = "/v/{1}" }, { pattern = "^/api(/.*)$", to = "{1}" }]
fallback = { upstream = "app" }
"#;
    let tables = format!("{route}{}", upstream(&[&app.url()]));
    let site = Site::custom("", &tables, |setup| {
        setup.file("www/v/1.txt", "one").file("www/about.html", "about").file("www/docs/index.html", "docs")
    });
    for (line, status, body) in [
        ("GET /videos/1.txt", 200, "one"),
        ("GET /videos/2.txt?a=b", 200, "GET /v/2.txt?a=b HTTP/1.1"),
        ("GET /about", 200, "about"),
        ("GET /about.html", 200, "about"),
        ("GET /docs/", 200, "docs"),
        ("GET /docs", 307, ""),
        ("GET /api/x", 200, "GET /x HTTP/1.1"),
        ("POST /other", 200, "POST /other HTTP/1.1"),
        ("POST /about", 405, ""),
    ] {
        let response = send(&site, line);
        assert_eq!(response.status(), status, "{line}");
        assert!(status != 200 || response.text() == body, "{line}: {}", response.text());
    }
}

#[test]
fn requests_without_a_file_reach_the_application() {
    let app = Origin::answering(|request, stream| {
        let line = format!("{} {}", request.head.line, request.body.len());
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{line}", line.len())
    });
    let site = site(&app);
    for (line, status, body) in [
        ("GET /", 200, "index"),
        ("GET /a.js", 200, "script"),
        ("GET /a.js?v=2", 200, "script"),
        ("GET /users?page=2", 200, "GET /users?page=2 HTTP/1.1 0"),
        ("GET /.env", 200, "GET /.env HTTP/1.1 0"),
        // A folder without an index file has no file, with and without its slash.
        ("GET /users", 200, "GET /users HTTP/1.1 0"),
        ("GET /users/", 200, "GET /users/ HTTP/1.1 0"),
        ("DELETE /users", 200, "DELETE /users HTTP/1.1 0"),
        ("GET /docs", 307, ""),
        ("GET /docs/", 200, "docs"),
        ("DELETE /users/7", 200, "DELETE /users/7 HTTP/1.1 0"),
    ] {
        let response = send(&site, line);
        assert_eq!((response.status(), response.text()), (status, body.to_owned()), "{line}");
        assert_eq!(response.header("x-route"), Some("1"), "{line}");
    }
    let asked = app.last_request();
    assert_eq!(asked.header("x-env"), Some("live"));
    for line in ["POST /a.js", "DELETE /", "POST /docs"] {
        let response = send(&site, line);
        assert_eq!((response.status(), response.header("allow")), (405, Some("GET, HEAD")), "{line}");
    }
    // The body of a request whose file was looked up first.
    let body = "x".repeat(100_000);
    let head = format!("POST /upload HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: {}\r\n\r\n", body.len());
    let response = site.connect().request(&format!("{head}{body}"));
    assert_eq!(response.text(), "POST /upload HTTP/1.1 100000");
    let mut http3 = h3::connect(&h3::client(&site), site.brisk.https());
    let bodies = ["/a.js", "/missing"].map(|path| h3::get(&mut http3, path).body);
    assert_eq!(bodies, [&b"script"[..], b"GET /missing HTTP/1.1 0"]);
}

#[test]
fn a_tunnel_is_one_to_the_application() {
    let app = Origin::raw(|mut stream| {
        let head = Head::read(&mut stream)?;
        assert!(head.is_some_and(|head| head.line.starts_with("GET /a.js ")));
        stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
    });
    let site = site(&app);
    let mut client = Client::connect(&site);
    client.send(&h2::connect_with(1, "/a.js", &[]));
    assert_eq!(client.status(1), 403);
}

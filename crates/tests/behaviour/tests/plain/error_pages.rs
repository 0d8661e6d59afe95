//! Pages of the operator for errors of brisk and of upstreams.

use std::fs;
use std::io::Write as _;

use brisk_behaviour::h2::{self, Frames};
use brisk_behaviour::h3_client as h3;
use brisk_behaviour::site::{NAME, Site};
use brisk_testkit::http1::{Head, Message};
use brisk_testkit::origin::Origin;
use brisk_testkit::process::wait_until;

/// A site with pages of the host and of routes, before an upstream that responds with the status in its path.
fn site(origin: &Origin) -> Site {
    let tables = format!(
        "error_pages = {{ 404 = \"404.html\", 5xx = \"50x.html\" }}\n\
         \n[[host.route]]\npath = \"/own/\"\nupstream = \"app\"\n\
         \n[[host.route]]\npath = \"/taken/\"\nupstream = \"app\"\n\
         error_pages = {{ 5xx = \"50x.json\", intercept = true }}\n\
         \n[[host.route]]\npath = \"/dead\"\nupstream = \"dead\"\n\
         \n[[host.route]]\npath = \"/bare\"\nupstream = \"dead\"\nerror_pages = {{}}\n\
         \n[[host.route]]\npath = \"/ranges\"\nstatic = \"www\"\nerror_pages = {{ 4xx = \"404.html\" }}\n\
         \n[[host.route]]\npath = \"/closed\"\nrespond = {{ status = 503 }}\n\
         \n[[host.route]]\npath = \"/text\"\nrespond = {{ status = 503, body = \"own\" }}\n\
         \n[[host.route]]\npath = \"/files\"\nstatic = \"www\"\ncompression = {{ least = \"1B\" }}\n\
         \n[upstream.app]\nservers = [{:?}]\n\
         \n[upstream.dead]\nservers = [\"http://127.0.0.1:1\"]\n",
        origin.url()
    );
    let compressible = "<p>not here</p>".repeat(200);
    Site::custom("server.http3 = true\n", &tables, |setup| {
        let setup =
            setup.file("404.html", &compressible).file("50x.html", "<p>broken").file("50x.json", "{}");
        setup.file("www/index.html", "index")
    })
}

fn origin() -> Origin {
    Origin::answering(|request, stream| {
        let status = request.head.line.split(['/', ' ']).nth(3).unwrap_or_default();
        write!(
            stream,
            "HTTP/1.1 {status} Status\r\nContent-Length: 3\r\nETag: \"x\"\r\nRetry-After: 7\r\n\r\nown"
        )
    })
}

#[test]
fn errors_have_the_pages_of_their_route_or_host() {
    let origin = origin();
    let site = site(&origin);
    for (path, status, body) in [
        ("/none", 404, "<p>not here</p>"),
        ("/files/none", 404, "<p>not here</p>"),
        ("/dead", 502, "<p>broken"),
        ("/closed", 503, "<p>broken"),
        ("/text", 503, "own"),
        ("/own/404", 404, "own"),
        ("/own/500", 500, "own"),
        ("/taken/500", 500, "{}"),
        ("/taken/404", 404, "<p>not here</p>"),
        ("/taken/403", 403, "own"),
        ("/taken/200", 200, "own"),
    ] {
        let response = site.get(path);
        assert_eq!(response.status(), status, "{path}");
        assert!(response.text().starts_with(body), "{path}: {}", response.text());
    }
    let taken = site.get("/taken/503");
    assert_eq!((taken.header("retry-after"), taken.header("etag")), (Some("7"), None));
    assert_eq!(
        (taken.header("content-type"), taken.header("content-length")),
        (Some("application/json"), Some("2"))
    );
    let own = site.get("/dead");
    assert!(
        own.header("x-request-id").is_some() && own.header("content-type") == Some("text/html"),
        "{own:?}"
    );
}

#[test]
fn a_page_for_an_unsatisfiable_range_states_the_length_of_the_file() {
    let origin = origin();
    let site = site(&origin);
    let mut connection = site.connect();
    let request = format!("GET /ranges/index.html HTTP/1.1\r\nHost: {NAME}\r\nRange: bytes=20-\r\n\r\n");
    connection.write_all(request.as_bytes()).expect("a server");
    let response = Message::read_response(&mut connection).expect("a response");
    assert_eq!((response.status(), response.header("content-range")), (416, Some("bytes */5")));
    assert!(response.text().starts_with("<p>not here</p>"), "{}", response.text());
}

#[test]
fn an_empty_table_of_a_route_switches_the_pages_of_the_host_off() {
    let origin = origin();
    let site = site(&origin);
    let response = site.get("/bare");
    assert_eq!(response.status(), 502);
    assert!(response.text().contains("502 Bad Gateway"), "{}", response.text());
}

#[test]
fn pages_are_sent_over_every_protocol_to_head_and_compressed() {
    let origin = origin();
    let site = site(&origin);
    let mut connection = site.client().alpn(&["h2"]).connect(site.brisk.https()).expect("a handshake");
    let request = [h2::preface(), h2::get(1, "/taken/500"), h2::get(3, "/dead")].concat();
    let mut frames = Frames::exchange(&mut connection, &request, 1);
    if !frames.has_ended(3) {
        frames.read_until_end(&mut connection, 3);
    }
    assert_eq!((frames.body(1).as_str(), frames.body(3).as_str()), ("{}", "<p>broken"));
    let mut connection = h3::connect(&h3::client(&site), site.brisk.https());
    let response = h3::get(&mut connection, "/dead");
    assert_eq!((response.status(), response.body.as_slice()), ("502", &b"<p>broken"[..]));
    let mut connection = site.connect();
    write!(connection, "HEAD /dead HTTP/1.1\r\nHost: {NAME}\r\n\r\n").expect("a server");
    let head = Head::read(&mut connection).expect("a head").expect("a response");
    assert_eq!((head.header("content-length"), head.header("content-type")), (Some("9"), Some("text/html")));
    write!(connection, "GET /files/none HTTP/1.1\r\nHost: {NAME}\r\nAccept-Encoding: gzip\r\n\r\n")
        .expect("a server");
    let compressed = Message::read_response(&mut connection).expect("a response");
    assert_eq!((compressed.status(), compressed.header("content-encoding")), (404, Some("gzip")));
}

#[test]
fn a_changed_page_is_read_again() {
    let origin = origin();
    let site = site(&origin);
    assert_eq!(site.get("/dead").text(), "<p>broken");
    fs::write(site.brisk.folder().join("50x.html"), "<p>repaired").expect("a page");
    wait_until("the new page", || (site.get("/dead").text() == "<p>repaired").then_some(()));
}

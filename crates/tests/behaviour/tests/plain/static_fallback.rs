//! Files for paths without one.

use std::io::Write as _;

use brisk_behaviour::h2::{self, Frames};
use brisk_behaviour::site::{NAME, Site};
use brisk_testkit::http1::{Head, Message};

const PAGE: &str = "<p>the application</p>";

fn site() -> Site {
    let tables = "\n[[host.route]]\npath = \"/\"\nstatic = \"www\"\nfallback = \"/index.html\"\ncompression = true\n\
                  \n[[host.route]]\npath = \"/assets\"\nstatic = \"www\"\n";
    Site::custom("", tables, |setup| {
        setup.file("www/index.html", PAGE.repeat(100)).file("www/a.txt", "a file").file("www/.hidden", "x")
    })
}

#[test]
fn a_path_without_a_file_gets_the_page_of_the_application() {
    let site = site();
    let page = site.get("/users/7?tab=1");
    assert_eq!((page.status(), page.header("content-type")), (200, Some("text/html")));
    assert_eq!(page.text(), PAGE.repeat(100));
    assert_eq!(site.get("/a.txt").text(), "a file");
    for (path, status) in
        [("/.hidden", 404), ("/assets/none.js", 404), ("/x/../.git/config", 404), ("/none", 200)]
    {
        assert_eq!(site.get(path).status(), status, "{path}");
    }
    let mut connection = site.client().alpn(&["h2"]).connect(site.brisk.https()).expect("a handshake");
    let frames = Frames::exchange(&mut connection, &[h2::preface(), h2::get(1, "/users")].concat(), 1);
    assert_eq!(frames.body(1), PAGE.repeat(100));
}

#[test]
fn conditions_ranges_and_methods_concern_the_page() {
    let site = site();
    let tag = site.get("/users").header("etag").expect("a tag").to_owned();
    let mut connection = site.connect();
    let mut response = |method: &str, path: &str, headers: &str| {
        write!(connection, "{method} {path} HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 0\r\n{headers}\r\n")
            .expect("a server");
        if method == "HEAD" {
            let head = Head::read(&mut connection).expect("a head").expect("a response");
            return (200, head.header("content-length").unwrap_or_default().to_owned());
        }
        let response = Message::read_response(&mut connection).expect("a response");
        (response.status(), response.header("content-encoding").unwrap_or_default().to_owned())
    };
    let none = String::new();
    assert_eq!(response("GET", "/one", &format!("If-None-Match: {tag}\r\n")), (304, none.clone()));
    assert_eq!(response("GET", "/two", "Range: bytes=3-5\r\n"), (206, none.clone()));
    assert_eq!(response("HEAD", "/three", ""), (200, (PAGE.len() * 100).to_string()));
    assert_eq!(response("POST", "/four", ""), (405, none));
    for path in ["/five", "/six", "/seven"] {
        assert_eq!(response("GET", path, "Accept-Encoding: gzip\r\n"), (200, "gzip".to_owned()), "{path}");
    }
    let copies = site.brisk.metrics().sum("brisk_compressed_copies_sent_total", &[]);
    assert!(copies >= 1.0, "{copies} responses from the copy of another path");
}

//! Routes by method, headers, query, cookies, network and regular expression.

use std::fmt::Write as _;
use std::io::Write as _;

use brisk_behaviour::h2::{self, Frames};
use brisk_behaviour::site::{NAME, Site, setup};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::http1::Message;

/// A site whose routes respond with their numbers.
fn numbered(routes: &[(&str, &str)]) -> Site {
    Site::with(&tables(routes))
}

fn tables(routes: &[(&str, &str)]) -> String {
    routes.iter().enumerate().fold(String::new(), |mut tables, (number, (path, when))| {
        let when = if when.is_empty() { String::new() } else { format!("when = {{ {when} }}\n") };
        let respond = format!("respond = {{ body = \"{number}\" }}");
        writeln!(tables, "\n[[host.route]]\npath = \"{path}\"\n{when}{respond}").expect("memory");
        tables
    })
}

/// The number of the route that responds to a request over HTTP/1.1.
fn route(site: &Site, request: &str, headers: &str) -> String {
    let mut connection = site.connect();
    write!(connection, "{request} HTTP/1.1\r\nHost: {NAME}\r\n{headers}Content-Length: 0\r\n\r\n")
        .expect("a server");
    Message::read_response(&mut connection).expect("a response").text()
}

#[test]
fn the_longest_path_whose_conditions_hold_responds() {
    let site = numbered(&[
        ("/", ""),
        ("/a", ""),
        ("/a", "methods = [\"POST\"]"),
        ("/a", "methods = [\"POST\", \"PUT\"], headers = { X-Version = \"2\" }"),
        ("/a/b", "query = { v = { regex = \"^[0-9]+$\" } }"),
        ("/a", "cookies = { beta = true }"),
        ("/", "path_regex = \"^/img/.*[.]png$\""),
        ("/net", "networks = [\"192.0.2.0/24\"]"),
        ("/net", "networks = [\"127.0.0.0/8\"], headers = { X-Debug = false }"),
    ]);
    for (request, headers, number) in [
        ("GET /a", "", "1"),
        ("POST /a", "", "2"),
        ("POST /a", "X-Version: 2\r\n", "2"),
        ("PUT /a", "x-version: 1\r\nx-version: 2\r\n", "3"),
        ("GET /a/b?v=12", "", "4"),
        ("GET /a/%62?x=1&%76=1%32", "", "4"),
        ("GET /a/b?v=x", "Cookie: a=1; beta=2\r\n", "5"),
        ("GET /a/b", "", "1"),
        ("GET /img/x.png?y", "", "6"),
        ("GET /img/x/../y%2epng", "", "6"),
        ("GET /img/x.gif", "", "0"),
        ("GET /net", "", "8"),
        ("GET /net", "X-Debug: 1\r\n", "0"),
    ] {
        assert_eq!(route(&site, request, headers), number, "{request} {headers}");
    }
}

#[test]
fn conditions_hold_over_http2_as_over_http1() {
    let site = numbered(&[("/", "cookies = { b = \"2\" }, methods = [\"GET\"]"), ("/", "")]);
    let mut connection = site.client().alpn(&["h2"]).connect(site.brisk.https()).expect("a handshake");
    let crumbs = [("cookie", "a=1"), ("cookie", "b=2")];
    let request = [h2::preface(), h2::get_with(1, "/", &crumbs), h2::post_with(3, "/", &crumbs, "")].concat();
    let mut frames = Frames::exchange(&mut connection, &request, 1);
    if !frames.has_ended(3) {
        frames.read_until_end(&mut connection, 3);
    }
    assert_eq!((frames.body(1).as_str(), frames.body(3).as_str()), ("0", "1"));
}

fn check(tables: &str) -> brisk_testkit::process::Finished {
    let ca = TestCa::new();
    setup().config(&(base("") + &host(&[NAME], &[&ca.server(&[NAME]).issue()]) + tables)).check("brisk.toml")
}

#[test]
fn wrong_conditions_are_reported_with_their_keys() {
    for (when, parts) in [
        ("path_regex = \"(\"", ["when.path_regex", "unclosed group"]),
        ("headers = { X-A = { regex = \"(a{900}){900}\" } }", ["when.headers.X-A.regex", "64 KiB"]),
        ("headers = { Host = \"a\" }", ["when.headers.Host", "`names`"]),
        ("methods = [\"get\"]", ["when.methods[0]", "\"GET\""]),
        ("cookies = { a = 1 }", ["when.cookies.a", "`false` for none"]),
    ] {
        let output = check(&tables(&[("/", when)]));
        assert_eq!(output.status.code(), Some(2), "{}", output.text());
        assert!(parts.iter().all(|part| output.stderr.contains(part)), "{}", output.stderr);
    }
    let twice = check(&tables(&[("/", "methods = [\"GET\"]"), ("/", "methods = [\"GET\"]")]));
    assert!(twice.stderr.contains("these conditions already"), "{}", twice.stderr);
}

#[test]
fn a_path_for_some_networks_alone_that_is_open_to_others_causes_a_warning() {
    let inside = ("/admin", "networks = [\"10.0.0.0/8\"]");
    let open = check(&tables(&[inside, ("/", "")]));
    assert!(open.stderr.contains("use the route of \"/\""), "{}", open.stderr);
    let closed = check(&tables(&[inside, ("/admin", ""), ("/", "")]));
    assert!(!closed.stderr.contains("other networks"), "{}", closed.stderr);
}

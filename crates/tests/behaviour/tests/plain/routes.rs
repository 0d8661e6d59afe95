//! Route of a path, independent of its spelling.

use std::io::Write as _;

use brisk_behaviour::h2::{self, Frames};
use brisk_behaviour::site::{NAME, Site, upstream};
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;

/// `/admin` is closed, everything else is the upstream's.
fn guarded(origin: &Origin) -> Site {
    let closed = "\n[[host.route]]\npath = \"/admin\"\nrespond = { status = 403 }\n";
    let open = "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n";
    Site::with(&format!("{closed}{open}{}", upstream(&[&origin.url()])))
}

#[test]
fn no_spelling_of_a_path_dodges_its_route() {
    let origin = Origin::fixed("reached");
    let site = guarded(&origin);
    for (path, status) in [
        ("/admin/secret", 403),
        ("/admin;x/secret", 403),
        ("/admin;x=1;y", 403),
        ("/;x/admin/secret", 403),
        ("/admin%3bx/secret", 403),
        ("/%61dmin/secret", 403),
        ("/a/../admin/secret", 403),
        ("/a;x/../admin/secret", 403),
        ("/admin%2fsecret", 403),
        ("/admin%5csecret", 400),
        ("/admin%5Csecret", 400),
        ("/admin\\secret", 400),
        ("/a/..;/admin/secret", 400),
        ("/a/;x/../admin/secret", 400),
    ] {
        assert_eq!(site.get(path).status(), status, "{path}");
    }
    assert_eq!(origin.requests().len(), 0);
}

#[test]
fn parameters_reach_the_upstream_as_they_came() {
    let origin = Origin::fixed("reached");
    let site = guarded(&origin);
    assert_eq!(site.get("/cars;color=red/list;page=2?x=;").status(), 200);
    assert_eq!(origin.last_request().head.line, "GET /cars;color=red/list;page=2?x=; HTTP/1.1");
}

#[test]
fn characters_that_should_be_encoded_are_encoded_for_the_upstream() {
    let origin = Origin::fixed("reached");
    let site = guarded(&origin);
    let (path, encoded) = ("/a<b>`c?q=\"x\"&r=<y>`", "/a%3Cb%3E%60c?q=%22x%22&r=%3Cy%3E%60");
    let mut connection = site.connect();
    write!(connection, "GET {path} HTTP/1.1\r\nHost: {NAME}\r\n\r\n").expect("a server that reads");
    assert!(Message::read_response(&mut connection).expect("a response").head.line.contains("200"));
    let mut connection = site.client().alpn(&["h2"]).connect(site.brisk.https()).expect("a handshake");
    let request = [h2::preface(), h2::get(1, path), h2::get(3, "/admin<"), h2::get(5, "/admin/<")].concat();
    let mut frames = Frames::exchange(&mut connection, &request, 1);
    assert_eq!(frames.body(1), "reached");
    for stream in [3, 5] {
        frames.read_until_end(&mut connection, stream);
    }
    let mut lines: Vec<_> = origin.requests().iter().map(|request| request.head.line.clone()).collect();
    lines.sort();
    let line = |target: &str| format!("GET {target} HTTP/1.1");
    assert_eq!(lines, [line(encoded), line(encoded), line("/admin%3C")], "the route of /admin is closed");
}

#[test]
fn requests_that_are_not_to_be_logged_have_no_line() {
    let route = |path: &str, key: &str| {
        format!("\n[[host.route]]\npath = \"{path}\"\nrespond = {{ body = \"here\" }}\n{key}\n")
    };
    let on = "access_log = true";
    for (tables, silent) in [
        (route("/health", "access_log = false") + &route("/seen", ""), "/health"),
        (format!("access_log = false\n{}{}", route("/quiet", ""), route("/seen", on)), "/quiet"),
        (format!("access_log = false\n{}", route("/seen", on)), "/none"),
    ] {
        let site = Site::with(&tables);
        let mut connection = site.connect();
        for path in [silent, "/seen"] {
            connection.get(NAME, path);
        }
        site.brisk.logged("/seen");
        let lines = site.brisk.access_log();
        assert!(!lines.iter().any(|line| line.contains(silent)), "{lines:?}");
    }
}

//! Route of a path, independent of its spelling.

use std::fs;
use std::io::Write as _;

use brisk_behaviour::h2::{self, Frames};
use brisk_behaviour::site::{NAME, Site, setup, upstream};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::wait_until;
use tempfile::TempDir;

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
fn hosts_and_routes_have_logs_of_their_own() {
    let folder = TempDir::with_prefix("brisk-test-logs-").expect("a temporary folder");
    let output = |name: &str, only: bool| {
        let file = folder.path().join(name);
        let format = "{ template = \"{request.path}\" }";
        format!(
            "\n[[access_log.output]]\nname = \"{name}\"\nonly_listed = {only}\nfile = {file:?}\nformat = {format}\n"
        )
    };
    let route = |path: &str, key: &str| {
        format!("\n[[host.route]]\npath = \"{path}\"\nrespond = {{ body = \"here\" }}\n{key}\n")
    };
    let tables = [
        "access_log = [\"shop\"]\n".to_owned(),
        route("/of-host", ""),
        route("/all", "access_log = true"),
        route("/both", "access_log = [\"usual\", \"audit\"]"),
        output("usual", false),
        output("shop", true),
        output("audit", true),
    ];
    let ca = TestCa::new();
    let leaf = ca.server(&[NAME]).issue();
    let keys = base("").replace("access_log.file = \"access.log\"\n", "");
    let config = format!("{keys}{}{}", host(&[NAME], &[&leaf]), tables.concat());
    let site = Site { brisk: setup().config(&config).start(), ca };
    let paths = ["/of-host", "/all", "/both", "/none"];
    let mut connection = site.connect();
    for path in paths {
        connection.get(NAME, path);
    }
    let lines = |name: &str| {
        let text = fs::read_to_string(folder.path().join(name)).expect("a file");
        let lines = text.lines().filter(|line| paths.contains(line)).map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    wait_until("the last line", || lines("shop").contains(&"/none".to_owned()).then_some(()));
    wait_until("the last line", || (lines("usual").len() == 2 && lines("audit").len() == 1).then_some(()));
    assert_eq!(lines("shop"), ["/of-host", "/none"]);
    assert_eq!(lines("usual"), ["/all", "/both"]);
    assert_eq!(lines("audit"), ["/both"]);
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

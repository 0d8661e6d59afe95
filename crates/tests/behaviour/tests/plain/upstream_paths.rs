//! Path of requests to upstreams: prefixes, expressions and paths of servers.

use std::io::Write as _;

use brisk_behaviour::h2::{self, Frames};
use brisk_behaviour::h3_client::{self as h3, h3_site};
use brisk_behaviour::site::{NAME, Site, setup};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;

/// Routes that change the path in every way.
const ROUTES: [(&str, &str); 8] = [
    ("/strip", "strip_prefix = true"),
    ("/deep/er", "strip_prefix = \"/deep\""),
    ("/api", "replace_prefix = \"/v2\""),
    ("/old/x", "strip_prefix = \"/old\"\nreplace_prefix = \"/new/\""),
    ("/user", "rewrite_path = { pattern = \"^/user/(?P<id>[^/]+)/(.*)$\", to = \"/u/{2}?id={id}\" }"),
    ("/root", "replace_prefix = \"/\""),
    ("/", ""),
    ("/drop", "rewrite_path = { pattern = \"^/drop(/.*)$\", to = \"{1}?\" }"),
];

fn tables(routes: &[(&str, &str)], server: &str) -> String {
    let route = |(path, keys): &(&str, &str)| {
        format!("\n[[host.route]]\npath = \"{path}\"\nupstream = \"app\"\n{keys}\n")
    };
    let routes: String = routes.iter().map(route).collect();
    format!("{routes}\n[upstream.app]\nservers = [\"{server}\"]\n")
}

/// Requested targets and the targets that the upstream receives.
const TARGETS: [(&str, &str); 20] = [
    ("/strip/a%20b?q=1", "/a%20b?q=1"),
    ("/strip", "/"),
    ("/strip/x/../y", "/y"),
    ("/deep/er/x", "/er/x"),
    ("/api/x//y?q", "/v2/x//y?q"),
    ("/api", "/v2"),
    ("/old/x/y", "/new/x/y"),
    ("/user/7/a", "/u/a?id=7"),
    ("/user/a%26b%3Dc/d?q", "/u/d?id=a%26b%3Dc&q"),
    ("/user/%C3%BC/a%3Fb%23c", "/u/a%3Fb%23c?id=%C3%BC"),
    ("/user/x", "/user/x"),
    ("/user;v=1/7/a;w", "/u/a?id=7"),
    ("/drop/a?secret", "/a"),
    ("/drop//evil.example/a", "/evil.example/a"),
    // No target begins with two slashes, which servers that redirect to a normalized path would send back as a host.
    ("/strip//evil.example/a?q", "/evil.example/a?q"),
    ("/strip///evil.example//a", "/evil.example//a"),
    ("/strip//", "/"),
    ("/deep//evil.example", "/deep//evil.example"),
    ("/api//evil.example", "/v2/evil.example"),
    ("/root//evil.example/", "/evil.example/"),
];

#[test]
fn an_upstream_receives_the_changed_path() {
    let origin = Origin::fixed("reached");
    let site = h3_site("", &tables(&ROUTES, &origin.url()));
    let expected = |target: &str| format!("GET {target} HTTP/1.1");
    for (asked, target) in TARGETS {
        assert_eq!(site.get(asked).text(), "reached");
        assert_eq!(origin.last_request().head.line, expected(target), "{asked} over HTTP/1.1");
        let mut connection = site.client().alpn(&["h2"]).connect(site.brisk.https()).expect("a handshake");
        let request = [h2::preface(), h2::get(1, asked)].concat();
        assert_eq!(Frames::exchange(&mut connection, &request, 1).body(1), "reached");
        assert_eq!(origin.last_request().head.line, expected(target), "{asked} over HTTP/2");
    }
    let mut connection = h3::connect(&h3::client(&site), site.brisk.https());
    assert_eq!(h3::get(&mut connection, TARGETS[8].0).status(), "200");
    assert_eq!(origin.last_request().head.line, expected(TARGETS[8].1), "over HTTP/3");
}

#[test]
fn the_path_of_the_servers_precedes_the_changed_path() {
    let origin = Origin::fixed("reached");
    let site = Site::with(&tables(&ROUTES, &format!("{}/base/", origin.url())));
    for (asked, target) in TARGETS {
        assert_eq!(site.get(asked).text(), "reached");
        let expected = format!("GET /base{target} HTTP/1.1");
        assert_eq!(origin.last_request().head.line, expected, "{asked}");
    }
}

#[test]
fn no_path_leaves_the_target_of_its_route() {
    let origin = Origin::fixed("reached");
    let rewrite = "rewrite_path = { pattern = \"^/a/([^/]*)/([^/]*)(.*)$\", to = \"/in/{1}{2}/{3}\" }";
    let site = Site::with(&tables(&[("/a", rewrite), ("/api", "strip_prefix = true")], &origin.url()));
    for (path, status) in [
        ("/a/.x/..", 200),
        ("/a/x/y/z", 200),
        ("/%61pi/x", 400),
        ("/api%2f..%2fx", 400),
        ("/a/%0d%0ax/y", 400),
        ("/a/..%2f/y", 400),
    ] {
        let mut connection = site.connect();
        write!(connection, "GET {path} HTTP/1.1\r\nHost: {NAME}\r\n\r\n").expect("a server");
        assert_eq!(Message::read_response(&mut connection).expect("a response").status(), status, "{path}");
    }
    let dots = "rewrite_path = { pattern = \"^/a/(.)x(.)$\", to = \"/in/{1}{2}\" }";
    let site = Site::with(&tables(&[("/a", dots)], &origin.url()));
    assert_eq!(site.get("/a/.x.").status(), 400);
    assert!(origin.requests().iter().all(|request| !request.head.line.contains("..")));
}

#[test]
fn wrong_paths_are_reported_with_the_correction() {
    let ca = TestCa::new();
    let hosts = base("") + &host(&[NAME], &[&ca.server(&[NAME]).issue()]);
    for (keys, servers, parts) in [
        ("strip_prefix = \"/other\"", "", vec!["route[0].strip_prefix", "\"/other\"", "`path`, \"/api\""]),
        ("strip_prefix = false\nreplace_prefix = \"/x\"", "", vec!["strip_prefix", "replace_prefix"]),
        ("replace_prefix = \"x\"", "", vec!["replace_prefix", "begins with a slash"]),
        (
            "rewrite_path = { pattern = \"(\", to = \"/\" }",
            "",
            vec!["rewrite_path.pattern", "unclosed group"],
        ),
        (
            "rewrite_path = { pattern = \"a\", to = \"/$1\" }",
            "",
            vec!["rewrite_path.to", "$1 is written {1}"],
        ),
        ("rewrite_path = { pattern = \"a\", to = \"/{1}\" }", "", vec!["rewrite_path.to", "no group {1}"]),
        (
            "strip_prefix = true\nrewrite_path = { pattern = \"a\", to = \"/\" }",
            "",
            vec!["rewrite_path", "`strip_prefix`", "keep one"],
        ),
        ("rewrite = { pattern = \"a\", to = \"/\" }", "", vec!["route[0].rewrite", "`rewrite_path`"]),
        (
            "",
            ", \"http://127.0.0.1:2/other\"",
            vec!["servers[1]", "another path than http://127.0.0.1:1/base"],
        ),
        ("", ", \"http://127.0.0.1:2/a?b\"", vec!["servers[1]", "ends before \"?\""]),
    ] {
        let tables = tables(&[("/api", keys)], &format!("http://127.0.0.1:1/base\"{servers}"))
            .replacen("\"]\n", "]\n", 1);
        let output = setup().config(&(hosts.clone() + &tables)).check("brisk.toml");
        assert_eq!(output.status.code(), Some(2), "{}", output.text());
        for part in parts {
            assert!(output.stderr.contains(part), "{part} is missing: {}", output.stderr);
        }
    }
}

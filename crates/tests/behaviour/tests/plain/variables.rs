//! Variables and tables in header rules.

use std::io::Write as _;

use brisk_behaviour::h2::{self, Frames};
use brisk_behaviour::site::{NAME, Site};
use brisk_testkit::http1::{Head, Message};
use brisk_testkit::origin::Origin;

const TABLES: &str = r#"
[[host.route]]
path = "/"
respond = { body = "x" }
[host.route.response_headers.set]
X-Kind = "{map.kind}"
X-Tls = "{tls.version} {tls.cipher} {tls.server_name} {request.scheme}"
X-Echo = "[{request.query.text}]"
X-Time = "t={time.unix}"
X-Path = "<{request.decoded_path}>"
X-Json = '{"group":"{request.method}"}'

[[host.route]]
path = "/closed"
deny = ["0.0.0.0/0", "::/0"]
respond = { body = "x" }
response_headers = { set = { X-Kind = "{map.kind}" } }

[map.kind]
from = "{request.header.user-agent}"
values = { "curl/8" = "tool" }
patterns = [{ regex = "(?i)bot", value = "robot" }]
default = "browser"
"#;

fn get(site: &Site, target: &str, headers: &str) -> Message {
    let mut connection = site.connect();
    write!(connection, "GET {target} HTTP/1.1\r\nHost: {NAME}\r\n{headers}\r\n").expect("a server");
    Message::read_response(&mut connection).expect("a response")
}

#[test]
fn a_table_selects_the_value_of_a_header() {
    let site = Site::with(TABLES);
    for (headers, kind) in [
        ("User-Agent: curl/8\r\n", "tool"),
        ("User-Agent: a GoogleBot\r\n", "robot"),
        ("User-Agent: curl/81\r\n", "browser"),
        ("", "browser"),
    ] {
        assert_eq!(get(&site, "/", headers).header("x-kind"), Some(kind), "{headers}");
    }
}

#[test]
fn rules_of_a_host_apply_to_its_routes_and_errors_only_with_always() {
    let tables = r#"response_headers = { set = { X-Host = "{request.method}", X-Both = "host" } }
request_headers = { set = { X-Site = "{request.host}" } }

[[host.route]]
path = "/files"
static = "www"
response_headers = { set = { Cache-Control = "public, max-age=2419200", X-Both = "files" } }

[[host.route]]
path = "/always"
static = "www"
response_headers = { set = { X-Both = "always" }, always = true }

[[host.route]]
path = "/alone"
respond = { body = "x" }
response_headers = { inherit = false }

[[host.route]]
path = "/app"
upstream = "app"
request_headers = { set = { X-Own = "1" } }
"#;
    let origin = Origin::fixed("reached");
    let upstream = format!("\n[upstream.app]\nservers = [\"{}\"]\n", origin.url());
    let keys = "server.response_headers = { set = { X-Server = \"{request.id}\" }, always = true }\n";
    let site = Site::custom(keys, &format!("{tables}{upstream}"), |setup| setup.file("www/a.js", "1"));
    for (path, status, host, both, server) in [
        ("/files/a.js", 200, Some("GET"), Some("files"), true),
        // A missing file is not to be cached for weeks.
        ("/files/missing.js", 404, None, None, true),
        ("/always/missing.js", 404, None, Some("always"), true),
        ("/alone", 200, None, None, false),
        ("/app", 200, Some("GET"), Some("host"), true),
        ("/none", 404, None, None, true),
    ] {
        let answer = get(&site, path, "");
        let header = |name| answer.header(name);
        assert_eq!(
            (answer.status(), header("x-host"), header("x-both"), header("x-server").is_some()),
            (status, host, both, server),
            "{path}"
        );
        let is_kept = header("cache-control").is_some_and(|value| value.contains("max-age=2419200"));
        assert_eq!(is_kept, path == "/files/a.js", "{path}");
    }
    let asked = origin.last_request();
    assert_eq!((asked.header("x-site"), asked.header("x-own")), (Some(NAME), Some("1")));
}

#[test]
fn an_upstream_receives_values_of_requests_over_http2() {
    let origin = Origin::fixed("reached");
    let route = "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n\
                 request_headers = { set = { X-Kind = \"{map.kind} {request.version}\" }, add = { X-Empty = \"{request.query}\" } }\n";
    let (_, map) = TABLES.split_once("[map.kind]").expect("the table");
    let upstream = format!("\n[upstream.app]\nservers = [\"{}\"]\n", origin.url());
    let site = Site::with(&format!("{route}[map.kind]{map}{upstream}"));
    let mut connection = site.client().alpn(&["h2"]).connect(site.brisk.https()).expect("a handshake");
    let request = [h2::preface(), h2::get_with(1, "/", &[("user-agent", "robots")])].concat();
    assert_eq!(Frames::exchange(&mut connection, &request, 1).body(1), "reached");
    let sent = origin.last_request().head;
    assert_eq!((sent.header("x-kind"), sent.header("x-empty")), (Some("robot HTTP/2.0"), None));
}

#[test]
fn a_value_has_facts_of_the_connection_and_no_line_breaks() {
    let site = Site::with(TABLES);
    let response = get(&site, "/?text=a%0d%0aSet-Cookie:%20b%e2%80%ae", "");
    assert_eq!(response.header("x-echo"), Some("[a%0D%0ASet-Cookie: b%E2%80%AE]"));
    assert_eq!(response.header("set-cookie"), None);
    let path = get(&site, "/a/%62/../c%20d/.", "");
    assert_eq!(path.header("x-path"), Some("</a/c d/>"));
    let tls = response.header("x-tls").expect("a value");
    assert!(tls.starts_with("TLS 1.3 TLS_") && tls.ends_with(&format!("{NAME} https")), "{tls}");
    assert_eq!(response.header("x-json"), Some(r#"{"group":"GET"}"#));
    let time = response.header("x-time").and_then(|time| time.strip_prefix("t=")).expect("a time");
    let (seconds, thousandths) = time.split_once('.').expect("a fraction");
    assert!(seconds.parse::<u64>().expect("seconds") > 1_700_000_000 && thousandths.len() == 3, "{time}");
}

#[test]
fn a_request_that_was_refused_before_has_no_formed_headers() {
    let site = Site::with(TABLES);
    let response = get(&site, "/closed", "");
    assert_eq!((response.status(), response.header("x-kind")), (403, None));
}

#[test]
fn a_client_chooses_neither_host_nor_headers_of_a_redirect() {
    let routes = [
        ("/login", "/login?next={request.target}"),
        ("/file", "/{request.query.name}"),
        ("/same", "{map.none}{request.path}"),
        ("/none", "{map.none}"),
        ("/host", "https://{map.none}{request.path}"),
    ];
    let routes =
        routes.map(|(path, to)| format!("\n[[host.route]]\npath = \"{path}\"\nredirect = \"{to}\"\n"));
    let map = "[map.none]\nfrom = \"{request.path}\"\nvalues = { x = \"y\" }\n";
    let site = Site::with(&format!("{}{map}", routes.concat()));
    for (target, status, location) in [
        ("/login?a=b&c=d", 308, Some("/login?next=%2Flogin%3Fa%3Db%26c%3Dd")),
        ("/file?name=//evil.example", 308, Some("/%2F%2Fevil.example")),
        ("/file?name=%5c%5cevil.example", 308, Some("/%5C%5Cevil.example")),
        ("/file?name=a%0d%0aSet-Cookie:%20b", 308, Some("/a%0D%0ASet-Cookie%3A%20b")),
        ("//same", 308, Some("/same")),
        ("/none", 404, None),
        ("/host/evil.example", 404, None),
    ] {
        let response = get(&site, target, "");
        assert_eq!((response.status(), response.header("location")), (status, location), "{target}");
        assert_eq!(response.header("set-cookie"), None);
    }
}

#[test]
fn a_body_has_values_of_the_request_in_the_syntax_of_its_media_type() {
    let tables = r#"
[[host.route]]
path = "/text"
respond = { status = 404, body = "{request.path} {map.kind}\n" }

[[host.route]]
path = "/page"
respond = { body = "<p>{request.query.q}", content_type = "text/html" }
compression = { least = "1B" }

[[host.route]]
path = "/group/"
when = { path_regex = "^/group/(?P<name>[^/]*)" }
respond = { body = "{name} {{x} { y", content_type = "application/json" }

[[host.route]]
path = "/empty"
respond = { body = "{request.query}" }
"#;
    let (_, map) = TABLES.split_once("[map.kind]").expect("the table");
    let site = Site::with(&format!("{tables}[map.kind]{map}"));
    for (target, status, kind, body) in [
        ("/text/%3Cb%3E?q", 404, Some("text/plain; charset=utf-8"), "/text/%3Cb%3E robot\n"),
        ("/page?q=%3Cscript%3E%22", 200, Some("text/html"), "<p>&#60;script&#62;&#34;"),
        ("/group/a%22b/c", 200, Some("application/json"), "a\\u0022b {x} { y"),
        ("/empty?a=b", 200, Some("text/plain; charset=utf-8"), "a=b"),
        ("/empty", 200, None, ""),
    ] {
        let response = get(&site, target, "User-Agent: bot\r\n");
        assert_eq!((response.status(), response.header("content-type")), (status, kind), "{target}");
        assert_eq!(response.text(), body, "{target}");
        let mut connection = site.client().alpn(&["h2"]).connect(site.brisk.https()).expect("a handshake");
        let request = [h2::preface(), h2::get_with(1, target, &[("user-agent", "bot")])].concat();
        assert_eq!(Frames::exchange(&mut connection, &request, 1).body(1), body, "{target}");
    }
    let mut connection = site.connect();
    write!(connection, "HEAD /text HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n").expect("a server");
    let head = Head::read(&mut connection).expect("a head").expect("a response");
    assert_eq!(head.header("content-length"), Some("14"));
    let long = "a".repeat(20_000);
    assert_eq!(get(&site, &format!("/empty?{long}"), "").text(), long);
}

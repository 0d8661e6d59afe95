//! Internal routes: responses of an application that lead to a file or to another upstream.

use std::io::Write as _;

use brisk_behaviour::h2;
use brisk_behaviour::h3_client as h3;
use brisk_behaviour::site::{NAME, Site};
use brisk_testkit::http1::{Head, Message};
use brisk_testkit::origin::Origin;

const ROUTES: &str = r#"
[[host.route]]
path = "/"
upstream = "app"
internal_redirects = true
response_headers = { set = { X-Route = "app" } }

[[host.route]]
path = "/plain/"
upstream = "app"

[[host.route]]
path = "/files/"
internal = true
static = "files"
response_headers = { set = { X-Route = "files" } }

[[host.route]]
path = "/store/"
internal = true
upstream = "store"
strip_prefix = true
internal_redirects = true

[[host.route]]
path = "/public/"
static = "files"
"#;

/// An application that answers with the header fields in the header `X-Send` of the request, which are separated by `|`.
fn application() -> Origin {
    Origin::answering(|request, stream| {
        let fields = request.header("x-send").unwrap_or_default().replace('|', "\r\n");
        let body = request.head.line.split(' ').nth(1).unwrap_or_default();
        let end = if fields.is_empty() { "" } else { "\r\n" };
        write!(stream, "HTTP/1.1 200 OK\r\n{fields}{end}Content-Length: {}\r\n\r\n", body.len())?;
        if request.head.line.starts_with("HEAD ") { Ok(()) } else { stream.write_all(body.as_bytes()) }
    })
}

/// The upstreams with these names.
fn groups(all: &[(&str, &Origin)]) -> String {
    let group =
        |(name, origin): &(&str, &Origin)| format!("[upstream.{name}]\nservers = [{:?}]\n", origin.url());
    all.iter().map(group).collect()
}

fn site(app: &Origin, store: &Origin) -> Site {
    let groups = groups(&[("app", app), ("store", store)]);
    Site::custom("server.http3 = true\n", &(ROUTES.to_owned() + &groups), |setup| {
        setup
            .file("files/a b.txt", "0123456789")
            .file("files/100%.txt", "percent")
            .file("files/.env", "secret")
            .file("files/sub/index.html", "sub")
            .file("outside.txt", "outside")
    })
}

fn ask(site: &Site, line: &str, fields: &str) -> Message {
    let mut connection = site.connect();
    write!(connection, "{line} HTTP/1.1\r\nHost: {NAME}\r\n{fields}Connection: close\r\n\r\n")
        .expect("a server");
    if line.starts_with("HEAD") {
        let head = Head::read(&mut connection).expect("a response").expect("a head");
        return Message { head, ..Message::default() };
    }
    Message::read_response(&mut connection).expect("a response")
}

fn redirected(site: &Site, fields: &str) -> Message {
    ask(site, "GET /x", &format!("X-Send: {fields}\r\n"))
}

#[test]
fn a_response_leads_to_a_file_with_the_headers_that_describe_it() {
    let (app, store) = (application(), application());
    let site = site(&app, &store);
    let fields = "X-Accel-Redirect: /files/a%20b.txt|Content-Type: text/x-own|Content-Disposition: attachment|\
                  Set-Cookie: a=1|Set-Cookie: b=2|Cache-Control: private|Expires: 0|ETag: \"app\"|X-Other: 1|X-Accel-Buffering: no";
    let response = redirected(&site, fields);
    assert_eq!((response.status(), response.text()), (200, "0123456789".to_owned()));
    for (name, value) in [
        ("content-type", Some("text/x-own")),
        ("content-disposition", Some("attachment")),
        ("cache-control", Some("private")),
        ("expires", Some("0")),
        ("content-length", Some("10")),
        ("x-route", Some("files")),
        ("x-other", None),
        ("x-accel-redirect", None),
        ("x-accel-buffering", None),
    ] {
        assert_eq!(response.header(name), value, "{name}");
    }
    let cookies: Vec<_> = response.head.headers.iter().filter(|(name, _)| name == "set-cookie").collect();
    assert_eq!(cookies.len(), 2, "{cookies:?}");
    let tag = response.header("etag").expect("a tag").to_owned();
    assert_ne!(tag, "\"app\"");
    let send = format!("X-Send: {fields}\r\n");
    let part = ask(&site, "GET /x", &format!("{send}Range: bytes=2-4\r\n"));
    assert_eq!((part.status(), part.text()), (206, "234".to_owned()));
    assert_eq!(part.header("content-range"), Some("bytes 2-4/10"));
    assert_eq!(ask(&site, "GET /x", &format!("{send}If-None-Match: {tag}\r\n")).status(), 304);
    let head = ask(&site, "HEAD /x", &send);
    assert_eq!((head.status(), head.header("content-length")), (200, Some("10")));
    let post = ask(&site, "POST /x", &format!("{send}Content-Length: 0\r\n"));
    assert_eq!(post.text(), "0123456789");
    // A space that is not encoded.
    assert_eq!(redirected(&site, "X-Accel-Redirect: /files/a b.txt").text(), "0123456789");
}

#[test]
fn http_2_and_http_3_have_internal_redirects() {
    let (app, store) = (application(), application());
    let site = site(&app, &store);
    let fields = [("x-send", "X-Accel-Redirect: /files/a%20b.txt"), ("range", "bytes=0-2")];
    let mut connection = site.client().alpn(&["h2"]).connect(site.brisk.https()).expect("a handshake");
    let asked = [h2::preface(), h2::get_with(1, "/x", &fields)].concat();
    assert_eq!(h2::Frames::exchange(&mut connection, &asked, 1).body(1), "012");
    let mut http3 = h3::connect(&h3::client(&site), site.brisk.https());
    let stream = http3.request(&h3::head("GET", "/x", &fields));
    let response = h3::response(&mut http3, stream).expect("a response");
    assert_eq!((response.status(), &response.body[..]), ("206", &b"012"[..]));
}

#[test]
fn internal_routes_are_not_there_for_clients() {
    let (app, store) = (application(), application());
    let site = site(&app, &store);
    for path in [
        "/files/a%20b.txt",
        "/files/",
        "/%66iles/a%20b.txt",
        "//files/a%20b.txt",
        "/x/../files/a%20b.txt",
        "/store/x",
    ] {
        assert!([400, 404].contains(&ask(&site, &format!("GET {path}"), "").status()), "{path}");
    }
    // No redirect to the final slash of an internal route.
    assert_eq!(ask(&site, "GET /store", "").text(), "/store");
    assert_eq!(store.requests().len(), 0);
    // A client cannot name a target, and a route without permission follows none.
    assert_eq!(ask(&site, "GET /x", "X-Accel-Redirect: /files/a%20b.txt\r\n").text(), "/x");
    let plain = ask(&site, "GET /plain/x", "X-Send: X-Accel-Redirect: /files/a%20b.txt\r\n");
    assert_eq!(plain.text(), "/plain/x");
}

#[test]
fn a_response_leads_to_another_upstream_and_on_to_a_file() {
    let (app, store) = (application(), application());
    let site = site(&app, &store);
    let response = ask(
        &site,
        "POST /x?a=1",
        "X-Send: X-Accel-Redirect: /store/object?b=2|Content-Type: text/first\r\nContent-Length: 0\r\n",
    );
    // The store answers with the same fields, so with a further redirect, up to the limit.
    assert_eq!(response.status(), 502);
    assert_eq!(store.requests().len(), 10);
    let asked = store.last_request();
    assert!(asked.head.line.starts_with("GET /object?b=2 "), "{}", asked.head.line);
    assert_eq!((asked.header("content-length"), asked.body.len()), (None, 0));
}

/// The line had the bytes of the redirected request, which has no body.
#[test]
fn the_access_log_has_the_upload_of_a_redirected_request() {
    let (app, store) = (application(), Origin::fixed("stored"));
    let site = site(&app, &store);
    let head = "X-Send: X-Accel-Redirect: /store/object\r\nContent-Length: 6\r\n";
    let request = format!("POST /upload HTTP/1.1\r\nHost: {NAME}\r\n{head}\r\nupload");
    assert_eq!(site.connect().request(&request).text(), "stored");
    let line = site.brisk.logged("/upload");
    assert!(line.contains("\"bytes_received\":6,"), "{line}");
}

#[test]
fn sendfile_names_a_file_in_the_folder_of_an_internal_route() {
    let (app, store) = (application(), application());
    let site = site(&app, &store);
    let folder = site.brisk.folder().display().to_string();
    for (file, status, body) in [
        ("files/a b.txt", 200, "0123456789"),
        ("files/100%.txt", 200, "percent"),
        ("files/.env", 404, ""),
        ("files/missing", 404, ""),
        ("files/sub", 404, ""),
        ("files/sub/", 200, "sub"),
        ("files/../outside.txt", 502, ""),
        ("outside.txt", 502, ""),
    ] {
        let response = redirected(&site, &format!("X-Sendfile: {folder}/{file}"));
        assert_eq!(response.status(), status, "{file}");
        assert!(status != 200 || response.text() == body, "{file}: {}", response.text());
        assert_eq!(response.header("location"), None);
    }
}

#[test]
fn hostile_targets_are_refused() {
    let (app, store) = (application(), application());
    let site = site(&app, &store);
    for (target, status) in [
        ("/files/../outside.txt", 502),
        ("/files/%2e%2e/outside.txt", 502),
        ("/files/..%2foutside.txt", 502),
        ("/files/%252e%252e/outside.txt", 502),
        ("/files/..\\outside.txt", 502),
        ("/files/sub/../../store/x", 502),
        ("/files/100%.txt", 502),
        ("/files/a%00", 502),
        ("files/a%20b.txt", 502),
        ("http://127.0.0.1/files/a", 502),
        ("@files", 502),
        ("", 502),
        ("/public/a%20b.txt", 404),
        ("/x", 404),
        ("/files/.env", 404),
        ("/files/sub", 404),
    ] {
        let response =
            redirected(&site, &format!("X-Accel-Redirect: {target}|Cache-Control: public|Set-Cookie: a=1"));
        assert_eq!(response.status(), status, "{target}");
        assert_eq!(response.header("cache-control"), Some("no-store"), "{target}");
        assert_eq!(response.header("set-cookie"), Some("a=1"), "{target}");
    }
    let two = redirected(&site, "X-Accel-Redirect: /files/a%20b.txt|X-Accel-Redirect: /files/a%20b.txt");
    assert_eq!(two.status(), 502);
    assert!(site.brisk.logged("internal-redirect").contains("\"status\":502"));
}

#[test]
fn headers_of_a_permission_reach_the_client_of_a_redirected_request() {
    let app = application();
    let judge = Origin::answering(|_, stream| {
        write!(stream, "HTTP/1.1 200 OK\r\nSet-Cookie: session=new\r\nContent-Length: 0\r\n\r\n")
    });
    let routes = ROUTES.replacen(
        "internal_redirects = true\n",
        "internal_redirects = true\nforward_auth = { upstream = \"judge\", copy_to_response = [\"set-cookie\"] }\n",
        1,
    );
    let groups = groups(&[("app", &app), ("store", &app), ("judge", &judge)]);
    let site = Site::custom("", &(routes + &groups), |setup| setup.file("files/a.txt", "text"));
    let response = redirected(&site, "X-Accel-Redirect: /files/a.txt");
    assert_eq!((response.text(), response.header("set-cookie")), ("text".to_owned(), Some("session=new")));
}

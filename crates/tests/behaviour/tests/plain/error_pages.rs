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

/// A site whose pages are responses of routes, before an upstream that responds with its target, and with the status in `X-Status`.
fn routed_site(origin: &Origin) -> Site {
    let tables = format!(
        "error_pages = {{ 404 = {{ route = \"/pages/missing?of={{request.path}}\" }}, 502 = {{ route = \"/pages/closed\", \
         status = 503 }}, 401 = {{ route = \"/file/page.html\" }}, 403 = {{ route = \"/moved\" }}, 451 = {{ route = \"/gone\" }}, 406 = {{ route = \"/nothing\" }}, 410 = {{ route = \"/file/none\" }}, \
         405 = {{ route = \"/file/page.html\", status = \"route\" }}, 500 = {{ route = \"/fails\" }}, \
         409 = {{ route = \"/dead\", status = 200 }}, 412 = {{ route = \"/login\", status = 200 }}, \
         417 = {{ route = \"/pages/none\", status = 204 }}, intercept = true }}\n\
         \n[[host.route]]\npath = \"/pages/\"\nupstream = \"app\"\ninternal = true\n\
         response_headers = {{ set = {{ X-Page = \"yes\" }}, always = true }}\n\
         \n[[host.route]]\npath = \"/moved\"\nexact = true\ninternal = true\nredirect = {{ to = \"/elsewhere\", status = 302 }}\n\
         \n[[host.route]]\npath = \"/file/\"\nstatic = \"www\"\n\
         \n[[host.route]]\npath = \"/fails\"\nrespond = {{ status = 500 }}\n\
         \n[[host.route]]\npath = \"/app\"\nupstream = \"app\"\n\
         \n[[host.route]]\npath = \"/dead\"\nupstream = \"dead\"\n\
         \n[[host.route]]\npath = \"/login\"\nupstream = \"app\"\nbasic_auth = {{ file = \"users\" }}\n\
         \n[[host.route]]\npath = \"/closed\"\nupstream = \"app\"\ndeny = [\"0.0.0.0/0\", \"::/0\"]\n\
         \n[[host.route]]\npath = \"/gone\"\nrespond = {{ status = 410 }}\n\
         \n[[host.route]]\npath = \"/nothing\"\nrespond = {{ status = 204 }}\n\
         \n[upstream.app]\nservers = [{:?}]\n\
         \n[upstream.dead]\nservers = [\"http://127.0.0.1:1\"]\n",
        origin.url()
    );
    Site::custom("server.http3 = true\n", &tables, |setup| {
        setup.file("www/page.html", "<p>page").file("users", "alice:$apr1$8charsal$xES.S6d4oPTiVAh2XwVyp/\n")
    })
}

fn targets() -> Origin {
    Origin::answering(|request, stream| {
        let (target, status) =
            (request.head.line.clone(), request.header("x-status").unwrap_or("200").to_owned());
        let target = target.rsplit_once(' ').map_or("", |(target, _)| target);
        // A request for a page has the header of the first request too.
        let status = if target.contains("/pages/") { "200" } else { &status };
        write!(
            stream,
            "HTTP/1.1 {status} Status\r\nSet-Cookie: a=1\r\nContent-Length: {}\r\n\r\n",
            target.len()
        )?;
        if target.starts_with("HEAD") { Ok(()) } else { stream.write_all(target.as_bytes()) }
    })
}

fn ask(site: &Site, line: &str, headers: &str) -> Message {
    let mut connection = site.connect();
    write!(connection, "{line} HTTP/1.1\r\nHost: {NAME}\r\n{headers}Connection: close\r\n\r\n")
        .expect("a server");
    Message::read_response(&mut connection).expect("a response")
}

#[test]
fn a_page_is_the_response_of_a_route_with_the_status_of_the_error_or_another() {
    let origin = targets();
    let site = routed_site(&origin);
    for (line, headers, status, body) in [
        ("GET /none%20?x", "", 404, "GET /pages/missing?of=%2Fnone%2520"),
        ("POST /none", "Content-Length: 0\r\n", 404, "GET /pages/missing?of=%2Fnone"),
        ("GET /pages/x", "", 404, "GET /pages/missing?of=%2Fpages%2Fx"),
        ("GET /dead", "", 503, "GET /pages/closed"),
        ("GET /app", "", 200, "GET /app"),
        ("GET /app", "X-Status: 404\r\n", 404, "GET /pages/missing?of=%2Fapp"),
        ("GET /app", "X-Status: 502\r\n", 503, "GET /pages/closed"),
        ("GET /app", "X-Status: 418\r\n", 418, "GET /app"),
        ("GET /app", "X-Status: 451\r\n", 410, ""),
        ("GET /app", "X-Status: 406\r\n", 406, ""),
        ("GET /closed", "", 302, ""),
        ("GET /login", "If-None-Match: *\r\nRange: bytes=0-1\r\n", 401, "<p>page"),
        ("PUT /file/page.html", "Content-Length: 0\r\n", 200, "<p>page"),
    ] {
        let response = ask(&site, line, headers);
        assert_eq!((response.status(), response.text()), (status, body.to_owned()), "{line} {headers}");
        let is_page = body.contains("/pages/");
        assert_eq!(response.header("x-page"), is_page.then_some("yes"), "{line} {headers}");
    }
    assert!(ask(&site, "GET /login", "").header("www-authenticate").is_some());
    assert_eq!(ask(&site, "GET /closed", "").header("location"), Some("/elsewhere"));
}

#[test]
fn a_page_that_fails_is_an_error_of_its_own_and_has_no_other_page() {
    let origin = targets();
    let site = routed_site(&origin);
    for (path, status, text) in [("/gone", 404, "404 Not Found"), ("/fails", 500, "")] {
        let response = ask(&site, &format!("GET {path}"), "");
        assert_eq!(response.status(), status, "{path}");
        assert!(response.text().contains(text), "{path}: {}", response.text());
    }
    assert_eq!(origin.requests().len(), 0);
    // The server of the page, or a stage of its route, fails.
    for (of_app, status, text) in [("409", 502, "502 Bad Gateway"), ("412", 401, "401 Unauthorized")] {
        let response = ask(&site, "GET /app", &format!("X-Status: {of_app}\r\n"));
        assert_eq!(response.status(), status, "{of_app}");
        assert!(response.text().contains(text), "{of_app}: {}", response.text());
    }
}

#[test]
fn a_page_with_a_status_without_content_has_no_body() {
    let origin = targets();
    let site = routed_site(&origin);
    let response = ask(&site, "GET /app", "X-Status: 417\r\n");
    assert_eq!((response.status(), response.header("content-length")), (204, None));
    let mut connection = site.client().alpn(&["h2"]).connect(site.brisk.https()).expect("a handshake");
    let request = [h2::preface(), h2::get_with(1, "/app", &[("x-status", "417")])].concat();
    assert_eq!(Frames::exchange(&mut connection, &request, 1).body(1), "");
}

#[test]
fn pages_of_routes_are_sent_over_every_protocol_and_to_head() {
    let origin = targets();
    let site = routed_site(&origin);
    let mut connection = site.client().alpn(&["h2"]).connect(site.brisk.https()).expect("a handshake");
    let request = [h2::preface(), h2::get(1, "/dead")].concat();
    assert_eq!(Frames::exchange(&mut connection, &request, 1).body(1), "GET /pages/closed");
    let mut connection = h3::connect(&h3::client(&site), site.brisk.https());
    let response = h3::get(&mut connection, "/none");
    assert_eq!((response.status(), response.body.as_slice()), ("404", &b"GET /pages/missing?of=%2Fnone"[..]));
    let mut connection = site.connect();
    write!(connection, "HEAD /dead HTTP/1.1\r\nHost: {NAME}\r\n\r\n").expect("a server");
    let head = Head::read(&mut connection).expect("a head").expect("a response");
    assert!(head.line.starts_with("HTTP/1.1 503 "), "{}", head.line);
    assert_eq!(head.header("content-length"), Some("18"));
}

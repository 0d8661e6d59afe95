//! Duties of an intermediary (RFC 9110 sections 6.5, 7.6 and 15.2, RFC 9112 section 3.2): interim responses, trailers,
//! `Max-Forwards`, and targets in absolute form.

use std::io::Write as _;
use std::net::TcpStream;

use brisk_behaviour::h2;
use brisk_behaviour::h2_client::Client;
use brisk_behaviour::h3_client as h3;
use brisk_behaviour::site::{NAME, Site, proxy_to, upstream};
use brisk_testkit::http1::{Head, Message};
use brisk_testkit::origin::Origin;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn answering(response: impl AsRef<str> + Send + Sync + 'static) -> Origin {
    Origin::answering(move |_, stream: &mut TcpStream| stream.write_all(response.as_ref().as_bytes()))
}

#[test]
fn interim_responses_precede_the_response() {
    let interims = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
                    HTTP/1.1 104 Upload Resumption Supported\r\nConnection: x-own\r\nX-Own: 1\r\nUpload-Offset: 1\r\n\r\n";
    let origin = answering(format!("{interims}{OK}"));
    let site = h3::h3_site("", &proxy_to(&[&origin.url()]));
    let mut connection = site.connect();
    for _ in 0..2 {
        write!(connection, "POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 0\r\n\r\n").expect("a server");
        let responses = [0; 3].map(|_| connection.response());
        assert_eq!(responses.each_ref().map(Message::status), [102, 104, 200]);
        let own = ["upload-offset", "x-own"].map(|name| responses[1].header(name));
        assert_eq!(own, [Some("1"), None]);
    }
    let old = site.connect().request(&format!("GET / HTTP/1.0\r\nHost: {NAME}\r\n\r\n"));
    assert_eq!((old.status(), old.text().as_str()), (200, "ok"), "HTTP/1.0 has no interim responses");

    let mut http2 = Client::connect(&site);
    http2.send(&h2::get(1, "/"));
    assert_eq!([0; 3].map(|_| http2.status(1)), [102, 104, 200]);

    let mut http3 = h3::connect(&h3::client(&site), site.brisk.https());
    let received = h3::get(&mut http3, "/");
    let statuses: Vec<_> = received.sections.iter().map(|fields| fields[0].1.as_str()).collect();
    assert_eq!((statuses, received.body), (vec!["102", "104", "200"], b"ok".to_vec()));
    let own: Vec<_> = received.sections[1].iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(own, [":status", "upload-offset"]);
}

#[test]
fn trailers_arrive_without_an_announcement() {
    let trailers = "X-Sum: 1\r\nContent-Length: 9\r\nSet-Cookie: a=b\r\nTransfer-Encoding: gzip\r\n";
    let origin = answering(format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n{trailers}\r\n"
    ));
    let site = h3::h3_site("", &proxy_to(&[&origin.url()]));
    let request = |te: &str| format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n{te}\r\n");
    let response = site.connect().request(&request("TE: trailers\r\nConnection: TE\r\n"));
    assert_eq!(
        (response.text().as_str(), &response.trailers[..]),
        ("ok", &[("x-sum".to_owned(), "1".to_owned())][..])
    );
    let asked = origin.last_request();
    assert_eq!((asked.header("te"), asked.header("connection")), (Some("trailers"), Some("te")));
    assert_eq!(site.connect().request(&request("")).trailers, []);
    let mut http3 = h3::connect(&h3::client(&site), site.brisk.https());
    let received = h3::get(&mut http3, "/");
    assert_eq!(received.sections[1..], [vec![("x-sum".to_owned(), "1".to_owned())]]);
}

#[test]
fn trailers_lose_the_names_that_their_heads_lose() {
    let trailers = "X-Sum: 1\r\nX-Internal: 1\r\nX-Version: 9\r\nX-Hop: 1\r\nLocation: /evil\r\nWWW-Authenticate: Basic\r\n\
                    Strict-Transport-Security: max-age=0\r\nAlt-Svc: clear\r\n";
    let origin = answering(format!(
        "HTTP/1.1 200 OK\r\nConnection: X-Hop, \u{ff}\r\nX-Hop: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n{trailers}\r\n"
    ));
    let rules = "response_headers = { remove = [\"X-Internal\"], set = { X-Version = \"2\" } }\n";
    let route =
        format!("\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n{rules}{}", upstream(&[&origin.url()]));
    let site = h3::h3_site("", &route);
    let request = "POST / HTTP/1.1\r\nHost: NAME\r\nTE: trailers\r\nConnection: TE, X-Hop\r\nX-Hop: 1\r\nTransfer-Encoding: chunked\r\n\r\n\
                   1\r\nx\r\n0\r\nX-Sum: 2\r\nX-Hop: 2\r\nIf-Match: \"x\"\r\n\r\n";
    let response = site.connect().request(&request.replace("NAME", NAME));
    assert_eq!((response.header("x-hop"), response.header("x-version")), (None, Some("2")));
    assert_eq!(response.trailers, [("x-sum".to_owned(), "1".to_owned())]);
    let asked = origin.last_request();
    assert_eq!(
        (asked.header("x-hop"), &asked.trailers[..]),
        (None, &[("x-sum".to_owned(), "2".to_owned())][..])
    );
    let mut http3 = h3::connect(&h3::client(&site), site.brisk.https());
    let received = h3::get(&mut http3, "/");
    assert_eq!(received.sections[1..], [vec![("x-sum".to_owned(), "1".to_owned())]]);
}

#[test]
fn max_forwards_of_options_is_counted() {
    let origin = answering(OK);
    let site = h3::h3_site("", &proxy_to(&[&origin.url()]));
    let status = |method: &str, value: &str| {
        let head = format!(
            "{method} / HTTP/1.1\r\nHost: {NAME}\r\nMax-Forwards: {value}\r\nConnection: close\r\n\r\n"
        );
        site.connect().request(&head).status()
    };
    for (value, expected) in [("0", 204), ("-1", 400), ("0\r\nMax-Forwards: 0", 400)] {
        assert_eq!(status("OPTIONS", value), expected, "{value}");
    }
    let mut http3 = h3::connect(&h3::client(&site), site.brisk.https());
    let stream = http3.request(&h3::head("OPTIONS", "/", &[("max-forwards", "0")]));
    assert_eq!(h3::response(&mut http3, stream).expect("a response").status(), "204");
    assert_eq!(status("TRACE", "0"), 405);
    assert!(origin.requests().is_empty(), "{:?}", origin.requests());
    for (method, value, sent) in [("OPTIONS", "5", "4"), ("OPTIONS", "1", "0"), ("GET", "0", "0")] {
        assert_eq!(status(method, value), 200);
        assert_eq!(origin.last_request().header("max-forwards"), Some(sent), "{method} {value}");
    }
    let stream = http3.request(&h3::head("OPTIONS", "/", &[("max-forwards", "7")]));
    assert_eq!(h3::response(&mut http3, stream).expect("a response").status(), "200");
    assert_eq!(origin.last_request().header("max-forwards"), Some("6"));
}

#[test]
fn options_without_a_path_ends_at_the_gateway() {
    let origin = answering(OK);
    let site = h3::h3_site("", &proxy_to(&[&origin.url()]));
    let status = |target: &str| {
        let head = format!("OPTIONS {target} HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n");
        site.connect().request(&head).status()
    };
    for target in ["*", "https://site.test", "https://SITE.test:443"] {
        assert_eq!(status(target), 204, "{target}");
    }
    let mut http3 = h3::connect(&h3::client(&site), site.brisk.https());
    let stream = http3.request(&h3::head("OPTIONS", "*", &[]));
    assert_eq!(h3::response(&mut http3, stream).expect("a response").status(), "204");
    assert!(origin.requests().is_empty(), "{:?}", origin.requests());
    for (target, line) in
        [("https://site.test/", "/"), ("https://site.test?a", "/?a"), ("https://site.test/b", "/b")]
    {
        assert_eq!(status(target), 200, "{target}");
        assert_eq!(origin.last_request().head.line, format!("OPTIONS {line} HTTP/1.1"));
    }
}

#[test]
fn a_default_port_beside_host_is_the_same_host() {
    let origin = answering(OK);
    let site = h3::h3_site("", &proxy_to(&[&origin.url()]));
    let status = |authority: &str, host: &str| {
        let head = format!("GET https://{authority}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        site.connect().request(&head).status()
    };
    for (authority, host) in
        [("site.test:443", "site.test"), ("site.test", "site.test:443"), ("Site.test:", "SITE.TEST:443")]
    {
        assert_eq!(status(authority, host), 200, "{authority} {host}");
        assert_eq!(origin.last_request().head.all("host"), [authority]);
    }
    let all = origin.requests().len();
    for (authority, host) in
        [("site.test:443", "site.test:80"), ("site.test", "localhost"), ("site.test", "site.test.:443")]
    {
        assert_eq!(status(authority, host), 400, "{authority} {host}");
    }
    assert_eq!(origin.requests().len(), all);
    let mut http2 = Client::connect(&site);
    for (stream, host, expected) in [(1, "site.test:443", 200), (3, "site.test:80", 400)] {
        http2.send(&h2::get_with(stream, "/", &[("host", host)]));
        assert_eq!(http2.status(stream), expected, "{host}");
    }
    let mut http3 = h3::connect(&h3::client(&site), site.brisk.https());
    for (host, expected) in [("site.test:443", "200"), ("site.test:80", "400")] {
        let stream = http3.request(&h3::head("GET", "/", &[("host", host)]));
        assert_eq!(h3::response(&mut http3, stream).expect("a response").status(), expected, "{host}");
        assert_eq!(origin.last_request().head.all("host"), [NAME]);
    }
}

#[test]
fn several_ranges_are_parts_over_every_version() {
    let tables = "\n[[host.route]]\npath = \"/\"\nstatic = \"www\"\n\
                  response_headers = { set = { Content-Type = \"text/x-own\" } }\n";
    let site = Site::custom("server.http3 = true\n", tables, |setup| setup.file("www/a.txt", "0123456789"));
    let ranges = "bytes=8-, 0-1";
    let is_complete = |body: &str| {
        let (boundary, _) = body.split_once("\r\n").expect("a line");
        let part = |range: &str, text: &str| {
            format!(
                "{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes {range}/10\r\n\r\n{text}\r\n"
            )
        };
        assert_eq!(body, part("8-9", "89") + &part("0-1", "01") + &format!("{boundary}--\r\n"));
        format!("multipart/byteranges; boundary={}", &boundary[2..])
    };
    let mut connection = site.connect();
    for method in ["GET", "HEAD", "GET"] {
        write!(connection, "{method} /a.txt HTTP/1.1\r\nHost: {NAME}\r\nRange: {ranges}\r\n\r\n")
            .expect("a server");
        if method == "HEAD" {
            let head = Head::read(&mut connection).expect("a server").expect("a response");
            assert_eq!(
                (head.header("content-type"), head.header("content-length")),
                (Some("text/x-own"), Some("10"))
            );
            continue;
        }
        let response = Message::read_response(&mut connection).expect("a response");
        assert_eq!(response.status(), 206);
        assert_eq!(response.header("content-type"), Some(&*is_complete(&response.text())));
    }
    let mut connection = site.client().alpn(&["h2"]).connect(site.brisk.https()).expect("a handshake");
    let request = [h2::preface(), h2::get_with(1, "/a.txt", &[("range", ranges)])].concat();
    is_complete(&h2::Frames::exchange(&mut connection, &request, 1).body(1));
    let mut connection = h3::connect(&h3::client(&site), site.brisk.https());
    let stream = connection.request(&h3::head("GET", "/a.txt", &[("range", ranges)]));
    let response = h3::response(&mut connection, stream).expect("a response");
    assert_eq!(response.field("content-type"), Some(&*is_complete(&String::from_utf8_lossy(&response.body))));
}

#[test]
fn a_required_upgrade_reaches_clients_over_http_1() {
    let response = "HTTP/1.1 426 Upgrade Required\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nno";
    let origin = answering(response);
    let site = h3::h3_site("", &proxy_to(&[&origin.url()]));
    let mut connection = site.connect();
    for _ in 0..2 {
        write!(connection, "GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n").expect("a server");
        let response = connection.response();
        let upgrade = ["connection", "upgrade"].map(|name| response.header(name));
        assert_eq!((response.status(), upgrade), (426, [Some("upgrade"), Some("websocket")]));
    }
    let mut http2 = Client::connect(&site);
    http2.send(&h2::get(1, "/"));
    assert_eq!(http2.status(1), 426);
    let mut connection = h3::connect(&h3::client(&site), site.brisk.https());
    let response = h3::get(&mut connection, "/");
    assert_eq!((response.status(), response.field("upgrade")), ("426", None));
}

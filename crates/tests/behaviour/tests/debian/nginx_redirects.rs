//! Redirects with variables by brisk and by nginx.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;

use brisk_behaviour::site::{NAME, Site};
use brisk_testkit::http1::Message;
use brisk_testkit::nginx::Nginx;

/// Targets of brisk and of nginx with the same meaning.
const TARGETS: [(&str, &str, u16); 7] = [
    ("https://{host}{path}", "https://$host$request_uri", 301),
    ("https://{request.host}:8443{request.target}", "https://$host:8443$request_uri", 302),
    ("https://www.example.com{request.target}", "https://www.example.com$request_uri", 307),
    ("https://a.example/new?{request.query}", "https://a.example/new?$args", 308),
    ("{map.moved}", "$moved", 301),
    ("https://{map.region}.example.com{path}", "https://$region.example.com$request_uri", 303),
    ("https://a.example/?q={request.cookie.q}", "https://a.example/?q=$cookie_q", 302),
];

const MAPS: &str = r#"
[map.moved]
from = "{request.path}"
values = { "/r4/old" = "/new" }
patterns = [{ regex = "^/r4/x/", value = "https://x.example/" }]
default = "https://other.example/a b"
[map.region]
from = "{request.header.accept-language}"
values = { de = "eu" }
default = "us"
"#;

const NGINX_MAPS: &str = r#"map $uri $moved { /r4/old "/new"; ~^/r4/x/ https://x.example/; default "https://other.example/a%20b"; }
map $http_accept_language $region { de eu; default us; }
"#;

const REQUESTS: [(&str, &str); 5] = [
    ("/a%20b?id=7&x=%0d%0a", ""),
    ("/old", "Accept-Language: de\r\n"),
    ("/x/y?", "Cookie: q=1\r\n"),
    ("/", "Accept-Language: evil.example/\r\n"),
    ("/?a=b&c=//d", "Cookie: q=one-two\r\n"),
];

fn location(mut stream: impl Read + Write, target: &str, headers: &str) -> (u16, String) {
    write!(stream, "GET {target} HTTP/1.1\r\nHost: {NAME}\r\n{headers}Connection: close\r\n\r\n")
        .expect("a server");
    let response = Message::read_response(&mut stream).expect("a response");
    (response.status(), response.header("location").unwrap_or_default().to_owned())
}

#[test]
fn redirects_lead_where_those_of_nginx_lead() {
    let (mut tables, mut locations) = (String::new(), String::new());
    for (number, (ours, theirs, status)) in TARGETS.iter().enumerate() {
        writeln!(
            tables,
            "\n[[host.route]]\npath = \"/r{number}\"\nredirect = {{ to = \"{ours}\", status = {status} }}"
        )
        .expect("memory");
        write!(locations, "location /r{number} {{ return {status} {theirs}; }} ").expect("memory");
    }
    let site = Site::with(&format!("{tables}{MAPS}"));
    let nginx = Nginx::http_with_zones(NGINX_MAPS, &format!("absolute_redirect off; {locations}"));
    for (number, (target, ..)) in TARGETS.iter().enumerate() {
        for (path, headers) in REQUESTS {
            let path = format!("/r{number}{path}");
            let theirs = location(TcpStream::connect(nginx.address()).expect("nginx"), &path, headers);
            let ours = location(site.connect(), &path, headers);
            assert_eq!(ours, theirs, "{target} for {path}");
            assert!(!ours.1.is_empty(), "{target} for {path}");
        }
    }
}

//! Paths that an upstream receives through brisk and through nginx with the equivalent configuration of
//! docs/configuration.md.

use std::net::TcpStream;

use brisk_behaviour::site::{NAME, Site};
use brisk_testkit::http1::Message;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::origin::Origin;

/// The target that reaches `origin` with a request to the stream.
fn target(origin: &Origin, mut stream: impl std::io::Read + std::io::Write, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n").expect("a server");
    let response = Message::read_response(&mut stream).expect("a response");
    assert_eq!(response.status(), 200, "{path}");
    let line = origin.last_request().head.line;
    line.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn upstreams_receive_the_paths_that_nginx_sends() {
    let origin = Origin::fixed("reached");
    let (url, own) = (origin.url(), origin.url());
    for (nginx, route, server, paths) in [
        (
            format!("location /api {{ proxy_pass {url}; }}"),
            "path = \"/api\"",
            own.clone(),
            vec!["/api", "/api/x?q=1", "/api/a%20b", "/api/a%2Fb"],
        ),
        (
            format!("location /api/ {{ proxy_pass {url}/; }}"),
            "path = \"/api/\"\nstrip_prefix = true",
            own.clone(),
            vec!["/api/", "/api/x?q=1", "/api/a%20b", "/api/x/../y"],
        ),
        (
            format!("location /api/ {{ proxy_pass {url}/base/; }}"),
            "path = \"/api/\"\nstrip_prefix = true",
            format!("{own}/base"),
            vec!["/api/", "/api/x?q=1"],
        ),
        (
            format!("location /api {{ proxy_pass {url}/v2; }}"),
            "path = \"/api\"\nreplace_prefix = \"/v2\"",
            own.clone(),
            vec!["/api", "/api/", "/api/x?q=1"],
        ),
        (
            format!("location /u/ {{ rewrite ^/u/(.*)$ /user/$1 break; proxy_pass {url}; }}"),
            "path = \"/u/\"\nrewrite_path = { pattern = \"^/u/(.*)$\", to = \"/user/{1}\" }",
            own.clone(),
            vec!["/u/7", "/u/7/a?q=1", "/u/a%20b", "/u/a%3Fb%23c%25d", "/u/%C3%BC", "/u/a%2Fb", "/u/a//b"],
        ),
        (
            format!("location /u/ {{ rewrite ^/u/(.*)$ /user?id=$1 break; proxy_pass {url}; }}"),
            "path = \"/u/\"\nrewrite_path = { pattern = \"^/u/(.*)$\", to = \"/user?id={1}\" }",
            own.clone(),
            vec!["/u/7", "/u/7?q=1"],
        ),
        (
            format!("location /u/ {{ rewrite ^/u/(.*)$ /user?id=$1? break; proxy_pass {url}; }}"),
            "path = \"/u/\"\nrewrite_path = { pattern = \"^/u/(.*)$\", to = \"/user?id={1}?\" }",
            own.clone(),
            vec!["/u/7", "/u/7?q=1"],
        ),
        (
            format!("location /u/ {{ rewrite ^/u/x/(.*)$ /user/$1 break; proxy_pass {url}; }}"),
            "path = \"/u/\"\nrewrite_path = { pattern = \"^/u/x/(.*)$\", to = \"/user/{1}\" }",
            own.clone(),
            vec!["/u/7?q", "/u/x/7"],
        ),
    ] {
        let tables = format!(
            "\n[[host.route]]\n{route}\nupstream = \"app\"\n\n[upstream.app]\nservers = [\"{server}\"]\n"
        );
        let (site, other) = (Site::with(&tables), Nginx::http_with(&nginx));
        for path in paths {
            let of_nginx = target(&origin, TcpStream::connect(other.address()).expect("nginx"), path);
            assert_eq!(target(&origin, site.connect(), path), of_nginx, "{path} with {nginx}");
        }
    }
}

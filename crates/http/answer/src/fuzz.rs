//! Properties of responses to arbitrary requests, for tests and for libFuzzer.

mod pages;

use std::net::SocketAddr;
use std::rc::Rc;

use brisk_http::claims::{self, OwnNames};
use brisk_http::message::{HeaderList, Request, RequestParts};
use brisk_http::path::RequestPath;
use brisk_http::validate;
use brisk_http::validate::{Target, host_of};
use brisk_http_connection::Connection;
use brisk_telemetry::{ConnectionRecord, Metrics, RequestId, Timeline};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header};

use crate::exchange::{Exchange, Telemetry};
use crate::forwarding::{Forwarding, described};
use crate::headers;
use crate::redirect::HttpsRedirect;
use crate::settings::Underscores;
use brisk_rules::{EarlyDataPolicy, EarlyPath};
use brisk_transform::names::Names;

pub use pages::negotiation;

/// Arbitrary headers of an untrusted client result in the same identity for an upstream, in every spelling that CGI
/// folds. A trusted proxy's list ends with its own address. Trailers claim nothing.
pub fn forwarding(bytes: &[u8]) {
    let given = header_lines(bytes);
    let names = Names::new(&["a.example".to_owned()]).expect("a name");
    for (client, underscores) in [
        ("203.0.113.5", Underscores::Drop),
        ("203.0.113.5", Underscores::Pass),
        ("10.1.2.3", Underscores::Drop),
        ("10.1.2.3", Underscores::Pass),
    ] {
        let trusted = vec!["10.0.0.0/8".parse().expect("a network")];
        let mut headers = given.clone();
        let forwarding = Forwarding::new(trusted, underscores);
        let mut exchange = exchange(&connection(client));
        forwarding.name_client(&mut exchange, &headers);
        forwarding.apply(&mut headers, &exchange, &described(&exchange, "a.example", &names));
        let folded =
            |name: &HeaderName| name.as_str().replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
        for name in headers.names() {
            assert!(underscores == Underscores::Pass || !name.as_str().contains('_'), "{name}");
            let folded = folded(name);
            let is_ours = ["x_forwarded_for", "x_forwarded_proto", "x_forwarded_host"].contains(&&*folded);
            assert!(!is_ours || !name.as_str().contains(['_', '.', '~']), "{name}");
            // `HTTP_PROXY` of a CGI program would select a proxy for its requests (CVE-2016-5385).
            assert_ne!(folded, "proxy");
            if client.starts_with("203") {
                assert!(is_ours || !folded.starts_with("x_forwarded_"), "{name}");
                assert!(!["x_real_ip", "client_cert", "x_original_url"].contains(&&*folded), "{name}");
            }
        }
        let list: Vec<_> = headers.get_all("x-forwarded-for").collect();
        assert!(list.len() == 1 && list[0].as_bytes().ends_with(client.as_bytes()), "{list:?}");
        assert!(client.starts_with("10") || list[0] == client);
        let forwarded: Vec<_> = headers.get_all("forwarded").collect();
        let elements = |value: &HeaderValue| value.as_bytes().split(|byte| *byte == b',').count();
        assert!(forwarded.len() == 1 && elements(forwarded[0]) == elements(list[0]), "{forwarded:?}");
    }
    let mut trailers = HeaderMap::from(given);
    claims::clean_trailers(&mut trailers, &OwnNames::default());
    for name in ["x-forwarded-for", "x-real-ip", "forwarded", "host", "content-length", "cookie", "proxy"] {
        assert!(!trailers.contains_key(name));
    }
}

fn exchange(connection: &Rc<Connection>) -> Box<Exchange> {
    let telemetry = Rc::new(Telemetry { metrics: Metrics::new(), access_log: None });
    Exchange::begin(&telemetry, connection, RequestId(7), &Request::new(()).into_parts().0)
}

fn connection(client: &str) -> Rc<Connection> {
    let local = SocketAddr::from(([127, 0, 0, 1], 443));
    let client = SocketAddr::new(client.parse().expect("an address"), 40000);
    Connection::new(ConnectionRecord::new(1, client, local, Timeline::start()), true)
}

/// A request that is not refused has one authority, at most one length, and a path. A forwarded request has one `Host`
/// and no hop-by-hop header. A redirect leads to the requested host.
pub fn request(bytes: &[u8]) {
    let Some(mut head) = request_head(bytes) else { return };
    let Ok(target) = validate::target(&head) else { return };
    assert!(head.headers.get_all(header::CONTENT_LENGTH).count() <= 1);
    assert!(head.method != Method::CONNECT && head.method != Method::TRACE);
    let Target::Path { authority } = target else { return };
    let authority = authority.to_owned();
    assert!(head.uri.path().starts_with('/'));
    // Only HTTP/1.0 has requests without a host.
    assert!(host_of(&authority).is_some() || (authority.is_empty() && head.version == Version::HTTP_10));
    let answer = HttpsRedirect::new(443).answer(&head);
    // Targets may contain bytes that are not text.
    if let Some(Ok(location)) = answer.headers().get(header::LOCATION).map(HeaderValue::to_str) {
        let location: Uri = location.parse().expect("a URI");
        assert_eq!(location.host().map(|host| host.trim_matches(['[', ']'])), host_of(&authority));
    }
    let upgrades = head.headers.contains_key(header::UPGRADE);
    let host = HeaderValue::from_str(&authority).expect("a checked authority");
    headers::prepare_request(&mut head, &host, PathAndQuery::from_static("/"));
    assert!(head.headers.get_all(header::HOST).count() <= 1);
    for name in ["keep-alive", "proxy-connection", "proxy-authorization", "transfer-encoding", "expect"] {
        assert!(!head.headers.contains_key(name), "{name}");
    }
    let connection = head.headers.get(header::CONNECTION);
    // The options of the client are gone; only `upgrade` is added again.
    assert!(connection.is_none_or(|value| upgrades && value == "upgrade"));
    assert!(head.headers.get(header::TE).is_none_or(|value| value == "trailers"));
}

/// [`EarlyDataPolicy::Safe`] holds requests with a body, an unsafe method or an upgrade. A list of paths passes no
/// other path.
pub fn early_data(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (rule, request) = text.split_once('\n').unwrap_or((&text, ""));
    let Some(head) = request_head(request.as_bytes()) else { return };
    let Ok(path) = RequestPath::read(head.uri.path()) else { return };
    let upgrades = head.headers.contains_key(header::UPGRADE);
    for bodyless in [true, false] {
        assert!(!EarlyDataPolicy::Hold.lets_pass(&head, &path.decoded, bodyless));
        let is_safe = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&head.method);
        let passes = EarlyDataPolicy::Safe.lets_pass(&head, &path.decoded, bodyless);
        assert_eq!(passes, is_safe && bodyless && !upgrades);
    }
    let Ok(early) = rule.parse::<EarlyPath>() else { return };
    let begins = rule.strip_suffix('*').map(|start| path.decoded.starts_with(start.as_bytes()));
    let fits = begins.unwrap_or(*path.decoded == *rule.as_bytes());
    assert_eq!(EarlyDataPolicy::Paths(vec![early]).lets_pass(&head, &path.decoded, true), fits && !upgrades);
}

/// Parses `METHOD target version`, followed by header lines.
fn request_head(bytes: &[u8]) -> Option<RequestParts> {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let line = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut words = line.trim_end_matches('\r').splitn(3, ' ');
    let mut request = Request::new(());
    *request.method_mut() = words.next()?.parse().ok()?;
    *request.uri_mut() = words.next()?.parse().ok()?;
    *request.version_mut() = match words.next()? {
        "HTTP/1.0" => Version::HTTP_10,
        "HTTP/2.0" => Version::HTTP_2,
        _ => Version::HTTP_11,
    };
    *request.headers_mut() = header_lines(&bytes[end..]);
    Some(request.into_parts().0)
}

fn header_lines(bytes: &[u8]) -> HeaderList {
    let mut headers = HeaderList::new();
    for line in bytes.split(|byte| *byte == b'\n').take(50) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use brisk_testkit::fuzz::drive;

    const HEADERS: &[&[u8]] = &[
        b"X-Forwarded-For: 192.0.2.1\n",
        b"X_Forwarded_For: 192.0.2.1\n",
        b"X.Real.IP: 192.0.2.1\n",
        b"Client-Cert: :AA:\n",
        b"Forwarded: for=192.0.2.1\n",
        b"Proxy: x\n",
        b"Host: a.example\n",
        b"Content-Length: 4\n",
        b"Transfer-Encoding: chunked\n",
        b"Connection: upgrade, host\n",
        b"Upgrade: websocket\n",
        b"TE: trailers\n",
        b"\r\n",
        b"_",
        b"-",
    ];

    #[test]
    fn fuzz_forwarding() {
        drive("forwarding", HEADERS, super::forwarding);
    }

    #[test]
    fn fuzz_request() {
        let lines: &[&[u8]] = &[
            b"https://b.example",
            b" HTTP/1.0\n",
            b"[::1]:1",
            b"//",
            b"*",
            b"@",
            b"GET / HTTP/1.1\r\n",
            b"POST /a HTTP/1.1\r\nHost: a\r\n",
            b"Content-Length: 5\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Transfer-Encoding: gzip, chunked\r\n",
            b"Connection: close\r\n",
            b"Expect: 100-continue\r\n",
            b"\r\n\r\n",
            b"5\r\nhello\r\n",
            b"0\r\n\r\n",
            b"0\r\na: b\r\n\r\n",
            b";a=b",
            b"CONNECT a:1",
        ];
        drive("request", &[HEADERS, lines].concat(), super::request);
    }

    #[test]
    fn fuzz_early_data() {
        let words: &[&[u8]] = &[b"GET ", b"POST ", b"*", b"/api/", b"\n", b"Upgrade: x\n", b"%2e%2e", b";x"];
        drive("early_data", words, super::early_data);
    }
}

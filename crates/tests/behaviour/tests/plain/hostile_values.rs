//! Values of clients with line breaks and with characters that change the direction of text, wherever the configuration has
//! variables.

use std::io::Write as _;

use brisk_behaviour::h2;
use brisk_behaviour::h2_client::Client;
use brisk_behaviour::site::{NAME, Site, upstream};
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;

/// Line breaks, a right-to-left override, an escape sequence of terminals and bytes that are no text, as parts of a URL.
const ENCODED: &str = "a%0d%0aSet-Cookie:%20b%0d%0a%0d%0aGET%20/x%e2%80%ae%e2%81%a6%1b%5b31m%00%ff";

const ROUTES: &str = r#"
[[host.route]]
path = "/"
upstream = "app"
[host.route.request_headers.set]
X-Query = "{request.query.text}"
X-Cookie = "{request.cookie.text}"
X-Header = "{request.header.x-text}"
X-Map = "{map.echo}"
[host.route.response_headers.set]
X-Query = "{request.query.text}"
X-Map = "{map.echo}"

[[host.route]]
path = "/redirect"
redirect = "/to/{request.query.text}?{request.header.x-text}#{request.cookie.text}"

[[host.route]]
path = "/limited"
limits = ["text"]
respond = { body = "x" }

[limit.text]
rate = "1/h burst 1"
by = "{request.query.text}{request.header.x-text}{map.echo}"

[map.echo]
from = "{request.query.text}{request.header.x-text}"
patterns = [{ regex = "(?s)^(.+)$", value = "[{1}]" }]
"#;

const LOG: &str = "access_log.format = { template = '{client.address} \"{request.line}\" \"{request.query}\" \"{request.header.x-text}\" {response.status}' }\n";

/// Bytes that HTTP permits in a header.
const RAW: &[u8] = "c\u{202e}\u{2066}\u{85}\td\u{e9}".as_bytes();

fn get(site: &Site, path: &str) -> Message {
    let mut connection = site.connect();
    let start = format!("GET {path}?text={ENCODED} HTTP/1.1\r\nHost: {NAME}\r\nX-Text: ");
    let head = [start.as_bytes(), RAW, b"\r\nCookie: text=", RAW, b"\r\n\r\n"];
    connection.write_all(&head.concat()).expect("a server");
    Message::read_response(&mut connection).expect("a response")
}

fn is_visible(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

#[test]
fn no_value_of_a_client_forges_a_header_a_redirect_a_log_line_or_a_key() {
    let origin = Origin::fixed("reached");
    let site = Site::custom(LOG, &format!("{ROUTES}{}", upstream(&[&origin.url()])), |setup| setup);
    let response = get(&site, "/page");
    assert_eq!(response.status(), 200);
    let (sent, received) = (origin.last_request().head, response.head);
    let text = "a%0D%0ASet-Cookie: b%0D%0A%0D%0AGET /x%E2%80%AE%E2%81%A6%1B[31m%00%EF%BF%BD";
    let raw = "c%E2%80%AE%E2%81%A6%C2%85%09d%C3%A9";
    for (name, value) in [
        ("x-query", text.to_owned()),
        ("x-cookie", raw.to_owned()),
        ("x-header", raw.to_owned()),
        ("x-map", format!("[{text}{raw}]")),
    ] {
        assert_eq!(sent.all(name), [value.as_str()], "{name}");
    }
    assert_eq!(received.all("x-query"), [text]);
    assert_eq!(received.all("x-map"), [format!("[{text}{raw}]")]);
    assert_eq!((sent.header("set-cookie"), received.header("set-cookie")), (None, None));

    let redirect = get(&site, "/redirect");
    let location = redirect.header("location").expect("a location");
    assert_eq!(redirect.status(), 308);
    assert!(
        location.starts_with("/to/a%0D%0ASet-Cookie%3A%20b%0D%0A%0D%0AGET%20%2Fx%E2%80%AE")
            && is_visible(location),
        "{location}"
    );

    assert_eq!(get(&site, "/limited").status(), 200);
    assert_eq!(get(&site, "/limited").status(), 429);

    let log = wait_for_lines(&site, 4);
    for line in log {
        assert!(
            is_visible(&line) && line.starts_with("127.0.0.1 \"GET /") && line.ends_with(['0', '8', '9']),
            "{line}"
        );
    }

    // Over HTTP/2, line breaks in a header are refused before any template sees them.
    for value in ["a\r\nset-cookie: b", "a\nb", "a\0b"] {
        let mut client = Client::connect(&site);
        client.send(&h2::get_with(1, "/page", &[("x-text", value)]));
        client.wait_for("refusal", |frame| matches!(frame.kind, 1 | 3) && frame.stream == 1);
    }
    assert_eq!(origin.requests().len(), 1);
}

fn wait_for_lines(site: &Site, number: usize) -> Vec<String> {
    brisk_testkit::process::wait_until("the lines of the access log", || {
        Some(site.brisk.access_log()).filter(|lines| lines.len() >= number)
    })
}

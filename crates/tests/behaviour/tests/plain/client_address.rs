//! The address of a client: one for each request, from the connection, a PROXY header, or a header of a trusted proxy, and the
//! same one for every feature.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;

use brisk_behaviour::h2;
use brisk_behaviour::h2_client::Client;
use brisk_behaviour::h3_client::{self as h3, h3_site};
use brisk_behaviour::site::{NAME, Site, connect_from, proxy_to};
use brisk_testkit::http1::Message;
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::wait_until;

/// Tests connect from 127.0.0.1, which is a proxy here.
const TRUSTED: &str = "server.trusted_proxies = [\"127.0.0.1/32\", \"10.0.0.0/8\"]\n";

/// Routes to `app`, with rules and restrictions by the address of the client.
fn tables(app: &Origin) -> String {
    format!(
        r#"
[[host.route]]
path = "/"
upstream = "app"
request_headers.set = {{ X-Client = "{{client.address}}", X-Port = "{{client.port}}" }}

[[host.route]]
path = "/denied"
deny = ["203.0.113.0/24"]
respond = {{ body = "permitted" }}

[[host.route]]
path = "/inside"
when.networks = ["203.0.113.0/24", "2001:db8::/32"]
respond = {{ body = "inside" }}

[[host.route]]
path = "/inside"
respond = {{ body = "outside" }}

[[host.route]]
path = "/to"
redirect = "/for/{{client.address}}"

[[host.route]]
path = "/limited"
limits = ["few"]
respond = {{ body = "admitted" }}

[limit.few]
rate = "1/h"

[upstream.app]
servers = ["{}"]
"#,
        app.url()
    )
}

/// A request over HTTP/1.1, whose header lines may have any bytes.
fn send(site: &Site, source: [u8; 4], path: &str, lines: &[u8]) -> Message {
    let tcp = connect_from(Ipv4Addr::from(source), site.brisk.https());
    let mut connection = site.client().over(tcp).expect("a handshake");
    let request = [format!("GET {path} HTTP/1.1\r\nHost: {NAME}\r\n").as_bytes(), lines, b"\r\n"].concat();
    connection.write_all(&request).expect("a server that reads");
    Message::read_response(&mut connection).expect("a response")
}

const PROXY: [u8; 4] = [127, 0, 0, 1];
const STRANGER: [u8; 4] = [127, 0, 0, 2];

/// Header lines, and the client that they name: X-Client, X-Forwarded-For and Forwarded at the upstream.
const NAMED: [(&[u8], [&str; 3]); 14] = [
    (b"", ["127.0.0.1", "127.0.0.1", "for=127.0.0.1"]),
    (
        b"X-Forwarded-For: 203.0.113.7\r\n",
        ["203.0.113.7", "203.0.113.7, 127.0.0.1", "for=203.0.113.7, for=127.0.0.1"],
    ),
    (
        b"X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 203.0.113.7, 10.1.1.1\r\n",
        [
            "203.0.113.7",
            "192.0.2.1, 203.0.113.7, 10.1.1.1, 127.0.0.1",
            "for=192.0.2.1, for=203.0.113.7, for=10.1.1.1, for=127.0.0.1",
        ],
    ),
    (
        b"X-Forwarded-For: 2001:db8::1\r\n",
        ["2001:db8::1", "2001:db8::1, 127.0.0.1", "for=\"[2001:db8::1]\", for=127.0.0.1"],
    ),
    (
        b"X-Forwarded-For: 192.0.2.1, [2001:db8::2]:4711\r\n",
        [
            "2001:db8::2",
            "192.0.2.1, 2001:db8::2, 127.0.0.1",
            "for=192.0.2.1, for=\"[2001:db8::2]\", for=127.0.0.1",
        ],
    ),
    // An element that is no address ends the list, also one that is no text.
    (
        b"X-Forwarded-For: 192.0.2.1, unknown, 203.0.113.7\r\n",
        ["203.0.113.7", "203.0.113.7, 127.0.0.1", "for=203.0.113.7, for=127.0.0.1"],
    ),
    (
        b"X-Forwarded-For: \xff, 203.0.113.9\r\n",
        ["203.0.113.9", "203.0.113.9, 127.0.0.1", "for=203.0.113.9, for=127.0.0.1"],
    ),
    (
        b"X-Forwarded-For: 192.0.2.66\r\nX-Forwarded-For: \xff, 203.0.113.9\r\n",
        ["203.0.113.9", "203.0.113.9, 127.0.0.1", "for=203.0.113.9, for=127.0.0.1"],
    ),
    // The proxy is the client if it names none.
    (b"X-Forwarded-For: 192.0.2.1, unknown\r\n", ["127.0.0.1", "127.0.0.1", "for=127.0.0.1"]),
    (b"X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: \xff\r\n", ["127.0.0.1", "127.0.0.1", "for=127.0.0.1"]),
    // The client of a chain of proxies alone is the first of them.
    (
        b"X-Forwarded-For: 10.0.0.9, 10.1.1.1\r\n",
        ["10.0.0.9", "10.0.0.9, 10.1.1.1, 127.0.0.1", "for=10.0.0.9, for=10.1.1.1, for=127.0.0.1"],
    ),
    // RFC 7239, if there is no X-Forwarded-For.
    (
        b"Forwarded: for=192.0.2.1, For=\"[2001:db8::3]:4711\";proto=https;host=a, by=_x;for=10.1.1.1\r\n",
        [
            "2001:db8::3",
            "192.0.2.1, 2001:db8::3, 10.1.1.1, 127.0.0.1",
            "for=192.0.2.1, for=\"[2001:db8::3]\", for=10.1.1.1, for=127.0.0.1",
        ],
    ),
    (
        b"Forwarded: for=192.0.2.66\r\nX-Forwarded-For: 203.0.113.7\r\n",
        ["203.0.113.7", "203.0.113.7, 127.0.0.1", "for=203.0.113.7, for=127.0.0.1"],
    ),
    (
        b"Forwarded: for=192.0.2.66;host=\"a, for=192.0.2.67\", for=\"_hidden\"\r\n",
        ["127.0.0.1", "127.0.0.1", "for=127.0.0.1"],
    ),
];

/// The elements of `Forwarded` without their parameters.
fn nodes(message: &Message) -> String {
    let value = message.header("forwarded").expect("a header");
    let nodes: Vec<_> =
        value.split(", ").map(|element| element.split(';').next().unwrap_or_default()).collect();
    nodes.join(", ")
}

/// The values that servers such as CGI read as those of `name`, in headers and trailers.
fn values(message: &Message, name: &str) -> Vec<String> {
    let fields = message.head.headers.iter().chain(&message.trailers);
    let named = fields.filter(|(field, _)| field.to_lowercase().replace(['_', '.'], "-") == name);
    named.map(|(_, value)| value.clone()).collect()
}

#[test]
fn the_headers_for_upstreams_and_the_variables_agree() {
    let app = Origin::fixed("reached");
    let site = Site::custom(TRUSTED, &tables(&app), |setup| setup);
    for (lines, [client, list, forwarded]) in NAMED {
        let shown = String::from_utf8_lossy(lines);
        assert_eq!(send(&site, PROXY, "/x", lines).status(), 200, "{shown}");
        let request = app.last_request();
        assert_eq!(request.header("x-client"), Some(client), "{shown}");
        assert_eq!(request.head.all("x-forwarded-for"), [list], "{shown}");
        assert_eq!(request.head.all("forwarded").len(), 1, "{shown}");
        assert_eq!(nodes(&request), forwarded, "{shown}");
        // The lists of other clients are replaced.
        assert_eq!(send(&site, STRANGER, "/x", lines).status(), 200, "{shown}");
        let request = app.last_request();
        assert_eq!(request.header("x-client"), Some("127.0.0.2"), "{shown}");
        assert_eq!(request.head.all("x-forwarded-for"), ["127.0.0.2"], "{shown}");
        assert_eq!(nodes(&request), "for=127.0.0.2", "{shown}");
    }
}

#[test]
fn another_header_names_the_client_in_place_of_the_usual_ones() {
    let app = Origin::fixed("reached");
    let keys = format!(
        "{TRUSTED}server.client_header = \"X-Visitor-Address\"\nserver.underscores_in_headers = \"pass\"\n"
    );
    let site = Site::custom(&keys, &tables(&app), |setup| setup);
    for (source, lines, client, list) in [
        (PROXY, &b"X-Visitor-Address: 203.0.113.7\r\n"[..], "203.0.113.7", "203.0.113.7, 127.0.0.1"),
        (
            PROXY,
            b"X-Forwarded-For: 192.0.2.66\r\nX-Visitor-Address: 2001:db8::7\r\n",
            "2001:db8::7",
            "2001:db8::7, 127.0.0.1",
        ),
        (
            PROXY,
            b"X.Visitor.Address: 192.0.2.66\r\nX-Visitor-Address: 203.0.113.7\r\nX_Visitor_Address: 192.0.2.67\r\n",
            "203.0.113.7",
            "203.0.113.7, 127.0.0.1",
        ),
        (PROXY, b"X-Forwarded-For: 192.0.2.66\r\n", "127.0.0.1", "127.0.0.1"),
        (PROXY, b"X.Visitor.Address: 192.0.2.66\r\n", "127.0.0.1", "127.0.0.1"),
        (STRANGER, b"X-Visitor-Address: 203.0.113.7\r\n", "127.0.0.2", "127.0.0.2"),
        (STRANGER, b"X.Visitor.Address: 203.0.113.7\r\n", "127.0.0.2", "127.0.0.2"),
        (STRANGER, b"X_Visitor_Address: 203.0.113.7\r\n", "127.0.0.2", "127.0.0.2"),
    ] {
        let shown = String::from_utf8_lossy(lines);
        assert_eq!(send(&site, source, "/x", lines).status(), 200, "{shown}");
        let request = app.last_request();
        assert_eq!(request.header("x-client"), Some(client), "{shown}");
        assert_eq!(request.head.all("x-forwarded-for"), [list], "{shown}");
        let kept = (source == PROXY && client != list).then_some(client);
        assert_eq!(values(&request, "x-visitor-address"), Vec::from_iter(kept), "{shown}");
    }
    assert_eq!(send(&site, PROXY, "/denied", b"X-Visitor-Address: 203.0.113.7\r\n").status(), 403);
    // An upstream may merge trailers into the head.
    let chunked = b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Sum: 5\r\n\
                    X-Visitor-Address: 203.0.113.7\r\nX.Visitor.Address: 203.0.113.7\r\n";
    for source in [PROXY, STRANGER] {
        assert_eq!(send(&site, source, "/x", chunked).status(), 200);
        assert_eq!(app.last_request().trailers, [("x-sum".to_owned(), "5".to_owned())], "{source:?}");
    }
}

#[test]
fn x_real_ip_has_the_client_of_every_request_on_routes_that_ask_for_it() {
    let (app, judge) = (Origin::fixed("reached"), Origin::fixed("permitted"));
    let tables = format!(
        r#"
x_real_ip = true

[[host.route]]
path = "/"
upstream = "app"
forward_auth.url = "{}/judge"

[[host.route]]
path = "/off"
x_real_ip = false
upstream = "app"

[upstream.app]
servers = ["{}"]
"#,
        judge.url(),
        app.url()
    );
    let site = Site::custom(TRUSTED, &tables, |setup| setup);
    for (source, lines, client) in [
        (PROXY, &b"X-Forwarded-For: 203.0.113.7\r\nX-Real-IP: 192.0.2.66\r\n"[..], "203.0.113.7"),
        (PROXY, b"X_Real_IP: 192.0.2.66\r\n", "127.0.0.1"),
        (PROXY, b"X-Forwarded-For: 2001:db8::7\r\n", "2001:db8::7"),
        (STRANGER, b"X-Forwarded-For: 203.0.113.7\r\nX.Real.IP: 192.0.2.66\r\n", "127.0.0.2"),
    ] {
        let shown = String::from_utf8_lossy(lines);
        assert_eq!(send(&site, source, "/x", lines).status(), 200, "{shown}");
        for request in [app.last_request(), judge.last_request()] {
            assert_eq!(values(&request, "x-real-ip"), [client], "{shown}");
        }
    }
    // The header of a trusted proxy passes where brisk sends none of its own.
    send(&site, PROXY, "/off", b"X-Real-IP: 203.0.113.8\r\n");
    assert_eq!(app.last_request().header("x-real-ip"), Some("203.0.113.8"));
    send(&site, STRANGER, "/off", b"X-Real-IP: 203.0.113.8\r\n");
    assert_eq!(app.last_request().header("x-real-ip"), None);
}

#[test]
fn restrictions_routes_logs_and_redirects_have_the_client_of_the_header_over_each_protocol() {
    let app = Origin::fixed("reached");
    let site = h3_site(TRUSTED, &tables(&app));
    for (list, denied, place) in [
        ("203.0.113.7", 403, "inside"),
        ("203.0.113.7, 10.1.1.1", 403, "inside"),
        ("198.51.100.4", 200, "outside"),
    ] {
        let headers = [("x-forwarded-for", list)];
        let line = format!("X-Forwarded-For: {list}\r\n");
        let client = list.split(',').next().unwrap_or_default();
        assert_eq!(send(&site, PROXY, "/denied", line.as_bytes()).status(), denied, "{list}");
        assert_eq!(send(&site, PROXY, "/inside", line.as_bytes()).text(), place, "{list}");
        let location = format!("/for/{client}");
        assert_eq!(send(&site, PROXY, "/to", line.as_bytes()).header("location"), Some(&*location));
        let mut http2 = Client::connect(&site);
        http2.send(&h2::get_with(1, "/denied", &headers));
        assert_eq!(http2.status(1), denied, "{list}");
        let mut http3 = h3::connect(&h3::client(&site), site.brisk.https());
        let stream = http3.request(&h3::head("GET", "/inside", &headers));
        assert_eq!(h3::response(&mut http3, stream).expect("a response").body, place.as_bytes(), "{list}");
    }
    assert_eq!(send(&site, PROXY, "/denied", b"").status(), 200, "the proxy itself");
    assert_eq!(send(&site, STRANGER, "/denied", b"X-Forwarded-For: 203.0.113.7\r\n").status(), 200);
    send(&site, PROXY, "/logged", b"X-Forwarded-For: 203.0.113.77:4711\r\n");
    let line = site.brisk.logged("\"/logged\"");
    assert!(line.contains("\"client\":\"203.0.113.77\"") && line.contains("\"client_port\":4711"), "{line}");
    assert_eq!(app.last_request().header("x-port"), Some("4711"));
    send(&site, PROXY, "/portless", b"X-Forwarded-For: 203.0.113.78\r\n");
    let line = site.brisk.logged("\"/portless\"");
    assert!(line.contains("\"client\":\"203.0.113.78\"") && !line.contains("client_port"), "{line}");
    assert_eq!(app.last_request().header("x-port"), None);
}

#[test]
fn no_client_behind_a_trusted_proxy_evades_a_limit_by_its_own_line() {
    let app = Origin::fixed("reached");
    let site = Site::custom(TRUSTED, &tables(&app), |setup| setup);
    let status = |lines: &[u8]| send(&site, PROXY, "/limited", lines).status();
    assert_eq!(status(b"X-Forwarded-For: 203.0.113.9\r\n"), 200);
    for lines in [
        &b"X-Forwarded-For: \xff, 203.0.113.9\r\n"[..],
        b"X-Forwarded-For: 192.0.2.1, \xff, 203.0.113.9\r\n",
        b"X-Forwarded-For: 192.0.2.2\r\nX-Forwarded-For: \xff, 203.0.113.9\r\n",
        b"X-Forwarded-For: 192.0.2.3, unknown,, 203.0.113.9\r\n",
        b"Forwarded: for=192.0.2.4\r\nX-Forwarded-For: 203.0.113.9\r\n",
    ] {
        assert_eq!(status(lines), 429, "{}", String::from_utf8_lossy(lines));
    }
    // Requests without an address have that of the proxy, and a limit too.
    assert_eq!((status(b""), status(b""), status(b"X-Forwarded-For: unknown\r\n")), (200, 429, 429));
}

#[test]
fn the_rate_of_requests_is_that_of_the_client_behind_the_proxy() {
    let keys = format!("{TRUSTED}server.rates = {{ requests = \"1/h burst 3\" }}\n");
    let site = Site::custom(&keys, "\n[[host.route]]\npath = \"/\"\nrespond = {}\n", |setup| setup);
    let status =
        |list: &str| send(&site, PROXY, "/", format!("X-Forwarded-For: {list}\r\n").as_bytes()).status();
    assert_eq!([(); 4].map(|()| status("203.0.113.7")), [200, 200, 200, 429]);
    assert_eq!(status("203.0.113.8"), 200, "another client of the proxy");
    assert_eq!([(); 5].map(|()| send(&site, PROXY, "/", b"").status()), [200; 5], "the proxy itself");
    // The rate of a client with a connection of its own.
    assert_eq!([(); 4].map(|()| send(&site, STRANGER, "/", b"").status()), [200, 200, 200, 429]);
}

#[test]
fn maintenance_permits_the_client_behind_the_proxy() {
    let tables = "maintenance = { file = \"switch\", allow = [\"203.0.113.0/24\"] }\n\
                  \n[[host.route]]\npath = \"/\"\nrespond = { body = \"here\" }\n";
    let site = Site::custom(TRUSTED, tables, |setup| setup);
    fs::write(site.brisk.folder().join("switch"), "").expect("a file");
    wait_until("maintenance", || (send(&site, PROXY, "/", b"").status() == 503).then_some(()));
    assert_eq!(send(&site, PROXY, "/", b"X-Forwarded-For: 203.0.113.7\r\n").text(), "here");
    assert_eq!(send(&site, PROXY, "/", b"X-Forwarded-For: 192.0.2.7\r\n").status(), 503);
    assert_eq!(send(&site, STRANGER, "/", b"X-Forwarded-For: 203.0.113.7\r\n").status(), 503);
}

#[test]
fn clients_behind_a_proxy_are_balanced_by_their_own_addresses() {
    let servers = [Origin::fixed("0"), Origin::fixed("1")];
    let urls = servers.each_ref().map(Origin::url);
    let tables = format!(
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n\
         [upstream.app]\nservers = {urls:?}\nbalance = \"consistent_hash\"\nhash_by = \"client_address\"\n"
    );
    let site = Site::custom(TRUSTED, &tables, |setup| setup);
    let server = |number: u8| {
        send(&site, PROXY, "/", format!("X-Forwarded-For: 203.0.113.{number}\r\n").as_bytes()).text()
    };
    let first: Vec<_> = (0..32).map(server).collect();
    assert!(first.iter().any(|name| name == "0") && first.iter().any(|name| name == "1"), "{first:?}");
    assert_eq!((0..32).map(server).collect::<Vec<_>>(), first);
}

#[test]
fn a_proxy_header_names_the_client_of_a_proxy_that_sends_no_list() {
    let app = Origin::fixed("reached");
    let keys = format!("{TRUSTED}server.proxy_protocol = [\"127.0.0.3/32\"]\n");
    let site = Site::custom(&keys, &tables(&app), |setup| setup);
    for (source, lines, client) in [
        ("203.0.113.5", "", "203.0.113.5"),
        ("203.0.113.5", "X-Forwarded-For: 192.0.2.1\r\n", "203.0.113.5"),
        ("10.1.1.1", "X-Forwarded-For: 192.0.2.1\r\n", "192.0.2.1"),
    ] {
        let mut tcp = connect_from([127, 0, 0, 3].into(), site.brisk.https());
        write!(tcp, "PROXY TCP4 {source} 127.0.0.1 40000 443\r\n").expect("a server that reads");
        let mut connection = site.client().over(tcp).expect("a handshake");
        let request = format!("GET /x HTTP/1.1\r\nHost: {NAME}\r\n{lines}\r\n");
        assert_eq!(connection.request(&request).status(), 200);
        assert_eq!(app.last_request().header("x-client"), Some(client), "{source} {lines}");
    }
}

#[test]
fn servers_that_expect_a_proxy_header_get_the_client_behind_the_proxy() {
    // Responds with the line before the request.
    let app = Origin::raw(|mut stream| {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            line.push(byte[0]);
        }
        let fields = String::from_utf8_lossy(&line);
        let source = fields.split(' ').nth(2).unwrap_or_default().to_owned();
        while Message::read_request(&mut stream)?.is_some() {
            write_response(&mut stream, source.as_bytes())?;
        }
        Ok(())
    });
    let tables = format!("{}proxy_protocol = \"v1\"\n", proxy_to(&[&app.url()]));
    let site = Site::custom(TRUSTED, &tables, |setup| setup);
    // Over one connection of the proxy.
    let mut connection = site.connect();
    for client in ["203.0.113.7", "203.0.113.8", "203.0.113.7", "127.0.0.1"] {
        let line =
            if client == "127.0.0.1" { String::new() } else { format!("X-Forwarded-For: {client}\r\n") };
        let request = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n{line}\r\n");
        assert_eq!(connection.request(&request).text(), client);
    }
    assert_eq!(app.connections(), 3, "the first client has a connection already");
}

//! Headers that only the gateway sets: no client reaches an upstream, a mirror or the server of `forward_auth` with one of
//! these names, in any spelling that CGI-like servers merge, as a header or as a trailer, over any protocol.

use std::io::{self, Read as _, Write as _};

use brisk_behaviour::h2;
use brisk_behaviour::h2_client::Client;
use brisk_behaviour::h3_client::{self as h3, h3_site};
use brisk_behaviour::site::{NAME, Site};
use brisk_behaviour::websocket::echo;
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::wait_until;
use tungstenite::client::IntoClientRequest as _;

/// Spellings of the names that the routes below set, remove or copy.
const OWN: [&str; 9] = [
    "x-tenant",
    "x.tenant",
    "x~tenant",
    "x_tenant",
    "x-level",
    "x.level",
    "x-auth-name",
    "x.auth.name",
    "x!auth_name",
];

/// Names that servers of the field trust, which no route mentions.
const CLAIMED: [&str; 24] = [
    "x-original-uri",
    "x.original.uri",
    "x-original-method",
    "x-original-request-uri",
    "x-original-args",
    "x-envoy-original-path",
    "x-envoy-internal",
    "x-replaced-path",
    "x-auth-request-redirect",
    "x-auth-request-user",
    "x-ssl-issuer",
    "ssl-session-id",
    "x-webauth-user",
    "x-ms-client-principal-name",
    "x-goog-authenticated-user-email",
    "remote-groups",
    "x-remote-group",
    "x-sendfile-type",
    "x-accel-mapping",
    "x-script-name",
    "wl-proxy-ssl",
    "$wsra",
    "x-middleware-subrequest",
    "content.length",
];

/// The user alice, whose password is "secret".
const USERS: &str = "alice:$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA\n";

/// A value of the client in each of these headers.
fn forged() -> Vec<(&'static str, &'static str)> {
    OWN.iter().chain(&CLAIMED).map(|name| (*name, "forged")).collect()
}

/// The same without the names that only a server that decides sets.
fn forged_without_decider() -> Vec<(&'static str, &'static str)> {
    forged().into_iter().filter(|(name, _)| !name.contains("auth") || CLAIMED.contains(name)).collect()
}

fn lines(headers: &[(&str, &str)]) -> String {
    headers.iter().flat_map(|(name, value)| [*name, ": ", value, "\r\n"]).collect()
}

/// Names of the headers and trailers that still have the value of the client.
fn believed(message: &Message) -> Vec<String> {
    let fields = message.head.headers.iter().chain(&message.trailers);
    fields.filter(|(_, value)| value.contains("forged")).map(|(name, _)| name.clone()).collect()
}

const RULES: &str = "request_headers = { set = { X-Tenant = \"acme\" }, remove = [\"X-Level\"] }\n";

/// A route to `app` with the rules, and `keys`.
fn tables(app: &Origin, keys: &str, more: &str) -> String {
    format!(
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n{RULES}{keys}\n{more}\n[upstream.app]\nservers = [\"{}\"]\n",
        app.url()
    )
}

/// Keys of a route whose requests `decider` permits.
fn decided_by(decider: &Origin) -> String {
    format!("forward_auth = {{ url = \"{}/verify\", copy_headers = [\"x-auth-name\"] }}\n", decider.url())
}

/// A server that permits all requests, in the name of alice.
fn decider() -> Origin {
    Origin::answering(|_, stream| {
        write!(stream, "HTTP/1.1 200 OK\r\nX-Auth-Name: alice\r\nContent-Length: 0\r\n\r\n")
    })
}

/// Sends a request with the headers and trailers over each protocol; calls `check` after each.
fn over_each_protocol(site: &Site, headers: &[(&str, &str)], check: impl Fn(&str)) {
    let trailers = [headers, &[("x-sum", "5")]].concat();
    let request = format!(
        "POST /p HTTP/1.1\r\nHost: {NAME}\r\nTransfer-Encoding: chunked\r\n{}\r\n4\r\nbody\r\n0\r\n{}\r\n",
        lines(headers),
        lines(&trailers)
    );
    assert_eq!(site.connect().request(&request).status(), 200);
    check("HTTP/1.1");
    let mut http2 = Client::connect(site);
    http2.send(&h2::post_with_trailers(1, "/p", headers, "body", &trailers));
    assert_eq!(http2.status(1), 200);
    check("HTTP/2");
    let mut http3 = h3::connect(&h3::client(site), site.brisk.https());
    let frames = [
        h3::head("POST", "/p", headers),
        h3::frame(h3::DATA, b"body"),
        h3::frame(h3::HEADERS, &h3::section(&trailers)),
    ];
    let stream = http3.request(&frames.concat());
    assert_eq!(h3::response(&mut http3, stream).expect("a response").status(), "200");
    check("HTTP/3");
}

#[test]
fn no_protocol_carries_them_to_an_upstream_or_to_the_server_that_decides() {
    let (app, decider) = (Origin::fixed("reached"), decider());
    for keys in ["", "server.underscores_in_headers = \"pass\"\n"] {
        let site = h3_site(keys, &tables(&app, &decided_by(&decider), ""));
        over_each_protocol(&site, &forged(), |protocol| {
            let request = app.last_request();
            assert_eq!(believed(&request), Vec::<String>::new(), "{keys}{protocol}");
            assert_eq!(request.text(), "body");
            assert_eq!(request.head.all("x-tenant"), ["acme"], "{protocol}");
            assert_eq!(request.head.all("x-auth-name"), ["alice"], "{protocol}");
            assert_eq!(request.trailers, [("x-sum".to_owned(), "5".to_owned())], "{protocol}");
            let question = decider.last_request();
            let uri = Some("/p");
            assert_eq!(question.head.all("x-original-method"), ["POST"], "{protocol}");
            assert_eq!((question.header("x-original-uri"), question.header("x-forwarded-uri")), (uri, uri));
            assert_eq!(believed(&question), Vec::<String>::new(), "question, {keys}{protocol}");
        });
    }
}

#[test]
fn a_mirror_gets_none_of_them() {
    let (app, mirror) = (Origin::fixed("reached"), Origin::fixed("copied"));
    let keys = "mirror = { upstream = \"copy\", timeout = \"10m\" }\n";
    let more = format!("\n[upstream.copy]\nservers = [\"{}\"]\n", mirror.url());
    let site = h3_site("", &tables(&app, keys, &more));
    over_each_protocol(&site, &forged_without_decider(), |protocol| {
        let copies = app.requests().len();
        wait_until("a copy", || (mirror.requests().len() == copies).then_some(()));
        assert_eq!(believed(&mirror.last_request()), Vec::<String>::new(), "{protocol}");
    });
}

#[test]
fn a_websocket_carries_none_of_them() {
    let decider = decider();
    // Switches protocols without a key, which a request over HTTP/2 lacks.
    let app = Origin::answering(|_, stream| {
        write!(
            stream,
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        )?;
        Err(io::ErrorKind::ConnectionAborted.into())
    });
    let site = Site::with(&tables(&app, &decided_by(&decider), ""));
    let request = format!(
        "GET /p HTTP/1.1\r\nHost: {NAME}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n{}\r\n",
        lines(&forged())
    );
    assert_eq!(site.connect().request(&request).status(), 101);
    assert_eq!(believed(&app.last_request()), Vec::<String>::new());
    assert_eq!(believed(&decider.last_request()), Vec::<String>::new());
    let mut http2 = Client::connect(&site);
    http2.send(&h2::connect_with(1, "/p", &forged()));
    let requests = wait_until("a tunnel", || Some(app.requests()).filter(|requests| requests.len() > 1));
    assert_eq!(believed(&requests[1]), Vec::<String>::new());
    assert_eq!(requests[1].head.all("x-tenant"), ["acme"]);
    assert_eq!(believed(&decider.last_request()), Vec::<String>::new());
}

#[test]
fn requests_that_share_a_connection_carry_none_of_them() {
    let app = Origin::fixed("reached");
    let site = Site::with(&(tables(&app, "", "") + "pipeline = 4\n"));
    let mut http2 = Client::connect(&site);
    let requests = [1, 3, 5, 7].map(|stream| h2::get_with(stream, "/p", &forged_without_decider()));
    http2.send(&requests.concat());
    for stream in [1, 3, 5, 7] {
        assert_eq!(http2.status(stream), 200);
    }
    for request in app.requests() {
        assert_eq!(believed(&request), Vec::<String>::new());
        assert_eq!(request.head.all("x-tenant"), ["acme"]);
    }
}

#[test]
fn a_second_attempt_carries_none_of_them() {
    // Answers nothing.
    let slow = Origin::answering(|_, stream| stream.read(&mut [0]).map(drop));
    let fast = Origin::fixed("reached");
    let servers = format!("servers = [\"{}\", \"{}\"]", slow.url(), fast.url());
    let tables = tables(&slow, "", "").replace(&format!("servers = [\"{}\"]", slow.url()), &servers);
    let keys = "server.workers = 1\n";
    let site = Site::custom(keys, &(tables + "hedge = { after = \"10ms\", percent = 100 }\n"), |setup| setup);
    let request = format!("GET /p HTTP/1.1\r\nHost: {NAME}\r\n{}\r\n", lines(&forged_without_decider()));
    for _ in 0..2 {
        assert_eq!(site.connect().request(&request).text(), "reached");
    }
    for request in [slow.last_request(), fast.last_request()] {
        assert_eq!(believed(&request), Vec::<String>::new());
        assert_eq!(request.head.all("x-tenant"), ["acme"]);
    }
}

#[test]
fn the_server_that_decides_gets_the_credentials_that_the_upstream_gets() {
    let (app, decider) = (Origin::fixed("reached"), decider());
    for (forward, expected) in [("false", None), ("true", Some("Basic YWxpY2U6c2VjcmV0"))] {
        let keys =
            format!("{}basic_auth = {{ file = \"users\", forward = {forward} }}\n", decided_by(&decider));
        let site = Site::custom("", &tables(&app, &keys, ""), |setup| setup.file("users", USERS));
        let request = format!(
            "GET /p HTTP/1.1\r\nHost: {NAME}\r\nAuthorization: Basic YWxpY2U6c2VjcmV0\r\nCookie: s=1\r\n\r\n"
        );
        assert_eq!(site.connect().request(&request).status(), 200);
        for request in [app.last_request(), decider.last_request()] {
            assert_eq!(request.header("authorization"), expected, "{forward}");
            assert_eq!(request.header("cookie"), Some("s=1"));
        }
    }
}

#[test]
fn rules_for_the_credentials_of_the_upstream_leave_those_of_the_client_to_the_server_that_decides() {
    let (app, decider) = (Origin::fixed("reached"), decider());
    let rules = "request_headers = { set = { Authorization = \"Basic own\" }, remove = [\"Cookie\"] }\n";
    let tables = tables(&app, &decided_by(&decider), "").replace(RULES, rules);
    let site = Site::with(&tables);
    let request =
        format!("GET /p HTTP/1.1\r\nHost: {NAME}\r\nAuthorization: Bearer x\r\nCookie: s=1\r\n\r\n");
    assert_eq!(site.connect().request(&request).status(), 200);
    let (request, question) = (app.last_request(), decider.last_request());
    assert_eq!((request.header("authorization"), request.header("cookie")), (Some("Basic own"), None));
    assert_eq!(
        (question.header("authorization"), question.header("cookie")),
        (Some("Bearer x"), Some("s=1"))
    );
}

#[test]
fn a_websocket_opens_beside_names_of_the_route() {
    let app = echo();
    let site = Site::with(&tables(&app, "", ""));
    let mut request = format!("wss://{NAME}/chat").into_client_request().expect("a request");
    request.headers_mut().insert("x-tenant", "forged".parse().expect("a value"));
    let (mut socket, response) = tungstenite::client(request, site.connect()).expect("an upgrade");
    assert_eq!(response.status(), 101);
    socket.send("text".into()).expect("a server that reads");
    assert_eq!(socket.read().expect("an echo"), "text".into());
}

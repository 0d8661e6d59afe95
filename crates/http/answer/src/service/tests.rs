mod early;

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_certs::challenge::Challenges;
use brisk_http_connection::body::client::testing::of_hyper;
use brisk_net::DeadlineWheel;
use brisk_rules::{BodyTemplate, Maps};
use brisk_telemetry::{ConnectionRecord, Metrics, Timeline};
use brisk_transform::replace::{MediaTypes, TextReplacements};
use brisk_upstream_group::GroupState;
use brisk_upstream_group::settings::GroupSettings;
use bytes::Bytes;
use http::HeaderValue;
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::LocalSet;

use super::*;
use crate::Body;
use crate::features::replace_text::ReplaceTextSettings;
use crate::settings::{
    Action, ErrorPage, ErrorPages, FixedResponse, FormedResponse, ForwardAuth, HostSettings, HstsSettings,
    HttpsRedirect, Page, PageSource, Plain, RoutePath, RouteSettings, Underscores, UpstreamAction,
    UpstreamPath, Variants,
};

fn prefix(path: &str, action: Action) -> RouteSettings {
    RouteSettings::new(RoutePath::Prefix(path.to_owned()), action)
}

fn text(status: u16, body: &'static str) -> Action {
    Action::Fixed(FixedResponse {
        status: StatusCode::from_u16(status).expect("a status"),
        content_type: HeaderValue::from_static("text/plain"),
        body: Bytes::from_static(body.as_bytes()),
    })
}

fn host(names: &[&str], routes: Vec<RouteSettings>) -> HostSettings {
    HostSettings { routes, ..HostSettings::new(brisk_tls::HostSettings::new(names.iter().copied())) }
}

fn settings(hosts: Vec<HostSettings>) -> ServiceSettings {
    ServiceSettings {
        hosts,
        unknown_host: brisk_certs::UnknownName::Default,
        trusted_proxies: Vec::new(),
        client_header: None,
        underscores: Underscores::Drop,
        variants: Variants::default(),
        beacons: None,
        redirect: HttpsRedirect::new(443),
        challenges: None,
    }
}

fn service(settings: &ServiceSettings, group: Option<&Rc<Group>>) -> Result<Service, ServiceError> {
    let telemetry = Telemetry { metrics: Metrics::new(), access_log: None };
    Service::new(settings, telemetry, |name| group.cloned().filter(|_| name == "app"))
}

/// A host "a" with these routes.
fn serving(routes: Vec<RouteSettings>) -> Service {
    service(&settings(vec![host(&["a"], routes)]), None).expect("a service")
}

fn connection() -> Rc<Connection> {
    let address = SocketAddr::from(([192, 0, 2, 1], 40000));
    Connection::new(ConnectionRecord::new(1, address, address, Timeline::start()), true)
}

/// Sends bytes over a connection of HTTP/1.1 and answers with everything that comes back.
async fn exchange(service: Service, request: &str) -> String {
    exchange_on(&connection(), service, request).await
}

async fn exchange_on(connection: &Rc<Connection>, service: Service, request: &str) -> String {
    let (mut client, server) = duplex(1 << 20);
    let service = Rc::new(service);
    let answering = hyper::service::service_fn(|request| {
        let (service, connection) = (Rc::clone(&service), Rc::clone(connection));
        async move {
            Ok::<_, std::convert::Infallible>(http::Response::from(
                service.respond(&connection, of_hyper(request)).await,
            ))
        }
    });
    let mut http1 = hyper::server::conn::http1::Builder::new();
    let serving = http1.half_close(true).serve_connection(TokioIo::new(server), answering);
    client.write_all(request.as_bytes()).await.expect("write");
    client.shutdown().await.expect("shutdown");
    let mut answer = String::new();
    let (served, read) = tokio::join!(serving, client.read_to_string(&mut answer));
    read.expect("read");
    drop(served);
    assert_eq!(connection.flow.in_flight(), 0);
    answer
}

async fn get(service: Service, path: &str, headers: &str) -> String {
    exchange(service, &format!("GET {path} HTTP/1.1\r\nhost: a\r\n{headers}\r\n")).await
}

fn status(answer: &str) -> u16 {
    answer.get(9..12).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no status: {answer:?}"))
}

#[tokio::test]
async fn a_fixed_answer_has_its_length_and_type() {
    let answer = get(serving(vec![prefix("/", text(200, "hello"))]), "/x?y", "").await;
    assert_eq!(status(&answer), 200);
    assert!(
        answer.contains("content-length: 5\r\n") && answer.contains("content-type: text/plain\r\n"),
        "{answer}"
    );
    assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
}

#[tokio::test]
async fn head_is_answered_without_the_body() {
    let service = serving(vec![prefix("/", text(200, "hello"))]);
    let answer = exchange(service, "HEAD / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(answer.contains("content-length: 5\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn over_plain_http_challenges_precede_hosts_and_hosts_are_served_or_redirected() {
    let challenges = Challenges::new();
    let _published = challenges.publish_http("known", "answer");
    let routes = || vec![prefix("/", text(200, "hello"))];
    let served = HostSettings { plain: Plain::Serve, ..host(&["a"], routes()) };
    let settings =
        ServiceSettings { challenges: Some(challenges), ..settings(vec![served, host(&["b"], routes())]) };
    let plain = || {
        let address = SocketAddr::from(([192, 0, 2, 1], 40000));
        Connection::new(ConnectionRecord::new(1, address, address, Timeline::start()), false)
    };
    let known = "/.well-known/acme-challenge/known";
    for (host, path, expected) in [
        ("a", "/", "hello"),
        ("a", known, "answer"),
        ("a", "/.well-known/acme-challenge/other", "hello"),
        ("b", "/x?y", "https://b/x?y"),
        ("b", known, "answer"),
    ] {
        // On the same connection as another request.
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\n\r\nGET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
        let service = service(&settings, None).expect("a service");
        let answer = exchange_on(&plain(), service, &request).await;
        let (_, answer) = answer.split_once("hello").expect("the first response");
        assert!(answer.contains(expected), "{host} {path}: {answer}");
    }
    // Over TLS no authority asks.
    let service = service(&settings, None).expect("a service");
    assert!(get(service, known, "").await.ends_with("hello"));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_turn() {
    let service = serving(vec![prefix("/", text(200, "hello")), prefix("/no", text(403, "no"))]);
    let request = "GET / HTTP/1.1\r\nhost: a\r\n\r\nGET /no HTTP/1.1\r\nhost: a\r\n\r\n";
    let answer = exchange(service, request).await;
    let (first, second) =
        (answer.find("200 OK").expect("first"), answer.find("403 Forbidden").expect("second"));
    assert!(first < second);
}

#[tokio::test]
async fn no_spelling_of_a_path_dodges_its_route() {
    for path in ["/admin", "//admin", "/x/../admin", "/%61dmin/x", "/x/%2e%2e/admin", "/admin%2fx"] {
        let service = serving(vec![prefix("/", text(200, "open")), prefix("/admin", text(403, "no"))]);
        assert_eq!(status(&get(service, path, "").await), 403, "{path}");
    }
}

#[tokio::test]
async fn what_is_not_understood_is_refused_and_the_connection_closed() {
    for path in ["/a/../..", "/%zz", "/a%00"] {
        let service = serving(vec![prefix("/", text(200, "open"))]);
        let answer = get(service, path, "").await;
        assert_eq!(status(&answer), 400, "{path}");
        assert!(answer.contains("connection: close\r\n"), "{answer}");
    }
}

#[tokio::test]
async fn without_a_route_there_is_an_error_page_with_the_requests_id() {
    let answer = get(serving(vec![prefix("/api", text(200, ""))]), "/", "").await;
    assert_eq!(status(&answer), 404);
    let (_, id) = answer.split_once("x-request-id: ").expect("an id");
    assert!(answer.contains(&format!("Request {}", &id[..16])), "{answer}");
}

#[tokio::test]
async fn hsts_is_on_every_answer_over_tls() {
    let hsts = HstsSettings { max_age: Duration::from_hours(1), include_subdomains: true, preload: true };
    for path in ["/", "/missing/../.."] {
        let mut host = host(&["a"], vec![prefix("/", text(200, ""))]);
        host.headers.hsts = Some(hsts);
        let answer = get(service(&settings(vec![host]), None).expect("a service"), path, "").await;
        let expected = "strict-transport-security: max-age=3600; includeSubDomains; preload\r\n";
        assert!(answer.contains(expected), "{answer}");
    }
}

#[tokio::test]
async fn a_host_of_another_certificate_is_misdirected() {
    let hosts =
        vec![host(&["a"], vec![prefix("/", text(200, ""))]), host(&["b"], vec![prefix("/", text(200, ""))])];
    let service = service(&settings(hosts), None).expect("a service");
    let answer = exchange(service, "GET / HTTP/1.1\r\nhost: b\r\n\r\n").await;
    assert_eq!(status(&answer), 421);
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused() {
    let mut route = prefix("/", text(200, ""));
    route.body.limit = Some(4);
    let request = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello";
    assert_eq!(status(&exchange(serving(vec![route.clone()]), request).await), 413);
    let request = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nhell";
    assert_eq!(status(&exchange(serving(vec![route]), request).await), 200);
}

#[tokio::test]
async fn smuggling_is_refused() {
    let requests = [
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +1\r\n\r\nx",
        "POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nx-y: 1\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nhost : a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        "GET https://b/ HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
    ];
    for request in requests {
        let answer = exchange(serving(vec![prefix("/", text(200, "open"))]), request).await;
        assert!(matches!(status(&answer), 400 | 501), "{request:?}: {answer:?}");
    }
}

#[tokio::test]
async fn length_and_chunks_together_end_the_connection() {
    let request = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n\
                   GET /admin HTTP/1.1\r\nhost: a\r\n\r\n";
    let answer = exchange(serving(vec![prefix("/", text(200, "open"))]), request).await;
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
}

#[tokio::test]
async fn the_server_as_such_can_be_asked() {
    let service = serving(vec![prefix("/", text(200, ""))]);
    assert_eq!(status(&exchange(service, "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n").await), 204);
    let service = serving(vec![prefix("/", text(200, ""))]);
    let answer = exchange(service, "TRACE / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(status(&answer) == 405 && answer.contains("allow: GET"), "{answer}");
}

#[tokio::test]
async fn a_page_sees_its_connection() {
    thread_local!(static SEEN: Cell<bool> = const { Cell::new(false) });
    let page = Page::new(|connection, request, _| {
        SEEN.set(connection.client.secure && request.uri.path() == "/me");
        Response::new(Body::full("page"))
    });
    let answer = get(serving(vec![prefix("/", Action::Page(page))]), "/me", "").await;
    assert!(answer.ends_with("page") && SEEN.get(), "{answer}");
}

#[test]
fn a_route_to_a_group_that_is_not_there_makes_no_service() {
    let action = Action::Upstream(UpstreamAction::new("other", UpstreamPath::Whole));
    let error =
        service(&settings(vec![host(&["a"], vec![prefix("/", action)])]), None).expect_err("no group");
    assert!(error.to_string().contains("other"), "{error}");
    assert!(matches!(service(&settings(Vec::new()), None), Err(ServiceError::NoHost)));
}

/// An upstream that answers its first request with these bytes, and what it was sent.
async fn forwarded(action_path: UpstreamPath, request: &str, response: &'static str) -> (String, String) {
    let action = Action::Upstream(UpstreamAction::new("app", action_path));
    forwarded_by(vec![prefix("/api", action)], request, response).await
}

/// As [`forwarded`], by these routes to the group "app".
async fn forwarded_by(routes: Vec<RouteSettings>, request: &str, response: &'static str) -> (String, String) {
    let (group, asked) = app(response).await;
    let settings = settings(vec![host(&["a"], routes)]);
    let answer = exchange(service(&settings, Some(&group)).expect("a service"), request).await;
    (asked.await.expect("asked"), answer)
}

/// A group whose server answers its first request with these bytes, and the request that the server received.
async fn app(response: &'static str) -> (Rc<Group>, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("address")).parse().expect("a URL");
    let asked = tokio::task::spawn_local(async move {
        let (mut stream, _) = listener.accept().await.expect("accept");
        let mut asked = vec![0; 4096];
        let length = stream.read(&mut asked).await.expect("read");
        stream.write_all(response.as_bytes()).await.expect("write");
        asked.truncate(length);
        String::from_utf8(asked).expect("text")
    });
    let state = GroupState::new(GroupSettings::new("app", [url]), &Metrics::new()).expect("a group");
    (Group::new(state, &DeadlineWheel::new()), asked)
}

#[tokio::test]
async fn an_upstream_is_asked_without_hop_by_hop_headers_and_learns_of_the_client() {
    let request = "GET /api/x%20y?q=1 HTTP/1.1\r\nhost: a\r\nconnection: x-own\r\nx-own: 1\r\nx-forwarded-for: 6.6.6.6\r\n\r\n";
    let response =
        "HTTP/1.1 200 OK\r\nconnection: x-hop\r\nx-hop: 1\r\nx-kept: 1\r\ncontent-length: 2\r\n\r\nok";
    let (asked, answer) = LocalSet::new().run_until(forwarded(UpstreamPath::Whole, request, response)).await;
    assert!(asked.starts_with("GET /api/x%20y?q=1 HTTP/1.1\r\n"), "{asked}");
    for expected in
        ["host: a\r\n", "x-forwarded-for: 192.0.2.1\r\n", "x-forwarded-proto: https\r\n", "x-request-id: "]
    {
        assert!(asked.contains(expected), "{expected}: {asked}");
    }
    assert!(!asked.contains("x-own") && !asked.contains("6.6.6.6"), "{asked}");
    assert!(
        answer.contains("x-kept: 1\r\n") && !answer.contains("x-hop") && answer.ends_with("ok"),
        "{answer}"
    );
}

/// The limit of time wraps the body, which hid the upstream from the error pages.
#[tokio::test]
async fn an_error_of_an_upstream_with_a_limit_of_time_is_replaced_only_if_intercepted() {
    const NAMED: &str = "HTTP/1.1 500 Error\r\nx-request-id: 1\r\ncontent-length: 3\r\n\r\nown";
    const UNNAMED: &str = "HTTP/1.1 500 Error\r\ncontent-length: 3\r\n\r\nown";
    for (intercept, response, expected) in
        [(true, UNNAMED, "page"), (true, NAMED, "page"), (false, UNNAMED, "own"), (false, NAMED, "own")]
    {
        let page = PageSource::File(ErrorPage::new(Path::new("x.html"), "page"));
        let pages = ErrorPages { server_errors: Some(page), intercept, ..ErrorPages::default() };
        let action = Action::Upstream(UpstreamAction::new("app", UpstreamPath::Whole));
        let mut route = prefix("/api", action);
        route.error_pages = Some(Arc::new(pages));
        route.timeouts.request = Some(Duration::from_mins(10));
        let request = "GET /api HTTP/1.1\r\nhost: a\r\n\r\n";
        let (_, answer) = LocalSet::new().run_until(forwarded_by(vec![route], request, response)).await;
        assert_eq!(status(&answer), 500, "{answer}");
        assert!(answer.ends_with(&format!("\r\n\r\n{expected}")), "{intercept} {answer}");
    }
}

fn permitted(route: RouteSettings) -> RouteSettings {
    let path = http::uri::PathAndQuery::from_static("/auth");
    let auth =
        ForwardAuth { group: "app".to_owned(), path, copied: Arc::default(), returned: Arc::default() };
    RouteSettings { forward_auth: Some(auth), ..route }
}

/// The head lost the names in `Connection`, the trailers did not.
#[tokio::test]
async fn trailers_of_a_refusal_lose_the_names_of_its_connection() {
    let response = "HTTP/1.1 403 Forbidden\r\nconnection: x-hop\r\ntransfer-encoding: chunked\r\n\r\n\
                    2\r\nno\r\n0\r\nx-hop: 1\r\nx-kept: 1\r\n\r\n";
    let asking = async {
        let (group, _asked) = app(response).await;
        let settings = settings(vec![host(&["a"], vec![permitted(prefix("/", text(200, "open")))])]);
        let service = service(&settings, Some(&group)).expect("a service");
        let request = Request::get("/").header("host", "a").body(ClientBody::Empty).expect("a request");
        service.respond(&connection(), request).await.into_body().collect().await.expect("a body")
    };
    let body = LocalSet::new().run_until(asking).await;
    let trailers = body.trailers().expect("trailers");
    assert!(!trailers.contains_key("x-hop") && trailers.contains_key("x-kept"), "{trailers:?}");
}

/// It was a failure of the server, so that the client got 502 for a request that it could have repeated.
#[tokio::test]
async fn a_refusal_of_early_data_by_forward_authentication_reaches_the_client() {
    let route = permitted(prefix("/", text(200, "open")));
    let response = "HTTP/1.1 425 Too Early\r\ncontent-length: 5\r\n\r\nlater";
    let request = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let (asked, answer) = LocalSet::new().run_until(forwarded_by(vec![route], request, response)).await;
    assert!(asked.starts_with("GET /auth HTTP/1.1\r\n"), "{asked}");
    assert!(status(&answer) == 425 && answer.ends_with("later"), "{answer}");
}

/// The stages of the first route removed `Range` and replaced `Accept-Encoding` for the internal route too.
#[tokio::test]
async fn a_redirected_request_has_the_headers_of_the_client() {
    let mut first = prefix("/api", Action::Upstream(UpstreamAction::new("app", UpstreamPath::Whole)));
    first.internal.redirects = true;
    let from = TextReplacements::new(&["text"], MediaTypes::All, false).expect("a text");
    first.replace_text = Some(ReplaceTextSettings { from: Arc::new(from), to: Arc::default() });
    let template = "{request.header.range} {request.header.accept-encoding}";
    let body = BodyTemplate::new(template, "text/plain", &Maps::default(), None).expect("a template");
    let content_type = HeaderValue::from_static("text/plain");
    let formed = FormedResponse { status: StatusCode::OK, content_type, body };
    let mut second = prefix("/inner/", Action::Formed(formed));
    second.internal.is_internal = true;
    let request = "GET /api HTTP/1.1\r\nhost: a\r\nrange: bytes=0-1\r\naccept-encoding: br\r\n\r\n";
    let response = "HTTP/1.1 200 OK\r\nx-accel-redirect: /inner/x\r\ncontent-length: 0\r\n\r\n";
    let (asked, answer) =
        LocalSet::new().run_until(forwarded_by(vec![first, second], request, response)).await;
    assert!(asked.contains("accept-encoding: identity\r\n") && !asked.contains("range:"), "{asked}");
    assert!(answer.ends_with("\r\n\r\nbytes=0-1 br"), "{answer}");
}

#[tokio::test]
async fn an_upstream_can_be_asked_for_what_is_below_its_route() {
    let request = "GET /api/x?q HTTP/1.1\r\nhost: a\r\n\r\n";
    let response = "HTTP/1.1 204 No Content\r\n\r\n";
    let (asked, _) =
        LocalSet::new().run_until(forwarded(UpstreamPath::below("/api"), request, response)).await;
    assert!(asked.starts_with("GET /x?q HTTP/1.1\r\n"), "{asked}");
}

#[tokio::test]
async fn dot_segments_are_resolved_before_an_upstream_sees_them() {
    let request = "GET /x/../api/./y HTTP/1.1\r\nhost: a\r\n\r\n";
    let response = "HTTP/1.1 204 No Content\r\n\r\n";
    let (asked, _) = LocalSet::new().run_until(forwarded(UpstreamPath::Whole, request, response)).await;
    assert!(asked.starts_with("GET /api/y HTTP/1.1\r\n"), "{asked}");
}

#[tokio::test]
async fn a_dead_upstream_is_502_with_the_requests_id() {
    let asking = async {
        // Bound and not listening: no other program gets the port.
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("bind");
        let url = format!("http://{}", socket.local_addr().expect("address")).parse().expect("a URL");
        let state = GroupState::new(GroupSettings::new("app", [url]), &Metrics::new()).expect("a group");
        let group = Group::new(state, &DeadlineWheel::new());
        let action = Action::Upstream(UpstreamAction::new("app", UpstreamPath::Whole));
        let settings = settings(vec![host(&["a"], vec![prefix("/", action)])]);
        get(service(&settings, Some(&group)).expect("a service"), "/", "").await
    };
    let answer = LocalSet::new().run_until(asking).await;
    assert!(status(&answer) == 502 && answer.contains("x-request-id: "), "{answer}");
}

#[test]
fn the_future_of_a_request_stays_small() {
    fn size<F: Future>(
        _: impl FnOnce(&'static Service, &'static Rc<Connection>, Request<ClientBody>) -> F,
    ) -> usize {
        size_of::<F>()
    }
    let respond = size(Service::respond);
    // Each connection over HTTP/2 has one such future for each request in flight. With the request and three references around it,
    // it must not exceed 1,024 bytes, above which the allocator is slower.
    assert!(respond <= 704, "{respond} bytes");
}

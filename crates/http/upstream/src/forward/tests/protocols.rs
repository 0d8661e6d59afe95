//! Beside plain HTTP/1.1 requests: HTTP/2 to the upstream, switched protocols, active checks.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use brisk_telemetry::Metrics;
use brisk_upstream_group::GroupState;
use brisk_upstream_group::checks::run_checks;
use brisk_upstream_group::settings::ActiveChecks;
use futures_util::future::join_all;
use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::spawn_local;

use super::harness::{Front, Origin, body_of, eventually, get, post, settings, settings_for, text};

#[tokio::test(flavor = "local")]
async fn http2_carries_requests_at_one_time_on_one_connection() {
    let origin = Origin::serve_http2(async |request: Request<Incoming>| {
        assert_eq!(request.version(), http::Version::HTTP_2);
        assert_eq!(request.uri().authority().expect("an authority"), "app.test");
        let body = request.into_body().collect().await.expect("request body").to_bytes();
        Response::new(super::harness::boxed(body.into()))
    })
    .await;
    let front = Front::new(settings_for("h2c", &[&origin]));
    let requests = (0..20).map(|number: u32| {
        let mut client = front.another();
        async move { body_of(client.send(post("/", number.to_string())).await).await == number.to_string() }
    });
    assert!(join_all(requests).await.into_iter().all(|same| same));
    assert_eq!((origin.connections(), origin.requests()), (1, 20));
}

#[tokio::test(flavor = "local")]
async fn http2_passes_trailers_as_grpc_needs() {
    let origin = Origin::serve_http2(async |_| {
        let trailers =
            HeaderMap::from_iter([("grpc-status".parse().expect("name"), "0".parse().expect("value"))]);
        let frames = [Ok(Frame::data(Bytes::from("message"))), Ok(Frame::trailers(trailers))];
        let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
        Response::builder().header("trailer", "grpc-status").body(body).expect("response")
    })
    .await;
    let mut front = Front::new(settings_for("h2c", &[&origin]));
    let mut request = post("/", "");
    request.headers_mut().insert("te", "trailers".parse().expect("value"));
    let collected = front.send(request).await.into_body().collect().await.expect("response body");
    assert_eq!(collected.trailers().expect("trailers")["grpc-status"], "0");
}

#[tokio::test(flavor = "local")]
async fn http2_is_connected_anew_after_its_connection_ended() {
    let origin = Origin::serve_http2(async |_| text("ok")).await;
    let mut settings = settings_for("h2c", &[&origin]);
    settings.timeouts.head = Duration::from_secs(5);
    let mut front = Front::new(settings);
    assert_eq!(body_of(front.send(get("/")).await).await, "ok");
    origin.close_all();
    eventually(async || front.send(get("/")).await.status() == StatusCode::OK && origin.connections() == 2)
        .await;
}

#[tokio::test(flavor = "local")]
async fn an_http2_server_that_does_not_answer_is_given_up() {
    let origin = Origin::serve_http2(async |_| std::future::pending().await).await;
    let mut settings = settings_for("h2c", &[&origin]);
    settings.timeouts.head = Duration::from_millis(100);
    let mut front = Front::new(settings);
    assert_eq!(front.send(get("/")).await.status(), StatusCode::GATEWAY_TIMEOUT);
}

async fn read_until(stream: &mut (impl AsyncReadExt + Unpin), end: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    while !read.ends_with(end) {
        read.push(stream.read_u8().await.expect("more to read"));
    }
    read
}

#[tokio::test(flavor = "local")]
async fn a_switched_protocol_is_joined_with_what_was_sent_ahead() {
    let origin = Origin::raw(async |mut connection, _| {
        let head = connection.read_head().await.expect("a request").to_lowercase();
        assert!(head.contains("upgrade: echo"), "{head}");
        let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhello ";
        connection.write(head).await;
        let (mut reader, mut writer) = connection.stream.split();
        tokio::io::copy(&mut reader, &mut writer).await.expect("echo");
        writer.write_all(b" bye").await.expect("write after the client's end");
    })
    .await;
    let front = Front::new(settings(&[&origin]));
    let mut client = front.pipe();
    let request = b"GET /ws HTTP/1.1\r\nHost: app.test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly";
    client.write_all(request).await.expect("write");
    let head = String::from_utf8(read_until(&mut client, b"\r\n\r\n").await).expect("ASCII");
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert_eq!(read_until(&mut client, b"early").await, b"hello early");
    client.write_all(&vec![b'x'; 100_000]).await.expect("write");
    let mut echoed = vec![0; 100_000];
    client.read_exact(&mut echoed).await.expect("echo");
    client.shutdown().await.expect("half-close");
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.expect("the upstream's end");
    assert_eq!(rest, b" bye");
}

#[tokio::test(flavor = "local")]
async fn a_protocol_switched_unasked_is_a_bad_gateway() {
    let origin = Origin::raw(async |mut connection, _| {
        connection.read_head().await;
        connection
            .write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
            .await;
    })
    .await;
    let mut front = Front::new(settings(&[&origin]));
    let response = front.send(get("/")).await;
    assert_eq!(response.headers()["x-reason"], "unexpected-upgrade");
}

#[tokio::test(flavor = "local")]
async fn active_checks_take_a_server_out_and_bring_it_back() {
    for scheme in ["http", "h2c"] {
        let status = Rc::new(Cell::new(StatusCode::OK));
        let answer = Rc::clone(&status);
        let answer = async move |request: Request<Incoming>| {
            let mut response = text("x");
            if request.uri().path() == "/health" {
                *response.status_mut() = answer.get();
            }
            response
        };
        let origin = match scheme {
            "http" => Origin::serve(answer).await,
            _ => Origin::serve_http2(answer).await,
        };
        let mut settings = settings_for(scheme, &[&origin]);
        let mut checks = ActiveChecks::new(PathAndQuery::from_static("/health"));
        checks.interval = Duration::from_millis(10);
        settings.health.active = Some(checks);
        let state = GroupState::new(settings, &Metrics::new()).expect("settings");
        let checking = spawn_local(run_checks(state.clone()));
        let servers = state.servers();
        let server = &servers[0];
        eventually(async || origin.requests() > 2).await;
        assert!(server.is_healthy());
        status.set(StatusCode::SERVICE_UNAVAILABLE);
        eventually(async || !server.is_healthy()).await;
        status.set(StatusCode::NO_CONTENT);
        eventually(async || server.is_healthy()).await;
        checking.abort();
    }
}

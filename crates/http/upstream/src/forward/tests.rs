//! Requests through real connections: client, hyper server, `forward`, sockets on loopback, origin.

mod harness;
mod pipelines;
mod protocols;
mod retries;
mod silent;

use std::time::Duration;

use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};

use self::harness::{Front, Origin, body_of, boxed, get, post, settings, text};

#[tokio::test(flavor = "local")]
async fn a_connection_is_used_again() {
    let origin = Origin::serve(async |_| text("hello")).await;
    let mut front = Front::new(settings(&[&origin]));
    for _ in 0..5 {
        assert_eq!(body_of(front.send(get("/")).await).await, "hello");
    }
    assert_eq!((origin.connections(), origin.requests()), (1, 5));
}

#[tokio::test(flavor = "local")]
async fn a_short_response_gives_its_connection_back_before_it_is_read() {
    let origin = Origin::serve(async |_| text("hello")).await;
    let mut front = Front::new(settings(&[&origin]));
    let response = front.send(get("/")).await;
    assert_eq!(front.idle_connections(), 1);
    assert_eq!(body_of(response).await, "hello");
}

#[tokio::test(flavor = "local")]
async fn long_bodies_stream_both_ways_and_leave_the_connection_reusable() {
    let origin = Origin::serve(async |request: Request<hyper::body::Incoming>| {
        let body = request.into_body().collect().await.expect("request body").to_bytes();
        http::Response::new(boxed(Full::new(body)))
    })
    .await;
    let mut front = Front::new(settings(&[&origin]));
    let sent = Bytes::from((0..3_000_000_u32).map(|number| (number >> 3) as u8).collect::<Vec<_>>());
    for _ in 0..3 {
        let response = front.send(post("/", sent.clone())).await;
        assert_eq!(response.headers()["content-length"], "3000000");
        assert!(body_of(response).await == sent, "what comes back is what was sent");
        assert_eq!(front.outcome().request_bytes(), 3_000_000);
    }
    assert_eq!(origin.connections(), 1);
}

#[tokio::test(flavor = "local")]
async fn a_chunked_response_ends_and_the_connection_is_reused() {
    let origin = Origin::raw(async |mut stream, _| {
        while stream.read_head().await.is_some() {
            let response =
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
            stream.write(response).await;
        }
    })
    .await;
    let mut front = Front::new(settings(&[&origin]));
    for _ in 0..3 {
        assert_eq!(body_of(front.send(get("/")).await).await, "hello world");
    }
    assert_eq!(origin.connections(), 1);
}

#[tokio::test(flavor = "local")]
async fn a_response_that_ends_with_its_connection_is_whole() {
    let origin = Origin::raw(async |mut stream, _| {
        stream.read_head().await;
        stream.write("HTTP/1.0 200 OK\r\n\r\nto the end").await;
    })
    .await;
    let mut front = Front::new(settings(&[&origin]));
    let response = front.send(get("/")).await;
    assert_eq!(response.version(), http::Version::HTTP_11);
    assert_eq!(body_of(response).await, "to the end");
    assert_eq!(front.idle_connections(), 0);
}

#[tokio::test(flavor = "local")]
async fn a_response_cut_short_is_an_error_for_the_client() {
    let origin = Origin::raw(async |mut stream, _| {
        stream.read_head().await;
        stream.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello").await;
    })
    .await;
    let mut front = Front::new(settings(&[&origin]));
    // Whether the head still goes out depends on when the end is seen.
    if let Ok(response) = front.try_send(get("/")).await {
        assert!(response.into_body().collect().await.is_err());
    }
}

#[tokio::test(flavor = "local")]
async fn head_responses_keep_their_length() {
    let origin = Origin::serve(async |_| text("hello")).await;
    let mut front = Front::new(settings(&[&origin]));
    let mut request = get("/");
    *request.method_mut() = Method::HEAD;
    let response = front.send(request).await;
    assert_eq!(response.headers()["content-length"], "5");
    assert_eq!(body_of(response).await, "");
    assert_eq!(front.idle_connections(), 1);
}

#[tokio::test(flavor = "local")]
async fn trailers_pass_both_ways() {
    let origin = Origin::serve(async |request: Request<hyper::body::Incoming>| {
        let body = request.into_body().collect().await.expect("request body");
        let sent = body.trailers().expect("request trailers").clone();
        let frames = [
            Ok::<_, brisk_http::error::BodyError>(Frame::data(Bytes::from("data"))),
            Ok(Frame::trailers(sent)),
        ];
        let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
        http::Response::builder().header("trailer", "x-sum").body(body).expect("response")
    })
    .await;
    let mut front = Front::new(settings(&[&origin]));
    let trailers = HeaderMap::from_iter([("x-sum".parse().expect("name"), "42".parse().expect("value"))]);
    let frames = [Ok(Frame::data(Bytes::from("abc"))), Ok(Frame::trailers(trailers))];
    let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
    let request =
        Request::post("/").header("host", "app").header("te", "trailers").header("trailer", "x-sum");
    let response = front.send(request.body(body).expect("request")).await;
    let collected = response.into_body().collect().await.expect("response body");
    assert_eq!(collected.trailers().expect("response trailers")["x-sum"], "42");
    assert_eq!(collected.to_bytes(), "data");
}

#[tokio::test(flavor = "local")]
async fn a_server_that_does_not_answer_is_given_up() {
    let origin = Origin::raw(async |mut stream, _| while stream.read_head().await.is_some() {}).await;
    let mut settings = settings(&[&origin]);
    settings.timeouts.head = Duration::from_millis(100);
    let mut front = Front::new(settings);
    let response = front.send(get("/")).await;
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(response.headers()["x-reason"], "response-timeout");
    assert_eq!(origin.connections(), 1, "a slow request is not repeated");
}

#[tokio::test(flavor = "local")]
async fn a_server_that_pauses_within_a_body_is_given_up() {
    let origin = Origin::raw(async |mut stream, _| {
        stream.read_head().await;
        stream.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello").await;
        stream.read_head().await;
    })
    .await;
    let mut settings = settings(&[&origin]);
    settings.timeouts.body = Duration::from_millis(100);
    let mut front = Front::new(settings);
    let response = front.send(get("/")).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test(flavor = "local")]
async fn a_body_beyond_the_limit_is_refused() {
    let origin = Origin::serve(async |request: Request<hyper::body::Incoming>| {
        let _ = request.into_body().collect().await;
        text("unexpected")
    })
    .await;
    let mut front = Front::with_limit(settings(&[&origin]), 1000);
    let response = front.send(post("/", vec![0; 1001])).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert!(front.group().choose(0, None).expect("a server").state().is_healthy());
}

#[tokio::test(flavor = "local")]
async fn what_is_not_http_is_a_bad_gateway() {
    let origin = Origin::raw(async |mut stream, _| {
        stream.read_head().await;
        stream.write("SMTP ready\r\n\r\n").await;
        stream.read_head().await;
    })
    .await;
    let mut front = Front::new(settings(&[&origin]));
    let response = front.send(get("/")).await;
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(response.headers()["x-reason"], "malformed-response");
}

#[tokio::test(flavor = "local")]
async fn connections_beyond_the_limit_are_refused() {
    let origin = Origin::raw(async |mut stream, _| {
        stream.read_head().await;
        stream.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello").await;
        stream.read_head().await;
    })
    .await;
    let mut settings = settings(&[&origin]);
    settings.pool.max_connections = Some(1);
    let mut front = Front::new(settings);
    let mut other = front.another();
    let held = front.send(get("/")).await;
    let refused = other.send(get("/")).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["x-reason"], "connection-limit");
    drop((held, front));
    harness::eventually(async || other.send(get("/")).await.status() == StatusCode::OK).await;
}

#[tokio::test(flavor = "local")]
async fn an_answer_before_the_end_of_the_upload_reaches_the_client_though_the_server_closes() {
    let origin = Origin::raw(async |mut connection, _| {
        connection.read_head().await;
        connection.write("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig").await;
        // Closed with an upload that was not read, the connection is reset.
    })
    .await;
    let mut front = Front::new(settings(&[&origin]));
    let response = front.send(post("/", vec![0; 4 << 20])).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(body_of(response).await, "big");
}

/// What an origin adds to a response is no response to another request.
#[tokio::test(flavor = "local")]
async fn bytes_beyond_a_response_answer_no_other_request() {
    for added in ["HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", "\r\n", "x"] {
        let origin = Origin::raw(async move |mut connection, number| {
            let path = format!("{number}");
            while connection.read_head().await.is_some() {
                let added = if number == 0 { added } else { "" };
                let response =
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}{added}", path.len());
                connection.write(&response).await;
            }
        })
        .await;
        let mut front = Front::new(settings(&[&origin]));
        for connection in ["0", "1", "1"] {
            assert_eq!(body_of(front.send(get("/")).await).await, connection, "{added:?}");
        }
        assert_eq!(origin.connections(), 2, "{added:?}");
    }
}

#[tokio::test(flavor = "local")]
async fn informational_responses_are_passed_over() {
    let origin = Origin::raw(async |mut connection, _| {
        while connection.read_head().await.is_some() {
            connection.write("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n").await;
            connection.write("\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        }
    })
    .await;
    let mut front = Front::new(settings(&[&origin]));
    for _ in 0..2 {
        assert_eq!(body_of(front.send(get("/")).await).await, "ok");
    }
    assert_eq!(origin.connections(), 1);
}

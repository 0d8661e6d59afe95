use brisk_http::error::BodyError;
use brisk_http::message::Request;
use brisk_telemetry::metrics::Metrics;
use brisk_visits::Visits;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::*;

fn navigation(more: &[(&'static str, &'static str)]) -> RequestParts {
    let mut request = Request::get("https://www.example/x")
        .header("sec-fetch-mode", "navigate")
        .header("sec-fetch-dest", "document")
        .body(())
        .expect("a request")
        .into_parts()
        .0;
    for (name, value) in more {
        request.headers.insert(*name, HeaderValue::from_static(value));
    }
    request
}

#[test]
fn page_views_are_navigations_to_documents() {
    assert!(is_page_view(&navigation(&[])));
    for other in [("sec-fetch-dest", "iframe"), ("sec-fetch-mode", "cors"), ("sec-fetch-dest", "image")] {
        assert!(!is_page_view(&navigation(&[other])), "{other:?}");
    }
    let mut posted = navigation(&[]);
    posted.method = Method::POST;
    assert!(!is_page_view(&posted) && !is_page_view(&Request::new(()).into_parts().0));
    assert!(wants_privacy(&navigation(&[("sec-gpc", "1")]).headers));
    assert!(!wants_privacy(&navigation(&[("sec-gpc", "0")]).headers));
}

#[test]
fn a_share_of_page_views_is_drawn() {
    let ids = brisk_telemetry::RequestIds::new(1);
    let drawn = (0..100_000).filter(|_| is_drawn(ids.next().0, 0.1)).count();
    assert!((9_500..10_500).contains(&drawn), "{drawn}");
    assert!(is_drawn(u64::MAX, 1.0) && !is_drawn(0, 0.0));
}

fn page(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(header::ETAG, HeaderValue::from_static("\"x\""));
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("99"));
    response
}

async fn inserted(response: &mut Response<Body>) -> (Option<Insertion>, String) {
    let beacons = Beacons::new(Visits::off());
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    let record =
        brisk_telemetry::ConnectionRecord::new(1, address, address, brisk_telemetry::Timeline::start());
    let outcome = insertion::insert(&Bytes::from("<S>"), &beacons, &Connection::new(record, true), response);
    let body = std::mem::take(response.body_mut()).collect().await.expect("a body").to_bytes();
    let metrics = Metrics::new();
    metrics.register(brisk_beacon::BeaconMetrics(beacons));
    let counted = metrics.render().lines().filter(|line| line.contains("outcome=\"inserted\"} 1")).count();
    // One that streams is counted when its place has come.
    assert!(outcome.is_some() || counted == 1 || !String::from_utf8_lossy(&body).contains("<S>"));
    (outcome, String::from_utf8_lossy(&body).into_owned())
}

fn in_pieces(pieces: &[&'static str]) -> Body {
    let frames: Vec<Result<_, BodyError>> =
        pieces.iter().map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes())))).collect();
    Body::boxed(StreamBody::new(stream::iter(frames)))
}

#[tokio::test]
async fn the_script_comes_into_pages_whole_or_in_pieces() {
    let mut whole = page("text/html", Body::full("<head><title>x</title>"));
    assert_eq!(inserted(&mut whole).await, (Some(Insertion::Done), "<head><S><title>x</title>".to_owned()));
    assert_eq!(whole.headers()[header::ETAG], "W/\"x\"");
    assert!(!whole.headers().contains_key(header::CONTENT_LENGTH));
    let mut streamed = page("text/html", in_pieces(&["<he", "ad><ti", "tle>x</title>", "<p>"]));
    assert_eq!(inserted(&mut streamed).await, (None, "<head><S><title>x</title><p>".to_owned()));
    let mut cut = page("text/html", in_pieces(&["<he"]));
    assert_eq!(inserted(&mut cut).await, (None, "<he".to_owned()));
}

#[tokio::test]
async fn what_cannot_have_the_script_stays_as_it_is() {
    for (name, value, outcome) in [
        ("content-encoding", "br", Insertion::Unchangeable),
        ("cache-control", "no-transform", Insertion::Unchangeable),
        ("content-range", "bytes 0-1/2", Insertion::Unchangeable),
        ("content-security-policy", "default-src 'none'", Insertion::Policy),
    ] {
        let mut response = page("text/html", Body::full("<p>"));
        response.headers_mut().insert(name, HeaderValue::from_static(value));
        let before = response.headers().clone();
        assert_eq!(inserted(&mut response).await, (Some(outcome), "<p>".to_owned()));
        assert_eq!(*response.headers(), before);
    }
    let mut text = page("text/html", Body::full("x<p>"));
    assert_eq!(inserted(&mut text).await, (Some(Insertion::NoPlace), "x<p>".to_owned()));
    assert_eq!(text.headers()[header::ETAG], "\"x\"");
    assert!(!is_page(&page("application/json", Body::Empty)));
    let mut saved = page("text/html", Body::Empty);
    saved
        .headers_mut()
        .insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("Attachment; filename=x.html"));
    assert!(!is_page(&saved));
    assert!(
        !is_page(&page("text/html; charset=utf-16", Body::Empty)) && is_page(&page("Text/HTML", Body::Empty))
    );
}

#[test]
fn failures_are_reported_to_the_host_itself_and_to_nothing_else() {
    let mut headers = HeaderList::new();
    ask_for_errors("www.example:8443", &mut headers);
    let group: &str = headers[REPORT_TO].to_str().expect("text");
    assert!(group.contains("\"url\":\"https://www.example:8443/.brisk/beacon\""), "{group}");
    assert_eq!(headers[NEL], NEL_POLICY);
    let mut own = HeaderList::from_iter([(NEL, HeaderValue::from_static("{}"))]);
    ask_for_errors("www.example", &mut own);
    assert!(!own.contains_key(REPORT_TO));
    let mut none = HeaderList::new();
    ask_for_errors("a\"b", &mut none);
    assert!(none.is_empty());
}

//! Tests of which answers are compressed, and of how they stream.

mod arrivals;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use brisk_budget::Budgets;
use brisk_coding::Encoder;
use brisk_http::error::BodyError;
use brisk_http::message::Request;
use brisk_http_connection::buffers::WorkerBuffers;
use brisk_http_connection::connection::Surroundings;
use brisk_http_connection::settings::HttpSettings;
use brisk_http_connection::testing::{connection, tls_facts};
use brisk_net::DeadlineWheel;
use brisk_telemetry::{Metrics, TlsFacts};
use http::Version;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::*;

type Piece = Result<Frame<Bytes>, BodyError>;

fn request(headers: &[(&'static str, &str)]) -> RequestParts {
    let mut request = Request::get("/").version(Version::HTTP_11);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).expect("a request").into_parts().0
}

fn response(headers: &[(&'static str, &str)], body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    for (name, value) in headers {
        response.headers_mut().append(*name, HeaderValue::from_str(value).expect("a value"));
    }
    response
}

fn text() -> Body {
    Body::full("It is a long way. ".repeat(100))
}

/// What becomes of an answer of a route that compresses.
fn answered(request: &RequestParts, mut response: Response<Body>) -> Response<Body> {
    let compression = Compression::new(&Arc::default());
    compression.negotiate(&connection(), request, b"/").apply(&connection(), &mut response);
    response
}

fn coding(response: &Response<Body>) -> Option<&str> {
    response.headers().get("content-encoding").map(|value| value.to_str().expect("text"))
}

const HTML: (&str, &str) = ("content-type", "text/html; charset=utf-8");
const ALL: (&str, &str) = ("accept-encoding", "gzip, deflate, br, zstd");

#[test]
fn a_text_is_compressed_and_its_head_says_so() {
    let head = [HTML, ("etag", "\"x\""), ("content-length", "1800"), ("accept-ranges", "bytes")];
    let answer = answered(&request(&[ALL]), response(&head, text()));
    let headers = answer.headers();
    assert_eq!(coding(&answer), Some("zstd"));
    assert_eq!(headers["vary"], "accept-encoding");
    assert_eq!(headers["etag"], "W/\"x\"");
    assert!(!headers.contains_key("content-length") && !headers.contains_key("accept-ranges"));
    // A short body keeps its length, which is exact.
    let length = answer.body().size_hint().exact().expect("a length");
    assert!(length < 200, "{length}");
}

#[test]
fn answers_that_must_stay_as_they_are_do() {
    for head in [
        &[("content-type", "image/png")][..],
        &[],
        &[HTML, ("content-encoding", "gzip")],
        &[HTML, ("content-encoding", "unknown")],
        &[HTML, ("content-range", "bytes 0-1799/5000")],
        &[HTML, ("cache-control", "max-age=5, No-Transform")],
        &[HTML, ("content-digest", "sha-256=:x:")],
        &[HTML, ("repr-digest", "sha-256=:x:")],
    ] {
        let answer = answered(&request(&[ALL]), response(head, text()));
        assert_eq!(
            coding(&answer).unwrap_or("none"),
            head.get(1).filter(|(name, _)| *name == "content-encoding").map_or("none", |(_, value)| value)
        );
        assert_eq!(answer.body().size_hint().exact(), Some(1800), "{head:?}");
        assert!(!answer.headers().contains_key("vary"), "{head:?}");
    }
    for status in [206, 204, 205] {
        let mut part = response(&[HTML], text());
        *part.status_mut() = StatusCode::from_u16(status).expect("a status");
        assert_eq!(coding(&answered(&request(&[ALL]), part)), None, "{status}");
    }
    let short = answered(&request(&[ALL]), response(&[HTML], Body::full("x".repeat(511))));
    assert_eq!(coding(&short), None);
    assert_eq!(coding(&answered(&request(&[]), response(&[HTML], text()))), None);
    let forbidden = request(&[ALL, ("cache-control", "no-transform")]);
    assert_eq!(coding(&answered(&forbidden, response(&[HTML], text()))), None);
}

#[test]
fn what_varies_says_so_to_clients_that_take_no_coding_too() {
    let plain = answered(&request(&[]), response(&[HTML, ("vary", "Cookie")], text()));
    let vary: Vec<_> = plain.headers().get_all("vary").collect();
    assert_eq!(vary, ["Cookie", "accept-encoding"]);
    for known in ["*", "cookie, Accept-Encoding"] {
        let answer = answered(&request(&[ALL]), response(&[HTML, ("vary", known)], text()));
        assert_eq!(answer.headers().get_all("vary").collect::<Vec<_>>(), [known]);
    }
}

#[test]
fn a_304_varies_unless_its_content_is_known_not_to() {
    let confirmed = |path: &[u8], root: Option<&str>, head: &[(&'static str, &str)]| {
        let names = Rc::new(Names::new(&["a.example".to_owned()]).expect("names"));
        let root = root.map(PathBuf::from);
        let compression = Compression::of_route(&Arc::default(), true, root, &names, &Arc::default());
        let mut answer = response(head, Body::Empty);
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        let asked = request(&[ALL, ("if-none-match", "\"x\"")]);
        compression.negotiate(&connection(), &asked, path).apply(&connection(), &mut answer);
        answer.headers().contains_key("vary")
    };
    let tag = ("etag", "\"x\"");
    assert!(confirmed(b"/x", None, &[tag]), "the type is unknown");
    assert!(confirmed(b"/x", None, &[tag, HTML]));
    assert!(!confirmed(b"/x", None, &[tag, ("content-type", "image/png")]));
    assert!(!confirmed(b"/x", None, &[tag, ("cache-control", "no-transform")]));
    assert!(confirmed(b"/a.css", Some("/srv"), &[tag]));
    assert!(confirmed(b"/folder/", Some("/srv"), &[tag]));
    assert!(!confirmed(b"/a.png", Some("/srv"), &[tag]));
}

#[test]
fn an_answer_that_would_become_longer_stays() {
    let mut state = 7_u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    let noise: Vec<u8> = noise.take(2000).collect();
    let answer = answered(&request(&[ALL]), response(&[HTML], Body::full(noise)));
    assert_eq!((coding(&answer), answer.body().size_hint().exact()), (None, Some(2000)));
}

#[test]
fn pages_for_users_are_not_compressed_for_other_sites() {
    let cookie = ("cookie", "session=1");
    let site = |site| ("sec-fetch-site", site);
    for (headers, compressed) in [
        (&[cookie, site("cross-site")][..], false),
        (&[cookie], false),
        (&[("authorization", "Basic eDp5"), site("cross-site")], false),
        (&[("authorization", "Bearer x"), site("cross-site")], true),
        (&[site("cross-site")], true),
        (&[cookie, site("same-origin")], true),
        (&[cookie, site("same-site")], true),
        (&[cookie, site("none")], true),
        (&[], true),
    ] {
        let asked = request(&[&[ALL], headers].concat());
        let answer = answered(&asked, response(&[HTML], text()));
        assert_eq!(coding(&answer).is_some(), compressed, "{headers:?}");
        assert_eq!(answer.headers()["vary"], "accept-encoding");
    }
    let exposed = request(&[ALL, cookie, site("cross-site")]);
    let public = response(&[HTML, ("cache-control", "public, max-age=60")], text());
    assert!(coding(&answered(&exposed, public)).is_some());
    for facts in [None, Some("CN=alice")] {
        let connection = connection();
        let client_subject = facts.map(Into::into);
        let facts = TlsFacts { client_subject, ..tls_facts() };
        let has_certificate = facts.client_subject.is_some();
        connection.client.record.borrow_mut().tls = Some(Box::new(facts));
        let mut answer = response(&[HTML], text());
        let asked = request(&[ALL, site("cross-site")]);
        Compression::new(&Arc::default())
            .negotiate(&connection, &asked, b"/")
            .apply(&connection, &mut answer);
        assert_eq!(
            coding(&answer).is_none(),
            has_certificate,
            "browsers send certificates to other sites' requests"
        );
    }
    for (guard, from, compressed) in [
        (BreachGuard::SameSite, "same-site", false),
        (BreachGuard::SameSite, "same-origin", true),
        (BreachGuard::Off, "cross-site", true),
    ] {
        let compression =
            Compression::new(&Arc::new(CompressionSettings { guard, ..CompressionSettings::default() }));
        let mut answer = response(&[HTML], text());
        compression
            .negotiate(&connection(), &request(&[ALL, cookie, site(from)]), b"/")
            .apply(&connection(), &mut answer);
        assert_eq!(coding(&answer).is_some(), compressed, "{guard:?} {from}");
    }
    let mut file = response(&[HTML], text());
    let names = Rc::new(Names::new(&["www.example".to_owned()]).expect("names"));
    let of_files = Compression::of_route(&Arc::default(), false, None, &names, &Arc::default());
    of_files.negotiate(&connection(), &exposed, b"/").apply(&connection(), &mut file);
    assert!(coding(&file).is_some(), "files hold no secrets and repeat nothing");
}

#[test]
fn a_head_says_what_the_answer_to_get_would() {
    let mut asked = request(&[ALL]);
    asked.method = Method::HEAD;
    let answer = answered(&asked, response(&[HTML, ("content-length", "1800")], Body::Empty));
    assert_eq!(coding(&answer), Some("zstd"));
    assert!(!answer.headers().contains_key("content-length"));
    let short = answered(&asked, response(&[HTML, ("content-length", "18")], Body::Empty));
    assert_eq!((coding(&short), &short.headers()["content-length"]), (None, &HeaderValue::from_static("18")));
}

#[test]
fn what_has_not_changed_keeps_the_tag_that_the_client_has() {
    let unchanged = |known: &str| {
        let mut answer = response(&[("etag", "\"x\"")], Body::Empty);
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        let answer = answered(&request(&[ALL, ("if-none-match", known)]), answer);
        answer.headers()["etag"].to_str().expect("text").to_owned()
    };
    assert_eq!(unchanged("W/\"x\""), "W/\"x\"");
    assert_eq!(unchanged("\"x\""), "\"x\"");
    assert_eq!(unchanged("W/\"y\""), "\"x\"");
}

/// A body that comes in these pieces.
fn streamed(pieces: Vec<Piece>) -> Body {
    Body::boxed(StreamBody::new(futures_util::stream::iter(pieces)))
}

#[expect(clippy::unnecessary_wraps, reason = "one of two kinds")]
fn data(bytes: impl Into<Bytes>) -> Piece {
    Ok(Frame::data(bytes.into()))
}

fn gzip() -> (&'static str, &'static str) {
    ("accept-encoding", "gzip")
}

fn inflated(bytes: &[u8]) -> Vec<u8> {
    let mut inflate = zlib_rs::Inflate::new(true, 31);
    let mut plain = vec![0; 2 << 20];
    inflate.decompress(bytes, &mut plain, zlib_rs::InflateFlush::NoFlush).expect("gzip");
    plain.truncate(inflate.total_out() as usize);
    plain
}

#[tokio::test]
async fn a_body_of_unknown_length_is_compressed_as_it_streams_and_keeps_its_trailers() {
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static("532"));
    let parts: Vec<_> = (0..3000).map(|number| data(format!("line {number} of the text\n"))).collect();
    let body = streamed(
        parts.into_iter().chain([data(Bytes::new()), Ok(Frame::trailers(trailers.clone()))]).collect(),
    );
    let answer = answered(&request(&[gzip()]), response(&[HTML], body));
    assert_eq!(coding(&answer), Some("gzip"));
    let collected = answer.into_body().collect().await.expect("a body");
    assert_eq!(collected.trailers(), Some(&trailers));
    let plain = inflated(&collected.to_bytes());
    let lines: Vec<_> = (0..3000).map(|number| format!("line {number} of the text\n")).collect();
    let expected = lines.concat();
    assert!(plain == expected.as_bytes());
}

#[tokio::test]
async fn a_body_that_fails_stays_without_an_end() {
    let body = streamed(vec![data("x".repeat(5000)), Err(BodyError::UpstreamReset)]);
    let answer = answered(&request(&[gzip()]), response(&[HTML], body));
    assert!(matches!(answer.into_body().collect().await, Err(BodyError::UpstreamReset)));
}

fn poll(body: &mut Body) -> Poll<Option<Piece>> {
    Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn events_go_on_at_once_and_pages_after_a_pause() {
    for (kind, is_live) in [("text/event-stream", true), ("text/html", false)] {
        let pieces = futures_util::stream::iter([data("data: one\n\n")]);
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<Piece>();
        let mut receiver = receiver;
        let rest = futures_util::stream::poll_fn(move |cx| receiver.poll_recv(cx));
        let body = StreamBody::new(futures_util::StreamExt::chain(pieces, rest));
        let answer = answered(&request(&[gzip()]), response(&[("content-type", kind)], Body::boxed(body)));
        let mut body = answer.into_body();
        let mut seen = Vec::new();
        let mut take = |body: &mut Body| {
            let before = seen.len();
            while let Poll::Ready(frame) = poll(body) {
                let frame = frame.expect("more").expect("no error");
                seen.extend_from_slice(&frame.into_data().expect("data"));
            }
            seen.len() > before
        };
        // The first piece of any answer goes on at once.
        assert!(take(&mut body));
        sender.send(data("data: two\n\n")).expect("a body");
        if !is_live {
            // What a page goes on with waits for more.
            assert!(!take(&mut body));
            tokio::time::advance(std::time::Duration::from_millis(20)).await;
        }
        assert!(take(&mut body));
        assert_eq!(inflated(&seen), b"data: one\n\ndata: two\n\n");
    }
}

#[tokio::test]
async fn a_round_compresses_a_limited_number_of_bytes() {
    let body = streamed(vec![data(vec![b'x'; 1 << 20])]);
    let asked = request(&[gzip()]);
    let (connection, buffers) = surrounded(HttpSettings::default());
    let mut answer = response(&[HTML], body);
    Compression::new(&Arc::default()).negotiate(&connection, &asked, b"/").apply(&connection, &mut answer);
    let mut rounds = pin!(buffers.divide_work());
    let mut body = answer.into_body();
    let mut turns = 0;
    let mut seen = Vec::new();
    while let Some(frame) = poll_fn(|context| {
        let polled = Pin::new(&mut body).poll_frame(context);
        if polled.is_pending() {
            turns += 1;
            assert!(rounds.as_mut().poll(context).is_pending());
        }
        polled
    })
    .await
    {
        seen.extend_from_slice(&frame.expect("data").into_data().expect("data"));
    }
    assert!(turns >= 15, "{turns}");
    assert_eq!(inflated(&seen).len(), 1 << 20);
}

fn surrounded(settings: HttpSettings) -> (Rc<Connection>, Rc<WorkerBuffers>) {
    let connection = connection();
    let budgets = Arc::new(Budgets::new(&settings.limits()));
    let buffers = WorkerBuffers::new(Metrics::new(), budgets);
    connection.surround(Surroundings {
        settings: Rc::new(settings),
        wheel: DeadlineWheel::new(),
        buffers: Rc::clone(&buffers),
        drain: brisk_net::drain::channel().1,
    });
    (connection, buffers)
}

/// A connection of a client with one half of the encoders' memory.
fn connection_with_encoders(bytes: usize) -> Rc<Connection> {
    surrounded(HttpSettings { compression_memory: 2 * bytes, ..HttpSettings::default() }).0
}

#[tokio::test]
async fn encoders_beyond_the_memory_for_them_are_not_made() {
    let connection = connection_with_encoders(Encoder::memory(Coding::Gzip));
    let one = Lease::take(Coding::Gzip, 6, &connection).expect("an encoder");
    assert!(Lease::take(Coding::Gzip, 6, &connection).is_none());
    drop(one);
    let mut again = Lease::take(Coding::Gzip, 6, &connection).expect("an encoder");
    assert!(!again.has_encoder(), "responses that wait need no encoder");
    again.encoder();
    assert!(again.has_encoder());
}

#[tokio::test]
async fn a_body_that_is_here_as_a_whole_and_is_not_compressed_at_once_arrives_whole() {
    let whole = "It is a long way. ".repeat(3000);
    let (busy, buffers) = surrounded(HttpSettings::default());
    let mut rounds = pin!(buffers.divide_work());
    // Others of the worker use its round.
    while busy.may_work(32 << 10) {}
    for (text, connection) in [(whole.as_str(), connection()), (&whole[..20_000], busy)] {
        let mut answer = response(&[HTML], Body::full(text.to_owned()));
        let asked = request(&[gzip()]);
        Compression::new(&Arc::default())
            .negotiate(&connection, &asked, b"/")
            .apply(&connection, &mut answer);
        assert_eq!(coding(&answer), Some("gzip"));
        let compressed = tokio::select! {
            compressed = answer.into_body().collect() => compressed.expect("a body").to_bytes(),
            () = &mut rounds => unreachable!("rounds never end"),
        };
        assert!(inflated(&compressed) == text.as_bytes(), "{} bytes", compressed.len());
    }
}

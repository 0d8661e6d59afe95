//! Tests of what origins and browsers get of each other.

use brisk_http::error::BodyError;
use brisk_http::message::Request;
use brisk_http_connection::testing::connection;
use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::*;

fn settings(cookies: Cookies) -> Arc<Consolidation> {
    let place = |origin: &str, prefix: &str| MappedOrigin {
        origin: origin.parse().expect("an origin"),
        prefix: prefix.parse().expect("a prefix"),
        unchanged: None,
    };
    let origins = vec![place("https://static.example", "/_s"), place("https://api.example:8443", "/_a")];
    Arc::new(Consolidation { map: Arc::new(OriginMap { origins }), cookies: vec![cookies; 2] })
}

fn route(is_static: bool, place: Option<usize>, cookies: Cookies) -> Rc<ConsolidatedRoute> {
    let served = ServedRoute { place, rewrites: true, is_static, is_compressed: false };
    ConsolidatedRoute::new(&settings(cookies), served)
}

fn request(headers: &[(&'static str, &str)]) -> RequestParts {
    let mut request = Request::get("https://www.example/x");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).expect("a request").into_parts().0
}

/// What an origin gets of these headers, and what is done about its answer.
fn asked(
    place: Option<usize>,
    cookies: Cookies,
    headers: &[(&'static str, &str)],
) -> (HeaderList, ConsolidatedRequest) {
    asked_of(false, place, cookies, headers, b"/x")
}

fn asked_of(
    is_static: bool,
    place: Option<usize>,
    cookies: Cookies,
    headers: &[(&'static str, &str)],
    path: &[u8],
) -> (HeaderList, ConsolidatedRequest) {
    let consolidated = route(is_static, place, cookies);
    let names = Names::new(&["www.example".to_owned()]).expect("names");
    let mut request = request(headers);
    let asked = consolidated.begin(&connection(), &request, "WWW.example:443", &names, path);
    asked.change_request(&connection(), &mut request.headers);
    consolidated.address(&mut request.headers);
    (request.headers, asked)
}

fn response(headers: &[(&'static str, &str)], body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    for (name, value) in headers {
        response.headers_mut().append(*name, HeaderValue::from_str(value).expect("a value"));
    }
    response
}

async fn collected(response: Response<Body>) -> Result<Bytes, BodyError> {
    response.into_body().collect().await.map(http_body_util::Collected::to_bytes)
}

fn get<'h>(headers: &'h HeaderList, name: &str) -> Option<&'h str> {
    headers.get(name).map(|value| value.to_str().expect("text"))
}

#[test]
fn an_origin_gets_nothing_of_the_hosts() {
    let sent = [
        ("cookie", "session=1; _s~a=2"),
        ("cookie", "_s~b=3;_a~c=4"),
        ("authorization", "Basic x"),
        ("referer", "https://www.example/secret?x"),
        ("origin", "https://www.example"),
        ("x-forwarded-host", "www.example"),
        ("x-forwarded-for", "192.0.2.1"),
        ("forwarded", "for=192.0.2.1"),
        ("client-cert", ":AAAA:"),
        ("client-cert-chain", ":AAAA:"),
        ("x-ssl-client-verify", "SUCCESS"),
        ("remote-user", "a"),
        ("x-original-url", "/a"),
        ("sec-fetch-site", "same-origin"),
        ("accept-encoding", "gzip, deflate, br, dcz"),
        ("available-dictionary", ":x:"),
    ];
    let (headers, _) = asked(Some(0), Cookies::Own, &sent);
    assert_eq!(get(&headers, "host"), Some("static.example"));
    assert_eq!(get(&headers, "cookie"), Some("a=2; b=3"));
    assert_eq!(get(&headers, "authorization"), None);
    assert_eq!(get(&headers, "referer"), Some("https://www.example/"));
    assert_eq!(get(&headers, "origin"), Some("https://www.example"));
    for name in [
        "x-forwarded-host",
        "forwarded",
        "client-cert",
        "client-cert-chain",
        "x-ssl-client-verify",
        "remote-user",
        "x-original-url",
    ] {
        assert_eq!(get(&headers, name), None, "{name}");
    }
    assert_eq!(get(&headers, "x-forwarded-for"), Some("192.0.2.1"));
    assert_eq!(get(&headers, "sec-fetch-site"), Some("cross-site"));
    assert_eq!(get(&headers, "accept-encoding"), Some("gzip;q=0.9"));
    assert_eq!(get(&headers, "available-dictionary"), None);
    let script = [("accept-encoding", "gzip, deflate, br, dcz"), ("sec-fetch-dest", "script")];
    assert_eq!(get(&asked(None, Cookies::Own, &script).0, "accept-encoding"), Some("br;q=0.9, gzip;q=0.8"));
    let fetched = [("accept-encoding", "gzip, br"), ("sec-fetch-dest", "empty")];
    assert_eq!(get(&asked(None, Cookies::Own, &fetched).0, "accept-encoding"), Some("gzip;q=0.9"));
    assert_eq!(get(&asked(Some(0), Cookies::None, &sent).0, "cookie"), None);
    let trusted = asked(Some(0), Cookies::Host, &sent).0;
    assert_eq!((get(&trusted, "authorization"), trusted.get_all("cookie").count()), (Some("Basic x"), 2));
    let own = asked(None, Cookies::Own, &sent).0;
    assert_eq!((get(&own, "authorization"), get(&own, "host")), (Some("Basic x"), None));
}

#[test]
fn pages_of_an_origin_ask_as_its_pages() {
    let own_page = [
        ("referer", "https://www.example/_a/page?x"),
        ("origin", "https://www.example"),
        ("sec-fetch-site", "same-origin"),
    ];
    let (headers, _) = asked(Some(1), Cookies::Own, &own_page);
    assert_eq!(get(&headers, "sec-fetch-site"), Some("same-origin"));
    assert_eq!(get(&headers, "referer"), Some("https://api.example:8443/page?x"));
    assert_eq!(get(&headers, "origin"), Some("https://api.example:8443"));
    let (headers, _) = asked(Some(0), Cookies::Own, &own_page);
    assert_eq!(get(&headers, "referer"), Some("https://api.example:8443/"));
    for other in ["https://www.example.evil/x", "https://other.example/x", "x"] {
        let (headers, _) =
            asked(Some(0), Cookies::Own, &[("referer", other), ("origin", "https://other.example")]);
        assert_eq!(
            (get(&headers, "referer"), get(&headers, "origin")),
            (None, Some("https://other.example"))
        );
    }
}

#[test]
fn headers_that_name_an_origin_are_changed() {
    let (_, asked) = asked(Some(0), Cookies::Own, &[("origin", "https://www.example")]);
    let mut answer = response(
        &[
            ("location", "/login"),
            ("content-location", "https://static.example/a"),
            ("refresh", "0; url=https://api.example:8443/a"),
            ("content-security-policy", "img-src https://static.example"),
            ("strict-transport-security", "max-age=1; includeSubDomains"),
            ("service-worker-allowed", "/"),
            ("clear-site-data", "\"*\""),
            ("www-authenticate", "Basic realm=x"),
            ("set-login", "logged-in"),
            ("set-cookie", "a=1; Domain=example; Path=/x; Secure"),
            ("set-cookie", "__Host-b=2; path=/; Secure"),
            ("set-cookie", "=c"),
            ("set-cookie", &format!("c=3; Path=/{}", "x".repeat(1021))),
        ],
        Body::Empty,
    );
    asked.apply(&connection(), &mut answer);
    let headers = answer.headers();
    assert_eq!(get(headers, "location"), Some("/_s/login"));
    assert_eq!(get(headers, "content-location"), Some("/_s/a"));
    assert_eq!(get(headers, "refresh"), Some("0; url=/_a/a"));
    assert_eq!(
        get(headers, "content-security-policy"),
        Some("img-src https://static.example https://www.example/_s/")
    );
    for name in [
        "strict-transport-security",
        "service-worker-allowed",
        "clear-site-data",
        "www-authenticate",
        "set-login",
    ] {
        assert_eq!(get(headers, name), None, "{name}");
    }
    let cookies: Vec<_> = headers.get_all("set-cookie").collect();
    assert_eq!(
        cookies,
        ["_s~a=1; Secure; Path=/_s/x", "_s~__Host-b=2; Secure; Path=/_s/", "_s~c=3; Path=/_s/"]
    );
    let (_, asked) = self::asked(Some(0), Cookies::Host, &[]);
    let mut answer = response(&[("www-authenticate", "Basic realm=x")], Body::Empty);
    answer.headers_mut().insert("location", HeaderValue::from_bytes(b"/s\xc3\xbcche").expect("a value"));
    asked.apply(&connection(), &mut answer);
    assert_eq!(get(answer.headers(), "www-authenticate"), Some("Basic realm=x"));
    assert_eq!(answer.headers()["location"].as_bytes(), b"/_s/s\xc3\xbcche");
}

#[test]
fn answers_of_the_host_keep_what_they_say_of_it() {
    let (_, asked) = asked(None, Cookies::Own, &[]);
    let mut answer = response(
        &[
            ("location", "/login"),
            ("strict-transport-security", "x"),
            ("set-cookie", "a=1; Path=/"),
            ("www-authenticate", "Basic realm=x"),
        ],
        Body::Empty,
    );
    let before = answer.headers().clone();
    asked.apply(&connection(), &mut answer);
    assert_eq!(*answer.headers(), before);
}

#[tokio::test]
async fn documents_are_changed_and_say_so() {
    let head = [
        ("content-type", "text/html"),
        ("etag", "\"x\""),
        ("content-length", "38"),
        ("last-modified", "x"),
        ("accept-ranges", "bytes"),
        ("content-md5", "x"),
    ];
    let page = "<img src=https://static.example/a.png>";
    let (_, asking) = asked(None, Cookies::Own, &[]);
    let mut answer = response(&head, Body::full(page));
    asking.apply(&connection(), &mut answer);
    let tag = get(answer.headers(), "etag").expect("a tag").to_owned();
    assert!(tag.starts_with("W/\"x;brisk="), "{tag}");
    for name in ["content-length", "last-modified", "accept-ranges", "content-md5"] {
        assert_eq!(get(answer.headers(), name), None, "{name}");
    }
    assert_eq!(http_body::Body::size_hint(answer.body()).exact(), Some(19));
    assert_eq!(collected(answer).await.expect("a body"), "<img src=/_s/a.png>");
    // It has not changed since.
    let (sent, asking) = asked(None, Cookies::Own, &[("if-none-match", &tag)]);
    assert_eq!(get(&sent, "if-none-match"), Some("\"x\""));
    let mut answer = response(&[("etag", "\"x\""), ("last-modified", "x")], Body::Empty);
    *answer.status_mut() = http::StatusCode::NOT_MODIFIED;
    asking.apply(&connection(), &mut answer);
    assert_eq!(get(answer.headers(), "last-modified"), None);
    assert_eq!(get(answer.headers(), "etag"), Some(&tag[..]));
}

#[tokio::test]
async fn what_cannot_or_must_not_be_changed_passes() {
    let page = "<img src=https://static.example/a.png>";
    for (status, header) in [
        (206, ("content-range", "bytes 0-1/2")),
        (200, ("cache-control", "public, no-transform")),
        (200, ("content-type", "text/html; charset=utf-16le")),
        (200, ("content-type", "text/javascript")),
        (200, ("content-encoding", "deflate")),
        (200, ("content-encoding", "gzip, br")),
    ] {
        let (_, asking) = asked(None, Cookies::Own, &[]);
        let mut answer = response(&[header, ("etag", "\"x\"")], Body::full(page));
        answer.headers_mut().insert_missing("content-type", || HeaderValue::from_static("text/html"));
        *answer.status_mut() = http::StatusCode::from_u16(status).expect("a status");
        let before = answer.headers().clone();
        asking.apply(&connection(), &mut answer);
        assert_eq!(*answer.headers(), before, "{header:?}");
        assert_eq!(collected(answer).await.expect("a body"), page, "{header:?}");
    }
}

fn coded(coding: brisk_coding::Coding, plain: &[u8]) -> Bytes {
    let mut output = Vec::new();
    brisk_coding::Encoder::new(coding, 4).write_whole(plain, &mut output).expect("a codec");
    output.into()
}

fn in_pieces(bytes: &Bytes, length: usize) -> Body {
    let pieces: Vec<_> =
        bytes.chunks(length).map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece)))).collect();
    Body::boxed(StreamBody::new(futures_util::stream::iter(pieces)))
}

fn page(headers: &[(&'static str, &str)], body: Body) -> Response<Body> {
    let mut answer = response(headers, body);
    answer.headers_mut().insert("content-type", HeaderValue::from_static("text/html"));
    answer
}

#[tokio::test]
async fn compressed_documents_are_changed_and_compressed_again() {
    let plain = "<p>x</p><img src=https://static.example/a.png>".repeat(5000);
    let changed = plain.replace("https://static.example", "/_s");
    for coding in brisk_coding::Coding::ALL {
        let body = in_pieces(&coded(coding, plain.as_bytes()), 100);
        let (_, asking) = asked(None, Cookies::Own, &[]);
        let mut answer = page(&[("content-encoding", coding.name())], body);
        asking.apply(&connection(), &mut answer);
        assert_eq!(get(answer.headers(), "content-encoding"), None, "the client takes none");
        assert!(collected(answer).await.expect("a body") == changed, "{coding:?}");
        let (_, asking) = asked(None, Cookies::Own, &[("accept-encoding", "gzip")]);
        let body = in_pieces(&coded(coding, plain.as_bytes()), 100);
        let mut answer = page(&[("content-encoding", coding.name())], body);
        asking.apply(&connection(), &mut answer);
        assert_eq!(get(answer.headers(), "content-encoding"), Some("gzip"));
        assert!(collected(answer).await.expect("a body").len() < changed.len() / 10);
    }
}

#[test]
fn files_that_are_no_documents_are_sent_in_all_codings() {
    let accept = [("accept-encoding", "br, gzip"), ("sec-fetch-dest", "empty")];
    for (path, offered) in [
        ("/data.json", "br;q=0.9, gzip;q=0.8"),
        ("/unknown", "br;q=0.9, gzip;q=0.8"),
        ("/page.html", "gzip;q=0.9"),
        ("/style.css", "gzip;q=0.9"),
        ("/folder/", "gzip;q=0.9"),
    ] {
        let (headers, _) = asked_of(true, None, Cookies::Own, &accept, path.as_bytes());
        assert_eq!(get(&headers, "accept-encoding"), Some(offered), "{path}");
    }
}

#[test]
fn the_place_of_an_origin_is_a_folder() {
    let folder = |place, path: &str, target: &str| {
        let consolidated = route(false, place, Cookies::Own);
        let request = Request::get(target).body(()).expect("a request").into_parts().0;
        consolidated.folder(&RequestPath::read(path).expect("a path"), &request)
    };
    assert_eq!(folder(Some(0), "/_s", "/_s?sw").expect("elsewhere"), "/_s/?sw");
    assert_eq!(folder(Some(0), "/x/../_s", "/x/../_s").expect("elsewhere"), "/_s/");
    assert_eq!(folder(Some(0), "/_s/", "/_s/?x"), None);
    assert_eq!(folder(Some(0), "/_s/a", "/_s/a"), None);
    assert_eq!(folder(None, "/_s", "/_s"), None);
}

#[tokio::test]
async fn an_answer_without_content_may_say_how_it_would_be_coded() {
    let (_, asking) = asked(None, Cookies::Own, &[]);
    let mut answer =
        page(&[("content-encoding", "gzip"), ("content-length", "0")], in_pieces(&Bytes::new(), 1));
    asking.apply(&connection(), &mut answer);
    assert_eq!(collected(answer).await.expect("a body"), "");
}

#[tokio::test]
async fn bombs_and_what_is_cut_off_end_with_an_error() {
    let bomb = coded(brisk_coding::Coding::Gzip, &vec![b' '; 32 << 20]);
    let cut = coded(brisk_coding::Coding::Gzip, b"<p>a page</p>");
    let cut = cut.slice(..cut.len() - 2);
    for (body, reason) in
        [(bomb, "response-bomb"), (cut, "response-coding"), (Bytes::from_static(b"x"), "response-coding")]
    {
        let (_, asking) = asked(None, Cookies::Own, &[]);
        let mut answer = page(&[("content-encoding", "gzip")], in_pieces(&body, 1000));
        asking.apply(&connection(), &mut answer);
        let mut length = 0;
        let error = loop {
            match answer.body_mut().frame().await.expect("a frame") {
                Ok(frame) => length += frame.into_data().map_or(0, |data| data.len()),
                Err(error) => break error,
            }
        };
        assert_eq!(error.reason(), reason);
        assert!(length < 6 << 20, "{length}");
    }
}

//! Pages for visitors who arrive from other sites.

use std::collections::HashSet;

use super::*;

const ARRIVAL: [(&str, &str); 3] =
    [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];

/// The response to a request with `headers` besides the cookie `session`, for a session that no other test has.
fn arrived(session: &str, headers: &[(&'static str, &str)], body: Body) -> Response<Body> {
    let cookie = format!("session={session}");
    let asked = request(&[&[ALL, ("cookie", cookie.as_str())], headers].concat());
    answered(&asked, response(&[HTML], body))
}

async fn sent(response: Response<Body>) -> Bytes {
    response.into_body().collect().await.expect("a body").to_bytes()
}

#[tokio::test]
async fn arrivals_get_padded_pages_of_different_lengths_until_the_limit_of_their_session() {
    let text = "It is a long way. ".repeat(100);
    let (mut lengths, mut padded) = (HashSet::new(), 0);
    for _ in 0..20 {
        let answer = arrived("one", &ARRIVAL, super::text());
        assert_eq!(answer.headers()["vary"], "accept-encoding");
        let is_padded = coding(&answer) == Some("gzip");
        let body = sent(answer).await;
        if is_padded {
            assert!(inflated(&body) == text.as_bytes());
            lengths.insert(body.len());
            padded += 1;
        } else {
            assert!(body == text);
        }
    }
    assert_eq!(padded, 16);
    assert!(lengths.len() > 8, "{lengths:?}");
    assert_eq!(coding(&arrived("two", &ARRIVAL, super::text())), Some("gzip"), "another session");
}

#[test]
fn other_requests_of_other_sites_get_no_compressed_page() {
    let with = |name: &'static str, value: &'static str| {
        ARRIVAL.map(|(header, usual)| (header, if header == name { value } else { usual }))
    };
    for (session, headers) in [
        ("image", with("sec-fetch-dest", "image")),
        ("frame", with("sec-fetch-dest", "iframe")),
        ("script", with("sec-fetch-mode", "no-cors")),
        ("fetch", with("sec-fetch-mode", "cors")),
    ] {
        assert_eq!(coding(&arrived(session, &headers, text())), None, "{headers:?}");
    }
    let plain =
        request(&[&[("accept-encoding", "br, zstd"), ("cookie", "session=brotli")], &ARRIVAL[..]].concat());
    assert_eq!(coding(&answered(&plain, response(&[HTML], text()))), None, "only gzip has padding");
    let mut posted = request(&[&[ALL, ("cookie", "session=post")], &ARRIVAL[..]].concat());
    posted.method = Method::POST;
    assert_eq!(coding(&answered(&posted, response(&[HTML], text()))), None);
}

#[tokio::test(start_paused = true)]
async fn the_length_of_a_slow_or_long_page_depends_on_the_length_of_its_text_only() {
    let long = |text: &str| streamed(vec![data(text.repeat((600 << 10) / text.len()).into_bytes())]);
    let slow = |text: &str| {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel::<Piece>();
        sender.send(data(text.to_owned().into_bytes())).expect("a body");
        let last = data(text.to_owned().into_bytes());
        tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            // An error means that the test is over.
            let _ = sender.send(last);
        });
        Body::boxed(StreamBody::new(futures_util::stream::poll_fn(move |cx| receiver.poll_recv(cx))))
    };
    let (alike, different) = ("secret=secret=secret=secret=", "secret=terces:SECRET/TERCES-");
    let all: [&dyn Fn(&str) -> Body; 2] = [&long, &slow];
    for (case, body) in all.into_iter().enumerate() {
        let mut lengths = Vec::new();
        for text in [alike, different] {
            let answer = arrived(&format!("stored{case}"), &ARRIVAL, body(text));
            assert_eq!(coding(&answer), Some("gzip"));
            let content = sent(answer).await;
            assert!(inflated(&content).starts_with(text.as_bytes()));
            lengths.push(content.len());
        }
        assert_eq!(lengths[0], lengths[1], "case {case}");
    }
}

#[tokio::test]
async fn a_padded_page_keeps_its_trailers_and_its_errors() {
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static("1"));
    let body = streamed(vec![data(b"a".repeat(2000)), Ok(Frame::trailers(trailers.clone()))]);
    let page = arrived("trailers", &ARRIVAL, body).into_body().collect().await.expect("a body");
    assert_eq!(page.trailers(), Some(&trailers));
    assert_eq!(inflated(&page.to_bytes()).len(), 2000);
    let body = streamed(vec![data(b"a".repeat(2000)), Err(BodyError::UpstreamReset)]);
    assert!(arrived("error", &ARRIVAL, body).into_body().collect().await.is_err());
}

#[tokio::test]
async fn trailers_lose_the_digests_of_the_text_that_was_compressed() {
    for (session, headers, expected) in [
        ("digests-padded", &ARRIVAL[..], "gzip"),
        ("digests-streamed", &[("sec-fetch-site", "same-origin")], "zstd"),
    ] {
        let sum = (HeaderName::from_static("x-sum"), HeaderValue::from_static("1"));
        let kept = http::HeaderMap::from_iter([sum]);
        let mut trailers = kept.clone();
        for name in DIGESTS {
            trailers.insert(name, HeaderValue::from_static("x"));
        }
        let body = streamed(vec![data(b"a".repeat(2000)), Ok(Frame::trailers(trailers))]);
        let answer = arrived(session, headers, body);
        assert_eq!(coding(&answer), Some(expected));
        let page = answer.into_body().collect().await.expect("a body");
        assert_eq!(page.trailers(), Some(&kept), "{expected}");
    }
}

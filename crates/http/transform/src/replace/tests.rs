use brisk_http::message::HeaderList;
use brisk_http_connection::testing::connection;
use futures_util::stream;
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::*;

fn rules(texts: &[&str], once: bool) -> Arc<TextReplacements> {
    let types = MediaTypes::Listed(["text/html".into()].into());
    Arc::new(TextReplacements::new(texts, types, once).expect("short texts"))
}

/// The output for `input` in pieces of `size` bytes.
fn replaced(pairs: &[(&str, &str)], once: bool, input: &[u8], size: usize) -> String {
    let (texts, to): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
    let to = to.iter().map(|to| Bytes::copy_from_slice(to.as_bytes())).collect();
    let mut replacing = Replacing::new(rules(&texts, once), to);
    let mut output = Vec::new();
    for mut piece in input.chunks(size) {
        while !piece.is_empty() {
            let (step, taken) = replacing.step(piece, false);
            output.extend(step);
            piece = &piece[taken..];
            assert!(replacing.held.len() < LONGEST);
        }
    }
    while !replacing.held.is_empty() {
        output.extend(replacing.step(b"", true).0);
    }
    String::from_utf8(output).expect("text")
}

#[test]
fn texts_are_replaced_in_pieces_of_any_size() {
    for (pairs, once, input, expected) in [
        (&[("abc", "x")][..], false, "abcABCab abcab", "xxab xab"),
        (&[("abc", "x")], true, "abcABC", "xABC"),
        (&[("aab", "-")], false, "aaab aaaab", "a- aa-"),
        // The first text of several at one place, the first place of several texts.
        (&[("ab", "1"), ("abcd", "2")], false, "abcd", "1cd"),
        (&[("abcd", "2"), ("ab", "1")], false, "abcd abx ab", "2 1x 1"),
        (&[("bcd", "2"), ("abx", "1")], false, "abcdabx", "a21"),
        (&[("a", "1"), ("b", "2")], true, "abab", "12ab"),
        (&[("a", "aa")], false, "aba", "aabaa"),
        (&[("x", "")], false, "axb", "ab"),
        (
            &[("http://app:8080/", "https://www.test/")],
            false,
            "<a href=HTTP://app:8080/a>",
            "<a href=https://www.test/a>",
        ),
    ] {
        for size in 1..=input.len() {
            assert_eq!(replaced(pairs, once, input.as_bytes(), size), expected, "{input} in {size}");
        }
    }
}

#[test]
fn only_the_beginning_of_a_text_is_held_back() {
    let mut replacing = Replacing::new(rules(&["abcdef"], false), Rc::new([Bytes::from("x")]));
    for (input, output) in [("hello", "hello"), (" abca", " abc"), ("bc", ""), ("DEF", "x")] {
        assert_eq!(replacing.step(input.as_bytes(), false), (output.as_bytes().to_vec(), input.len()));
    }
    assert!(replacing.held.is_empty());
}

/// The rest of the input stayed in a buffer of each response, without a reservation.
#[test]
fn a_step_has_a_bounded_output_and_leaves_the_rest_of_the_input_to_its_caller() {
    let to = "y".repeat(4 << 10);
    let (input, mut output) = ("x".repeat(1000), 0);
    let mut replacing = Replacing::new(rules(&["x"], false), Rc::new([Bytes::from(to.clone())]));
    let mut piece = input.as_bytes();
    while !piece.is_empty() {
        let (step, taken) = replacing.step(piece, false);
        assert!(taken > 0 && step.len() <= STEP + to.len() && replacing.held.is_empty());
        output += step.len();
        piece = &piece[taken..];
    }
    assert_eq!(output, 1000 * to.len());
}

/// Texts that are shorter than the beginning which was held back, each with more output than a step.
#[test]
fn a_held_back_beginning_may_need_several_steps() {
    let to = "y".repeat(STEP);
    let texts = rules(&["aaab", "a"], false);
    let mut replacing = Replacing::new(texts, Rc::new([Bytes::from("-"), Bytes::from(to.clone())]));
    assert_eq!(replacing.step(b"aaa", false), (Vec::new(), 3));
    for (held, taken) in [(2, 0), (1, 0), (0, 0), (0, 1)] {
        let (step, processed) = replacing.step(b"c", false);
        assert_eq!((replacing.held.len(), processed), (held, taken));
        assert_eq!(step.len(), if taken == 0 { to.len() } else { 1 });
    }
}

fn response(status: u16, headers: &[(HeaderName, &'static str)], body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[tokio::test]
async fn a_changed_response_loses_the_headers_of_the_original() {
    let to: Rc<[Bytes]> = Rc::new([Bytes::from("new")]);
    let headers = [
        (header::CONTENT_TYPE, "Text/HTML; charset=utf-8"),
        (header::CONTENT_LENGTH, "7"),
        (header::ETAG, "\"a\""),
        (header::ACCEPT_RANGES, "bytes"),
        (header::LAST_MODIFIED, "x"),
    ];
    let trailers = HeaderMap::from_iter([
        (DIGESTS[0].clone(), HeaderValue::from_static("x")),
        (header::EXPIRES, HeaderValue::from_static("0")),
    ]);
    let frames =
        [Frame::data(Bytes::from("an o")), Frame::data(Bytes::from("ld")), Frame::trailers(trailers)];
    let body = Body::boxed(StreamBody::new(stream::iter(frames.map(Ok))));
    let mut changed = response(200, &headers, body);
    rules(&["old"], false).apply(&to, &connection(), false, &WeakTags::default(), &mut changed);
    let names: Vec<_> = changed.headers().iter().map(|(name, _)| name.as_str().to_owned()).collect();
    assert_eq!(names, ["content-type", "etag"]);
    assert_eq!(changed.headers()[header::ETAG], "W/\"a\"");
    let whole = changed.into_body().collect().await.expect("a body");
    assert_eq!(whole.trailers().expect("trailers").len(), 1);
    assert_eq!(whole.to_bytes(), "an new");
}

#[tokio::test]
async fn other_responses_are_unchanged() {
    let (html, to) = ((header::CONTENT_TYPE, "text/html"), Rc::new([Bytes::from("new")]) as Rc<[Bytes]>);
    for (status, headers) in [
        (200, vec![(header::CONTENT_TYPE, "text/plain")]),
        (200, vec![]),
        (206, vec![html.clone()]),
        (200, vec![html.clone(), (header::CONTENT_ENCODING, "gzip")]),
        (200, vec![html.clone(), (header::CACHE_CONTROL, "no-transform")]),
    ] {
        let mut unchanged = response(status, &headers, Body::full("old"));
        rules(&["old"], false).apply(&to, &connection(), false, &WeakTags::default(), &mut unchanged);
        let body = unchanged.into_body().collect().await.expect("a body").to_bytes();
        assert_eq!(body, "old", "{status} {headers:?}");
    }
    let mut head = response(200, &[html, (header::CONTENT_LENGTH, "3")], Body::Empty);
    rules(&["old"], false).apply(&to, &connection(), true, &WeakTags::default(), &mut head);
    assert!(!head.headers().contains_key(header::CONTENT_LENGTH));
}

#[test]
fn a_304_has_the_tag_of_the_clients_copy_which_is_strong_unless_the_copy_was_changed() {
    let to: Rc<[Bytes]> = Rc::new([Bytes::from("new")]);
    for (copy, expected) in [("\"a\"", "\"a\""), ("\"b\", W/\"a\"", "W/\"a\""), ("W/\"b\"", "\"a\"")] {
        let mut headers = HeaderList::new();
        headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static(copy));
        let mut confirmed = response(304, &[(header::ETAG, "\"a\"")], Body::Empty);
        rules(&["old"], false).apply(&to, &connection(), false, &WeakTags::of(&headers), &mut confirmed);
        assert_eq!(confirmed.headers()[header::ETAG], expected, "{copy}");
    }
}

#[test]
fn texts_have_a_length() {
    for text in ["", &"x".repeat(LONGEST + 1)] {
        assert!(TextReplacements::new(&[text], MediaTypes::All, false).is_none());
    }
}

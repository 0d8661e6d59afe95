use super::*;

const REQUEST: Request<'_> = Request { authority: "example.test", path: "/a", agent: "test" };

fn response(fill: impl FnOnce(&mut Vec<u8>, &mut Encoder)) -> Vec<u8> {
    let mut out = Vec::new();
    fill(&mut out, &mut Encoder::new());
    out
}

async fn exchange(bytes: &[u8]) -> (Result<Response, HttpError>, Http2) {
    let mut http2 = Http2::new();
    http2.request(&REQUEST);
    let (mut near, mut far) = tokio::io::duplex(1 << 20);
    far.write_all(bytes).await.expect("room");
    drop(far);
    let mut answer = Response::default();
    let ended = http2.read_response(&mut near, &mut answer).await;
    (ended.map(|()| answer), http2)
}

#[tokio::test]
async fn a_response_is_read_with_its_frames() {
    let bytes = response(|out, encoder| {
        out.frame(kind::SETTINGS, 0, 0, &payload(&[(id::MAX_CONCURRENT_STREAMS, 7)]));
        let at = block::begin(out);
        encoder.status(200, out);
        encoder.field(b"server", b"x", out);
        block::end(out, at, 1, false);
        out.frame(kind::DATA, 0, 1, b"hello");
        out.frame(kind::DATA, flag::END_STREAM, 1, b"!");
    });
    let (answer, http2) = exchange(&bytes).await;
    let answer = answer.expect("an answer");
    assert_eq!((answer.status, answer.body_bytes), (200, 6));
    assert_eq!(answer.headers, [("server".to_owned(), "x".to_owned())]);
    let names: Vec<_> = http2.frames().iter().map(|frame| (frame.from, frame.kind.as_str())).collect();
    let expected = [
        (Party::Client, "SETTINGS"),
        (Party::Client, "WINDOW_UPDATE"),
        (Party::Client, "HEADERS"),
        (Party::Server, "SETTINGS"),
        (Party::Client, "SETTINGS"),
        (Party::Server, "HEADERS"),
        (Party::Server, "DATA"),
        (Party::Server, "DATA"),
    ];
    assert_eq!(names, expected);
    assert!(http2.frames()[3].detail.contains("MAX_CONCURRENT_STREAMS 7"), "{:?}", http2.frames()[3]);
}

#[tokio::test]
async fn a_body_has_the_stated_length() {
    for (status, body, is_whole) in
        [(200, "hello", true), (200, "hell", false), (200, "", false), (304, "", true)]
    {
        let bytes = response(|out, encoder| {
            let at = block::begin(out);
            encoder.status(status, out);
            encoder.field(b"content-length", b"5", out);
            block::end(out, at, 1, body.is_empty());
            if !body.is_empty() {
                out.frame(kind::DATA, flag::END_STREAM, 1, body.as_bytes());
            }
        });
        let ended = exchange(&bytes).await.0.map(drop).map_err(|error| error.to_string());
        let fault = format!("the response is not HTTP/2: its body has {} of 5 bytes", body.len());
        assert_eq!(ended, if is_whole { Ok(()) } else { Err(fault) }, "{status} {body}");
    }
}

#[tokio::test]
async fn a_response_continues_after_a_graceful_end_of_the_connection() {
    let graceful = |ends: bool| {
        response(|out, encoder| {
            let at = block::begin(out);
            encoder.status(200, out);
            block::end(out, at, 1, false);
            out.frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
            out.frame(kind::DATA, if ends { flag::END_STREAM } else { 0 }, 1, b"hello");
        })
    };
    // The body comes in a later read than the end of the connection.
    for (bytes, is_whole) in [(graceful(true), true), (graceful(false), false)] {
        let mut http2 = Http2::new();
        http2.request(&REQUEST);
        let (mut near, mut far) = tokio::io::duplex(1 << 20);
        let (first, rest) = bytes.split_at(bytes.len() - HEAD - 5);
        let (first, rest) = (first.to_vec(), rest.to_vec());
        let server = async move {
            far.write_all(&first).await.expect("room");
            // The client reads what came until now.
            tokio::task::yield_now().await;
            far.write_all(&rest).await.expect("room");
        };
        let mut answer = Response::default();
        let (ended, ()) = tokio::join!(http2.read_response(&mut near, &mut answer), server);
        assert_eq!(ended.is_ok(), is_whole, "{ended:?}");
        assert_eq!((answer.status, answer.body_bytes, answer.is_last), (200, 5, is_whole));
        if let Err(error) = ended {
            assert!(error.to_string().contains("GOAWAY with NO_ERROR"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_header_block_that_unfolds_is_cut() {
    let bytes = response(|out, _| {
        let at = block::begin(out);
        // A field of 4000 bytes into the table, and then that field 12,000 times, in a byte each.
        out.extend(b"\x88\x40\x01x\x7f\xa1\x1e");
        out.extend([b'y'; 4000]);
        out.extend([0xbe; 12_000]);
        block::end(out, at, 1, true);
    });
    let (answer, http2) = exchange(&bytes).await;
    let answer = answer.expect("an answer");
    assert!(answer.headers.len() < FIELDS, "{}", answer.headers.len());
    let last = http2.frames().last().expect("a frame");
    assert!(last.detail.contains("left out"), "{last:?}");
}

#[tokio::test]
async fn floods_resets_and_other_protocols_are_errors() {
    let flood = response(|out, _| {
        for _ in 0..3000 {
            out.frame(kind::PING, 0, 0, &[0; 8]);
        }
    });
    let reset = response(|out, _| out.rst_stream(1, Reason::REFUSED_STREAM));
    let goaway = response(|out, _| out.frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 11]));
    for (bytes, hint) in [
        (flood, "control frames"),
        (reset, "REFUSED_STREAM"),
        (goaway, "ENHANCE_YOUR_CALM"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "does not speak HTTP/2"),
        (Vec::new(), "closed the connection"),
    ] {
        let error = exchange(&bytes).await.0.expect_err(hint).to_string();
        assert!(error.contains(hint), "{error}");
    }
}

//! Tests of the messages on one connection.

use std::rc::Rc;
use std::task::Waker;

use brisk_http::error::BodyError;
use brisk_http::http1::chunked::Chunked;
use brisk_http_connection::body::client::{ClientBody, Http1Source};
use brisk_http_connection::testing;
use futures_util::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex};

use super::*;
use crate::http1::Frames;

const LIMITS: HeadLimits = HeadLimits { size: 4096, lines: 100 };

/// Takes everything at once, as TLS does, and sends it when it is flushed and there is room.
struct Buffering {
    held: Vec<u8>,
    inner: DuplexStream,
}

impl AsyncRead for Buffering {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Buffering {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.held.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { held, inner } = &mut *self;
        while !held.is_empty() {
            let sent = ready!(Pin::new(&mut *inner).poll_write(cx, held))?;
            held.drain(..sent);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[test]
fn what_the_connection_holds_back_is_flushed_until_it_has_left() {
    let (near, mut far) = duplex(10);
    let mut messages = Messages::new(Buffering { held: Vec::new(), inner: near }, LIMITS, None);
    let mut context = Context::from_waker(Waker::noop());
    let request = Request::get("/path").header("host", "a.test").body(RequestBody::Empty);
    messages.begin(&mut request.expect("a request"), None).expect("sent");
    let mut arrived = String::new();
    while !arrived.ends_with("\r\n\r\n") {
        messages.poll_send(&mut context).expect("no error");
        assert!(messages.poll_head(&mut context, &Method::GET).is_pending());
        let mut piece = [0; 10];
        let read = far.read(&mut piece).now_or_never();
        let length = read.expect("more of the request").expect("no error");
        arrived += std::str::from_utf8(&piece[..length]).expect("text");
    }
    assert_eq!(arrived, "GET /path HTTP/1.1\r\nhost: a.test\r\n\r\n");
}

/// A server that sends `piece` with every read.
struct Endless {
    piece: &'static [u8],
    reads: usize,
}

impl AsyncRead for Endless {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.reads += 1;
        buf.put_slice(self.piece);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Endless {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[test]
fn interim_responses_without_end_are_an_error_and_read_in_turns() {
    for piece in
        [b"HTTP/1.1 100 Continue\r\n\r\n".as_slice(), b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"]
    {
        let mut messages = Messages::new(Endless { piece, reads: 0 }, LIMITS, None);
        let mut context = Context::from_waker(Waker::noop());
        let mut turns = 0;
        let error = loop {
            turns += 1;
            assert!(turns < 100, "an end");
            match messages.poll_head(&mut context, &Method::GET) {
                Poll::Pending => assert_eq!(messages.io.reads, turns * READS),
                Poll::Ready(answer) => break answer.expect_err("no response"),
            }
        };
        assert!(matches!(error, ConnectionError::Malformed(MalformedResponse::Interim)), "{error}");
        assert_eq!(messages.io.reads, 101);
    }
}

#[test]
fn buffers_are_as_large_as_what_arrived() {
    let (near, mut far) = duplex(1 << 20);
    let mut messages = Messages::new(near, LIMITS, None);
    let mut context = Context::from_waker(Waker::noop());
    let request = Request::get("/").header("host", "a.test").body(RequestBody::Empty);
    messages.begin(&mut request.expect("a request"), None).expect("sent");
    messages.poll_send(&mut context).expect("no error");
    assert!(messages.poll_head(&mut context, &Method::GET).is_pending());
    assert_eq!(messages.input.capacity(), 0, "nothing arrived");
    let mut write = |bytes: &[u8]| far.write_all(bytes).now_or_never().expect("room").expect("no error");
    write(b"HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\n");
    write(&vec![b'x'; 200_000]);
    assert!(messages.poll_head(&mut context, &Method::GET).is_ready());
    // The first pause may be the end of a turn.
    let mut pauses = 0;
    while pauses < 2 {
        pauses = if messages.poll_frame(&mut context).is_ready() { 0 } else { pauses + 1 };
    }
    assert_eq!((messages.input.capacity(), messages.piece), (0, READ_MOST));
    write(&vec![b'x'; 30_000]);
    messages.response = BodyReader::Length(0);
    assert!(messages.poll_read(&mut context).is_ready());
    assert!((30_000..32_000).contains(&messages.input.capacity()), "{}", messages.input.capacity());
}

#[test]
fn a_server_may_wait_for_an_acknowledgement_only_between_head_and_body() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n";
    for (head, body, expected) in [
        (HEAD.to_owned(), "body", [true, false]),
        (format!("{HEAD}bo"), "dy", [false, false]),
        ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), "", [false, false]),
    ] {
        let (near, mut far) = duplex(64 << 10);
        let mut messages = Messages::new(near, LIMITS, None);
        let mut context = Context::from_waker(Waker::noop());
        let request = Request::get("/").header("host", "a.test").body(RequestBody::Empty);
        messages.begin(&mut request.expect("a request"), None).expect("sent");
        messages.poll_send(&mut context).expect("no error");
        let mut write = |text: &str| far.write_all(text.as_bytes()).now_or_never().expect("room");
        write(&head).expect("no error");
        assert!(messages.poll_head(&mut context, &Method::GET).is_ready());
        while let Poll::Ready(Some(_)) = messages.poll_frame(&mut context) {}
        let waits = messages.awaits_body().is_some();
        write(body).expect("no error");
        while let Poll::Ready(Some(_)) = messages.poll_frame(&mut context) {}
        assert_eq!([waits, messages.awaits_body().is_some()], expected, "{head:?}");
    }
}

/// A connection that has sent its request to a server whose response has `body` chunks without end.
fn endless(piece: &'static [u8]) -> Messages<Endless> {
    let mut messages = Messages::new(Endless { piece, reads: 0 }, LIMITS, None);
    messages.response = BodyReader::Chunked(Chunked::default());
    messages
}

/// A thousand chunks of one byte.
fn thousand_chunks() -> &'static [u8] {
    b"1\r\nx\r\n".repeat(1000).leak()
}

#[test]
fn a_turn_takes_a_limited_part_of_a_response_in_chunks_of_any_length() {
    let long: &[u8] = [b"1000\r\n".to_vec(), vec![b'x'; 0x1000], b"\r\n".to_vec()].concat().leak();
    let pieces = [&b"1\r\nx\r\n"[..], b"1;aa\r\nx\r\n", thousand_chunks(), long];
    for piece in pieces {
        let mut messages = endless(piece);
        let mut context = Context::from_waker(Waker::noop());
        for turn in 1..=3 {
            let mut frames = 0;
            while messages.poll_frame(&mut context).is_ready() {
                frames += 1;
                assert!(frames <= TurnLimit::FRAMES);
            }
            let read = messages.io.reads * piece.len();
            assert!(read <= turn * (TurnLimit::BYTES + READ_MOST + piece.len()), "{read} in {turn} turns");
        }
    }
}

#[test]
fn a_response_in_short_chunks_is_gathered_in_turns_and_given_up_after_some_pieces() {
    for (piece, is_large) in [(&b"1\r\nx\r\n"[..], false), (thousand_chunks(), true)] {
        let mut messages = endless(piece);
        let (mut context, mut frames) = (Context::from_waker(Waker::noop()), Frames::default());
        let mut turns = 0;
        let gathered = loop {
            turns += 1;
            let reads = messages.io.reads;
            match messages.poll_gather(&mut context, &mut frames, 64 << 10) {
                Poll::Ready(gathered) => break gathered.expect("no error"),
                Poll::Pending => assert!(messages.io.reads - reads <= TurnLimit::FRAMES),
            }
            assert!(turns < 100, "an end");
        };
        assert!(!gathered && turns > 1);
        assert_eq!(frames.length() > 64 << 10, is_large);
        assert_eq!(frames.pieces() > 512, !is_large);
    }
}

/// The body of a client that always has another piece.
#[derive(Debug)]
struct EndlessUpload(&'static [u8]);

impl Http1Source for EndlessUpload {
    fn poll_frame(&self, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(self.0)))))
    }

    fn left(&self) -> Option<u64> {
        None
    }

    fn let_go(&self) {}
}

fn endless_upload(piece: &'static [u8]) -> RequestBody {
    let body = ClientBody::Http1(Rc::new(EndlessUpload(piece)));
    RequestBody::new(body, &testing::connection(), u64::MAX, Rc::default())
}

#[test]
fn a_turn_sends_a_limited_part_of_an_upload_in_pieces_of_any_length() {
    let piece = thousand_chunks();
    for (body, bytes) in [(endless_upload(b"x"), 1), (endless_upload(piece), piece.len())] {
        let mut messages = Messages::new(Endless { piece: b"", reads: 0 }, LIMITS, None);
        let mut context = Context::from_waker(Waker::noop());
        let request = Request::post("/").header("host", "a.test").body(body);
        messages.begin(&mut request.expect("a request"), None).expect("sent");
        for turn in 1..=3 {
            messages.poll_send(&mut context).expect("no error");
            let taken = messages.upload.as_ref().and_then(|upload| upload.body.progress()).expect("progress");
            let most = TurnLimit::BYTES.min(TurnLimit::FRAMES * bytes) + bytes;
            assert!(taken.bytes() <= (turn * most) as u64, "{} in {turn} turns", taken.bytes());
        }
    }
}

#[test]
fn each_request_may_have_interim_responses_of_its_own() {
    let (near, mut far) = duplex(64 << 10);
    let mut messages = Messages::new(near, LIMITS, None);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..3 {
        let request = Request::get("/").header("host", "a.test").body(RequestBody::Empty);
        messages.begin(&mut request.expect("a request"), None).expect("sent");
        messages.poll_send(&mut context).expect("no error");
        let answer = "HTTP/1.1 102 Processing\r\n\r\n".repeat(100) + "HTTP/1.1 204 No Content\r\n\r\n";
        far.write_all(answer.as_bytes()).now_or_never().expect("room").expect("no error");
        let Poll::Ready(Ok(head)) = messages.poll_head(&mut context, &Method::GET) else {
            panic!("no response")
        };
        assert_eq!(head.status(), StatusCode::NO_CONTENT);
        assert!(messages.are_done());
    }
}

//! The messages on one HTTP/1.1 connection: requests and responses, one at a time, or several requests before their
//! responses.

mod together;

use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use brisk_http::error::ConnectionError;
use brisk_http::http1::body::BodyReader;
use brisk_http::http1::chunked::Part;
use brisk_http::http1::request::{BodyWriter, Output};
use brisk_http::http1::response::ResponseHead;
use brisk_http::http1::{HeadLimits, MalformedResponse};
use brisk_http_connection::body::request::RequestBody;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::{Body as _, Frame};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use crate::interim::InterimCount;

/// Size of a read in bytes: the first value initially, doubled after a full read up to the second. A client that reads
/// nothing makes each of its upstream connections hold the second, in addition to its budget for responses.
const READ_FIRST: usize = 8 << 10;
const READ_MOST: usize = 64 << 10;

/// Maximum number of reads for a head per turn, before other tasks run.
const READS: usize = 4;

/// A connection with its current request and response.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and they occur in any combination"
)]
pub(super) struct Messages<T> {
    io: T,
    /// Read, but not yet consumed.
    input: BytesMut,
    /// Whether bytes in `input` may be the head of the next response of a pipeline.
    may_have_head: bool,
    /// The head of that response, if it was taken from `input` before its request waited for it.
    taken_head: Option<Box<Response<()>>>,
    /// Size of the next read.
    piece: usize,
    /// Serialized, but not yet sent.
    output: Output,
    /// Whether written bytes may need a flush, because TLS buffers records.
    unflushed: bool,
    /// The request body, until it is written completely.
    upload: Option<Upload>,
    /// The body whose last piece is in `output`: the memory of the piece counts as held until the body is dropped.
    uploaded: Option<RequestBody>,
    /// Error that ended sending. A response that the server sent before can still be read.
    unsent: Option<io::Error>,
    response: BodyReader,
    /// Whether the head of the response has arrived without a byte of its body, and nothing since.
    has_head_only: bool,
    /// Whether the server keeps the connection open for another request.
    persists: bool,
    /// Limits for a response's head.
    limits: HeadLimits,
    /// Head of the last 103 before the response.
    hints: Option<HeaderMap>,
    /// Interim responses before the response.
    interim: InterimCount,
}

/// A request body being sent.
#[derive(Debug)]
struct Upload {
    body: RequestBody,
    writer: BodyWriter,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Messages<T> {
    /// A connection before its first request.
    pub(super) fn new(io: T, limits: HeadLimits) -> Self {
        Self {
            io,
            input: BytesMut::new(),
            may_have_head: false,
            taken_head: None,
            piece: READ_FIRST,
            output: Output::default(),
            unflushed: false,
            upload: None,
            uploaded: None,
            unsent: None,
            response: BodyReader::Length(0),
            has_head_only: false,
            persists: true,
            limits,
            hints: None,
            interim: InterimCount::default(),
        }
    }

    /// Whether another request can be sent: the last request is sent completely and its response is read.
    pub(super) fn are_done(&self) -> bool {
        self.persists
            && self.response.is_ended()
            && self.input.is_empty()
            && self.is_sent()
            && self.unsent.is_none()
    }

    /// Whether the request is sent completely.
    fn is_sent(&self) -> bool {
        self.upload.is_none() && self.output.is_empty() && !self.unflushed
    }

    /// Ready if the server closed the idle connection or sent bytes without a request. These bytes are lost.
    pub(super) fn poll_unasked(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut byte = [0];
        let polled = Pin::new(&mut self.io).poll_read(context, &mut ReadBuf::new(&mut byte));
        polled.map(|_| self.persists = false)
    }

    /// Releases memory that an idle connection does not need.
    pub(super) fn rest(&mut self) {
        self.input = BytesMut::new();
        self.output = Output::default();
        self.piece = READ_FIRST;
    }

    /// Begins to send a request and takes its body.
    pub(super) fn begin(&mut self, request: &mut Request<RequestBody>) {
        self.interim = InterimCount::default();
        self.output.head(request);
        let body = mem::replace(request.body_mut(), RequestBody::Empty);
        if !body.is_end_stream() {
            self.upload = Some(Upload { body, writer: BodyWriter::after(request.headers()) });
        }
    }

    /// Sends pending parts of the request.
    ///
    /// # Errors
    ///
    /// Only if the request body fails. If the server does not accept the request, its response must still be read.
    pub(super) fn poll_send(&mut self, context: &mut Context<'_>) -> Result<(), ConnectionError> {
        if self.is_sent() {
            return Ok(());
        }
        let mut waits = self.upload.is_none();
        loop {
            while !waits && self.output.has_room() {
                match self.poll_upload(context) {
                    Poll::Ready(result) => {
                        result?;
                        waits = self.upload.is_none();
                    }
                    Poll::Pending => waits = true,
                }
            }
            match self.poll_flush(context) {
                Poll::Ready(Ok(())) if !waits => {}
                Poll::Ready(Ok(())) | Poll::Pending => return Ok(()),
                Poll::Ready(Err(error)) => {
                    self.unsent = Some(error);
                    self.upload = None;
                    self.uploaded = None;
                    self.output = Output::default();
                    self.unflushed = false;
                    return Ok(());
                }
            }
        }
    }

    /// Ready once the request is sent completely.
    pub(super) fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        self.poll_send(context)?;
        match self.unsent.take() {
            Some(error) => Poll::Ready(Err(ConnectionError::Io(error))),
            None if self.is_sent() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    }

    /// Waits for the head of the response to a request with `method`. Skips interim responses except 101.
    ///
    /// # Errors
    ///
    /// `Interim` beyond the limit of interim responses, the other errors if the connection or the head fails.
    pub(super) fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        method: &Method,
    ) -> Poll<Result<Response<()>, ConnectionError>> {
        if let Some(head) = self.taken_head.take() {
            return Poll::Ready(Ok(*head));
        }
        if mem::take(&mut self.may_have_head)
            && let Some(head) = self.take_head(method)?
        {
            return Poll::Ready(Ok(self.begin_response(head)));
        }
        for _ in 0..READS {
            let before = self.input.len();
            match ready!(self.poll_read(context)) {
                Ok(0) => {
                    let error = self.unsent.take().map_or(ConnectionError::Ended, ConnectionError::Io);
                    return Poll::Ready(Err(error));
                }
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(ConnectionError::Io(error))),
            }
            // A head that arrives byte by byte is parsed once per line only, not once per byte.
            let may_be_complete =
                before == 0 || self.input.len() >= self.limits.size || self.input[before..].contains(&b'\n');
            if may_be_complete && let Some(head) = self.take_head(method)? {
                return Poll::Ready(Ok(self.begin_response(head)));
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn begin_response(&mut self, head: ResponseHead) -> Response<()> {
        self.response = head.body;
        self.has_head_only = self.input.is_empty() && !self.response.is_ended();
        self.persists = head.persists;
        self.hints = None;
        let mut response = Response::new(());
        *response.status_mut() = head.status;
        *response.headers_mut() = head.headers;
        response
    }

    /// Takes a complete head from the input. Skips interim responses before it, within their limit.
    fn take_head(&mut self, method: &Method) -> Result<Option<ResponseHead>, MalformedResponse> {
        while !self.input.is_empty() {
            let before = self.input.len();
            let Some(head) = ResponseHead::take(&mut self.input, method, self.limits)? else { break };
            if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
                return Ok(Some(head));
            }
            if self.interim.exceeds(before - self.input.len()) {
                return Err(MalformedResponse::Interim);
            }
            if head.status == StatusCode::EARLY_HINTS {
                self.hints = Some(head.headers);
            }
        }
        Ok(None)
    }

    /// Takes the headers of the last 103 (RFC 8297).
    pub(super) fn take_hints(&mut self) -> Option<HeaderMap> {
        self.hints.take()
    }

    /// The next frame of the response's body. Continues sending the request meanwhile.
    pub(super) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
        let polled = self.poll_part(context);
        if let Poll::Ready(Err(_)) = polled {
            self.persists = false;
            self.response = BodyReader::Length(0);
        }
        polled.map(|part| match part {
            Ok(Part::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(Part::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Ok(Part::End) => None,
            Err(error) => Some(Err(error)),
        })
    }

    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Result<Part, ConnectionError>> {
        self.poll_send(context)?;
        loop {
            if let Some(part) = self.response.decode(&mut self.input)? {
                return Poll::Ready(Ok(part));
            }
            match ready!(self.poll_read(context)) {
                Ok(0) if self.response.close() => return Poll::Ready(Ok(Part::End)),
                Ok(0) => return Poll::Ready(Err(ConnectionError::Ended)),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(ConnectionError::Io(error))),
            }
        }
    }

    /// The transport, if the server may wait for an acknowledgement: the head has arrived, but nothing of its body. Once for
    /// each response.
    pub(super) fn awaits_body(&mut self) -> Option<&T> {
        mem::take(&mut self.has_head_only).then_some(&self.io)
    }

    /// Number of received bytes that wait for the reader of the response.
    pub(super) fn unread(&self) -> usize {
        self.input.len()
    }

    /// Remaining length of the response's body in bytes, if known.
    pub(super) fn left(&self) -> Option<u64> {
        self.response.left()
    }

    /// Takes the response's body, if it has arrived completely.
    pub(super) fn take_whole(&mut self) -> Option<Bytes> {
        match self.response {
            BodyReader::Length(left) if left <= self.input.len() as u64 => {
                self.response = BodyReader::Length(0);
                Some(self.input.split_to(left as usize).freeze())
            }
            _ => None,
        }
    }

    /// The transport, and the bytes of the new protocol that were read already.
    pub(super) fn into_parts(self) -> (T, Bytes) {
        (self.io, self.input.freeze())
    }

    /// Moves a piece of the request body into the output.
    fn poll_upload(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        let Some(upload) = &mut self.upload else { return Poll::Ready(Ok(())) };
        let frame = ready!(Pin::new(&mut upload.body).poll_frame(context)).transpose()?;
        let mut trailers = None;
        match frame.map(Frame::into_data) {
            Some(Ok(data)) => {
                upload.writer.data(data, &mut self.output)?;
                if !upload.body.is_end_stream() {
                    return Poll::Ready(Ok(()));
                }
            }
            Some(Err(frame)) => trailers = frame.into_trailers().ok(),
            None => {}
        }
        upload.writer.end(trailers.as_ref(), &mut self.output)?;
        self.uploaded = self.upload.take().map(|upload| upload.body);
        Poll::Ready(Ok(()))
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() {
            let written = match self.output.only() {
                Some(bytes) => Pin::new(&mut self.io).poll_write(context, bytes),
                None => Pin::new(&mut self.io).poll_write_vectored(context, &self.output.slices()),
            };
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                length => {
                    self.output.advance(length);
                    self.unflushed = true;
                }
            }
        }
        self.uploaded = None;
        ready!(Pin::new(&mut self.io).poll_flush(context))?;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.input.reserve(self.piece);
        let Poll::Ready(length) = poll_read_buf(Pin::new(&mut self.io), context, &mut self.input)? else {
            // Without a buffer while the server sends nothing.
            if self.input.is_empty() {
                self.input = BytesMut::new();
            }
            return Poll::Pending;
        };
        self.has_head_only = false;
        // The buffer is held with its whole capacity for as long as the client needs to read, so it starts small, and a large one
        // is exchanged for one of the length of its contents.
        if self.piece > READ_FIRST && self.input.len() < self.piece / 2 {
            self.input = BytesMut::from(&self.input[..]);
        }
        if length >= self.piece {
            self.piece = (2 * self.piece).min(READ_MOST);
        } else if length < self.piece / 4 {
            self.piece = (self.piece / 2).max(READ_FIRST);
        }
        Poll::Ready(Ok(length))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

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
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
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
        let mut messages = Messages::new(Buffering { held: Vec::new(), inner: near }, LIMITS);
        let mut context = Context::from_waker(Waker::noop());
        let request = Request::get("/path").header("host", "a.test").body(RequestBody::Empty);
        messages.begin(&mut request.expect("a request"));
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
            let mut messages = Messages::new(Endless { piece, reads: 0 }, LIMITS);
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
        let mut messages = Messages::new(near, LIMITS);
        let mut context = Context::from_waker(Waker::noop());
        let request = Request::get("/").header("host", "a.test").body(RequestBody::Empty);
        messages.begin(&mut request.expect("a request"));
        messages.poll_send(&mut context).expect("no error");
        assert!(messages.poll_head(&mut context, &Method::GET).is_pending());
        assert_eq!(messages.input.capacity(), 0, "nothing arrived");
        let mut write = |bytes: &[u8]| far.write_all(bytes).now_or_never().expect("room").expect("no error");
        write(b"HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\n");
        write(&vec![b'x'; 200_000]);
        assert!(messages.poll_head(&mut context, &Method::GET).is_ready());
        while messages.poll_frame(&mut context).is_ready() {}
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
            let mut messages = Messages::new(near, LIMITS);
            let mut context = Context::from_waker(Waker::noop());
            let request = Request::get("/").header("host", "a.test").body(RequestBody::Empty);
            messages.begin(&mut request.expect("a request"));
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

    #[test]
    fn each_request_may_have_interim_responses_of_its_own() {
        let (near, mut far) = duplex(64 << 10);
        let mut messages = Messages::new(near, LIMITS);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            let request = Request::get("/").header("host", "a.test").body(RequestBody::Empty);
            messages.begin(&mut request.expect("a request"));
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
}

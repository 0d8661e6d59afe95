//! The messages on one HTTP/1.1 connection: requests and responses, one at a time, or several requests before their
//! responses.

mod application;
mod read_buffer;
mod sending;
#[cfg(test)]
mod tests;
mod together;

use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use brisk_http::cgi::Variables;
use brisk_http::error::ConnectionError;
use brisk_http::http1::body::BodyReader;
use brisk_http::http1::chunked::Part;
use brisk_http::http1::request::{BodyWriter, Output};
use brisk_http::http1::response::ResponseHead;
use brisk_http::http1::{HeadLimits, MalformedResponse};
use brisk_http::message::{Request, Response};
use brisk_http_connection::body::request::RequestBody;
use brisk_net::TurnLimit;
use brisk_upstream_group::UpstreamIo;
use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use http_body::{Body as _, Frame};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::poll_read_buf;

use self::application::Application;
pub(crate) use self::application::ApplicationServer;
use crate::error::UpstreamError;
use crate::interim::{Interims, Waiting};

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
    /// The head of the next response, if it was taken from `input` before its request waited for it.
    taken_head: Option<Box<Response<()>>>,
    /// Size of the next read.
    piece: usize,
    /// Serialized, but not yet sent.
    output: Output,
    /// Whether written bytes may need `poll_flush`, because TLS buffers records.
    unflushed: bool,
    /// The request body, until it is written completely.
    upload: Option<Upload>,
    /// The body whose last piece is in `output`: the memory of the piece counts as held until the body is dropped.
    uploaded: Option<RequestBody>,
    /// Error that ended sending. A response that the server sent before can still be read, such as `413`.
    unsent: Option<io::Error>,
    response: BodyReader,
    /// Whether the head of the response has arrived without a byte of its body, and nothing since.
    has_head_only: bool,
    /// Whether the server keeps the connection open for another request.
    persists: bool,
    /// Limits for a response's head.
    limits: HeadLimits,
    /// [`Interims`] before the response.
    interims: Interims,
    /// Bytes of the client and of the server in this turn.
    turn: TurnLimit,
    /// The protocol, if it is not HTTP/1.1.
    application: Option<Box<Application>>,
}

/// A request body being sent.
#[derive(Debug)]
struct Upload {
    body: RequestBody,
    writer: BodyWriter,
}

impl Messages<UpstreamIo> {
    /// See [`UpstreamIo::has_unasked`]: [`Self::are_done`] is `false` after `true`.
    pub(super) fn has_unasked(&mut self) -> bool {
        let has_unasked = self.io.has_unasked();
        self.persists &= !has_unasked;
        has_unasked
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Messages<T> {
    /// A connection over `io` before its first request, over HTTP/1.1 or to an application server.
    pub(super) fn new(io: T, limits: HeadLimits, application: Option<ApplicationServer>) -> Self {
        Self {
            application: application.map(|server| Box::new(Application::new(server))),
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
            interims: Interims::default(),
            turn: TurnLimit::default(),
        }
    }

    /// Whether another request can be sent: the last request is sent completely and its response is read.
    pub(super) fn are_done(&self) -> bool {
        // All of these conditions, because a byte that is left over would be taken for the beginning of the
        // next response.
        self.persists
            && self.response.is_ended()
            && self.input.is_empty()
            && self.is_sent()
            && self.unsent.is_none()
            && self.application.as_ref().is_none_or(|application| application.is_done())
    }

    /// Whether the request is sent completely.
    fn is_sent(&self) -> bool {
        self.upload.is_none() && self.output.is_empty() && !self.unflushed
    }

    /// Releases the buffers, which an idle connection does not need.
    pub(super) fn rest(&mut self) {
        self.input = BytesMut::new();
        self.output = Output::default();
        self.piece = READ_FIRST;
    }

    /// Begins to send `request`, whose body becomes [`RequestBody::Empty`]. An application server gets `variables` too.
    ///
    /// # Errors
    ///
    /// [`UpstreamError`] if an application server cannot get the request; nothing is sent.
    pub(super) fn begin(
        &mut self,
        request: &mut Request<RequestBody>,
        variables: Option<&Variables>,
    ) -> Result<(), UpstreamError> {
        self.interims = Interims::default();
        // Before the body is taken, so that a refused request keeps it.
        let own = if let Some(application) = &mut self.application {
            Some(application.begin(request, variables, &mut self.output)?)
        } else {
            self.output.head(request);
            None
        };
        let body = mem::replace(request.body_mut(), RequestBody::Empty);
        if !body.is_end_stream() {
            let writer = own.unwrap_or_else(|| BodyWriter::after(request.headers()));
            self.upload = Some(Upload { body, writer });
        }
        Ok(())
    }

    /// Waits for the head of the response to a request with `method`. Interim responses except `101` are kept for
    /// [`Self::take_interims`].
    ///
    /// # Errors
    ///
    /// [`MalformedResponse::Interim`] beyond the limit of interim responses, the other errors if the connection or the head
    /// fails.
    pub(super) fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        method: &Method,
    ) -> Poll<Result<Response<()>, ConnectionError>> {
        if let Some(head) = self.taken_head.take() {
            return Poll::Ready(Ok(*head));
        }
        // Once only: without further bytes, an incomplete head stays incomplete.
        if mem::take(&mut self.may_have_head)
            && let Some(head) = self.take_head(method)?
        {
            return Poll::Ready(Ok(self.begin_response(head)));
        }
        for _ in 0..READS {
            let before = self.input.len();
            match ready!(self.poll_read(context)) {
                Ok(0) => return Poll::Ready(Err(self.headless())),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(error)),
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

    /// The error of a server that ended without a head.
    fn headless(&mut self) -> ConnectionError {
        match &self.application {
            Some(application) if application.has_ended() => MalformedResponse::NoHead.into(),
            _ => self.unsent.take().map_or(ConnectionError::Ended, ConnectionError::Io),
        }
    }

    fn begin_response(&mut self, head: ResponseHead) -> Response<()> {
        self.response = head.body;
        self.has_head_only = self.input.is_empty() && !self.response.is_ended();
        self.persists = head.persists;
        if let Some(application) = &self.application {
            self.persists = application.keeps();
            // Applications send content in response to HEAD too.
            if self.response.is_ended() && application.has_ended() {
                self.input.clear();
            }
        }
        let mut response = Response::new(());
        *response.status_mut() = head.status;
        *response.headers_mut() = head.headers;
        response
    }

    /// Takes a complete head from `input`; `None` if it is incomplete. Keeps interim responses before the head, within the
    /// limit of [`Interims`].
    fn take_head(&mut self, method: &Method) -> Result<Option<ResponseHead>, MalformedResponse> {
        while !self.input.is_empty() {
            let before = self.input.len();
            if self.application.is_some() {
                return ResponseHead::take_cgi(&mut self.input, method, self.limits);
            }
            let Some(head) = ResponseHead::take(&mut self.input, method, self.limits)? else { break };
            // RFC 9110 section 15.2.2: after a `101`, nothing of HTTP follows on the connection.
            if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
                return Ok(Some(head));
            }
            if !self.interims.add(head.status, head.headers, before - self.input.len()) {
                return Err(MalformedResponse::Interim);
            }
        }
        Ok(None)
    }

    /// Takes the interim responses that have arrived.
    pub(super) fn take_interims(&mut self) -> Waiting {
        self.interims.take()
    }

    /// The next frame of the response's body. Continues sending the request meanwhile.
    pub(super) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
        let polled = self.poll_part(context);
        if let Poll::Ready(Err(_)) = polled {
            // The end of the broken response is unknown, so the connection must not carry another one.
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
        ready!(self.turn.poll_more(context));
        self.send(context)?;
        // The request may have used up the turn.
        ready!(self.turn.poll_more(context));
        loop {
            let before = self.input.len();
            if let Some(part) = self.response.decode(&mut self.input)? {
                self.turn.take(before - self.input.len());
                return Poll::Ready(Ok(part));
            }
            match ready!(self.poll_read(context)) {
                Ok(0) if self.response.close() => return Poll::Ready(Ok(Part::End)),
                Ok(0) => return Poll::Ready(Err(ConnectionError::Ended)),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// The transport, if the server may wait for a TCP acknowledgement: the head has arrived, but nothing of its body. `Some`
    /// at most once for each response.
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
            BodyReader::UntilClose if self.application.as_ref().is_some_and(|own| own.has_ended()) => {
                self.response = BodyReader::Length(0);
                Some(self.input.split().freeze())
            }
            _ => None,
        }
    }

    /// The transport, and the bytes of the new protocol that were read already.
    pub(super) fn into_parts(self) -> (T, Bytes) {
        (self.io, self.input.freeze())
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<usize, ConnectionError>> {
        if let Some(application) = self.application.as_mut().filter(|application| application.has_records()) {
            return application.poll_read(&mut self.io, &mut self.input, context);
        }
        // Of the worker: each request polls once before its response has arrived.
        let is_shared = self.input.is_empty() && self.piece == READ_FIRST;
        if is_shared {
            self.input = read_buffer::take();
        }
        self.input.reserve(self.piece);
        let polled = poll_read_buf(Pin::new(&mut self.io), context, &mut self.input);
        let Poll::Ready(length) = polled.map_err(ConnectionError::Io)? else {
            // Without a buffer while the server sends nothing.
            if is_shared {
                read_buffer::give_back(mem::take(&mut self.input));
            } else if self.input.is_empty() {
                self.input = BytesMut::new();
            }
            return Poll::Pending;
        };
        self.has_head_only = false;
        // The buffer is held with its whole capacity for as long as the client needs to read, so it starts small, and is exchanged
        // for memory of the length of its contents.
        let is_short = self.input.len() < self.piece / 2;
        if is_short && is_shared {
            let contents = read_buffer::copy(&self.input);
            read_buffer::give_back(mem::replace(&mut self.input, contents));
        } else if is_short && self.piece > READ_FIRST {
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

//! Input of an HTTP/1.1 connection: heads, parsed in the buffer of the TLS stream, and request bodies, read on demand.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::ops::Deref;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use brisk_http::error::BodyError;
use brisk_http::http1::HeadLimits;
use brisk_http::http1::body::BodyReader;
use brisk_http::http1::chunked::Part;
use brisk_http::http1::request_head::{MalformedRequest, RequestHead, has_bare_line_feed};
use brisk_http::message::Request;
use brisk_http_connection::Connection;
use brisk_http_connection::body::client::{ClientBody, Http1Source};
use brisk_net::TurnLimit;
use bytes::{Buf as _, Bytes, BytesMut};
use http_body::Frame;

use super::interims::Interims;
use crate::io::HttpIo;

/// Input side of one connection.
///
/// A request body may be read by another task than the connection's own, and may outlive it: an upstream connection over
/// HTTP/2 reads it in its own task. Therefore the stream is detached when the connection drops its [`Attached`], and each
/// task wakes the other for work that only the other does.
#[derive(Debug)]
pub(super) struct Inbound {
    io: RefCell<Option<HttpIo>>,
    state: RefCell<State>,
}

/// Input as its driver holds it. Dropping it detaches the stream, and an incomplete body fails.
#[derive(Debug)]
pub(super) struct Attached(Rc<Inbound>);

#[derive(Debug)]
struct State {
    /// Bytes read but not yet consumed.
    input: BytesMut,
    /// Number of bytes of `input` known to contain no complete head.
    seen: usize,
    /// Memory of the former head, for the next one.
    heads: BytesMut,
    /// Remaining body of the current request.
    body: BodyReader,
    interims: Interims,
    /// Whether the service has let go of the rest of the body.
    is_let_go: bool,
    /// Whether the rest of the body will not be read.
    is_broken: bool,
    /// Task of the connection.
    driver: Waker,
    /// Task that waits for the body.
    reader: Waker,
    /// Whether the reader waits for input that only the driver reads, during the handshake.
    awaits_driver: bool,
    /// Input that was read in this turn.
    turn: TurnLimit,
}

/// Reason why no further head comes.
#[derive(Debug)]
pub(super) enum NoHead {
    /// The client closed between two requests, or the connection accepts no further request.
    End,
    /// The client closed, or the connection failed, within a head.
    Broken,
    /// The bytes are no head.
    Malformed(MalformedRequest),
}

impl Inbound {
    /// Creates the input before the first request.
    pub(super) fn attach(io: HttpIo) -> Attached {
        let state = State {
            input: BytesMut::new(),
            seen: 0,
            heads: BytesMut::new(),
            body: BodyReader::Length(0),
            interims: Interims::default(),
            is_let_go: false,
            is_broken: false,
            driver: Waker::noop().clone(),
            reader: Waker::noop().clone(),
            awaits_driver: false,
            turn: TurnLimit::default(),
        };
        Attached(Rc::new(Self { io: RefCell::new(Some(io)), state: RefCell::new(state) }))
    }

    /// Begins a turn of the driver: wakes the reader of a body if the driver has received input for this reader.
    pub(super) fn begin_turn(&self, context: &Context<'_>) {
        let mut state = self.state.borrow_mut();
        state.driver.clone_from(context.waker());
        if state.awaits_driver && !self.awaits_driver() {
            state.awaits_driver = false;
            wake(&state.reader, &state.driver);
        }
    }

    /// Ends a turn of the driver: writes interim responses, also those that the upstream has sent in this turn.
    pub(super) fn write_interims(&self, connection: &Connection, context: &mut Context<'_>) {
        self.take_interims(connection);
        let write =
            |bytes: &[u8]| self.with_io(|io| io.stream_mut().poll_write(context, &[IoSlice::new(bytes)]));
        self.state.borrow_mut().interims.write(write);
    }

    fn take_interims(&self, connection: &Connection) {
        for interim in connection.extras.take_interims() {
            self.state.borrow_mut().interims.forward(&interim);
        }
    }

    /// Whether only the driver may read, and no plaintext is available.
    fn awaits_driver(&self) -> bool {
        self.with_io(HttpIo::awaits_driver).unwrap_or(false)
    }

    fn has_plaintext(&self) -> bool {
        self.with_io(|io| io.stream().has_plaintext()).unwrap_or(false)
    }

    fn with_io<T>(&self, act: impl FnOnce(&HttpIo) -> T) -> Option<T> {
        self.io.borrow().as_ref().map(act)
    }

    /// Reads like [`HttpIo::poll_take`], or fails after the stream is detached.
    fn poll_take(
        &self,
        context: &mut Context<'_>,
        take: impl FnMut(&[u8]) -> usize,
    ) -> Poll<io::Result<bool>> {
        let read = self.with_io(|io| io.poll_take(context, take));
        read.unwrap_or_else(|| Poll::Ready(Err(io::ErrorKind::NotConnected.into())))
    }

    /// Reads the next head, within `limits`. With `last` it waits only for a head that has already begun.
    pub(super) fn poll_head(
        &self,
        context: &mut Context<'_>,
        limits: HeadLimits,
        last: bool,
    ) -> Poll<Result<RequestHead, NoHead>> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        loop {
            let taken = take_head(&mut state.input, &mut state.seen, limits, &mut state.heads);
            if let Some(head) = taken.map_err(NoHead::Malformed)? {
                return Poll::Ready(Ok(head));
            }
            if last && state.input.is_empty() && !self.has_plaintext() {
                return Poll::Ready(Err(NoHead::End));
            }
            // Empty lines before a head have no limit otherwise.
            ready!(state.turn.poll_more(context));
            let (mut found, mut none) = (None, None);
            let read = self.poll_take(context, |data| {
                if found.is_some() || none.is_some() {
                    return 0;
                }
                state.turn.take(data.len());
                if state.input.is_empty() {
                    match RequestHead::parse(data, limits, &mut state.heads) {
                        Ok(Some((head, length))) => {
                            found = Some(head);
                            return length;
                        }
                        Ok(None) => state.seen = data.len(),
                        Err(error) => none = Some(error),
                    }
                }
                state.input.extend_from_slice(data);
                data.len()
            });
            match (found, none) {
                (Some(head), _) => return Poll::Ready(Ok(head)),
                (None, Some(error)) => return Poll::Ready(Err(NoHead::Malformed(error))),
                (None, None) => {}
            }
            if !matches!(ready!(read), Ok(true)) {
                let ended = if has_begun(&state.input) { NoHead::Broken } else { NoHead::End };
                return Poll::Ready(Err(ended));
            }
        }
    }

    /// Passes the bytes that are read but not yet consumed to `act`: of a malformed request, at least its first line.
    pub(super) fn with_input(&self, act: impl FnOnce(&[u8])) {
        act(&self.state.borrow().input);
    }

    /// Starts the request whose head was just read; its body reads from this input.
    pub(super) fn begin(self: &Rc<Self>, head: RequestHead) -> Request<ClientBody> {
        let mut state = self.state.borrow_mut();
        let RequestHead { request, body, expects_continue, .. } = head;
        let body_is_ended = body.is_ended();
        state.body = body;
        state.interims.begin(expects_continue);
        state.reader.clone_from(Waker::noop());
        state.is_let_go = body_is_ended;
        request.map(|()| {
            if body_is_ended {
                ClientBody::Empty
            } else {
                ClientBody::Http1(Rc::clone(self) as Rc<dyn Http1Source>)
            }
        })
    }

    /// Writes to `output` the interim responses that have to precede the response, which begins.
    pub(super) fn answer_begins(&self, connection: &Connection, output: &mut Vec<u8>) {
        self.take_interims(connection);
        self.state.borrow_mut().interims.end(output);
    }

    /// Whether another request may follow, because the body is read to its end. `None` while the exchange still reads the
    /// body. The available part of a body that was let go is dropped first.
    pub(super) fn is_read(&self, context: &mut Context<'_>) -> Option<bool> {
        let mut state = self.state.borrow_mut();
        if state.body.is_ended() {
            return Some(!state.is_broken);
        }
        if !state.is_let_go {
            return None;
        }
        let state = &mut *state;
        // Does not wait for a rest that is not available yet; the connection closes instead.
        let is_ended = !state.is_broken
            && (drop_body(&mut state.body, &mut state.input) || self.read_once(state, context));
        state.is_broken = !is_ended;
        Some(is_ended)
    }

    /// Reads once and drops the bytes that belong to the body. Returns whether the body has ended.
    fn read_once(&self, state: &mut State, context: &mut Context<'_>) -> bool {
        matches!(self.poll_more(state, context), Poll::Ready(Ok(true)))
            && drop_body(&mut state.body, &mut state.input)
    }

    /// Takes the bytes that were read ahead and belong to no request.
    pub(super) fn take_input(&self) -> Bytes {
        self.state.borrow_mut().input.split().freeze()
    }

    fn poll_part(&self, context: &mut Context<'_>) -> Poll<Result<Part, BodyError>> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if state.interims.request_body() {
            wake(&state.driver, context.waker());
        }
        ready!(state.turn.poll_more(context));
        loop {
            let before = state.input.len();
            if let Some(part) = state.body.decode(&mut state.input).map_err(BodyError::ClientMalformed)? {
                state.turn.take(before - state.input.len());
                return Poll::Ready(Ok(part));
            }
            match ready!(self.poll_more(state, context)) {
                Ok(true) => {}
                Ok(false) => {
                    return Poll::Ready(Err(BodyError::ClientGone(io::ErrorKind::UnexpectedEof.into())));
                }
                Err(error) => return Poll::Ready(Err(BodyError::ClientGone(error))),
            }
        }
    }

    /// Reads more of the body, and nothing beyond it if its length is known. `Ok(false)` at the end of the stream.
    fn poll_more(&self, state: &mut State, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut left =
            state.body.left().map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
        let input = &mut state.input;
        self.poll_take(context, |data| {
            let length = left.min(data.len());
            left -= length;
            input.extend_from_slice(&data[..length]);
            length
        })
    }
}

impl Http1Source for Inbound {
    fn poll_frame(&self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        // An error instead of an end: a forwarded body would otherwise look complete.
        if self.state.borrow().is_broken {
            return Poll::Ready(Some(Err(BodyError::ClientGone(io::ErrorKind::NotConnected.into()))));
        }
        let Poll::Ready(part) = self.poll_part(context) else {
            let mut state = self.state.borrow_mut();
            state.reader.clone_from(context.waker());
            state.awaits_driver = self.awaits_driver();
            return Poll::Pending;
        };
        self.state.borrow_mut().is_broken = part.is_err();
        Poll::Ready(match part {
            Ok(Part::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(Part::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Ok(Part::End) => None,
            Err(error) => Some(Err(error)),
        })
    }

    fn left(&self) -> Option<u64> {
        self.state.borrow().body.left()
    }

    fn let_go(&self) {
        self.state.borrow_mut().is_let_go = true;
    }
}

impl Deref for Attached {
    type Target = Rc<Inbound>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.io.take();
        let state = self.state.borrow();
        wake(&state.reader, &state.driver);
    }
}

/// Wakes `task`, unless it is `from`, the running task.
fn wake(task: &Waker, from: &Waker) {
    if !task.will_wake(from) {
        task.wake_by_ref();
    }
}

/// Takes a complete head from `input`, of which the first `seen` bytes contain none; `None` if more bytes are needed. A head in
/// many pieces is parsed again only if it may have ended, so that small pieces do not cost quadratic time. `memory`: see
/// [`RequestHead::parse`].
pub(super) fn take_head(
    input: &mut BytesMut,
    seen: &mut usize,
    limits: HeadLimits,
    memory: &mut BytesMut,
) -> Result<Option<RequestHead>, MalformedRequest> {
    if input.len() == *seen {
        return Ok(None);
    }
    // The end of a head may be split: up to three of its four bytes are in the part that was seen.
    let news = &input[seen.saturating_sub(3)..];
    let may_have_ended = *seen == 0
        // At the limit the parser decides between a complete head and one that is too large.
        || input.len() >= limits.size
        || memchr::memmem::find(news, b"\r\n\r\n").is_some()
        || has_bare_line_feed(news);
    if may_have_ended {
        if let Some((head, length)) = RequestHead::parse(input, limits, memory)? {
            input.advance(length);
            *seen = 0;
            return Ok(Some(head));
        }
        // Dropped here, or each further piece would parse them again.
        while input.starts_with(b"\r\n") {
            input.advance(2);
        }
    }
    *seen = input.len();
    Ok(None)
}

/// Whether more than the empty lines before a head has arrived.
pub(super) fn has_begun(input: &[u8]) -> bool {
    input.iter().any(|byte| !matches!(byte, b'\r' | b'\n'))
}

/// Drops the available part of `body`. Returns whether the body has ended.
pub(super) fn drop_body(body: &mut BodyReader, input: &mut BytesMut) -> bool {
    while let Ok(Some(part)) = body.decode(input) {
        if !matches!(part, Part::Data(_)) {
            return true;
        }
    }
    body.is_ended()
}

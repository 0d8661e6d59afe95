//! Writing of requests: heads immediately, bodies in turns, within the windows of the server.

use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use brisk_http::error::{BodyError, Http2Error};
use brisk_http::fields::is_connection_specific;
use brisk_http::message::Request;
use brisk_http_connection::body::request::RequestBody;
use brisk_http_connection::held::HeldBytes;
use brisk_wire::h2::block;
use brisk_wire::h2::frame::{FrameHead, WriteFrames, flag, kind};
use brisk_wire::h2::settings::DEFAULT_FRAME;
use bytes::{Buf as _, Bytes};
use http::header::{CONTENT_LENGTH, HOST, TE};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method};
use http_body::{Body as _, Frame};

use super::state::{Sending, State};
use super::stream::{End, Upload};

/// Number of bytes collected in [`Sending::out`] before a write.
const ROOM: usize = 64 << 10;

/// Bytes waiting to be written above which nothing is read. A server that does not read gets no replies that would need
/// memory.
const BACKLOG: usize = 256 << 10;

/// Bytes waiting to be written above which no further request begins on this connection.
const STUCK: usize = 1 << 20;

/// Allowance earned by a stream, by a `DATA` frame of a request body, and the number of bytes that earn one more.
const STREAM: u32 = 20;
const DATA: u32 = 4;
const BYTES: u32 = 1024;

/// Destination of a request, as far as its head names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination<'a> {
    /// Whether the connection uses TLS: `:scheme` is `https`.
    pub(crate) is_encrypted: bool,
    /// Name of the server: `:authority` of requests with neither a valid `Host` nor an authority.
    pub(crate) authority: &'a Authority,
    /// `:protocol` of the stream (RFC 8441 section 4).
    pub(crate) protocol: Option<&'a HeaderValue>,
}

impl State {
    /// Begins `request` on a new stream and takes its body. Returns the stream's slot.
    pub(super) fn request(
        &mut self,
        request: &mut Request<RequestBody>,
        to: Destination<'_>,
        held: Option<HeldBytes>,
    ) -> u32 {
        let place = self.open();
        let is_last = request.body().is_end_stream();
        let number = self.stream(place).number;
        self.send.head(number, request, to, is_last);
        self.allowance.earn(STREAM);
        let stream = self.stream(place);
        stream.is_head = request.method() == Method::HEAD;
        stream.held = held;
        if !is_last {
            let body = mem::replace(request.body_mut(), RequestBody::Empty);
            stream.upload = Some(Upload { body, chunk: Bytes::new() });
            self.queue(place);
            // Data that has already arrived is written together with the head.
            self.fill();
        }
        self.schedule();
        place
    }

    /// Whether replies to further frames of the server have room: fewer than [`BACKLOG`] bytes wait.
    pub(super) fn may_read(&self) -> bool {
        self.failure.is_none() && self.send.waiting() < BACKLOG
    }

    /// Whether the backlog exceeds [`STUCK`], so that the server gets no further requests.
    pub(super) fn is_stuck(&self) -> bool {
        self.send.waiting() > STUCK
    }

    /// Continues the request bodies whose wakers of [`State::wakes`] were woken.
    pub(super) fn run_uploads(&mut self) {
        let mut woken = mem::take(&mut self.send.woken);
        self.wakes.take(&mut woken);
        for place in woken.drain(..) {
            self.queue(place);
        }
        self.send.woken = woken;
    }

    /// Queues the stream, if it has a body to send and is not queued.
    pub(super) fn queue(&mut self, place: u32) {
        let stream = self.stream(place);
        if stream.upload.is_some() && !mem::replace(&mut stream.is_queued, true) {
            self.send.ready.push_back(place);
        }
    }

    /// Queues the streams that waited for the window of the connection ([`Sending::held`]).
    pub(super) fn go_on_with_held(&mut self) {
        self.send.ready.extend(self.send.held.drain(..));
    }

    /// Writes frames until [`ROOM`] bytes are collected.
    pub(super) fn fill(&mut self) {
        while self.send.waiting() < ROOM
            && let Some(place) = self.send.ready.pop_front()
        {
            self.stream(place).is_queued = false;
            self.go_on(place);
        }
    }

    /// Takes the next piece of a request body, or writes a `DATA` frame with a part of the current one.
    fn go_on(&mut self, place: u32) {
        let stream = &mut self.streams[place as usize];
        let Some(upload) = &mut stream.upload else { return };
        if upload.chunk.is_empty() {
            let waker = self.wakes.waker(place);
            let polled = Pin::new(&mut upload.body).poll_frame(&mut Context::from_waker(waker));
            let Poll::Ready(frame) = polled else { return };
            match frame.map(|frame| frame.map(Frame::into_data)) {
                // No empty `DATA` frame: servers count such frames as a flood (CVE-2019-9518).
                Some(Ok(Ok(data))) if data.is_empty() && !upload.body.is_end_stream() => {
                    return self.queue(place);
                }
                Some(Ok(Ok(data))) if data.is_empty() => return self.end_upload(place, None),
                Some(Ok(Ok(data))) => {
                    let is_all = upload.body.is_end_stream();
                    upload.chunk = data.clone();
                    stream.sends(&data, is_all);
                }
                Some(Ok(Err(frame))) => {
                    stream.looked_at();
                    return self.end_upload(place, frame.into_trailers().ok());
                }
                Some(Err(error)) => return self.break_off(place, error),
                None => return self.end_upload(place, None),
            }
        }
        self.write_data(place);
    }

    /// Writes the largest possible `DATA` frame, at most [`DEFAULT_FRAME`] bytes.
    fn write_data(&mut self, place: u32) {
        let stream = &mut self.streams[place as usize];
        let Some(upload) = &mut stream.upload else { return };
        if stream.send_window <= 0 {
            // A WINDOW_UPDATE frame queues the stream again.
            return;
        }
        // A list of its own: in the queue, the stream would be taken again and again while the window is
        // closed.
        if self.send.window <= 0 {
            stream.is_queued = true;
            self.send.held.push(place);
            return;
        }
        let allowed = stream.send_window.min(self.send.window).min(DEFAULT_FRAME.into());
        let length = upload.chunk.len().min(allowed as usize);
        stream.send_window -= length.cast_signed() as i64;
        self.send.window -= length.cast_signed() as i64;
        let is_last = length == upload.chunk.len() && upload.body.is_end_stream();
        let flags = if is_last { flag::END_STREAM } else { 0 };
        let head = FrameHead { length: length as u32, kind: kind::DATA, flags, stream: stream.number };
        self.send.out.extend_from_slice(&head.to_bytes());
        self.send.out.extend_from_slice(&upload.chunk[..length]);
        if length == upload.chunk.len() {
            // Releases the memory of the piece before the next one arrives.
            upload.chunk = Bytes::new();
        } else {
            upload.chunk.advance(length);
        }
        self.allowance.earn(DATA + length as u32 / BYTES);
        if is_last {
            self.sent(place);
        } else {
            self.queue(place);
        }
    }

    /// Ends a request body with its trailers or an empty `DATA` frame.
    fn end_upload(&mut self, place: u32, trailers: Option<HeaderMap>) {
        let number = self.stream(place).number;
        match trailers {
            Some(trailers) if !trailers.is_empty() => self.send.trailers(number, &trailers),
            _ => self.send.out.frame(kind::DATA, flag::END_STREAM, number, &[]),
        }
        self.sent(place);
    }

    fn sent(&mut self, place: u32) {
        self.stream(place).upload = None;
        self.close_if_over(place);
    }

    /// Resets the stream of a request whose body failed with `error`: the server must not take the request for complete.
    fn break_off(&mut self, place: u32, error: BodyError) {
        let stream = self.stream(place);
        if stream.end == End::Open {
            stream.cause = Some(Box::new(error));
        }
        self.cancel(place, Http2Error::RequestBody);
    }

    /// Passes pending output to `take`, which returns the number of bytes written. Returns `Ok(false)` if output remains.
    pub(super) fn write(
        &mut self,
        mut take: impl FnMut(&[u8]) -> Poll<io::Result<usize>>,
    ) -> io::Result<bool> {
        loop {
            if self.failure.is_none() {
                self.fill();
            }
            if self.send.waiting() == 0 {
                return Ok(true);
            }
            if !self.send.flush(&mut take)? {
                return Ok(false);
            }
        }
    }
}

impl Sending {
    fn flush(&mut self, mut take: impl FnMut(&[u8]) -> Poll<io::Result<usize>>) -> io::Result<bool> {
        while self.written < self.out.len() {
            match take(&self.out[self.written..]) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(written)) => self.written += written,
                Poll::Ready(Err(error)) => {
                    // TLS may have sent a part, so the rest cannot be written again.
                    self.written = self.out.len();
                    return Err(error);
                }
                Poll::Pending => {
                    self.before += self.written as u64;
                    self.out.drain(..self.written);
                    self.written = 0;
                    return Ok(false);
                }
            }
        }
        self.before += self.out.len() as u64;
        self.out.clear();
        self.written = 0;
        Ok(true)
    }

    /// Discards all pending output.
    pub(super) fn end(&mut self) {
        (self.out, self.written) = (Vec::new(), 0);
    }

    /// Releases memory that an idle connection does not need.
    pub(super) fn rest(&mut self) {
        if self.out.is_empty() {
            self.out = Vec::new();
        }
    }

    fn head(&mut self, number: u32, request: &Request<RequestBody>, to: Destination<'_>, is_last: bool) {
        let Self { encoder, out, .. } = self;
        let at = block::begin(out);
        encoder.begin(out);
        if let Some(protocol) = to.protocol {
            encoder.field(b":protocol", protocol.as_bytes(), out);
        }
        // The constants are indices of the static table (RFC 7541 appendix A).
        match *request.method() {
            Method::GET => encoder.constant(2, out),
            Method::POST => encoder.constant(3, out),
            ref other => encoder.field(b":method", other.as_str().as_bytes(), out),
        }
        encoder.constant(if to.is_encrypted { 7 } else { 6 }, out);
        let host = request.headers().get(HOST).map(HeaderValue::as_bytes);
        let authority = match (host, request.uri().authority()) {
            (Some(host), _) if is_authority(host) => host,
            (_, Some(authority)) => authority.as_str().as_bytes(),
            (_, None) => to.authority.as_str().as_bytes(),
        };
        encoder.field(b":authority", authority, out);
        let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        encoder.field(b":path", path.as_bytes(), out);
        for (name, value) in request.headers() {
            // RFC 9113 sections 8.2.2 and 8.3.1: no connection-specific fields; `Host` became `:authority`.
            let is_left_out = *name == HOST
                || is_connection_specific(name)
                || (*name == TE && value.as_bytes() != b"trailers");
            if !is_left_out {
                encoder.field(name.as_str().as_bytes(), value.as_bytes(), out);
            }
        }
        if let Some(length) = length_to_state(request) {
            let mut digits = itoa::Buffer::new();
            encoder.field(b"content-length", digits.format(length).as_bytes(), out);
        }
        block::end(out, at, number, is_last);
    }

    fn trailers(&mut self, number: u32, trailers: &HeaderMap) {
        let Self { encoder, out, .. } = self;
        let at = block::begin(out);
        encoder.begin(out);
        for (name, value) in trailers.iter().filter(|(name, _)| !is_connection_specific(name)) {
            encoder.field(name.as_str().as_bytes(), value.as_bytes(), out);
        }
        block::end(out, at, number, true);
    }
}

/// Whether `host` is a host with an optional port. Common characters are accepted without parsing.
fn is_authority(host: &[u8]) -> bool {
    let is_usual = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':');
    !host.is_empty() && (host.iter().all(is_usual) || Authority::try_from(host).is_ok())
}

/// The known length of a body whose head does not state it. RFC 9110 section 8.6: 0 is sent only with methods that
/// expect a body.
fn length_to_state(request: &Request<RequestBody>) -> Option<u64> {
    if request.headers().contains_key(CONTENT_LENGTH) {
        return None;
    }
    let length = request.body().size_hint().exact()?;
    let expects_none = [Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS, Method::TRACE];
    (length > 0 || !expects_none.contains(request.method())).then_some(length)
}

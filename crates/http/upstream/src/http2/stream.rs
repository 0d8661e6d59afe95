//! A request and its response on one HTTP/2 connection.

use std::collections::VecDeque;
use std::mem;
use std::task::{Context, Poll, Waker};

use brisk_http::error::{BodyError, ConnectionError, Http2Error};
use brisk_http::message::Response;
use brisk_http_connection::body::request::RequestBody;
use brisk_http_connection::held::HeldBytes;
use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::Frame;

use super::state::STREAM_WINDOW;
use crate::interim::Interims;

/// Maximum number of bytes of a request body that are kept for a retry until the server responds.
const KEPT: usize = 64 << 10;

/// A stream, or a free slot.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Stream {
    pub(super) number: u32,
    /// Whether a request waits for the response or reads it.
    pub(super) is_held: bool,
    /// Position of the first frame of the stream among all bytes written on the connection.
    pub(super) begins: u64,
    /// Whether the request can be repeated unchanged if the server has not processed it: its body is kept or absent.
    pub(super) is_untouched: bool,
    /// The whole request body, if it is short and was sent, until the server responds.
    kept: Option<Bytes>,
    /// The request body of a stream that ended before any of the body was sent.
    unsent: Option<RequestBody>,
    /// Whether the method is `HEAD`, whose response has no body.
    pub(super) is_head: bool,
    /// Head of the response until it is taken, and whether it has arrived.
    pub(super) head: Option<Response<()>>,
    pub(super) has_head: bool,
    /// [`Interims`] before the response.
    pub(super) interims: Interims,
    /// Unread part of the response body: pieces in order, followed by small pieces joined together.
    pieces: VecDeque<Bytes>,
    small: Vec<u8>,
    /// Memory of the unread part and of `kept` in the account of the client.
    pub(super) held: Option<HeldBytes>,
    pub(super) trailers: Option<HeaderMap>,
    pub(super) end: End,
    /// [`BodyError`] of the request body, if it ended the stream.
    pub(super) cause: Option<Box<BodyError>>,
    reader: Option<Waker>,
    /// Receive window, and the bytes read since the last `WINDOW_UPDATE`.
    pub(super) recv_window: i64,
    pub(super) unclaimed: u32,
    /// Bytes of the body to be received, and to be read, if the head states the length.
    pub(super) left: Option<u64>,
    pub(super) unread: Option<u64>,
    /// Whether the response has no body, regardless of its head.
    pub(super) is_bodyless: bool,
    /// The request body until it is sent completely.
    pub(super) upload: Option<Upload>,
    pub(super) send_window: i64,
    /// Whether the stream is in a queue of [`Sending`](super::state::Sending).
    pub(super) is_queued: bool,
    /// Whether the stream was without a request at the last check already.
    pub(super) is_overdue: bool,
    /// Whether the stream waits for its reset. All that arrives is discarded.
    pub(super) is_abandoned: bool,
    /// Whether the request of an abandoned stream is incomplete, so that only the reset ends the stream.
    pub(super) is_unsent: bool,
}

/// A request body being sent.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) body: RequestBody,
    /// A piece waiting for a window.
    pub(super) chunk: Bytes,
}

/// Completion of the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    #[default]
    Open,
    /// Complete.
    Whole,
    Failed(Http2Error),
    /// Failed, and the error was returned to the reader.
    Reported,
}

/// The end of the request of a released stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    Ended,
    /// Before its response was complete.
    Canceled,
}

impl Stream {
    /// Initializes the slot for stream `number`, whose first frame is written at position `begins`.
    pub(super) fn begin(&mut self, number: u32, send_window: i64, begins: u64) {
        // The queue of pieces keeps its allocation.
        let pieces = mem::take(&mut self.pieces);
        let recv_window = STREAM_WINDOW.into();
        *self = Self {
            number,
            is_held: true,
            is_untouched: true,
            begins,
            recv_window,
            send_window,
            pieces,
            ..Self::default()
        };
    }

    /// Records that a piece of the request body is about to be sent; `is_all`: it is the last one. A whole body of at most
    /// [`KEPT`] bytes is kept for a retry.
    pub(super) fn sends(&mut self, data: &Bytes, is_all: bool) {
        let is_first = self.is_untouched && self.kept.is_none();
        self.forget_kept();
        // Without memory for the copy, the request is sent anyway and merely not repeated.
        self.is_untouched = is_first && is_all && data.len() <= KEPT && self.hold(data.len());
        self.kept = self.is_untouched.then(|| data.clone());
    }

    /// Records that the server has begun to respond, or that the request cannot be repeated for another reason.
    pub(super) fn looked_at(&mut self) {
        self.is_untouched = false;
        self.forget_kept();
        self.unsent = None;
    }

    fn forget_kept(&mut self) {
        if let Some((kept, held)) = self.kept.take().zip(self.held.as_mut()) {
            held.remove(kept.len());
        }
    }

    /// Gives the stream up, until its `RST_STREAM` is due. A request that still holds the stream fails with `error`.
    pub(super) fn abandon(&mut self, error: Http2Error) {
        self.looked_at();
        self.is_abandoned = true;
        self.is_unsent = self.upload.is_some();
        if self.end == End::Open {
            self.end = End::Failed(error);
        }
        self.wake();
    }

    /// Stops sending the request body.
    pub(super) fn end_upload(&mut self) {
        let upload = self.upload.take();
        if self.is_untouched && self.kept.is_none() {
            self.unsent = upload.map(|upload| upload.body);
        }
    }

    /// The body of a request with [`Stream::is_untouched`], for a repetition.
    pub(super) fn take_request_body(&mut self) -> RequestBody {
        match (self.kept.take(), self.unsent.take()) {
            (Some(data), _) => RequestBody::Again(data),
            (None, Some(body)) => body,
            (None, None) => RequestBody::Empty,
        }
    }

    /// Adds a piece of the body that shares the read buffer.
    pub(super) fn push(&mut self, piece: Bytes) {
        if !self.small.is_empty() {
            self.pieces.push_back(mem::take(&mut self.small).into());
        }
        self.pieces.push_back(piece);
        self.wake();
    }

    /// Adds a small piece as a copy, because sharing would hold more memory than the piece has bytes.
    pub(super) fn push_small(&mut self, piece: &[u8]) {
        // The exact size for the first piece, because a small response may have only one.
        if self.small.is_empty() {
            self.small = piece.to_vec();
        } else {
            self.small.extend_from_slice(piece);
        }
        self.wake();
    }

    /// Accounts `bytes` of a body. Returns `false` if the client has its share of the memory.
    pub(super) fn hold(&mut self, bytes: usize) -> bool {
        self.held.as_mut().is_none_or(|held| held.add(bytes).is_ok())
    }

    pub(super) fn has_data(&self) -> bool {
        !self.pieces.is_empty() || !self.small.is_empty()
    }

    /// Whether the response is complete and read, or has only a head.
    pub(super) fn is_end_stream(&self) -> bool {
        self.is_bodyless || (self.end == End::Whole && !self.has_data() && self.trailers.is_none())
    }

    /// Whether the whole body has arrived, although the stream may still be open.
    pub(super) fn has_whole_body(&self) -> bool {
        self.has_head && self.left == Some(0)
    }

    /// Takes the next piece of the body.
    fn take_data(&mut self) -> Option<Bytes> {
        let data = match self.pieces.pop_front() {
            Some(piece) => piece,
            None if self.small.is_empty() => return None,
            None => mem::take(&mut self.small).into(),
        };
        self.unread = self.unread.map(|unread| unread.saturating_sub(data.len() as u64));
        if let Some(held) = &mut self.held {
            held.remove(data.len());
        }
        Some(data)
    }

    /// The next frame of the body. An error is returned once, after all data.
    pub(super) fn poll_frame(
        &mut self,
        context: &Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Http2Error>>> {
        if self.is_bodyless {
            return Poll::Ready(None);
        }
        if let Some(data) = self.take_data() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        match self.end {
            End::Open => {
                self.wait(context);
                Poll::Pending
            }
            End::Whole => Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)))),
            End::Failed(error) => {
                self.end = End::Reported;
                Poll::Ready(Some(Err(error)))
            }
            End::Reported => Poll::Ready(None),
        }
    }

    /// The head of the response, once. [`Http2Error::Ended`] after the end of the stream without a head.
    pub(super) fn poll_head(&mut self, context: &Context<'_>) -> Poll<Result<Response<()>, Http2Error>> {
        if let Some(head) = self.head.take() {
            return Poll::Ready(Ok(head));
        }
        match self.end {
            End::Failed(error) => Poll::Ready(Err(error)),
            End::Whole | End::Reported => Poll::Ready(Err(Http2Error::Ended)),
            End::Open => {
                self.wait(context);
                Poll::Pending
            }
        }
    }

    /// The error with its cause: the error of the request body, if that failed.
    pub(super) fn explain(&mut self, error: Http2Error) -> ConnectionError {
        match (error, self.cause.take()) {
            (Http2Error::RequestBody, Some(cause)) => ConnectionError::RequestBody(cause),
            (error, _) => ConnectionError::Http2(error),
        }
    }

    /// Discards the unread part of the response. Returns its length in bytes.
    pub(super) fn clear_response(&mut self) -> u32 {
        let unread = self.pieces.iter().map(Buf::remaining).sum::<usize>() + self.small.len();
        self.pieces.clear();
        self.small = Vec::new();
        self.held = None;
        self.trailers = None;
        self.head = None;
        self.interims.take();
        self.reader = None;
        unread as u32
    }

    /// Like [`clear_response`](Self::clear_response), and discards the rest of the request.
    pub(super) fn clear(&mut self) -> u32 {
        self.upload = None;
        self.cause = None;
        self.kept = None;
        self.unsent = None;
        self.clear_response()
    }

    /// Wakes the task that waits for the response.
    pub(super) fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn wait(&mut self, context: &Context<'_>) {
        if !self.reader.as_ref().is_some_and(|reader| reader.will_wake(context.waker())) {
            self.reader = Some(context.waker().clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_in_their_order_and_errors_once_behind_them() {
        let mut stream = Stream::default();
        stream.push_small(b"ab");
        stream.push_small(b"cd");
        stream.push(Bytes::from_static(b"large"));
        stream.push_small(b"e");
        stream.end = End::Failed(Http2Error::Ended);
        let context = Context::from_waker(Waker::noop());
        for expected in ["abcd", "large", "e"] {
            let Poll::Ready(Some(Ok(frame))) = stream.poll_frame(&context) else { panic!("no frame") };
            assert_eq!(frame.into_data().expect("data"), expected);
        }
        assert!(matches!(stream.poll_frame(&context), Poll::Ready(Some(Err(Http2Error::Ended)))));
        assert!(matches!(stream.poll_frame(&context), Poll::Ready(None)) && !stream.is_end_stream());
    }
}

//! A body that is compressed while it streams.
//!
//! A round of the worker compresses a limited number of bytes (`brisk_http_connection::work`), so that responses do not
//! delay the other connections. When the source pauses, pending output is flushed: immediately the first time and for
//! event streams, otherwise after [`PAUSE`], because every flush reduces the compression ratio.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use brisk_coding::FlushMode;
use brisk_http::error::BodyError;
use brisk_http_connection::Connection;
use brisk_http_connection::work::WorkPlace;
use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::encoders::{Lease, written};
use super::kept::Keeper;
use super::metrics;
use crate::body::Body;
use crate::digests::without_digests;

/// Time without data after which the source counts as paused.
const PAUSE: Duration = Duration::from_millis(5);

/// Maximum number of bytes per call of the [`Encoder`](brisk_coding::Encoder).
const SLICE: usize = 16 << 10;

/// Minimum cost of a piece, in bytes of the round.
const LEAST_WORK: usize = 64;

/// A compressed body; see the [module documentation](self).
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct CompressedBody {
    source: Body,
    state: State,
    /// Uncompressed piece of the source.
    piece: Bytes,
    /// Whether the encoder holds output that is not yet flushed.
    is_unflushed: bool,
    /// Whether pauses are flushed at once, as for `text/event-stream`.
    is_live: bool,
    /// Timer for the end of [`PAUSE`].
    pause: Option<Pin<Box<Sleep>>>,
    pauses: bool,
    /// Whether the first output was sent.
    has_begun: bool,
    /// Position in the queue for work.
    place: WorkPlace,
    /// Collects a copy of the output.
    keeper: Option<Keeper>,
    bytes_in: u64,
    bytes_out: u64,
    connection: Rc<Connection>,
}

enum State {
    Going(Lease),
    /// Everything is compressed; the trailers remain.
    Trailers(HeaderMap),
    Over,
}

impl CompressedBody {
    pub(super) fn new(
        source: Body,
        lease: Lease,
        is_live: bool,
        keeper: Option<Keeper>,
        connection: Rc<Connection>,
    ) -> Self {
        Self {
            source,
            state: State::Going(lease),
            piece: Bytes::new(),
            is_unflushed: false,
            is_live,
            pause: None,
            pauses: false,
            has_begun: false,
            place: WorkPlace::default(),
            keeper,
            bytes_in: 0,
            bytes_out: 0,
            connection,
        }
    }

    /// Compresses at most [`SLICE`] bytes of the piece when the worker permits. The output may be empty.
    fn poll_slice(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, BodyError>> {
        let length = self.piece.len().min(SLICE);
        ready!(self.connection.poll_work(length.max(LEAST_WORK), &mut self.place, context));
        let slice = self.piece.slice(..length);
        self.piece.advance(length);
        self.is_unflushed = true;
        self.bytes_in += length as u64;
        Poll::Ready(self.write(&slice, FlushMode::Buffer))
    }

    fn write(&mut self, input: &[u8], step: FlushMode) -> Result<Bytes, BodyError> {
        let State::Going(lease) = &mut self.state else { return Ok(Bytes::new()) };
        let output =
            written(|output| lease.encoder().write(input, output, step)).map_err(BodyError::Encoder)?;
        self.bytes_out += output.len() as u64;
        if let Some(keeper) = &self.keeper {
            keeper.add(&output);
        }
        Ok(output)
    }

    fn finish(&mut self, trailers: Option<HeaderMap>) -> Result<Bytes, BodyError> {
        let output = self.write(&[], FlushMode::Finish)?;
        // Before the state changes, because `count` needs the lease.
        self.count();
        if let Some(keeper) = self.keeper.take() {
            keeper.finish();
        }
        self.state = trailers.map_or(State::Over, |trailers| State::Trailers(without_digests(trailers)));
        Ok(output)
    }

    /// Handles a source without data. Ready with the flushed output once it is due; pending if there is none.
    fn poll_pause(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, BodyError>> {
        if !self.is_unflushed {
            return Poll::Pending;
        }
        if !self.is_live && self.has_begun {
            // One timer for all pauses of the body, because each timer costs an allocation.
            let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(PAUSE)));
            // Further polls during a pause must not extend the pause.
            if !std::mem::replace(&mut self.pauses, true) {
                pause.as_mut().reset(Instant::now() + PAUSE);
            }
            ready!(pause.as_mut().poll(context));
        }
        self.is_unflushed = false;
        self.has_begun = true;
        Poll::Ready(self.write(&[], FlushMode::Flush))
    }

    fn count(&mut self) {
        if let State::Going(lease) = &mut self.state {
            metrics::compressed(lease.made(), self.bytes_in, self.bytes_out);
        }
    }
}

impl http_body::Body for CompressedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            match &mut self.state {
                State::Going(_) => {}
                State::Over => return Poll::Ready(None),
                State::Trailers(trailers) => {
                    let trailers = std::mem::take(trailers);
                    self.state = State::Over;
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
            }
            let output = if self.piece.is_empty() {
                match Pin::new(&mut self.source).poll_frame(context) {
                    Poll::Pending => ready!(self.poll_pause(context)),
                    Poll::Ready(None) => self.finish(None),
                    Poll::Ready(Some(Err(error))) => Err(error),
                    Poll::Ready(Some(Ok(frame))) => {
                        self.pauses = false;
                        match frame.into_data() {
                            Ok(piece) => {
                                self.piece = piece;
                                continue;
                            }
                            Err(frame) => self.finish(frame.into_trailers().ok()),
                        }
                    }
                }
            } else {
                ready!(self.poll_slice(context))
            };
            match output {
                Ok(output) if output.is_empty() => {}
                output => return Poll::Ready(Some(output.map(Frame::data))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Over)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl fmt::Debug for CompressedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompressedBody").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Drop for CompressedBody {
    fn drop(&mut self) {
        // The bytes of a response that the client has abandoned count too.
        self.count();
    }
}

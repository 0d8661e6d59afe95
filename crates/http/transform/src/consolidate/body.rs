//! A document that is decoded and changed while it streams: [`RewrittenBody`].
//!
//! A round of the worker processes a limited number of bytes, including decoder output. Output is sent immediately; at
//! most an incomplete tag or URL is held back.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use brisk_budget::Resource;
use brisk_coding::Decoder;
use brisk_http::error::BodyError;
use brisk_http_connection::Connection;
use brisk_http_connection::holding::Holding;
use brisk_http_connection::work::WorkPlace;
use brisk_rewrite::{HELD, OriginMap, Rewriter};
use brisk_telemetry::Throttle;
use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use http_body::{Frame, SizeHint};

use super::metrics;
use crate::body::Body;
use crate::digests::without_digests;

/// Number of bytes processed per step, about the output of one decoder step.
const SLICE: usize = 16 << 10;

/// Size of a rewriter's buffers for which nothing is reserved.
const FREE: usize = 4 << 10;

/// Minimum cost of a step, in bytes of the round.
const LEAST_WORK: usize = 64;

/// Length in bytes above which a document must not exceed [`MOST_TIMES`] its compressed length. Repetitive tables reach a
/// factor of 20; the maximum of `gzip` is 1032. Beyond it, the body fails with [`BodyError::Bomb`].
const BOMB: u64 = 4 << 20;
const MOST_TIMES: u64 = 100;

/// Location of a document, for its URLs and for the log.
#[derive(Debug)]
pub(super) struct DocumentNames {
    /// The host with its port; empty if the authority is not a name of the host.
    pub(super) own: String,
    /// The origin of the document; `None` for a document of the host.
    pub(super) from: Option<String>,
    /// Path, decoded as for routes.
    pub(super) path: String,
}

/// A rewritten body; see the [module documentation](self).
pub(super) struct RewrittenBody {
    source: Body,
    /// The decoder and its memory reservation.
    decoder: Option<(Decoder, Holding)>,
    /// Whether the decoder may produce more output without further input.
    has_more: bool,
    rewriter: Rewriter,
    /// Memory of an incomplete tag longer than [`FREE`].
    tag: Option<Holding>,
    map: Arc<OriginMap>,
    names: DocumentNames,
    /// Unprocessed piece of the source.
    piece: Bytes,
    plain: Vec<u8>,
    bytes_in: u64,
    bytes_out: u64,
    /// Position in the queue for work.
    place: WorkPlace,
    state: State,
    connection: Rc<Connection>,
}

enum State {
    Going,
    /// All output is produced; the trailers remain.
    Trailers(HeaderMap),
    Over,
}

impl RewrittenBody {
    /// A document whose body is still to arrive.
    pub(super) fn new(
        rewriter: Rewriter,
        decoder: Option<(Decoder, Holding)>,
        map: Arc<OriginMap>,
        names: DocumentNames,
        connection: Rc<Connection>,
    ) -> Self {
        metrics::rewritten();
        Self {
            source: Body::Empty,
            decoder,
            has_more: false,
            rewriter,
            tag: None,
            map,
            names,
            piece: Bytes::new(),
            plain: Vec::new(),
            bytes_in: 0,
            bytes_out: 0,
            place: WorkPlace::default(),
            state: State::Going,
            connection,
        }
    }

    /// Sets the source of the document.
    pub(super) fn streaming(self, source: Body) -> Self {
        Self { source, ..self }
    }

    /// Rewrites a complete document without a coding.
    pub(super) fn whole(mut self, document: &[u8]) -> Vec<u8> {
        let mut output = Vec::with_capacity(document.len());
        let context = brisk_rewrite::RewriteContext { map: &self.map, own: &self.names.own };
        self.rewriter.write(document, context, &mut output);
        self.rewriter.finish(context, &mut output);
        output
    }

    /// Processes a slice of the piece when the worker permits. The output may be empty.
    fn poll_slice(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, BodyError>> {
        let length = self.piece.len().min(SLICE);
        // A step of a decoder may produce about `SLICE` bytes, which the same step rewrites.
        let work = if self.decoder.is_some() { 2 * SLICE } else { length };
        ready!(self.connection.poll_work(work.max(LEAST_WORK), &mut self.place, context));
        Poll::Ready(self.slice(length))
    }

    fn slice(&mut self, length: usize) -> Result<Bytes, BodyError> {
        let slice = self.piece.slice(..length);
        let mut output = Vec::with_capacity(length);
        let context = brisk_rewrite::RewriteContext { map: &self.map, own: &self.names.own };
        let Some((decoder, _)) = &mut self.decoder else {
            self.piece.advance(length);
            self.rewriter.write(&slice, context, &mut output);
            self.reserve_tag(&mut output);
            return Ok(output.into());
        };
        self.plain.clear();
        let step = decoder.write(&slice, &mut self.plain).map_err(BodyError::Decoder)?;
        self.piece.advance(step.taken);
        self.has_more = step.has_more;
        self.bytes_in += step.taken as u64;
        self.bytes_out += self.plain.len() as u64;
        let times = self.bytes_out / self.bytes_in.max(1);
        if self.bytes_out > BOMB && times > MOST_TIMES {
            return Err(BodyError::Bomb { times });
        }
        self.rewriter.write(&self.plain, context, &mut output);
        self.reserve_tag(&mut output);
        Ok(output.into())
    }

    /// Reserves the memory of an incomplete tag longer than [`FREE`]. Without room the tag is copied unchanged.
    fn reserve_tag(&mut self, output: &mut Vec<u8>) {
        if self.rewriter.held() <= FREE {
            self.tag = None;
        } else if self.tag.is_none() {
            // The maximum at once: the tag may grow with each piece, and each growth would take the lock of
            // the budget.
            self.tag = self.connection.reserve(Resource::Encoders, HELD).ok();
            if self.tag.is_none() {
                self.rewriter.pass(output);
            }
        }
    }

    fn finish(&mut self, trailers: Option<HeaderMap>) -> Result<Bytes, BodyError> {
        if let Some((decoder, _)) = self.decoder.take() {
            // Fails if the coding is incomplete, because a truncated document must not look whole.
            decoder.finish().map_err(BodyError::Decoder)?;
        }
        let mut output = Vec::new();
        let context = brisk_rewrite::RewriteContext { map: &self.map, own: &self.names.own };
        self.rewriter.finish(context, &mut output);
        self.state = trailers.map_or(State::Over, |trailers| State::Trailers(without_digests(trailers)));
        Ok(output.into())
    }

    fn failed(&mut self, error: BodyError) -> BodyError {
        if matches!(error, BodyError::Decoder(_) | BodyError::Bomb { .. }) {
            metrics::broken();
            report(&error, &self.names);
        }
        self.state = State::Over;
        // Dropped here, because the failed body itself may be kept until the client has read the data before.
        self.source = Body::Empty;
        self.decoder = None;
        error
    }
}

/// Logs that a response was truncated, at most once a second.
fn report(error: &BodyError, names: &DocumentNames) {
    static THROTTLE: OnceLock<Throttle> = OnceLock::new();
    if let Some(more) = THROTTLE.get_or_init(|| Throttle::new(Duration::from_secs(1))).pass() {
        let DocumentNames { own: host, from: origin, path } = names;
        tracing::warn!(%error, host, origin, ?path, more, "an answer that is to be rewritten was cut off");
    }
}

impl http_body::Body for RewrittenBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            match &mut self.state {
                State::Going => {}
                State::Over => return Poll::Ready(None),
                State::Trailers(trailers) => {
                    let trailers = std::mem::take(trailers);
                    self.state = State::Over;
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
            }
            let output = if self.piece.is_empty() && !self.has_more {
                match ready!(Pin::new(&mut self.source).poll_frame(context)) {
                    None => self.finish(None),
                    Some(Err(error)) => Err(error),
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(piece) => {
                            self.piece = piece;
                            continue;
                        }
                        Err(frame) => self.finish(frame.into_trailers().ok()),
                    },
                }
            } else {
                ready!(self.poll_slice(context))
            };
            match output {
                Ok(output) if output.is_empty() => {}
                Ok(output) => return Poll::Ready(Some(Ok(Frame::data(output)))),
                Err(error) => return Poll::Ready(Some(Err(self.failed(error)))),
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

impl fmt::Debug for RewrittenBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RewrittenBody").field("source", &self.source).finish_non_exhaustive()
    }
}

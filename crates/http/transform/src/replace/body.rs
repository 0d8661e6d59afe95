//! [`ReplacedBody`], a body whose texts are replaced while it streams.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use brisk_http::error::BodyError;
use brisk_http_connection::Connection;
use brisk_http_connection::work::WorkPlace;
use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use http_body::{Frame, SizeHint};

use super::Replacing;
use crate::body::Body;
use crate::digests::without_digests;

/// Number of bytes that a step takes.
const SLICE: usize = 16 << 10;

/// Minimum cost of a step, in bytes of the round.
const LEAST_WORK: usize = 64;

/// A [`Body`] with the texts of [`Replacing`].
pub(super) struct ReplacedBody {
    source: Body,
    replacing: Replacing,
    /// Piece of the source without a step.
    piece: Bytes,
    /// Position in the queue for work.
    place: WorkPlace,
    state: State,
    connection: Rc<Connection>,
}

enum State {
    Going,
    /// The source has ended, with these trailers.
    Ending(Option<HeaderMap>),
    Over,
}

impl ReplacedBody {
    pub(super) fn new(source: Body, replacing: Replacing, connection: Rc<Connection>) -> Self {
        let (piece, place) = (Bytes::new(), WorkPlace::default());
        Self { source, replacing, piece, place, state: State::Going, connection }
    }

    /// Processes a slice of the piece when the worker permits. The output may be empty.
    fn poll_step(&mut self, is_last: bool, context: &mut Context<'_>) -> Poll<Vec<u8>> {
        let length = self.piece.len().min(SLICE);
        let work = self.replacing.work(length).max(LEAST_WORK);
        ready!(self.connection.poll_work(work, &mut self.place, context));
        let (output, taken) = self.replacing.step(&self.piece[..length], is_last);
        self.piece.advance(taken);
        Poll::Ready(output)
    }
}

impl http_body::Body for ReplacedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        loop {
            let is_last = match &mut this.state {
                State::Over => return Poll::Ready(None),
                State::Ending(trailers) if this.replacing.held.is_empty() => {
                    let trailers = trailers.take();
                    this.state = State::Over;
                    return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
                }
                State::Ending(_) => true,
                State::Going => false,
            };
            if !is_last && this.piece.is_empty() {
                match ready!(Pin::new(&mut this.source).poll_frame(context)) {
                    None => this.state = State::Ending(None),
                    Some(Err(error)) => {
                        this.state = State::Over;
                        return Poll::Ready(Some(Err(error)));
                    }
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(piece) => this.piece = piece,
                        Err(frame) => {
                            let trailers = frame.into_trailers().ok().map(without_digests);
                            this.state = State::Ending(trailers);
                        }
                    },
                }
                continue;
            }
            let output = ready!(this.poll_step(is_last, context));
            if !output.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(output.into()))));
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

impl fmt::Debug for ReplacedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplacedBody").field("source", &self.source).finish_non_exhaustive()
    }
}

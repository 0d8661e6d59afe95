//! A page that is compressed as a whole, with padding of random length: [`PaddedBody`].
//!
//! A compressed part would reveal its length without the padding, so the page is gathered and sent as one piece. A page
//! that is too long or arrives too slowly is sent in the same coding without compression: its length then depends on the
//! length of the text only.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use brisk_budget::Resource;
use brisk_coding::{FlushMode, pad_gzip, padding_length};
use brisk_http::error::BodyError;
use brisk_http_connection::Connection;
use brisk_http_connection::holding::Holding;
use brisk_http_connection::work::WorkPlace;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame};
use tokio::time::{Sleep, sleep};

use super::encoders::{Lease, written};
use super::metrics;
use crate::body::Body;
use crate::digests::without_digests;

/// Longest compressed page, in bytes of text.
const LONGEST: usize = 512 << 10;

/// Maximum time for which a page is held back after the first pause of its source, also while data arrives.
const LONGEST_HOLD: Duration = Duration::from_millis(50);

/// Maximum number of bytes per call of [`Lease::encoder`].
const SLICE: usize = 16 << 10;

/// A padded page; see the [module documentation](self).
pub(super) struct PaddedBody {
    source: Body,
    state: State,
    lease: Lease,
    /// The text so far.
    text: Vec<u8>,
    /// Length of the compressed start of the text.
    compressed: usize,
    /// Compressed text.
    content: Vec<u8>,
    /// Memory of `text` and `content`.
    holding: Option<Holding>,
    padding: u16,
    timeout: Option<Pin<Box<Sleep>>>,
    place: WorkPlace,
    connection: Rc<Connection>,
}

enum State {
    /// The page is gathered and compressed.
    Gathering,
    /// The source has ended, with these trailers.
    Ended(Option<HeaderMap>),
    /// The page is sent without compression.
    Stored,
    Trailers(HeaderMap),
    Over,
}

impl PaddedBody {
    /// The compressed `source`, with a padding by the number `random`.
    pub(super) fn new(source: Body, lease: Lease, random: u32, connection: Rc<Connection>) -> Self {
        Self {
            source,
            state: State::Gathering,
            lease,
            text: Vec::new(),
            compressed: 0,
            content: Vec::new(),
            // Without memory the page is sent without compression, as after a failure of `gather`.
            holding: connection.reserve(Resource::Encoders, 0).ok(),
            padding: padding_length(random),
            timeout: None,
            place: WorkPlace::default(),
            connection,
        }
    }

    /// Adds a piece to the text; `false` beyond [`LONGEST`], or without memory for the client.
    fn gather(&mut self, piece: &[u8]) -> bool {
        let Some(holding) = self.holding.as_mut().filter(|_| self.text.len() + piece.len() <= LONGEST) else {
            return false;
        };
        // The content is hardly ever longer than the text; the lease includes the output of one slice.
        holding.grow(piece.len()).is_ok() && holding.extend(&mut self.text, piece, LONGEST).is_ok()
    }

    /// Compresses all text that has arrived, as far as the worker permits.
    fn poll_compress(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        while self.compressed < self.text.len() {
            let end = self.text.len().min(self.compressed + SLICE);
            ready!(self.connection.poll_work(end - self.compressed, &mut self.place, context));
            let slice = &self.text[self.compressed..end];
            let encoder = self.lease.encoder();
            encoder.write(slice, &mut self.content, FlushMode::Buffer).map_err(BodyError::Encoder)?;
            self.compressed = end;
        }
        Poll::Ready(Ok(()))
    }

    /// The whole padded page.
    fn finish(&mut self, trailers: Option<HeaderMap>) -> Result<Bytes, BodyError> {
        let mut content = std::mem::take(&mut self.content);
        let encoder = self.lease.encoder();
        encoder.write(&[], &mut content, FlushMode::Finish).map_err(BodyError::Encoder)?;
        pad_gzip(&mut content, self.padding);
        metrics::arrival_padded(self.text.len() as u64, content.len() as u64);
        self.end(trailers);
        Ok(content.into())
    }

    /// Begins to send the page without compression, with its text so far and `piece`. The state becomes [`State::Stored`].
    fn store(&mut self, piece: &[u8]) -> Result<Bytes, BodyError> {
        self.state = State::Stored;
        self.content = Vec::new();
        // Text that is stored waits for no work, so the body must not keep its position in the queue.
        self.place = WorkPlace::default();
        self.timeout = None;
        self.lease.store();
        metrics::arrival_stored();
        let text = std::mem::take(&mut self.text);
        let gathered = self.write_stored(&text, FlushMode::Buffer)?;
        // Nothing more is gathered, because stored text is passed on as it arrives.
        self.holding = None;
        let rest = self.write_stored(piece, FlushMode::Flush)?;
        Ok([gathered, rest].concat().into())
    }

    fn write_stored(&mut self, text: &[u8], mode: FlushMode) -> Result<Bytes, BodyError> {
        let encoder = self.lease.encoder();
        written(|output| encoder.write(text, output, mode)).map_err(BodyError::Encoder)
    }

    fn end(&mut self, trailers: Option<HeaderMap>) {
        self.state = trailers.map_or(State::Over, |trailers| State::Trailers(without_digests(trailers)));
    }

    /// Continues with the next piece of the source. The output may be empty.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, BodyError>> {
        let is_stored = matches!(self.state, State::Stored);
        // Compressed while the page arrives, so that little work is left at its end.
        if !is_stored {
            ready!(self.poll_compress(context))?;
            if let State::Ended(trailers) = &mut self.state {
                let trailers = trailers.take();
                return Poll::Ready(self.finish(trailers));
            }
        }
        let trailers = match Pin::new(&mut self.source).poll_frame(context) {
            Poll::Pending if is_stored => return Poll::Pending,
            Poll::Pending => {
                // The timer is not reset by data: the first pause decides when the page has to begin, so that a page in many
                // pieces is not delayed by the sum of their pauses.
                let timeout = self.timeout.get_or_insert_with(|| Box::pin(sleep(LONGEST_HOLD)));
                ready!(timeout.as_mut().poll(context));
                return Poll::Ready(self.store(&[]));
            }
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
            Poll::Ready(None) => None,
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(piece) if is_stored => return Poll::Ready(self.write_stored(&piece, FlushMode::Flush)),
                Ok(piece) if self.gather(&piece) => return Poll::Ready(Ok(Bytes::new())),
                Ok(piece) => return Poll::Ready(self.store(&piece)),
                Err(frame) => frame.into_trailers().ok(),
            },
        };
        if is_stored {
            let last = self.write_stored(&[], FlushMode::Finish);
            self.end(trailers);
            return Poll::Ready(last);
        }
        self.state = State::Ended(trailers);
        Poll::Ready(Ok(Bytes::new()))
    }
}

impl http_body::Body for PaddedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            match &mut self.state {
                State::Over => return Poll::Ready(None),
                State::Trailers(trailers) => {
                    let trailers = std::mem::take(trailers);
                    self.state = State::Over;
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                State::Gathering | State::Ended(_) | State::Stored => {}
            }
            match ready!(self.poll_next(context)) {
                Ok(output) if output.is_empty() => {}
                output => return Poll::Ready(Some(output.map(Frame::data))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Over)
    }
}

impl fmt::Debug for PaddedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaddedBody").field("source", &self.source).finish_non_exhaustive()
    }
}

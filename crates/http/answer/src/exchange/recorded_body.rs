//! The body of a response that completes the record of its exchange.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use brisk_http::error::BodyError;
use brisk_http_connection::chunk::Chunk;
use brisk_transform::body::Body;
use brisk_upstream::upgrade::Joined;
use http_body::{Body as _, Frame, SizeHint};

use super::{Exchange, State};

/// A response body that records its exchange when it ends or is dropped.
#[derive(Debug)]
pub struct RecordedBody {
    pub(super) body: Body,
    /// Boxed because the body of every response is moved several times.
    pub(super) exchange: Box<Exchange>,
    /// Error of the body, which [`Self::poll_broken`] returns after all data before it is written.
    pub(super) broken: Option<BodyError>,
}

impl RecordedBody {
    /// Bytes and end of the connection, to be updated until this body is dropped, if the response has switched protocols.
    pub fn switched(&self) -> Option<&Joined> {
        self.exchange.switched.as_deref()
    }

    /// Polls the body once more after all bytes stated in the head were sent.
    ///
    /// Over HTTP/2, the end of an upstream's stream may arrive separately. Without this poll, a complete stream would
    /// be reset. The response is complete in any case: always ready.
    pub fn poll_sent_whole(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let _ = Pin::new(&mut *self).poll_frame(context);
        if self.exchange.failure.is_none() {
            self.exchange.state = State::Complete;
        }
        Poll::Ready(())
    }

    /// Returns the error once the client has taken all data before it.
    ///
    /// A connection that ends with a failed body discards unwritten data. The body is therefore pending first,
    /// whereupon the connection writes.
    fn poll_broken(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Chunk>, BodyError>>> {
        ready!(self.exchange.connection.flow.poll_unblocked(context));
        Poll::Ready(self.broken.take().map(Err))
    }
}

impl http_body::Body for RecordedBody {
    type Data = Chunk;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chunk>, BodyError>>> {
        if self.broken.is_some() {
            return self.poll_broken(context);
        }
        let Self { body, exchange, broken } = &mut *self;
        if exchange.poll_room(context).is_pending() {
            // Memory is held by other responses, or by this one, because the client does not read.
            exchange.hold(false);
            return Poll::Pending;
        }
        let mut polled = Pin::new(body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &mut polled
            && let Some(trailers) = frame.trailers_mut()
        {
            exchange.clean_trailers(trailers);
        }
        // Dropped after the piece is counted: without both, the connection would give up the client's share.
        let _reserved = polled.is_ready().then(|| exchange.reserved.take());
        exchange.sent(&polled);
        if let Poll::Ready(Some(Err(error))) = polled {
            *broken = Some(error);
            // No other event would poll the body again: its source has failed.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let (connection, stream) = (&exchange.connection, exchange.stream);
        polled.map_ok(|frame| frame.map_data(|bytes| Chunk::new(bytes, Rc::clone(connection), stream)))
    }

    fn is_end_stream(&self) -> bool {
        self.broken.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RecordedBody {
    fn drop(&mut self) {
        // No poll follows where the stated length is reached.
        if self.exchange.failure.is_none() && self.body.is_end_stream() {
            self.exchange.state = State::Complete;
        }
    }
}

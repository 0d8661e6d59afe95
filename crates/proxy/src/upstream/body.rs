//! The body of an upstream's response. That of an HTTP/1.1 response drives its connection itself.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use brisk_net::Deadline;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use crate::error::BodyError;
use crate::upstream::group::Lease;
use crate::upstream::http1::{Http1, quiet};
use crate::upstream::http2::Stream;

type PolledFrame = Poll<Option<Result<Frame<Bytes>, hyper::Error>>>;

/// A response body on its way from an upstream. Dropping it early closes the connection (HTTP/1.1) or resets the stream.
#[derive(Debug)]
pub struct UpstreamBody {
    incoming: Incoming,
    source: Source,
}

/// What has to be kept, and driven, until the body has ended.
#[derive(Debug)]
enum Source {
    /// Nothing: all of the body is here.
    Complete,
    Http1 {
        http1: Box<Http1>,
        lease: Lease,
    },
    Http2 {
        deadline: Deadline,
        lease: Lease,
        stream: Stream,
    },
}

impl UpstreamBody {
    /// The body of a response that came over `http1`, which goes back to the pool as soon as the body is read: with a
    /// short body, that is now.
    pub(crate) fn over_http1(incoming: Incoming, http1: Box<Http1>, lease: Lease) -> Self {
        http1.deadline().set(lease.body_limit());
        let mut body = Self { incoming, source: Source::Http1 { http1, lease } };
        body.release_if_complete();
        body
    }

    /// The body of a response that came over HTTP/2.
    pub(crate) fn over_http2(incoming: Incoming, deadline: Deadline, lease: Lease, stream: Stream) -> Self {
        deadline.set(lease.body_limit());
        Self { incoming, source: Source::Http2 { deadline, lease, stream } }
    }

    /// See [`http_body::Body::poll_frame`].
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = match &mut self.source {
            Source::Http1 { http1, .. } => poll_driving(&mut self.incoming, http1, context),
            Source::Complete | Source::Http2 { .. } => Pin::new(&mut self.incoming).poll_frame(context),
        };
        match polled {
            Poll::Pending => self.poll_overdue(context),
            Poll::Ready(None) if self.is_cut() => Poll::Ready(Some(Err(BodyError::UpstreamReset))),
            Poll::Ready(frame) => {
                self.received(frame.is_none());
                Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Upstream)))
            }
        }
    }

    /// Whether a body without further frames is incomplete. hyper takes `RST_STREAM` with `NO_ERROR` for the end,
    /// although it is one only after `END_STREAM` (RFC 9113 section 8.1).
    fn is_cut(&self) -> bool {
        matches!(self.source, Source::Http2 { .. }) && !self.incoming.is_end_stream()
    }

    /// See [`http_body::Body::is_end_stream`].
    pub(crate) fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// See [`http_body::Body::size_hint`].
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }

    fn received(&mut self, last: bool) {
        if let Some((deadline, limit)) = self.deadline() {
            deadline.set(limit);
        }
        self.release_if_complete();
        if last {
            self.source = Source::Complete;
        }
    }

    fn release_if_complete(&mut self) {
        if !matches!(&self.source, Source::Http1 { http1, .. } if http1.is_reusable()) {
            return;
        }
        if let Source::Http1 { http1, lease } = std::mem::replace(&mut self.source, Source::Complete) {
            lease.give_back(http1);
        }
    }

    fn poll_overdue(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some((deadline, _)) = self.deadline() else {
            return Poll::Pending;
        };
        let overdue = deadline.poll_expired(context);
        if let (true, Source::Http2 { stream, .. }) = (overdue.is_ready(), &self.source) {
            stream.retire_connection();
        }
        overdue.map(|()| Some(Err(BodyError::UpstreamTimeout)))
    }

    fn deadline(&self) -> Option<(&Deadline, Duration)> {
        match &self.source {
            Source::Complete => None,
            Source::Http1 { http1, lease } => Some((http1.deadline(), lease.body_limit())),
            Source::Http2 { deadline, lease, .. } => Some((deadline, lease.body_limit())),
        }
    }
}

/// The next frame, read from the connection if it is not here yet. Only the connection needs the waker: nothing comes
/// into the body unless it is driven.
fn poll_driving(incoming: &mut Incoming, http1: &mut Http1, context: &mut Context<'_>) -> PolledFrame {
    let waiting = Pin::new(&mut *incoming).poll_frame(&mut quiet());
    if waiting.is_ready() {
        return waiting;
    }
    http1.drive(context);
    Pin::new(incoming).poll_frame(&mut quiet())
}

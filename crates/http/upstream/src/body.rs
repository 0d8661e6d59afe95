//! Bodies of responses from upstreams.

use std::collections::VecDeque;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use brisk_defects::Defect;
use brisk_http::error::BodyError;
use brisk_net::Deadline;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};

use crate::forward::Tunnel;
use crate::group::Lease;
use crate::http1::{Frames, Http1};
use crate::http2::Exchange;

/// A response body streaming from an upstream. Dropping it early closes the connection (HTTP/1.1) or resets the stream
/// (HTTP/2, `CANCEL`). A pause longer than `timeouts.body` is [`BodyError::UpstreamTimeout`].
#[derive(Debug)]
pub struct UpstreamBody(Source);

/// Source of the rest of an [`UpstreamBody`].
#[derive(Debug)]
enum Source {
    /// The whole rest is in memory; empty at the end.
    Whole(Bytes),
    Http1 {
        http1: Box<Http1>,
        lease: Lease,
    },
    /// Frames in memory.
    Gathered(VecDeque<Frame<Bytes>>),
    Http2 {
        exchange: Exchange,
        deadline: Deadline,
        lease: Lease,
    },
    /// Bytes of another protocol than HTTP.
    Tunnel(Box<Tunnel>),
}

impl Default for UpstreamBody {
    /// No body.
    fn default() -> Self {
        Self(Source::Whole(Bytes::new()))
    }
}

impl UpstreamBody {
    /// The body of a response on `http1`. The connection returns to the pool as soon as the body is read; for a short
    /// body, that is immediately.
    pub(crate) fn over_http1(mut http1: Box<Http1>, lease: Lease) -> Self {
        let Some(whole) = http1.take_whole() else {
            http1.deadline().set(lease.pause_limit());
            return Self(Source::Http1 { http1, lease });
        };
        release(http1, lease);
        Self(Source::Whole(spoiled(whole)))
    }

    /// A whole body of `frames`.
    pub(crate) fn gathered(frames: Frames) -> Self {
        let mut frames = frames.into_queue();
        // One piece becomes `Source::Whole`, so that later stages process a short body at once.
        if frames.len() <= 1 && frames.iter().all(Frame::is_data) {
            let data = frames.pop_front().and_then(|frame| frame.into_data().ok());
            return Self(Source::Whole(data.unwrap_or_default()));
        }
        Self(Source::Gathered(frames))
    }

    /// The body of a response over HTTP/2.
    pub(crate) fn over_http2(exchange: Exchange, deadline: Deadline, lease: Lease) -> Self {
        deadline.set(lease.pause_limit());
        Self(Source::Http2 { exchange, deadline, lease })
    }

    /// A body of one piece.
    pub(crate) fn full(bytes: impl Into<Bytes>) -> Self {
        Self(Source::Whole(bytes.into()))
    }

    /// The bytes that the server sends through `tunnel`.
    pub(crate) fn through(tunnel: Tunnel) -> Self {
        Self(Source::Tunnel(Box::new(tunnel)))
    }

    /// Takes the whole body, if it is in memory as one piece, and leaves an empty body; otherwise `None`.
    pub fn whole(&mut self) -> Option<Bytes> {
        match &mut self.0 {
            Source::Whole(data) => Some(mem::take(data)),
            Source::Http1 { .. } | Source::Gathered(_) | Source::Http2 { .. } | Source::Tunnel(_) => None,
        }
    }

    /// Number of bytes that have arrived and wait to be read; 0 for HTTP/2 and tunnels.
    pub fn unread(&self) -> usize {
        match &self.0 {
            Source::Whole(data) => data.len(),
            Source::Http1 { http1, .. } => http1.unread(),
            Source::Gathered(frames) => frames.iter().filter_map(Frame::data_ref).map(Bytes::len).sum(),
            // Counted by their connection.
            Source::Http2 { .. } | Source::Tunnel(_) => 0,
        }
    }

    /// Remaining length in bytes; `None` for chunked bodies, and for bodies that end with the connection.
    pub(crate) fn left(&self) -> Option<u64> {
        self.size_hint().exact()
    }

    fn received(&mut self, last: bool) {
        if let Some((deadline, limit)) = self.deadline() {
            deadline.set(limit);
        }
        let over = match &self.0 {
            // A body of known length ends with its last data: the connection is free without another poll.
            Source::Http1 { http1, .. } => last || http1.is_reusable(),
            Source::Whole(_) | Source::Gathered(_) | Source::Http2 { .. } | Source::Tunnel(_) => last,
        };
        if over && let Source::Http1 { http1, lease } = mem::replace(&mut self.0, Source::Whole(Bytes::new()))
        {
            release(http1, lease);
        }
    }

    fn poll_overdue(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some((deadline, _)) = self.deadline() else {
            return Poll::Pending;
        };
        let overdue = deadline.poll_expired(context);
        if let (true, Source::Http2 { exchange, .. }) = (overdue.is_ready(), &mut self.0) {
            // The server may be unreachable, so no further request should use the connection.
            exchange.retire_connection();
        }
        overdue.map(|()| Some(Err(BodyError::UpstreamTimeout)))
    }

    fn deadline(&self) -> Option<(&Deadline, Duration)> {
        match &self.0 {
            Source::Whole(_) | Source::Gathered(_) | Source::Tunnel(_) => None,
            Source::Http1 { http1, lease } => Some((http1.deadline(), lease.pause_limit())),
            Source::Http2 { deadline, lease, .. } => Some((deadline, lease.pause_limit())),
        }
    }
}

impl http_body::Body for UpstreamBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = match &mut self.0 {
            Source::Whole(data) if data.is_empty() => return Poll::Ready(None),
            Source::Whole(data) => return Poll::Ready(Some(Ok(Frame::data(mem::take(data))))),
            Source::Http1 { http1, .. } => http1.poll_frame(context),
            Source::Gathered(frames) => return Poll::Ready(frames.pop_front().map(Ok)),
            Source::Http2 { exchange, .. } => exchange.poll_frame(context),
            Source::Tunnel(tunnel) => return tunnel.poll_frame(context),
        };
        if polled.is_pending() {
            return self.poll_overdue(context);
        }
        polled.map(|frame| {
            self.received(frame.is_none());
            frame.map(|frame| frame.map_err(BodyError::of_upstream))
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Whole(data) => data.is_empty(),
            Source::Http1 { http1, .. } => http1.left() == Some(0),
            Source::Gathered(frames) => frames.is_empty(),
            Source::Http2 { exchange, .. } => exchange.is_end_stream(),
            Source::Tunnel(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Whole(data) => SizeHint::with_exact(data.len() as u64),
            Source::Http1 { http1, .. } => http1.left().map_or_else(SizeHint::default, SizeHint::with_exact),
            Source::Http2 { exchange, .. } => exchange.size_hint(),
            Source::Gathered(_) | Source::Tunnel(_) => SizeHint::default(),
        }
    }
}

/// The bytes of a body, of which one is wrong if the process has [`Defect::WrongByte`].
fn spoiled(body: Bytes) -> Bytes {
    if body.is_empty() || !brisk_defects::strikes(Defect::WrongByte) {
        return body;
    }
    let mut wrong = body.to_vec();
    wrong[0] ^= 1;
    wrong.into()
}

/// Returns `http1` with [`Lease::give_back`] if it is reusable, and closes it otherwise.
pub(crate) fn release(http1: Box<Http1>, lease: Lease) {
    if http1.is_reusable() {
        lease.give_back(http1);
    }
}

//! The body of a client's request as its protocol delivers it.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use crate::body::http2::Http2Body;
use crate::error::BodyError;

/// A request body as the driver of its connection gets it. Code that answers requests sees no more of the driver.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientBody {
    /// There is none.
    Empty,
    /// From its connection, over HTTP/1.1.
    Http1(Http1Body),
    /// From its connection, over HTTP/2.
    Http2(Http2Body),
    /// From hyper, over HTTP/2 where the settings choose its code.
    Hyper(Incoming),
}

/// A request body that its connection over HTTP/1.1 reads when it is polled.
#[derive(Debug)]
pub struct Http1Body(Rc<dyn Http1Source>);

/// A connection over HTTP/1.1 within a request body. The body may outlive it.
pub(crate) trait Http1Source: fmt::Debug {
    /// The next frame, as of [`http_body::Body::poll_frame`]. A body whose connection ends within it fails, and goes on
    /// to fail.
    fn poll_frame(&self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>>;

    /// Bytes that are left, if that is known.
    fn left(&self) -> Option<u64>;

    /// The rest is not wanted.
    fn let_go(&self);
}

impl Http1Body {
    /// The body of the request that `source` has just read.
    pub(crate) fn new(source: Rc<dyn Http1Source>) -> Self {
        Self(source)
    }
}

impl Drop for Http1Body {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

impl ClientBody {
    /// A request as hyper hands it over.
    pub fn of_hyper(request: Request<Incoming>) -> Request<Self> {
        request.map(Self::Hyper)
    }
}

impl http_body::Body for ClientBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Http1(body) => body.0.poll_frame(context),
            Self::Http2(body) => body.poll_frame(context),
            Self::Hyper(incoming) => Pin::new(incoming).poll_frame(context).map_err(BodyError::Client),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Http1(body) => body.0.left() == Some(0),
            Self::Http2(body) => body.is_end_stream(),
            Self::Hyper(incoming) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Http1(body) => body.0.left().map_or_else(SizeHint::default, SizeHint::with_exact),
            Self::Http2(body) => body.size_hint(),
            Self::Hyper(incoming) => incoming.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_no_more_room_than_the_body_of_its_protocol() {
        assert_eq!(size_of::<ClientBody>(), size_of::<Incoming>());
    }
}

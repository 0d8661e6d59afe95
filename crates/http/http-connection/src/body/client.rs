//! The body of a client's request, as delivered by its protocol.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use brisk_http::error::BodyError;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::body::inbox::Inbox;
use crate::connection::Connection;

/// A request body as delivered by the driver of its connection. `ClientBody` hides the driver from the code that responds.
///
/// Dropping it before its end lets an HTTP/1.1 connection go and passes the rest of a body on a stream to the
/// [`discards`](crate::discards) of its connection.
#[derive(Debug, Default)]
pub enum ClientBody {
    /// No body.
    #[default]
    Empty,
    /// Read from an HTTP/1.1 connection, when polled.
    Http1(Rc<dyn Http1Source>),
    /// Received from a stream of a multiplexed connection (HTTP/2 or HTTP/3).
    Stream(Rc<Inbox>, Rc<Connection>),
}

/// The HTTP/1.1 connection of a request body. The body may outlive the connection.
pub trait Http1Source: fmt::Debug {
    /// The next frame, as for [`http_body::Body::poll_frame`]. Fails, repeatedly, if the connection ends within the
    /// body.
    fn poll_frame(&self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>>;

    /// Number of remaining bytes; `None` for a chunked body before its end.
    fn left(&self) -> Option<u64>;

    /// Releases the connection: the rest of the body is not needed.
    fn let_go(&self);
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
            Self::Http1(source) => source.poll_frame(context),
            Self::Stream(inbox, _) => inbox.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Http1(source) => source.left() == Some(0),
            Self::Stream(inbox, _) => inbox.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let left = match self {
            Self::Empty => Some(0),
            Self::Http1(source) => source.left(),
            Self::Stream(inbox, _) => inbox.left(),
        };
        left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for ClientBody {
    fn drop(&mut self) {
        match self {
            Self::Empty => {}
            Self::Http1(source) => source.let_go(),
            // Not `let_go`: the reset would make many clients discard a response that is complete.
            Self::Stream(inbox, connection) => connection.multiplex().discards.add(inbox, connection),
        }
    }
}

/// Request bodies read by hyper, for tests of responses.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use std::cell::RefCell;
    use std::io;
    use std::pin::Pin;
    use std::rc::Rc;
    use std::task::{Context, Poll};

    use brisk_http::error::BodyError;
    use brisk_http::message::Request;
    use bytes::Bytes;
    use http_body::{Body as _, Frame};
    use hyper::body::Incoming;

    use super::{ClientBody, Http1Source};

    #[derive(Debug)]
    struct HyperSource(RefCell<Incoming>);

    impl Http1Source for HyperSource {
        fn poll_frame(&self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            let polled = Pin::new(&mut *self.0.borrow_mut()).poll_frame(context);
            polled.map_err(|error| BodyError::ClientGone(io::Error::other(error)))
        }

        fn left(&self) -> Option<u64> {
            let body = self.0.borrow();
            if body.is_end_stream() { Some(0) } else { body.size_hint().exact() }
        }

        fn let_go(&self) {}
    }

    /// Converts a request from hyper.
    pub fn of_hyper(request: http::Request<Incoming>) -> Request<ClientBody> {
        Request::from(request).map(|body| ClientBody::Http1(Rc::new(HyperSource(RefCell::new(body)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_small() {
        assert!(size_of::<ClientBody>() <= 3 * size_of::<usize>());
    }
}

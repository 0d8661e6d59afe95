//! The body of a client's request as its protocol delivers it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

/// A request body as the driver of its connection gets it. Code that answers requests sees no more of the driver.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientBody {
    /// From hyper, over HTTP/1.1 or HTTP/2.
    Hyper(Incoming),
}

impl ClientBody {
    /// A request as hyper hands it over.
    pub fn of_hyper(request: Request<Incoming>) -> Request<Self> {
        request.map(Self::Hyper)
    }
}

impl http_body::Body for ClientBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Hyper(incoming) => Pin::new(incoming).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Hyper(incoming) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
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

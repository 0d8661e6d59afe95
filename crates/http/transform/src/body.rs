//! Bodies of responses.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use brisk_http::error::BodyError;
use brisk_upstream::UpstreamBody;
use bytes::Bytes;
use http::Uri;
use http_body::{Frame, SizeHint};

/// The body of a response. Its [`SizeHint`] is exact whenever the length is known, so that `Content-Length` is sent.
#[derive(Default)]
pub enum Body {
    /// No content.
    #[default]
    Empty,
    /// A single piece; `None` once it is sent.
    Full(Option<Bytes>),
    /// The body of an upstream's response, as it arrives.
    Upstream(UpstreamBody),
    /// Any other body, such as a file.
    Boxed(Pin<Box<dyn http_body::Body<Data = Bytes, Error = BodyError>>>),
}

/// Extension of a response with another file than the one that the path of the request names: the path of the sent file below the
/// folder of the route. It is that of the fallback, or a path that an expression formed.
#[derive(Clone, Debug)]
pub struct SentFile(pub Uri);

impl Body {
    /// A body of one piece.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self::Full(Some(bytes.into()))
    }

    /// Takes the complete body out, if it is in memory, and leaves an empty body; `None` for [`Self::Boxed`] and
    /// [`Self::Empty`].
    pub fn whole(&mut self) -> Option<Bytes> {
        match self {
            Self::Full(bytes) => bytes.take(),
            Self::Upstream(body) => body.whole(),
            Self::Empty | Self::Boxed(_) => None,
        }
    }

    /// Number of bytes of memory that the body alone holds. Bodies that arrive later hold none yet, and texts of the configuration are
    /// shared.
    pub fn held(&self) -> usize {
        match self {
            Self::Full(Some(bytes)) if bytes.is_unique() => bytes.len(),
            Self::Empty | Self::Full(_) | Self::Upstream(_) | Self::Boxed(_) => 0,
        }
    }

    /// A body of another type. Costs an allocation, and an indirect call per frame.
    pub fn boxed(body: impl http_body::Body<Data = Bytes, Error = BodyError> + 'static) -> Self {
        Self::Boxed(Box::pin(body))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Upstream(body) => Pin::new(body).poll_frame(context),
            Self::Boxed(body) => body.as_mut().poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Upstream(body) => body.is_end_stream(),
            Self::Boxed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Upstream(body) => body.size_hint(),
            Self::Boxed(body) => body.size_hint(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Empty => "Empty",
            Self::Full(_) => "Full",
            Self::Upstream(_) => "Upstream",
            Self::Boxed(_) => "Boxed",
        };
        formatter.debug_tuple("Body").field(&kind).finish()
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_full_body_knows_its_length_until_it_is_sent() {
        let mut body = Body::full("hello");
        assert_eq!(body.size_hint().exact(), Some(5));
        assert!(!body.is_end_stream());
        let frame = body.frame().await.expect("a frame").expect("no error");
        assert_eq!(frame.into_data().expect("data"), "hello");
        assert!(body.is_end_stream());
        assert!(body.frame().await.is_none());
    }

    #[test]
    fn an_empty_body_ends_before_it_begins() {
        for body in [Body::Empty, Body::full("")] {
            assert!(body.is_end_stream());
            assert_eq!(body.size_hint().exact(), Some(0));
        }
    }

    #[test]
    fn a_body_stays_small() {
        assert!(size_of::<Body>() <= 80, "{}", size_of::<Body>());
    }
}

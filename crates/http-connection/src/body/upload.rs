//! Request bodies of clients. On streams (HTTP/2), bodies with an early response are passed to
//! [`discards`](crate::discards).

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use brisk_http::error::BodyError;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};

use crate::body::client::ClientBody;
use crate::connection::Connection;

/// A request body. Dropped before its end on a multiplexed connection, it is passed to the connection's discards.
#[derive(Debug, Default)]
pub struct Upload {
    /// The body; `None` only during drop.
    body: Option<ClientBody>,
    /// The connection, if it is multiplexed.
    connection: Option<Rc<Connection>>,
}

impl Upload {
    /// The body of a request on `connection`.
    pub fn new(body: ClientBody, connection: &Rc<Connection>) -> Self {
        let connection = connection.multiplexed().is_some().then(|| Rc::clone(connection));
        Self { body: Some(body), connection }
    }

    /// Whether the body is on a stream of its own and knows its end.
    pub(crate) fn is_on_stream(&self) -> bool {
        self.connection.is_some()
    }
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.body.as_mut().map_or(Poll::Ready(None), |body| Pin::new(body).poll_frame(context))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(ClientBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), ClientBody::size_hint)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let (Some(body), Some(connection)) = (self.body.take(), &self.connection)
            && let Some(multiplexed) = connection.multiplexed()
            && !body.is_end_stream()
        {
            multiplexed.discards.add(body, || connection.register_deadline());
        }
    }
}

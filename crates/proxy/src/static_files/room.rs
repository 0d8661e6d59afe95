//! Room for the buffers that answers from files have from their beginning on.
//!
//! With HTTP/2 a client can ask for many files at once and read none. So an answer waits for room before its file is looked
//! for, and its buffer counts as held until there is a piece, which counts itself.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::{Body as _, Frame, SizeHint};

use super::CHUNK;
use crate::body::Body;
use crate::buffers::Reserved;
use crate::connection::Connection;
use crate::error::BodyError;

/// `answer`, once there is room for its buffer on a connection with several answers at a time.
pub(crate) async fn in_room(
    connection: &Rc<Connection>,
    answer: impl Future<Output = Response<Body>>,
) -> Response<Body> {
    connection.room().await;
    let reserved = Reserved::new(CHUNK, connection);
    let response = answer.await;
    if response.body().is_end_stream() {
        return response;
    }
    response.map(|body| Body::boxed(Waiting { body, reserved: Some(reserved) }))
}

/// A body whose buffer is reserved until its first piece.
struct Waiting {
    body: Body,
    reserved: Option<Reserved>,
}

impl http_body::Body for Waiting {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_ready() {
            self.reserved = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

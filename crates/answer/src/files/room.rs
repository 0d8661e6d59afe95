//! Reserves room for the buffers that answers from files have from their beginning on.
//!
//! With HTTP/2 a client can ask for many files at once and read none. So an answer waits for room before its file is looked
//! for, and its buffer counts as held until there is a piece, which counts itself.

use std::future::Future;

use brisk_http_connection::chunk::Reserved;
use http::Response;
use http_body::Body as _;

use super::CHUNK;
use crate::body::Body;
use crate::exchange::Exchange;

/// `answer`, once there is room for its buffer on a connection with several answers at a time.
pub(crate) async fn in_room(
    exchange: &mut Exchange,
    answer: impl Future<Output = Response<Body>>,
) -> Response<Body> {
    let connection = exchange.connection();
    connection.room().await;
    let reserved = Reserved::new(CHUNK, connection);
    let response = answer.await;
    if !response.body().is_end_stream() {
        exchange.reserve(reserved);
    }
    response
}

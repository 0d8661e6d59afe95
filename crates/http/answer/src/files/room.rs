//! Reserves memory for the buffers that responses with files have from their start.
//!
//! On a multiplexed connection a client can request many files and read none. A response therefore waits for memory
//! before its file is opened, and its buffer counts as held until the first piece, which is counted itself.

use std::future::Future;

use brisk_http_connection::chunk::Reserved;
use brisk_transform::body::Body;
use http::Response;
use http_body::Body as _;

use super::CHUNK;
use crate::exchange::Exchange;

/// Runs `answer` once there is memory for its buffer on the multiplexed connection of `exchange`.
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

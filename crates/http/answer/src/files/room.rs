//! Memory of responses with files and pages, reserved before their source exists.
//!
//! On a multiplexed connection a client can request many files and read none. A response therefore waits for memory
//! before its file is opened, and its buffer counts as held until the first piece, which is counted itself.

use std::net::IpAddr;
use std::rc::Rc;

use brisk_budget::Full;
use brisk_http::message::Response;
use brisk_http_connection::Connection;
use brisk_http_connection::chunk::Reserved;
use brisk_transform::body::Body;
use http_body::Body as _;

use super::CHUNK;
use crate::exchange::Exchange;

/// Memory of one response until its first piece.
pub(crate) struct Room {
    connection: Rc<Connection>,
    /// The address to which shares apply.
    client: Option<IpAddr>,
    reserved: Option<Reserved>,
}

impl Room {
    /// No memory yet.
    pub(super) fn new(connection: &Rc<Connection>) -> Self {
        Self { connection: Rc::clone(connection), client: connection.client.address(), reserved: None }
    }

    /// The address to which shares apply; `None` for many clients behind one address.
    pub(super) fn client(&self) -> Option<IpAddr> {
        self.client
    }

    /// Waits until the connection has memory for a page of at most `bytes`, in place of the buffer of a file.
    pub(super) async fn wait(&mut self, bytes: usize) {
        // Two responses that keep their buffers would wait for each other.
        self.reserved = None;
        self.connection.room_for(bytes).await;
    }

    /// Reserves `bytes`. Returns `Ok(false)` if others of the connection have taken them since [`Self::wait`].
    ///
    /// # Errors
    ///
    /// [`Full`] if the client has its share of the memory of responses.
    pub(super) fn take(&mut self, bytes: usize) -> Result<bool, Full> {
        self.reserved = Reserved::within_limits(bytes, &self.connection).transpose()?;
        Ok(self.reserved.is_some())
    }

    /// Returns the memory beyond `bytes`.
    pub(super) fn shrink(&mut self, bytes: usize) {
        if let Some(reserved) = &mut self.reserved {
            reserved.resize(bytes.min(reserved.bytes()));
        }
    }
}

/// Runs `answer` once there is memory for its buffer on the connection of `exchange`, if that is multiplexed.
pub(crate) async fn in_room(
    exchange: &mut Exchange,
    answer: impl AsyncFnOnce(&mut Room) -> Response<Body>,
) -> Response<Body> {
    let mut room = Room { client: exchange.client().one_client(), ..Room::new(exchange.connection()) };
    // Over HTTP/1.1, a connection has one response at a time, and so one buffer.
    if exchange.shares_connection() {
        room.connection.room().await;
        room.reserved = Some(Reserved::new(CHUNK, &room.connection));
    }
    let response = answer(&mut room).await;
    // Without a body, no first piece would follow in place of the reservation.
    if let Some(reserved) = room.reserved.filter(|_| !response.body().is_end_stream()) {
        exchange.reserve(reserved);
    }
    response
}

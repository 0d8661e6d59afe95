//! A piece of a response, counted in the [`AnswerBuffers`](crate::buffers::AnswerBuffers) of its connection.

use std::rc::Rc;

use brisk_budget::Full;
use bytes::{Buf, Bytes};

use crate::connection::Connection;
use crate::streams::StreamKey;

/// A piece of a response on its way to the client. Counted in [`Connection::answers`] until it is written or dropped.
#[derive(Debug)]
pub struct Chunk {
    bytes: Bytes,
    connection: Rc<Connection>,
    stream: Option<StreamKey>,
}

impl Chunk {
    /// A piece of the response on `stream`; `None` on a connection that is not multiplexed.
    pub fn new(bytes: Bytes, connection: Rc<Connection>, stream: Option<StreamKey>) -> Self {
        connection.answers.take(bytes.len());
        connection.worker_held(bytes.len().cast_signed());
        Self { bytes, connection, stream }
    }

    /// The rest of the piece, shared without a copy. The piece counts as held and as not written until it is advanced.
    pub fn share(&self) -> Bytes {
        self.bytes.clone()
    }

    fn released(&self, bytes: usize) {
        if bytes > 0 {
            self.connection.worker_held(-bytes.cast_signed());
            self.connection.answers.release(bytes);
        }
    }
}

/// Memory that the source of a response occupies before the first piece. Counted in [`Connection::answers`] until dropped.
#[derive(Debug)]
pub struct Reserved {
    bytes: usize,
    connection: Rc<Connection>,
}

impl Reserved {
    /// Reserves `bytes` until the value is dropped, regardless of the limits.
    pub fn new(bytes: usize, connection: &Rc<Connection>) -> Self {
        connection.answers.take(bytes);
        connection.worker_held(bytes.cast_signed());
        Self { bytes, connection: Rc::clone(connection) }
    }

    /// Reserves `bytes` within the limits; `None` while [`Connection::room_for`] waits.
    ///
    /// # Errors
    ///
    /// [`Full`] if the client has its share of the budget for responses, or the limit of the process is reached.
    pub fn within_limits(bytes: usize, connection: &Rc<Connection>) -> Option<Result<Self, Full>> {
        let reserved = connection.reserve_share(bytes)?;
        // `reserve_share` counts nothing: if `new` did not follow at once, another stream would get the same
        // room.
        Some(reserved.map(|()| Self::new(bytes, connection)))
    }

    /// Changes the reservation to `bytes`, regardless of the limits.
    pub fn resize(&mut self, bytes: usize) {
        let connection = &self.connection;
        connection.worker_held(bytes.cast_signed() - self.bytes.cast_signed());
        if bytes > self.bytes {
            connection.answers.take(bytes - self.bytes);
        } else {
            connection.answers.free(self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// Number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.connection.worker_held(-self.bytes.cast_signed());
        self.connection.answers.free(self.bytes);
    }
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let (Some(stream), Some(multiplexed)) = (self.stream, self.connection.multiplexed()) {
            multiplexed.streams.written(stream, count);
        }
        self.released(count);
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.released(self.bytes.len());
    }
}

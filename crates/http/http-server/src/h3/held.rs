//! Memory of responses that the transport holds until the client has acknowledged it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brisk_http_connection::Connection;
use bytes::Bytes;

/// Bytes that the transport of one connection has accepted, counted as held by the responses of the connection.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Bytes that were counted and not yet released.
    bytes: usize,
    /// Bytes that were dropped since the last release. Atomic because a transport may send its buffers to other threads.
    dropped: Arc<AtomicUsize>,
}

/// Output of a connection, dropped when it is acknowledged or abandoned.
struct Output<B: AsRef<[u8]>> {
    bytes: B,
    dropped: Arc<AtomicUsize>,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Output<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl<B: AsRef<[u8]>> Drop for Output<B> {
    fn drop(&mut self) {
        // `Relaxed`: the counter guards no other data.
        self.dropped.fetch_add(self.bytes.as_ref().len(), Ordering::Relaxed);
    }
}

impl Held {
    /// Converts `bytes` to output. Each byte must be [counted](Self::count): when the transport accepts it, or when it is
    /// abandoned before.
    pub(super) fn output(&self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(Output { bytes, dropped: Arc::clone(&self.dropped) })
    }

    /// Counts `bytes` of output as held until they are dropped.
    pub(super) fn count(&mut self, bytes: usize, connection: &Connection) {
        self.bytes += bytes;
        connection.answers.take(bytes);
        connection.worker_held(bytes.cast_signed());
    }

    /// Releases bytes that the transport has dropped.
    pub(super) fn release(&mut self, connection: &Connection) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        self.free(dropped, connection);
    }

    /// Releases all bytes: the transport is gone, or about to be.
    pub(super) fn release_all(&mut self, connection: &Connection) {
        self.free(self.bytes, connection);
    }

    fn free(&mut self, bytes: usize, connection: &Connection) {
        if bytes > 0 {
            self.bytes -= bytes;
            connection.answers.free(bytes);
            connection.worker_held(-bytes.cast_signed());
        }
    }
}

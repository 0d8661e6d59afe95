//! What a connection sends and receives, reported while it does.

use std::fmt;
use std::time::Instant;

/// Watches one connection: its bytes on the wire, and the secrets that open them.
///
/// Called within the calls of the connection, so it must return quickly. With the secrets, everything that the connection
/// carries can be read: an observer is for probes and for debugging.
pub trait Observer: fmt::Debug + Send + Sync {
    /// `bytes` were handed to the system from the moment `at` on.
    fn sent(&self, at: Instant, bytes: &[u8]);

    /// `bytes` were taken from the system at `at`.
    fn received(&self, at: Instant, bytes: &[u8]);

    /// The server's chain as it was sent, decompressed, and the stapled OCSP response, which is empty without one. Not called
    /// when a session is resumed.
    fn chain(&self, certificates: &[&[u8]], staple: &[u8]);

    /// The verdict about this chain: `None`, or why it is not trusted. It comes behind [`chain`](Self::chain), and again if the
    /// server does not have the key. Not called without verification. What it says does not depend on the end of the handshake.
    fn verified(&self, distrust: Option<&str>) {
        let _ = distrust;
    }

    /// A secret with its label in NSS key logs, and the random value of the hello that names the connection there.
    fn secret(&self, label: &str, client_random: &[u8], secret: &[u8]);
}

//! [`Observer`], the observation of the bytes of a connection.

use std::fmt;
use std::time::Instant;

/// Observes one connection: its bytes on the wire, and the secrets for decrypting them.
///
/// Called within the calls of the connection, so it must return quickly. With the secrets, all data of the connection
/// can be read: observers are for probes and for debugging.
pub trait Observer: fmt::Debug + Send + Sync {
    /// Called when `bytes` have been passed to the system, starting at `at`.
    fn sent(&self, at: Instant, bytes: &[u8]);

    /// Called when `bytes` have been received from the system at `at`.
    fn received(&self, at: Instant, bytes: &[u8]);

    /// Called with the server's chain as it was sent, decompressed, and the stapled OCSP response, which may be empty.
    /// Not called for a resumed session.
    fn chain(&self, certificates: &[&[u8]], staple: &[u8]);

    /// Called with the verdict about this chain: `None`, or why it is not trusted. Follows [`chain`](Self::chain);
    /// called again if the server does not have the key. Not called without verification. The verdict does not depend
    /// on the end of the handshake.
    fn verified(&self, distrust: Option<&str>) {
        let _ = distrust;
    }

    /// Called with a secret, its label in NSS key logs, and the random value of the `ClientHello` that identifies the
    /// connection there.
    fn secret(&self, label: &str, client_random: &[u8], secret: &[u8]);
}

//! [`Stream`]s without TLS, for hosts that serve plain HTTP: records are plaintext.

use brisk_net::UnsentLimit;
use tokio::net::TcpStream;

use super::Stream;
use super::ramp::Ramp;
use crate::batch::Batch;
use crate::settings::Records;

impl Stream {
    /// A connection without TLS, of which `plaintext` was read already; `bytes_received` bytes altogether.
    pub fn plain(io: TcpStream, plaintext: Vec<u8>, bytes_received: u64) -> Self {
        Self {
            io,
            tls: None,
            incoming: Vec::new(),
            plaintext,
            taken: 0,
            gathered: Vec::new(),
            sealed: Batch::default(),
            ramp: Ramp::new(Records::Full),
            outgoing: Vec::new(),
            sent: 0,
            unsent_limit: UnsentLimit::default(),
            blocked: false,
            full: false,
            wakes: false,
            peer_closed: false,
            closing: false,
            shut_down: false,
            failed: false,
            confirmation: None,
            early_bytes: 0,
            bytes_received,
            bytes_sent: 0,
        }
    }

    /// Whether the connection has no TLS.
    pub fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    /// Without TLS, every end of the connection before [`ends_whole`](Self::ends_whole) is a reset from now on: for data that
    /// ends with the connection, whose early end would look like its end (RFC 9112 section 8).
    pub fn cuts_by_reset(&self) {
        if self.is_plain() {
            brisk_net::end_by_reset(&self.io, true);
        }
    }

    /// All data was sent, after [`poll_close`](Self::poll_close): the connection ends without a reset.
    pub fn ends_whole(&self) {
        if self.is_plain() {
            brisk_net::end_by_reset(&self.io, false);
        }
    }
}

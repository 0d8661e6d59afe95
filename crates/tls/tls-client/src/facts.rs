//! The result of a handshake.

use std::time::Duration;

use brisk_telemetry::Resumption;
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};

/// The result of a handshake: the negotiated parameters, not the offered ones.
#[derive(Clone, Debug)]
pub struct ClientFacts {
    /// Negotiated version.
    pub version: ProtocolVersion,
    /// Negotiated cipher suite.
    pub suite: CipherSuite,
    /// Group of the key exchange; `None` for a resumed TLS 1.2 session.
    pub group: Option<NamedGroup>,
    /// Scheme of the server's signature; `None` for a resumed session, and without verification.
    pub scheme: Option<SignatureScheme>,
    /// How the session was established. A server can refuse an offered session, which makes this [`Resumption::Full`].
    pub resumption: Resumption,
    /// Outcome of the early data.
    pub early_data: EarlyOutcome,
    /// Protocol chosen by ALPN (RFC 7301); `None` if the server chose none.
    pub protocol: Option<Box<str>>,
    /// Whether the server sent a `HelloRetryRequest`, which costs one round trip.
    pub hello_retry: bool,
    /// Bytes received until the handshake was complete.
    pub bytes_received: u64,
    /// Bytes sent until the handshake was complete, including early data and the last flight.
    pub bytes_sent: u64,
    /// Bytes of the first flight: `ClientHello` and early data.
    pub first_flight: u64,
    /// Bytes of `first_flight` that the first system call accepted: less than all if they did not fit into the SYN (TCP Fast
    /// Open).
    pub first_write: u64,
    /// Bytes of the server's certificates (DER); 0 for a resumed session.
    pub certificate_bytes: usize,
    /// Bytes of the stapled OCSP response; 0 without one.
    pub staple_bytes: usize,
    /// Why the server's certificate is not trusted, with [`Verification::Reported`](crate::Verification::Reported);
    /// `None` for a resumed session.
    pub distrust: Option<Box<str>>,
    /// Duration of the TLS handshake, without the TCP handshake.
    pub handshake_time: Duration,
}

/// Outcome of early data (RFC 8446 section 4.2.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EarlyOutcome {
    /// The caller provided no early data.
    None,
    /// It was not sent, because there was no session, or one with a smaller
    /// [`early_data_limit`](crate::SavedSession::early_data_limit).
    Unsent,
    /// The server accepted it.
    Accepted,
    /// The server rejected it: the caller has to send the data again.
    Rejected,
}

impl EarlyOutcome {
    /// Name in logs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Unsent => "unsent",
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
        }
    }
}

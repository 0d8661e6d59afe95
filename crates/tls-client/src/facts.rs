//! What came of a client's handshake.

use std::time::Duration;

use brisk_telemetry::Resumption;
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};

/// A client's handshake as it went, not as it was wished.
#[derive(Clone, Debug)]
pub struct ClientFacts {
    /// The version negotiated.
    pub version: ProtocolVersion,
    /// The suite negotiated.
    pub suite: CipherSuite,
    /// The group of the key exchange; none where a TLS 1.2 session was resumed.
    pub group: Option<NamedGroup>,
    /// The scheme of the server's signature; none where a session was resumed, or where nothing is verified.
    pub scheme: Option<SignatureScheme>,
    /// How the session came about: the session that was offered may have been refused.
    pub resumption: Resumption,
    /// What became of the early data.
    pub early_data: EarlyOutcome,
    /// The protocol that the server chose by ALPN.
    pub protocol: Option<Box<str>>,
    /// The server asked for another key share (`HelloRetryRequest`): one round trip more.
    pub hello_retry: bool,
    /// Bytes received from the socket until the handshake was complete.
    pub bytes_received: u64,
    /// Bytes sent to the socket until then, early data and the last flight included.
    pub bytes_sent: u64,
    /// Bytes of the first flight: the hello, and early data.
    pub first_flight: u64,
    /// What the system took of it by the first write: a part where it goes with a SYN (TCP Fast Open) that has no room for
    /// more.
    pub first_write: u64,
    /// Bytes of the certificates that the server showed, DER; 0 where a session was resumed.
    pub certificate_bytes: usize,
    /// Bytes of the stapled OCSP response; 0 without one.
    pub staple_bytes: usize,
    /// From the first byte of the handshake sent to its last: TLS alone, without the connection below.
    pub handshake_time: Duration,
}

/// What became of early data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EarlyOutcome {
    /// None was given.
    None,
    /// It was given, but not sent: no session, or one that does not allow as much. Nothing of it was sent.
    Unsent,
    /// The server took it.
    Accepted,
    /// The server ignored it: what it said has to be sent again.
    Rejected,
}

impl EarlyOutcome {
    /// Its name in logs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Unsent => "unsent",
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
        }
    }
}

//! Reasons for the end of a connection.

use crate::streams::Ended;

/// Reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Closed by either side after complete requests.
    Closed,
    /// `timeouts.idle` expired.
    Idle,
    /// The connection was idle and another client needed its slot or descriptor.
    Evicted,
    /// The handshake of a connection with early data timed out.
    HandshakeTimeout,
    /// The head of a request exceeded `timeouts.head`.
    HeadTimeout,
    /// A request and its response exceeded `timeouts.request`.
    RequestTimeout,
    /// The client did not read its response within `timeouts.write`, or read it below `read_rate`.
    WriteTimeout,
    /// A response was truncated, which HTTP/1.1 can signal only by closing the connection.
    AnswerBroken,
    /// The client reset the connection.
    ClientGone,
    /// The client violated the protocol.
    Malformed,
    /// The client reset too many streams, or sent too many useless frames (`h2_resets`).
    Flood,
    /// Responses exceeded `buffered_total`, and the client did not read its own.
    Shed,
    /// The gateway is shutting down.
    Drained,
    /// The connection had switched protocols, and the new protocol ended.
    Upgraded,
}

impl End {
    /// The same reason for the requests of the connection; `None` for an end that is due to the client's connection itself.
    pub const fn of_requests(self) -> Option<Ended> {
        match self {
            Self::RequestTimeout => Some(Ended::RequestTimeout),
            Self::WriteTimeout => Some(Ended::WriteTimeout),
            Self::Shed => Some(Ended::Shed),
            // The other ends are faults of the client or the drain of the gateway. The requests then have the
            // reason of their own body or response, and an access log that repeats the end would hide this
            // reason.
            _ => None,
        }
    }

    /// Name in the list of recent connections, such as `idle`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Idle => "idle",
            Self::Evicted => "evicted",
            Self::HandshakeTimeout => "handshake-timeout",
            Self::HeadTimeout => "head-timeout",
            Self::RequestTimeout => "request-timeout",
            Self::WriteTimeout => "write-timeout",
            Self::AnswerBroken => "answer-broken",
            Self::ClientGone => "client-gone",
            Self::Malformed => "malformed",
            Self::Flood => "flood",
            Self::Shed => "shed",
            Self::Drained => "drained",
            Self::Upgraded => "upgraded",
        }
    }
}

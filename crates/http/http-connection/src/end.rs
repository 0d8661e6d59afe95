//! Reasons for the end of a connection.

/// Reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Closed by either side after complete requests.
    Closed,
    /// The idle timeout expired.
    Idle,
    /// The connection was idle and its slot was needed.
    Evicted,
    /// The handshake of a connection with early data timed out.
    HandshakeTimeout,
    /// The head of a request timed out.
    HeadTimeout,
    /// A request and its response timed out.
    RequestTimeout,
    /// The client did not read its response in time.
    WriteTimeout,
    /// A response was truncated, which HTTP/1.1 can signal only by closing the connection.
    AnswerBroken,
    /// The client reset the connection.
    ClientGone,
    /// The client violated the protocol.
    Malformed,
    /// The client reset too many streams, or sent too many useless frames.
    Flood,
    /// Responses exceeded the memory limit, and the client did not read its own.
    Shed,
    /// The gateway is shutting down.
    Drained,
    /// The connection had switched protocols, and the new protocol ended.
    Upgraded,
}

impl End {
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

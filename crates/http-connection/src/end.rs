//! Why a connection ended.

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Closed by either side after whole requests.
    Closed,
    /// No request came for the idle time.
    Idle,
    /// It was idle and its place was needed.
    Evicted,
    /// The handshake of a connection with early data was not completed in time.
    HandshakeTimeout,
    /// A request head did not end in time.
    HeadTimeout,
    /// A request and its answer took too long.
    RequestTimeout,
    /// The client did not read its answer in time.
    WriteTimeout,
    /// An answer broke off; the connection cannot say so but by its own end.
    AnswerBroken,
    /// The client broke the connection.
    ClientGone,
    /// The client broke the protocol.
    Malformed,
    /// The client reset too many HTTP/2 streams, or sent too many frames that are of no use.
    Flood,
    /// Answers took too much memory, and the client did not take its own.
    Shed,
    /// The gateway is shutting down.
    Drained,
    /// The connection was upgraded, and that ended.
    Upgraded,
}

impl End {
    /// Its name in the list of recent connections: `idle`.
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

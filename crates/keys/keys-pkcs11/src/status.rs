//! State of tokens, for metrics.

/// State of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenStatus {
    /// Label.
    pub token: String,
    /// Whether the token is reachable.
    pub is_up: bool,
    /// Number of sessions since the last connection.
    pub sessions: usize,
    /// Number of waiting operations.
    pub waiting: usize,
    /// Number of connections after the first.
    pub reconnections: u64,
    /// Number of wrong signatures; none was returned.
    pub faults: u64,
}

impl TokenStatus {
    /// Adds the values of another engine for the same token.
    pub(crate) fn add(&mut self, other: &Self) {
        self.is_up &= other.is_up;
        self.sessions += other.sessions;
        self.waiting += other.waiting;
        self.reconnections += other.reconnections;
        self.faults += other.faults;
    }
}

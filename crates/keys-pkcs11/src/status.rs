//! How a token is doing, for metrics.

/// A token as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenStatus {
    /// Its label.
    pub token: String,
    /// Whether it can be reached.
    pub is_up: bool,
    /// Sessions with it, since it was last reached.
    pub sessions: usize,
    /// Operations that wait for a session.
    pub waiting: usize,
    /// How often it was reached again after it could not be.
    pub reconnections: u64,
    /// Signatures that it made and that were not those of the certificate's key; none was used.
    pub faults: u64,
}

impl TokenStatus {
    /// Adds up what two engines say of one token.
    pub(crate) fn add(&mut self, other: &Self) {
        self.is_up &= other.is_up;
        self.sessions += other.sessions;
        self.waiting += other.waiting;
        self.reconnections += other.reconnections;
        self.faults += other.faults;
    }
}

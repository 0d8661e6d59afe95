//! The trait of session stores.

use std::{fmt, future::Future, pin::Pin, time::Duration};

/// A store of sessions: opaque values by session ID or PSK identity, with a lifetime.
///
/// A store is a cache. It may forget anything at any time, and it reports a fault or a delay as a [`Miss`]: a miss
/// causes a full handshake, never a failed one. An implementation that accesses another machine has a deadline of its
/// own.
///
/// Sessions contain secrets from which recorded connections can be decrypted: a store wipes removed sessions, and never
/// prints them in `Debug`.
pub trait SessionStore: fmt::Debug + Send + Sync + 'static {
    /// Stores `session` under `id` for `lifetime`, replacing an existing one. Returns whether it was stored.
    fn put(&self, id: &[u8], session: Vec<u8>, lifetime: Duration) -> Lookup<bool>;

    /// A copy of the session with this `id`, which stays in the store.
    fn get(&self, id: &[u8]) -> Lookup<SessionOrMiss>;

    /// Removes and returns the session with this `id`: of several concurrent calls, one gets it. `claim` determines the
    /// scope of this guarantee.
    fn take(&self, id: &[u8], claim: Claim) -> Lookup<SessionOrMiss>;
}

/// Result of a look-up.
pub type SessionOrMiss = Result<Vec<u8>, Miss>;

/// Reasons why a store returns no session. The client gets a full handshake in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Miss {
    /// Never stored here, expired, or evicted.
    #[error("no session of this identity")]
    Unknown,
    /// The session was taken before: an error of the client, or a replay.
    #[error("the session has been used already")]
    Used,
    /// No reply by the deadline.
    #[error("the session store was late")]
    Late,
    /// The store does not work, or the circuit breaker is open.
    #[error("the session store is out of order")]
    Down,
    /// The value was not sealed by this fleet, or was modified.
    #[error("the stored session is forged or damaged")]
    Forged,
}

/// Scope in which a take is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// This process. Other gateways that share the store may have a copy for a while. Sufficient for handshakes, where
    /// using a session twice costs privacy, not security (RFC 8446 appendix C.4).
    Here,
    /// All gateways that share the store. This is the defence against replayed early data (RFC 8446 section 8.1): of
    /// all takes with this claim, at any time and anywhere, at most one gets the session, even if servers or connections fail. A take
    /// with [`Here`](Self::Here) may still find a copy.
    Everywhere,
}

/// Result of a store operation, available at once or later.
#[must_use = "an answer that is not awaited may never come about"]
pub enum Lookup<T> {
    /// Result of a store in memory.
    Ready(T),
    /// Result of a store on another machine. Dropping it cancels the operation.
    Pending(Pin<Box<dyn Future<Output = T> + Send>>),
}

impl<T> Lookup<T> {
    /// Waits for the result.
    pub async fn answer(self) -> T {
        match self {
            Self::Ready(value) => value,
            Self::Pending(future) => future.await,
        }
    }
}

impl<T> fmt::Debug for Lookup<T> {
    /// Prints whether it is ready, not its value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready(_) => "Ready",
            Self::Pending(_) => "Pending",
        })
    }
}

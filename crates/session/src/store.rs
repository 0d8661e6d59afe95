//! The trait of everything that keeps sessions between connections.

use std::{fmt, future::Future, pin::Pin, time::Duration};

/// Sessions by ID or PSK identity: opaque values that live for a while.
///
/// A store is a cache. It may forget anything at any time, and when it is slow or out of order it says so by finding
/// nothing: a miss is a full handshake, never a failed one. An implementation that asks another machine gives up at a
/// deadline of its own.
///
/// Sessions hold secrets from which recorded connections can be decrypted: a store wipes what it forgets, and never
/// shows them in `Debug`.
pub trait SessionStore: fmt::Debug + Send + Sync + 'static {
    /// Keeps `session` under `id` for `lifetime`, in place of what was there. Whether it was kept.
    fn put(&self, id: &[u8], session: Vec<u8>, lifetime: Duration) -> Lookup<bool>;

    /// A copy of the session with this `id`, which stays in the store.
    fn get(&self, id: &[u8]) -> Lookup<Found>;

    /// The session with this `id`, which leaves the store: of several who take at once, one gets it. How far that
    /// holds is said by `claim`.
    fn take(&self, id: &[u8], claim: Claim) -> Lookup<Found>;
}

/// What a store found.
pub type Found = Result<Vec<u8>, Miss>;

/// Why a store has no session to give. To the client all of them are the same: a full handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Miss {
    /// Never kept here, expired, or evicted.
    #[error("no session of this identity")]
    Unknown,
    /// It was taken before: a client's error, or a replay.
    #[error("the session has been used already")]
    Used,
    /// The store did not answer by the deadline.
    #[error("the session store was late")]
    Late,
    /// The store is out of order, or is taken to be, and was not asked.
    #[error("the session store is out of order")]
    Down,
    /// What the store holds was not sealed by this fleet, or was changed since.
    #[error("the stored session is forged or damaged")]
    Forged,
}

/// Against whom a session is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Against this process. Others who share the store may hold a copy for a while: good enough for a handshake,
    /// where using a session twice costs privacy, not safety (RFC 8446 appendix C.4).
    Here,
    /// Against all who share the store, or not at all. This is the defence against replayed early data, RFC 8446
    /// section 8.1: of all who take a session this way, at any time and anywhere, one gets it at most, whatever else
    /// fails. Who claims it [`Here`](Self::Here) may still find a copy.
    Everywhere,
}

/// The answer of a store: there at once, or to be waited for.
#[must_use = "an answer that is not awaited may never come about"]
pub enum Lookup<T> {
    /// A store in memory answers so.
    Ready(T),
    /// A store on another machine answers so. Dropping it gives the operation up.
    Pending(Pin<Box<dyn Future<Output = T> + Send>>),
}

impl<T> Lookup<T> {
    /// The answer, waited for if need be.
    pub async fn answer(self) -> T {
        match self {
            Self::Ready(value) => value,
            Self::Pending(future) => future.await,
        }
    }
}

impl<T> fmt::Debug for Lookup<T> {
    /// Whether it is ready, not what it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready(_) => "Ready",
            Self::Pending(_) => "Pending",
        })
    }
}

//! The trait of everything that keeps sessions between connections.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

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
    fn get(&self, id: &[u8]) -> Lookup<Option<Vec<u8>>>;

    /// The session with this `id`, which leaves the store.
    ///
    /// Atomic for all who share the store: of several who take at once, one gets the session. That is the defence
    /// against replayed early data, RFC 8446 section 8.1.
    fn take(&self, id: &[u8]) -> Lookup<Option<Vec<u8>>>;
}

/// The answer of a store: there at once, or to be waited for. A future itself, for callers that need not care;
/// like most futures it is not to be polled again once it has given its answer.
#[must_use = "an answer that is not awaited may never come about"]
pub enum Lookup<T> {
    /// A store in memory answers so.
    Ready(T),
    /// A store on another machine answers so. Dropping it gives the operation up.
    Pending(Pin<Box<dyn Future<Output = T> + Send>>),
}

impl<T: Unpin + Default> Future for Lookup<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut *self {
            Self::Ready(value) => Poll::Ready(std::mem::take(value)),
            Self::Pending(future) => future.as_mut().poll(context),
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

//! Completion of a handshake with early data.
//!
//! Before the client's `Finished` it is unknown whether its early data is a replay (RFC 8446 section 8). The connection
//! reads and writes meanwhile; actions that must not be performed for a replay wait for the [`Confirmation`].

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::sync::Notify;

use super::Stream;

/// The completion of a handshake with early data, to be awaited. Clones share its state. By default it is not complete.
///
/// For the thread of the connection only, like its [`Stream`].
#[derive(Clone, Debug, Default)]
pub struct Confirmation(Rc<State>);

#[derive(Debug, Default)]
struct State {
    at: Cell<Option<Instant>>,
    waiting: Notify,
}

impl Confirmation {
    /// Whether [`confirm`](Self::confirm) was called. From then on no data from the client is a replay.
    pub fn is_confirmed(&self) -> bool {
        self.confirmed_at().is_some()
    }

    /// Time at which the handshake completed, or `None`: the milestone `HandshakeFinished` of such a connection.
    pub fn confirmed_at(&self) -> Option<Instant> {
        self.0.at.get()
    }

    /// Waits for the end of the handshake. Never resolves if the connection fails before, so it is dropped with the
    /// connection. The driver must read meanwhile: see [`Stream::poll_confirm`].
    pub async fn confirmed(&self) {
        // Created before the check, so that a notification between the two is not missed.
        let notified = self.0.waiting.notified();
        if !self.is_confirmed() {
            notified.await;
        }
    }

    /// Marks the handshake as complete.
    pub fn confirm(&self) {
        self.0.at.set(Some(Instant::now()));
        self.0.waiting.notify_waiters();
    }
}

impl Stream {
    /// Whether the handshake is complete; always `true` for connections without early data.
    pub fn is_confirmed(&self) -> bool {
        self.confirmation.is_none()
    }

    /// The completion of the handshake, to be awaited; `None` once it is complete, and always without early data.
    pub fn confirmation(&self) -> Option<Confirmation> {
        self.confirmation.clone()
    }

    /// Reads from the socket until the handshake is complete, and keeps the data for the reader: at most the early data
    /// that the host accepts, and data that arrived together with the client's `Finished`. Ready at once if the
    /// handshake is complete, as for connections without early data.
    ///
    /// The driver of the connection polls it each turn while there is a [`confirmation`](Self::confirmation), because a
    /// reader that processes a request may not read meanwhile. It drains afterwards: the server's flight, without which
    /// the client cannot continue, may not have been sent yet, and tickets become ready with the client's `Finished`.
    /// The driver limits the time. [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) means that the client left before its
    /// `Finished`; after `InvalidData`, as of [`poll_read`](Self::poll_read), its alert is to be sent by
    /// [`poll_close`](Self::poll_close).
    pub fn poll_confirm(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.confirmation.is_some() {
            ready!(self.poll_receive(cx, &mut |_| 0))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Must be called after records were processed.
    pub(super) fn note_confirmation(&mut self) {
        if self.confirmation.is_some()
            && !self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
            && let Some(confirmation) = self.confirmation.take()
        {
            confirmation.confirm();
        }
    }
}

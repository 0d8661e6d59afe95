//! The end of a handshake with early data: how it is reached, and how tasks wait for it.
//!
//! Until the client's `Finished` it is unknown whether its early data is a replay (RFC 8446 section 8). The connection
//! reads and writes meanwhile; what must not be done for a replay waits for the [`Confirmation`].

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::sync::Notify;

use super::Stream;

/// The completion of a handshake with early data, to be awaited. Clones share its state.
///
/// For the thread of the connection only, like the [`Stream`] it comes from.
#[derive(Clone, Debug)]
pub struct Confirmation(Rc<State>);

#[derive(Debug, Default)]
struct State {
    at: Cell<Option<Instant>>,
    waiting: Notify,
}

impl Confirmation {
    /// The completion of a handshake that is not complete yet.
    pub(super) fn new() -> Self {
        Self(Rc::default())
    }

    /// Whether the handshake is complete. From then on nothing that the client sent is a replay.
    pub fn is_confirmed(&self) -> bool {
        self.confirmed_at().is_some()
    }

    /// When the handshake completed, `None` so far: the milestone `HandshakeFinished` of such a connection.
    pub fn confirmed_at(&self) -> Option<Instant> {
        self.0.at.get()
    }

    /// Waits for the end of the handshake; at once where it is over. Never resolves if the connection fails before, so it
    /// is to be dropped with the connection. The driver has to read meanwhile: see [`Stream::poll_confirm`].
    pub async fn confirmed(&self) {
        // Made before the question, so that nothing is missed between the two.
        let notified = self.0.waiting.notified();
        if !self.is_confirmed() {
            notified.await;
        }
    }

    /// The handshake is complete.
    fn confirm(&self) {
        self.0.at.set(Some(Instant::now()));
        self.0.waiting.notify_waiters();
    }
}

impl Stream {
    /// Whether the handshake is complete; so it is from the first for connections without early data.
    pub fn is_confirmed(&self) -> bool {
        self.confirmation.is_none()
    }

    /// The completion of the handshake, to be awaited; `None` once it is complete, and always without early data.
    pub fn confirmation(&self) -> Option<Confirmation> {
        self.confirmation.clone()
    }

    /// Reads from the socket until the handshake is complete, and keeps what data there is for the reader: at most the
    /// early data that the host accepts, and what came in one piece with the client's `Finished`. Ready at once when the
    /// handshake is complete, which is so for connections without early data.
    ///
    /// The driver of the connection polls it each turn while there is a [`confirmation`](Self::confirmation), since a
    /// reader that answers a request may not read meanwhile. It drains afterwards: our flight may not have been sent
    /// yet, without which the client cannot go on, and tickets become ready with its `Finished`. The driver limits the
    /// time. `UnexpectedEof` is a client that left before its `Finished`; after `InvalidData`, as of
    /// [`poll_read`](Self::poll_read), its alert is to be sent by [`poll_close`](Self::poll_close).
    pub fn poll_confirm(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.confirmation.is_some() {
            ready!(self.poll_receive(cx, &mut |_| 0))?;
        }
        Poll::Ready(Ok(()))
    }

    /// To be called after records were processed.
    pub(super) fn note_confirmation(&mut self) {
        if self.confirmation.is_some()
            && !self.tls.is_handshaking()
            && let Some(confirmation) = self.confirmation.take()
        {
            confirmation.confirm();
        }
    }
}

//! The I/O of HTTP/2: a connection, or before that, a buffer for its first bytes.

use std::cell::RefCell;
use std::io;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use brisk_tls_client::ClientFacts;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::Link;

/// A connection shared by HTTP/2 and the accounting of its traffic.
#[derive(Clone, Debug)]
pub(super) struct Io(Rc<RefCell<State>>);

#[derive(Debug)]
enum State {
    /// Written bytes are buffered; there is nothing to read.
    Gathering {
        bytes: Vec<u8>,
        reader: Option<Waker>,
    },
    Open(Box<Link>),
    Cut,
}

impl Io {
    /// Creates I/O without a connection.
    pub(super) fn new() -> Self {
        Self(Rc::new(RefCell::new(State::Gathering { bytes: Vec::new(), reader: None })))
    }

    /// Removes and returns the bytes that were written without a connection.
    pub(super) fn gathered(&self) -> Vec<u8> {
        match &mut *self.0.borrow_mut() {
            // The state stays: it contains the waker of `h2`, which already waits for data.
            State::Gathering { bytes, .. } => mem::take(bytes),
            State::Open(_) | State::Cut => Vec::new(),
        }
    }

    /// Sets the connection, and wakes a reader that waits for it.
    pub(super) fn open(&self, link: Link) {
        let before = self.0.replace(State::Open(Box::new(link)));
        if let State::Gathering { reader: Some(waker), .. } = before {
            waker.wake();
        }
    }

    /// The result of the handshake of the [`Link`]; `None` without TLS.
    pub(super) fn facts(&self) -> Option<ClientFacts> {
        match &*self.0.borrow() {
            State::Open(link) => link.facts().cloned(),
            State::Gathering { .. } | State::Cut => None,
        }
    }

    /// Counts the traffic of the [`Link`].
    pub(super) fn account(&self, now: Instant) {
        if let State::Open(link) = &mut *self.0.borrow_mut() {
            link.account(now);
        }
    }

    /// Marks the times of a request and of its response.
    pub(super) fn exchanged(&self, sent: Instant, first_byte: Instant) {
        if let State::Open(link) = &mut *self.0.borrow_mut() {
            link.exchanged(sent, first_byte);
        }
    }

    /// Removes the [`Link`] and returns it.
    pub(super) fn cut(&self) -> Option<Link> {
        match self.0.replace(State::Cut) {
            State::Open(link) => Some(*link),
            State::Gathering { .. } | State::Cut => None,
        }
    }
}

fn cut<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::ErrorKind::NotConnected.into()))
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self.0.borrow_mut() {
            State::Gathering { reader, .. } => {
                // Woken by `open`.
                *reader = Some(cx.waker().clone());
                Poll::Pending
            }
            State::Open(link) => Pin::new(&mut link.stream).poll_read(cx, buffer),
            State::Cut => cut(),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, piece: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self.0.borrow_mut() {
            State::Gathering { bytes, .. } => {
                // Never blocks: the first flight has to be complete before there is a connection.
                bytes.extend_from_slice(piece);
                Poll::Ready(Ok(piece.len()))
            }
            State::Open(link) => Pin::new(&mut link.stream).poll_write(cx, piece),
            State::Cut => cut(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self.0.borrow_mut() {
            State::Gathering { .. } => Poll::Ready(Ok(())),
            State::Open(link) => Pin::new(&mut link.stream).poll_flush(cx),
            State::Cut => cut(),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self.0.borrow_mut() {
            State::Gathering { .. } => Poll::Ready(Ok(())),
            State::Open(link) => Pin::new(&mut link.stream).poll_shutdown(cx),
            State::Cut => cut(),
        }
    }
}

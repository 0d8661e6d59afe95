//! Stream of a client, with or without TLS, shared by the connection's driver and the HTTP code.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use brisk_tls::{Confirmation, Stream};
use brisk_wire::h2::frame::PREFACE;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Stream of a client. Clones share it.
///
/// Output waits until the driver drains the stream at the end of its turn, so that the responses of one turn share records
/// and system calls; a flush does nothing. An upgraded connection has no driver, so `flush_at_once` makes flushes effective.
#[derive(Clone)]
pub struct HttpIo(Rc<Shared>);

struct Shared {
    stream: RefCell<Stream>,
    at_once: Cell<bool>,
    /// Whether a client without TLS began with [`PREFACE`].
    knows_http2: bool,
}

impl HttpIo {
    /// Wraps a TLS stream.
    pub fn new(stream: Stream) -> Self {
        Self::of(stream, false)
    }

    /// A connection without TLS, of which `received` was read already, at least as much as distinguishes [`PREFACE`] from
    /// requests; `bytes` altogether. Without `permits_http2`, the preface is a malformed request.
    pub fn plain(tcp: TcpStream, received: Vec<u8>, bytes: u64, permits_http2: bool) -> Self {
        let knows_http2 = permits_http2 && received.starts_with(PREFACE);
        Self::of(Stream::plain(tcp, received, bytes), knows_http2)
    }

    fn of(stream: Stream, knows_http2: bool) -> Self {
        Self(Rc::new(Shared { stream: RefCell::new(stream), at_once: Cell::default(), knows_http2 }))
    }

    /// Whether the client uses HTTP/2 without TLS, by prior knowledge (RFC 9113 section 3.3).
    pub(crate) fn knows_http2(&self) -> bool {
        self.0.knows_http2
    }

    /// Notification of the completed handshake; `None` if the handshake is complete, as always without early data.
    pub fn confirmation(&self) -> Option<Confirmation> {
        self.stream().confirmation()
    }

    /// Plaintext bytes of early data received so far.
    pub fn early_bytes(&self) -> u64 {
        self.stream().early_bytes()
    }

    pub(crate) fn stream(&self) -> Ref<'_, Stream> {
        self.0.stream.borrow()
    }

    pub(crate) fn stream_mut(&self) -> RefMut<'_, Stream> {
        self.0.stream.borrow_mut()
    }

    /// Makes each `poll_flush` send immediately from now on.
    pub(crate) fn flush_at_once(&self) {
        self.0.at_once.set(true);
    }

    /// Whether no plaintext is available and only the driver may read the socket, because the handshake is incomplete.
    pub(super) fn awaits_driver(&self) -> bool {
        let stream = self.stream();
        !stream.is_confirmed() && !stream.has_plaintext()
    }

    /// Reads like [`Stream::poll_read`]; `false` at the end of the stream. Pending while it [awaits the
    /// driver](Self::awaits_driver), which then has to wake a reader in another task.
    pub(super) fn poll_take(
        &self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(&[u8]) -> usize,
    ) -> Poll<io::Result<bool>> {
        if self.awaits_driver() {
            return Poll::Pending;
        }
        let mut stream = self.stream_mut();
        let mut any = false;
        let read = stream.poll_read(cx, |data| {
            any = true;
            take(data)
        });
        read.map_ok(|()| any)
    }

    /// Writes as much as there is space for. After [`Self::flush_at_once`], without a driver, it drains the stream to make
    /// space.
    fn poll_write_slices(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut stream = self.0.stream.borrow_mut();
        match stream.poll_write(cx, slices) {
            Poll::Pending if self.0.at_once.get() => {
                ready!(stream.poll_drain(cx))?;
                stream.poll_write(cx, slices)
            }
            written => written,
        }
    }

    /// Returns the stream if this is the last clone, that is, after the HTTP code.
    pub(crate) fn into_stream(self) -> Option<Stream> {
        Rc::try_unwrap(self.0).ok().map(|shared| shared.stream.into_inner())
    }
}

impl fmt::Debug for HttpIo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HttpIo").finish_non_exhaustive()
    }
}

impl AsyncRead for HttpIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = self.poll_take(cx, |data| {
            let data = &data[..data.len().min(buf.remaining())];
            buf.put_slice(data);
            data.len()
        });
        read.map_ok(|_| ())
    }
}

impl AsyncWrite for HttpIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_slices(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_slices(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.0.at_once.get() { self.0.stream.borrow_mut().poll_drain(cx) } else { Poll::Ready(Ok(())) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut stream = self.0.stream.borrow_mut();
        // With an incomplete handshake the driver closes the stream later.
        if stream.is_confirmed() { stream.poll_close(cx) } else { Poll::Ready(Ok(())) }
    }
}

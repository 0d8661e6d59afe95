//! A client's TLS stream, which the connection's driver shares with the code that speaks HTTP on it.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use brisk_tls::{Confirmation, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A client's TLS stream. Clones share it.
///
/// What is written waits until the driver drains the stream at the end of its turn, so that the answers of one turn share
/// records and system calls; a flush does nothing. `flush_at_once` ends that for an upgraded connection, which has no such
/// driver.
#[derive(Clone)]
pub struct HttpIo(Rc<Shared>);

struct Shared {
    stream: RefCell<Stream>,
    at_once: Cell<bool>,
}

impl HttpIo {
    /// Takes over `stream`.
    pub fn new(stream: Stream) -> Self {
        Self(Rc::new(Shared { stream: RefCell::new(stream), at_once: Cell::default() }))
    }

    /// Reports when the handshake is complete; `None` if it already is, as always without early data.
    pub fn confirmation(&self) -> Option<Confirmation> {
        self.stream().confirmation()
    }

    /// Bytes of early data received so far, as plaintext.
    pub fn early_bytes(&self) -> u64 {
        self.stream().early_bytes()
    }

    pub(crate) fn stream(&self) -> Ref<'_, Stream> {
        self.0.stream.borrow()
    }

    pub(crate) fn stream_mut(&self) -> RefMut<'_, Stream> {
        self.0.stream.borrow_mut()
    }

    /// From now on each flush is done at once.
    pub(crate) fn flush_at_once(&self) {
        self.0.at_once.set(true);
    }

    /// Whether nothing is here to be read, and only the driver reads the socket: the handshake is not complete.
    pub(super) fn awaits_driver(&self) -> bool {
        let stream = self.stream();
        !stream.is_confirmed() && !stream.has_plaintext()
    }

    /// Reads as [`Stream::poll_read`] does; false at the client's end. Pending while it [awaits the
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

    /// Writes what there is room for. The driver makes room, where there is one.
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

    /// The stream, once no clone is left: HTTP is done with.
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
        // The driver closes when the handshake is complete.
        if stream.is_confirmed() { stream.poll_close(cx) } else { Poll::Ready(Ok(())) }
    }
}

//! Reader that refuses bare line feeds, for plain HTTP, which hyper reads instead of [`serve`](super).

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};

use super::lines::LineWatcher;

/// Bytes per read: enough for a request that is redirected.
const PIECE: usize = 2048;

/// Filters HTTP/1.1 from `R`, so that hyper refuses a request with a bare LF in its head.
#[derive(Debug)]
pub struct StrictLines<R> {
    inner: R,
    watch: LineWatch,
    /// Bytes read ahead, which belong to the next head.
    ahead: BytesMut,
}

/// Handle to report the body after each head. Clones share the filter.
#[derive(Clone, Debug)]
pub struct LineWatch(Rc<LineWatcher>);

impl LineWatch {
    /// Sets the body that follows the head just read.
    pub fn expect(&self, body: &impl http_body::Body) {
        self.0.expect(body);
    }
}

impl<R> StrictLines<R> {
    /// Wraps `inner`, whose next byte begins a head.
    pub fn new(inner: R) -> Self {
        let lines = LineWatcher::default();
        lines.begin();
        Self { inner, watch: LineWatch(Rc::new(lines)), ahead: BytesMut::new() }
    }

    /// Returns the handle to report bodies.
    pub fn watch(&self) -> LineWatch {
        self.watch.clone()
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for StrictLines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { inner, watch, ahead } = &mut *self;
        if ahead.is_empty() {
            let mut room = [MaybeUninit::uninit(); PIECE];
            let mut read = ReadBuf::uninit(&mut room);
            ready!(Pin::new(inner).poll_read(context, &mut read))?;
            ahead.extend_from_slice(read.filled());
        }
        let data = &ahead[..ahead.len().min(buf.remaining())];
        if data.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let taken = watch.0.pass(data, |bytes| buf.put_slice(bytes));
        ahead.advance(taken);
        Poll::Ready(Ok(()))
    }
}

//! Strict lines for a connection that hyper reads without [`serve`](super): plain HTTP.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};

use super::lines::LineWatcher;

/// Bytes read at once: a request for a redirect fits.
const PIECE: usize = 2048;

/// Reads HTTP/1.1 from `R` for hyper, which refuses a request with a bare LF in its head then.
#[derive(Debug)]
pub struct StrictLines<R> {
    inner: R,
    watch: LineWatch,
    /// Bytes that were read but belong to the next head.
    ahead: BytesMut,
}

/// A handle to which the body that follows each head has to be reported. Clones share it.
#[derive(Clone, Debug)]
pub struct LineWatch(Rc<LineWatcher>);

impl LineWatch {
    /// Notes that `body` follows the head that was just read.
    pub fn expect(&self, body: &impl http_body::Body) {
        self.0.expect(body);
    }
}

impl<R> StrictLines<R> {
    /// Watches `inner`, where a head begins.
    pub fn new(inner: R) -> Self {
        let lines = LineWatcher::default();
        lines.begin();
        Self { inner, watch: LineWatch(Rc::new(lines)), ahead: BytesMut::new() }
    }

    /// The handle to which bodies have to be reported.
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

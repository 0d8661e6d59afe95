//! Transfers between byte buffers and a connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use brisk_secrets::buffer;
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Number of bytes per read: the maximum plaintext of a TLS record.
const READ: usize = 16 * 1024;

/// Reads once and appends to `incoming`. Returns the number of bytes, at most 16 KiB; `0` is the end of the input.
pub fn poll_fill(
    mut stream: impl AsyncRead + Unpin,
    context: &mut Context<'_>,
    incoming: &mut BytesMut,
) -> Poll<io::Result<usize>> {
    // On the stack: reserved in `incoming`, 16 KiB would be held for each connection.
    let mut room = [0; READ];
    let mut read = ReadBuf::new(&mut room);
    ready!(Pin::new(&mut stream).poll_read(context, &mut read))?;
    incoming.extend_from_slice(read.filled());
    Poll::Ready(Ok(read.filled().len()))
}

/// Writes all of `outgoing` and flushes. Ready when everything has been written. Wipes the written bytes, which may be premaster
/// secrets.
pub fn poll_drain(
    mut stream: impl AsyncWrite + Unpin,
    context: &mut Context<'_>,
    outgoing: &mut BytesMut,
) -> Poll<io::Result<()>> {
    while !outgoing.is_empty() {
        let written = ready!(Pin::new(&mut stream).poll_write(context, outgoing))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        buffer::advance(outgoing, written);
    }
    Pin::new(&mut stream).poll_flush(context)
}

//! Output of an HTTP/1.1 connection: heads and framing in a buffer, and pieces of bodies, which are not copied.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use brisk_http_connection::chunk::Chunk;
use bytes::Buf as _;

use crate::io::HttpIo;

/// Output that waits for space in the TLS stream.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    before: Vec<u8>,
    /// Number of bytes of `before` already sent.
    sent: usize,
    piece: Option<Chunk>,
    /// Number of bytes of `piece` still to send.
    left: usize,
    after: &'static [u8],
}

impl Outbound {
    /// Buffer for the bytes before the next piece. The caller has sent earlier output with [`Self::poll_write`].
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.before
    }

    /// Queues the first `length` bytes of `piece`, followed by `after`.
    pub(super) fn push(&mut self, piece: Chunk, length: usize, after: &'static [u8]) {
        (self.piece, self.left, self.after) = (Some(piece), length, after);
    }

    /// Writes everything to the stream. The driver sends it at the end of the turn.
    pub(super) fn poll_write(&mut self, context: &mut Context<'_>, io: &HttpIo) -> Poll<io::Result<()>> {
        loop {
            let before = &self.before[self.sent..];
            let piece = self.piece.as_ref().map_or(&b""[..], |piece| &piece.chunk()[..self.left]);
            if before.is_empty() && piece.is_empty() && self.after.is_empty() {
                break;
            }
            let slices = [IoSlice::new(before), IoSlice::new(piece), IoSlice::new(self.after)];
            let length = ready!(io.stream_mut().poll_write(context, &slices))?;
            self.advance(length);
        }
        self.before.clear();
        self.sent = 0;
        self.piece = None;
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, mut length: usize) {
        let of_before = length.min(self.before.len() - self.sent);
        self.sent += of_before;
        length -= of_before;
        let of_piece = length.min(self.left);
        if let Some(piece) = &mut self.piece {
            piece.advance(of_piece);
            self.left -= of_piece;
        }
        self.after = &self.after[length - of_piece..];
    }
}

//! [`Stream`], a TLS connection after its handshake: plaintext for HTTP on one side, records on a socket on the other. A
//! connection without TLS has the same interface.
//!
//! Designed for many idle connections and few system calls. An idle connection has no buffers: ciphertext is read into
//! and written from buffers of the worker, and a connection keeps only unfinished data (part of a record, and bytes
//! that the socket did not accept). Small writes are gathered until [`Stream::poll_drain`], so that the frames of many
//! responses share a record and a system call; large writes are sealed directly from the caller's memory.

use std::error::Error;
use std::io::{self, IoSlice};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use brisk_net::{TurnLimit, UnsentLimit};
use brisk_tls_base::record::PLAINTEXT;
use rustls::server::UnbufferedServerConnection;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

use crate::batch::Batch;
use crate::handshake::{Handshake, take_alert};
use crate::settings::Records;

mod confirmation;
mod plain;
mod ramp;
mod receive;

pub use confirmation::Confirmation;
use ramp::{FIRST, Ramp};

/// Maximum of gathered plaintext that gets a record of its own if a whole record follows: sealing it separately costs
/// less than copying the whole record behind it. HTTP/2 frame headers are the usual case.
const APART: usize = 1024;

/// A TLS connection that has completed its handshake, or received early data and completes it while it is read: see
/// [`confirmation`](Self::confirmation).
///
/// Data is read by [`poll_read`](Self::poll_read). Writes are complete only after [`poll_drain`](Self::poll_drain): the
/// driver of the connection calls it after each turn.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and they occur in any combination"
)]
pub struct Stream {
    io: TcpStream,
    /// `None` without TLS: records are plaintext then.
    tls: Option<Box<UnbufferedServerConnection>>,
    /// Ciphertext of an unfinished record.
    incoming: Vec<u8>,
    /// Plaintext for which the last reader had no room, from `taken` on.
    plaintext: Vec<u8>,
    taken: usize,
    /// Plaintext to be sealed by the next [`poll_drain`](Self::poll_drain); less than a record.
    gathered: Vec<u8>,
    /// Records to be sent by the next [`poll_drain`](Self::poll_drain).
    sealed: Batch,
    /// Determines the size of records, by [`Records`].
    ramp: Ramp,
    /// Records that precede all others: those made by [`rustls`], or not accepted by the socket. Sent up to `sent`.
    outgoing: Vec<u8>,
    sent: usize,
    /// Limit of the data that the kernel buffers.
    unsent_limit: UnsentLimit,
    /// Whether the socket refused the last write.
    blocked: bool,
    /// Whether the last write found the batch full.
    full: bool,
    /// Whether the drain must wake the task once there is room, because a write found none.
    wakes: bool,
    /// Whether the client sent `close_notify` or closed its side of the connection.
    peer_closed: bool,
    closing: bool,
    shut_down: bool,
    /// Whether the client violated the protocol: nothing more is read from it or sealed for it.
    failed: bool,
    /// `Some` while a handshake with early data is not complete.
    confirmation: Option<Confirmation>,
    early_bytes: u64,
    bytes_received: u64,
    bytes_sent: u64,
}

impl Stream {
    pub(crate) fn new(
        io: TcpStream,
        handshake: Handshake,
        records: Records,
        bytes_received: u64,
        bytes_sent: u64,
    ) -> Self {
        let confirmation = handshake.tls.is_handshaking().then(Confirmation::default);
        Self {
            tls: Some(handshake.tls),
            incoming: shrunk(handshake.incoming),
            outgoing: shrunk(handshake.outgoing),
            peer_closed: handshake.peer_closed,
            confirmation,
            early_bytes: handshake.early_bytes,
            ramp: Ramp::new(records),
            bytes_sent,
            ..Self::plain(io, shrunk(handshake.plaintext), bytes_received)
        }
    }

    /// Reads plaintext: `take` gets slices in order and returns how much of each it consumed; less than all only if it
    /// is full.
    ///
    /// Ready without a call of `take` is the end of the client's data, authenticated by its `close_notify`; a TLS
    /// connection that ends without one is the error [`UnexpectedEof`](io::ErrorKind::UnexpectedEof). After
    /// [`InvalidData`](io::ErrorKind::InvalidData) the client's alert is still to be sent by [`poll_close`](Self::poll_close).
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(&[u8]) -> usize,
    ) -> Poll<io::Result<()>> {
        if self.has_plaintext() {
            self.taken += take(&self.plaintext[self.taken..]);
            if self.taken == self.plaintext.len() {
                // Released, so that an idle connection keeps no buffer.
                self.plaintext = Vec::new();
                self.taken = 0;
            }
            return Poll::Ready(Ok(()));
        }
        let mut turn = TurnLimit::default();
        loop {
            // Before the end of its handshake a client cannot close properly.
            if self.peer_closed && self.confirmation.is_none() {
                return Poll::Ready(Ok(()));
            }
            ready!(turn.poll_more(cx));
            let before = self.bytes_received;
            // Otherwise the record was partial or without data for the reader.
            if ready!(self.poll_receive(cx, &mut take))? {
                return Poll::Ready(Ok(()));
            }
            turn.take((self.bytes_received - before) as usize);
        }
    }

    /// Fails the connection: the client gets the records sealed so far, then the alert of rustls, and nothing else.
    fn fail(&mut self, reason: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
        self.failed = true;
        // The alert ends the connection, so no `close_notify` follows.
        self.closing = true;
        self.incoming = Vec::new();
        self.gathered = Vec::new();
        self.sealed.move_to(&mut self.outgoing);
        if let Some(tls) = &mut self.tls {
            take_alert(tls, &mut self.outgoing);
        }
        io::Error::new(io::ErrorKind::InvalidData, reason)
    }

    /// Reads into the connection's own memory: true if there is plaintext, false at the client's end. In contrast to a
    /// reader that waits with a buffer, this allocates nothing until there is data.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.has_plaintext() {
            return Poll::Ready(Ok(true));
        }
        self.poll_read(cx, |_| 0).map_ok(|()| self.has_plaintext())
    }

    /// Returns `data` that the reader did not need: the next read begins with it.
    pub fn unread(&mut self, data: &[u8]) {
        let mut plaintext = data.to_vec();
        plaintext.extend_from_slice(&self.plaintext[self.taken..]);
        self.plaintext = plaintext;
        self.taken = 0;
    }

    /// Number of bytes of plaintext that the next write accepts. Pending as [`poll_write`](Self::poll_write) is.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.blocked {
            ready!(self.poll_send(cx))?;
        }
        let room = self.sealed.room().saturating_sub(self.gathered.len());
        self.full = room == 0;
        self.wakes = self.full;
        // Without a waker: `poll_drain` wakes the task once there is room (`wakes`).
        if self.full { Poll::Pending } else { Poll::Ready(Ok(room)) }
    }

    /// Accepts plaintext to send: all of `slices`, or a part of much data. Pending while the client does not read, and
    /// until the next [`poll_drain`](Self::poll_drain) once there is a batch of records. Thus a connection sends at
    /// most one batch per turn, and the others wait no longer than that.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.failed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.blocked {
            ready!(self.poll_send(cx))?;
        }
        self.full = false;
        let mut accepted = 0;
        for slice in slices {
            let mut rest: &[u8] = slice;
            while !rest.is_empty() {
                let len = if self.sealed.is_full() { 0 } else { self.gather_or_seal(rest)? };
                if len == 0 {
                    self.full = accepted == 0;
                    self.wakes = self.full;
                    return if self.full { Poll::Pending } else { Poll::Ready(Ok(accepted)) };
                }
                rest = &rest[len..];
                accepted += len;
            }
        }
        Poll::Ready(Ok(accepted))
    }

    /// Seals a whole record from the caller's memory, or gathers less than a record. `sealed` must not be full; `Ok(0)`
    /// means that it is full now.
    fn gather_or_seal(&mut self, plaintext: &[u8]) -> io::Result<usize> {
        let limit = self.record_limit(plaintext.len());
        if limit == PLAINTEXT && plaintext.len() >= PLAINTEXT && self.gathered.len() <= APART {
            if !self.gathered.is_empty() {
                self.seal_gathered()?;
            }
            if self.sealed.is_full() {
                return Ok(0);
            }
            let tls = self.tls.as_deref_mut();
            self.sealed.seal(tls, &mut self.incoming, &mut self.outgoing, &plaintext[..PLAINTEXT])?;
            self.ramp.sealed(PLAINTEXT);
            return Ok(PLAINTEXT);
        }
        if self.gathered.len() >= limit {
            self.seal_gathered()?;
            if self.sealed.is_full() {
                return Ok(0);
            }
        }
        let len = plaintext.len().min(limit - self.gathered.len());
        self.gathered.extend_from_slice(&plaintext[..len]);
        if self.gathered.len() >= limit {
            self.seal_gathered()?;
        }
        Ok(len)
    }

    /// Maximum plaintext of the next record, if `more` follows the gathered bytes. Reads the clock only at the start of
    /// data that takes more than one record.
    fn record_limit(&mut self, more: usize) -> usize {
        let exceeds = self.gathered.len() <= FIRST && self.gathered.len() + more > FIRST;
        if exceeds && self.sealed.bytes().is_empty() && self.outgoing.is_empty() {
            self.ramp.begin(Instant::now());
        }
        self.ramp.limit()
    }

    fn seal_gathered(&mut self) -> io::Result<()> {
        let tls = self.tls.as_deref_mut();
        self.sealed.seal(tls, &mut self.incoming, &mut self.outgoing, &self.gathered)?;
        self.ramp.sealed(self.gathered.len());
        self.gathered.clear();
        Ok(())
    }

    /// Sends all written data. Ready when the socket has accepted it; wakes the task then if a write found no room.
    pub fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_seal(cx))?;
        ready!(self.poll_send(cx))?;
        if mem::take(&mut self.wakes) {
            cx.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the written data and `close_notify`, in one system call, then closes the sending side of the connection.
    pub fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.closing {
            ready!(self.poll_seal(cx))?;
            self.closing = true;
            if let Some(tls) = &mut self.tls {
                self.sealed.close_notify(tls, &mut self.incoming);
            }
        }
        ready!(self.poll_send(cx))?;
        // If the client has closed its side already, dropping the socket has the same effect with one system call less.
        if !self.peer_closed && !self.shut_down {
            ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
            self.shut_down = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Seals the gathered plaintext; pending while there is no room for it.
    fn poll_seal(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.gathered.is_empty() {
            if self.sealed.is_full() {
                ready!(self.poll_send(cx))?;
            }
            self.seal_gathered()?;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the records in their order; bytes that the socket does not accept stay with the connection.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.outgoing.is_empty() {
            self.sealed.move_to(&mut self.outgoing);
        }
        let first = !self.outgoing.is_empty();
        let records = if first { &self.outgoing } else { self.sealed.bytes() };
        while self.sent < records.len() {
            let written = Pin::new(&mut self.io).poll_write(cx, &records[self.sent..]);
            self.blocked = written.is_pending();
            let Poll::Ready(written) = written else {
                self.unsent_limit.refused(&self.io, self.bytes_sent);
                if !first {
                    // The pooled buffer is returned while the socket is full; a slow client would otherwise hold it.
                    self.outgoing = records[self.sent..].to_vec();
                    self.sealed.clear();
                    self.sent = 0;
                }
                self.sealed.narrow(self.unsent_limit.is_slow());
                return Poll::Pending;
            };
            let len = written?;
            self.sent += len;
            self.bytes_sent += len as u64;
        }
        self.sealed.sent(self.bytes_sent);
        self.outgoing = Vec::new();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Frees memory that only a busy connection needs.
    pub fn rest(&mut self) {
        self.gathered.shrink_to_fit();
    }

    /// Number of bytes that wait to be sent: `gathered` plaintext and sealed records.
    pub fn unsent(&self) -> usize {
        self.gathered.len() + self.sealed.bytes().len() + self.outgoing.len() - self.sent
    }

    /// Whether nothing waits to be sent.
    pub fn is_drained(&self) -> bool {
        self.gathered.is_empty() && self.sealed.bytes().is_empty() && self.outgoing.is_empty()
    }

    /// Whether data waits to be written, because the client does not read or another turn is needed.
    pub fn is_blocked(&self) -> bool {
        self.blocked || self.full
    }

    /// Whether the client has sent `close_notify` or closed its side.
    pub fn is_peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// Bytes received and sent over the socket, including the handshake.
    pub fn bytes(&self) -> (u64, u64) {
        (self.bytes_received, self.bytes_sent)
    }

    /// Bytes of early data received, as plaintext.
    pub fn early_bytes(&self) -> u64 {
        self.early_bytes
    }

    /// The TCP connection, for facts about it.
    pub fn tcp(&self) -> &TcpStream {
        &self.io
    }

    /// The TCP connection, for lingering after [`poll_close`](Self::poll_close).
    pub fn into_tcp(self) -> TcpStream {
        self.io
    }

    /// Whether plaintext can be read without the socket.
    pub fn has_plaintext(&self) -> bool {
        self.taken < self.plaintext.len()
    }
}

pub(crate) fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn shrunk(mut bytes: Vec<u8>) -> Vec<u8> {
    // The capacity was that of the largest flight; a stream lives much longer than its handshake.
    bytes.shrink_to_fit();
    bytes
}

#[cfg(test)]
mod tests;

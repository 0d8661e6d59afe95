//! A TLS connection after its handshake: plaintext for HTTP on one side, records on a socket on the other.
//!
//! Made for many idle connections and few system calls. Nothing is buffered while a connection rests: ciphertext is
//! read into and written from buffers of the worker, and a connection keeps only what is unfinished (part of a record,
//! what the socket did not take). Small writes are gathered until [`Stream::poll_drain`], so that the frames of many
//! answers share a record and a system call; large ones are sealed straight from the caller's memory.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::handshake::{Handshake, encode};

/// Plaintext in one record: the most that RFC 8446 section 5.1 allows.
const RECORD: usize = 16 * 1024;

/// Records sealed per system call. What the socket does not take of them stays with the connection, so this is also
/// the most that a client that does not read can hold.
const BATCH: usize = 16;

/// The most a record adds to its plaintext: header, explicit nonce (TLS 1.2) or content type (1.3), tag.
const OVERHEAD: usize = 5 + 8 + 1 + 16;

/// Bytes read from a socket at once: a few records, so that bulk uploads need few system calls.
const READ: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        incoming: vec![0; READ + RECORD + 2 * 1024].into_boxed_slice(),
        outgoing: vec![0; BATCH * (RECORD + OVERHEAD)].into_boxed_slice(),
    });
}

/// Buffers of one worker, used by one connection at a time and only inside a poll.
struct Scratch {
    incoming: Box<[u8]>,
    outgoing: Box<[u8]>,
}

/// A TLS connection that has completed its handshake.
///
/// Reading is by [`poll_read`](Self::poll_read). Writes are complete only after [`poll_drain`](Self::poll_drain):
/// whoever drives the connection calls it after each turn.
pub struct Stream {
    io: TcpStream,
    tls: UnbufferedServerConnection,
    /// Ciphertext of an unfinished record.
    incoming: Vec<u8>,
    /// Plaintext that the last reader had no room for, from `taken` on.
    plaintext: Vec<u8>,
    taken: usize,
    /// Plaintext to be sealed with the next drain; less than a record.
    gathered: Vec<u8>,
    /// Records that the socket did not take yet, from `sent` on.
    outgoing: Vec<u8>,
    sent: usize,
    /// The socket refused the last write.
    blocked: bool,
    /// The client sent close_notify or closed its side of the connection.
    peer_closed: bool,
    closing: bool,
    bytes_received: u64,
    bytes_sent: u64,
}

impl Stream {
    pub(crate) fn new(io: TcpStream, handshake: Handshake, bytes_received: u64, bytes_sent: u64) -> Self {
        Self {
            io,
            tls: handshake.tls,
            incoming: shrunk(handshake.incoming),
            plaintext: shrunk(handshake.plaintext),
            taken: 0,
            gathered: Vec::new(),
            outgoing: shrunk(handshake.outgoing),
            sent: 0,
            blocked: false,
            peer_closed: handshake.peer_closed,
            closing: false,
            bytes_received,
            bytes_sent,
        }
    }

    /// Reads plaintext: `take` gets slices in order and returns how much of each it took, less only when it is full.
    /// Ready without a call of `take` is the end of the client's data.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        mut take: impl FnMut(&[u8]) -> usize,
    ) -> Poll<io::Result<()>> {
        if self.has_plaintext() {
            self.taken += take(&self.plaintext[self.taken..]);
            if self.taken == self.plaintext.len() {
                self.plaintext = Vec::new();
                self.taken = 0;
            }
            return Poll::Ready(Ok(()));
        }
        loop {
            if self.peer_closed {
                return Poll::Ready(Ok(()));
            }
            let read = SCRATCH.with_borrow_mut(|scratch| {
                let buffer = &mut scratch.incoming;
                let kept = self.incoming.len();
                buffer[..kept].copy_from_slice(&self.incoming);
                let mut read = ReadBuf::new(&mut buffer[kept..]);
                ready!(Pin::new(&mut self.io).poll_read(cx, &mut read))?;
                let len = read.filled().len();
                if len == 0 {
                    self.peer_closed = true;
                    return Poll::Ready(Ok(false));
                }
                self.bytes_received += len as u64;
                Poll::Ready(self.open(&mut buffer[..kept + len], &mut take))
            });
            match ready!(read) {
                Ok(true) => return Poll::Ready(Ok(())),
                // A record without data for the reader, or a part of one.
                Ok(false) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Opens the records in `data`; true if there was plaintext. Keeps what is left over.
    fn open(&mut self, data: &mut [u8], take: &mut impl FnMut(&[u8]) -> usize) -> io::Result<bool> {
        let (mut used, mut any, mut full) = (0, false, false);
        loop {
            let UnbufferedStatus { mut discard, state, .. } = self.tls.process_tls_records(&mut data[used..]);
            let mut done = false;
            match state.map_err(broken)? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(broken)?;
                        discard += record.discard;
                        any |= !record.payload.is_empty();
                        let taken = if full { 0 } else { take(record.payload) };
                        full |= taken < record.payload.len();
                        self.plaintext.extend_from_slice(&record.payload[taken..]);
                    }
                }
                ConnectionState::EncodeTlsData(record) => encode(record, &mut self.outgoing),
                ConnectionState::TransmitTlsData(records) => records.done(),
                ConnectionState::PeerClosed => self.peer_closed = true,
                _ => done = true,
            }
            used += discard;
            if done {
                break;
            }
        }
        self.incoming.clear();
        if used < data.len() {
            self.incoming.extend_from_slice(&data[used..]);
        } else {
            self.incoming = Vec::new();
        }
        Ok(any)
    }

    /// Reads into the connection's own memory: true when there is plaintext, false at the client's end. Unlike waiting
    /// for a reader with a buffer, this needs none until there is data.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.has_plaintext() {
            return Poll::Ready(Ok(true));
        }
        self.poll_read(cx, |_| 0).map_ok(|()| self.has_plaintext())
    }

    /// Gives back what was read too far: the next read begins with it.
    pub fn unread(&mut self, data: &[u8]) {
        let mut plaintext = data.to_vec();
        plaintext.extend_from_slice(&self.plaintext[self.taken..]);
        self.plaintext = plaintext;
        self.taken = 0;
    }

    /// Accepts plaintext to send, all of `slices` or, of much, a part; pending while the client does not read.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.blocked {
            ready!(self.poll_send(cx))?;
        }
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        if self.gathered.len() + total < RECORD {
            for slice in slices {
                self.gathered.extend_from_slice(slice);
            }
            return Poll::Ready(Ok(total));
        }
        self.poll_write_bulk(cx, slices)
    }

    /// Seals whole records from the caller's memory and gathers what is left at the end.
    fn poll_write_bulk(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut accepted = 0;
        SCRATCH.with_borrow_mut(|scratch| {
            let mut out = Sealed::begin(self, &mut scratch.outgoing);
            for slice in slices {
                let mut rest: &[u8] = slice;
                while !rest.is_empty() {
                    if !out.has_room() {
                        return out.send(cx);
                    }
                    let len = if out.stream.gathered.is_empty() && rest.len() >= RECORD {
                        out.seal(&rest[..RECORD])?;
                        RECORD
                    } else {
                        let len = rest.len().min(RECORD - out.stream.gathered.len());
                        out.stream.gathered.extend_from_slice(&rest[..len]);
                        if out.stream.gathered.len() == RECORD {
                            out.seal_gathered()?;
                        }
                        len
                    };
                    rest = &rest[len..];
                    accepted += len;
                }
            }
            out.send(cx)
        })?;
        Poll::Ready(Ok(accepted))
    }

    /// Sends everything that was written. Ready when the socket took it all.
    pub fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.blocked {
            ready!(self.poll_send(cx))?;
        }
        if self.gathered.is_empty() {
            return self.poll_send(cx);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let mut out = Sealed::begin(self, &mut scratch.outgoing);
            out.seal_gathered()?;
            out.send(cx)
        })?;
        self.poll_send(cx)
    }

    /// Sends what was written and close_notify, then closes our side of the connection.
    pub fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        if !self.closing {
            self.closing = true;
            SCRATCH.with_borrow_mut(|scratch| {
                let mut out = Sealed::begin(self, &mut scratch.outgoing);
                out.close_notify();
                out.send(cx)
            })?;
        }
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.outgoing.len() {
            let written = Pin::new(&mut self.io).poll_write(cx, &self.outgoing[self.sent..]);
            self.blocked = written.is_pending();
            let len = ready!(written)?;
            self.sent += len;
            self.bytes_sent += len as u64;
        }
        if self.sent > 0 {
            self.outgoing = Vec::new();
            self.sent = 0;
        }
        Poll::Ready(Ok(()))
    }

    /// Gives back memory that only a busy connection needs.
    pub fn rest(&mut self) {
        self.gathered.shrink_to_fit();
    }

    /// The client does not take what was written.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// The client has closed its side.
    pub fn is_peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// Bytes received on and sent over the socket, the handshake included.
    pub fn bytes(&self) -> (u64, u64) {
        (self.bytes_received, self.bytes_sent)
    }

    /// The connection below, for facts about it.
    pub fn tcp(&self) -> &TcpStream {
        &self.io
    }

    /// The connection below, for what is left to do after [`poll_close`](Self::poll_close).
    pub fn into_tcp(self) -> TcpStream {
        self.io
    }

    fn has_plaintext(&self) -> bool {
        self.taken < self.plaintext.len()
    }
}

/// Records on their way through the worker's buffer.
struct Sealed<'a> {
    stream: &'a mut Stream,
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Sealed<'a> {
    fn begin(stream: &'a mut Stream, buffer: &'a mut [u8]) -> Self {
        Self { stream, buffer, len: 0 }
    }

    fn has_room(&self) -> bool {
        self.buffer.len() - self.len >= RECORD + OVERHEAD
    }

    fn seal(&mut self, plaintext: &[u8]) -> io::Result<()> {
        let buffer = &mut self.buffer[self.len..];
        self.len += seal(&mut self.stream.tls, &mut self.stream.outgoing, plaintext, buffer)?;
        Ok(())
    }

    fn seal_gathered(&mut self) -> io::Result<()> {
        let mut gathered = std::mem::take(&mut self.stream.gathered);
        let sealed = self.seal(&gathered);
        gathered.clear();
        self.stream.gathered = gathered;
        sealed
    }

    fn close_notify(&mut self) {
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) =
            self.stream.tls.process_tls_records(&mut []).state
        {
            self.len += traffic.queue_close_notify(&mut self.buffer[self.len..]).unwrap_or(0);
        }
    }

    /// Offers the records to the socket at once and keeps what it does not take.
    fn send(self, cx: &mut Context<'_>) -> io::Result<()> {
        let stream = self.stream;
        let mut sealed = &self.buffer[..self.len];
        if stream.outgoing.is_empty() {
            while !sealed.is_empty() {
                let Poll::Ready(written) = Pin::new(&mut stream.io).poll_write(cx, sealed) else {
                    stream.blocked = true;
                    break;
                };
                let len = written?;
                stream.bytes_sent += len as u64;
                sealed = &sealed[len..];
            }
            stream.outgoing.extend_from_slice(sealed);
            return Ok(());
        }
        // Records made before these (tickets, key updates) go first, in the same system call.
        stream.outgoing.extend_from_slice(sealed);
        match stream.poll_send(cx) {
            Poll::Ready(result) => result,
            Poll::Pending => Ok(()),
        }
    }
}

/// Seals `plaintext` into `buffer`; records that rustls wants sent before it go to `first`.
fn seal(
    tls: &mut UnbufferedServerConnection,
    first: &mut Vec<u8>,
    plaintext: &[u8],
    buffer: &mut [u8],
) -> io::Result<usize> {
    loop {
        match tls.process_tls_records(&mut []).state.map_err(broken)? {
            ConnectionState::WriteTraffic(mut traffic) => {
                return traffic.encrypt(plaintext, buffer).map_err(io::Error::other);
            }
            ConnectionState::EncodeTlsData(record) => encode(record, first),
            ConnectionState::TransmitTlsData(records) => records.done(),
            ConnectionState::PeerClosed => {}
            _ => return Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn shrunk(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.shrink_to_fit();
    bytes
}

//! Connections after their handshake.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use brisk_tls_base::record::PLAINTEXT;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::facts::ClientFacts;
use super::layer::Layer;
use super::observe::Observer;
use super::session::SavedSession;

/// Bytes read from a socket at once.
const READ: usize = 64 * 1024;

/// Maximum ciphertext that waits for the rest of its record or message.
const UNFINISHED_LIMIT: usize = 64 * 1024;

/// Maximum bytes of records waiting for the socket before writes are delayed.
const UNSENT_LIMIT: usize = 64 * 1024;

// One buffer for all connections of a thread: 128 KiB for each of 10,000 connections would take 1.3 GB.
thread_local! {
    static INCOMING: RefCell<Box<[u8]>> = RefCell::new(vec![0; UNFINISHED_LIMIT + READ].into_boxed_slice());
}

/// An encrypted connection to a server.
///
/// Written data is encrypted and sent at once. Up to 64 KiB are buffered if the socket does not accept more. Reading
/// returns [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) if the server closes without `close_notify`. Shutdown sends
/// `close_notify` and closes this side of the TCP connection; dropping it sends nothing.
pub struct ClientStream {
    tcp: TcpStream,
    layer: Layer,
    facts: ClientFacts,
    /// Unprocessed ciphertext: the end of the handshake's last flight, or an unfinished record.
    incoming: Vec<u8>,
    /// Whether `incoming` has not been processed since the handshake.
    unopened: bool,
    /// Plaintext for which the last reader had no room, from `taken` on.
    plaintext: Vec<u8>,
    taken: usize,
    /// Records to be sent, from `sent` on.
    outgoing: Vec<u8>,
    sent: usize,
    peer_closed: bool,
    closing: bool,
    received_bytes: u64,
    sent_bytes: u64,
    observer: Option<Arc<dyn Observer>>,
}

impl ClientStream {
    /// `incoming` and `plaintext` arrived with the end of the handshake.
    pub(super) fn new(
        tcp: TcpStream,
        layer: Layer,
        facts: ClientFacts,
        incoming: Vec<u8>,
        plaintext: Vec<u8>,
        observer: Option<Arc<dyn Observer>>,
    ) -> Self {
        let peer_closed = layer.is_closed();
        Self {
            tcp,
            layer,
            received_bytes: facts.bytes_received + incoming.len() as u64,
            sent_bytes: facts.bytes_sent,
            facts,
            unopened: !incoming.is_empty(),
            incoming,
            plaintext,
            taken: 0,
            outgoing: Vec::new(),
            sent: 0,
            peer_closed,
            closing: false,
            observer,
        }
    }

    /// The [`ClientFacts`] of the handshake.
    pub fn facts(&self) -> &ClientFacts {
        &self.facts
    }

    /// The sessions received since the last call, the newest last. TLS 1.3 servers send them after the handshake, so
    /// they arrive while the caller reads. With [`SessionUse::Many`](crate::SessionUse::Many), a connection with a
    /// resumed TLS 1.3 session receives none.
    pub fn take_sessions(&mut self) -> Vec<SavedSession> {
        self.layer.take_sessions()
    }

    /// Waits for a session and returns the newest one. Other data is kept for the reader. `None` if the server closes
    /// before, and at once on a connection that receives no sessions. It has no timeout, and many servers send none.
    pub async fn next_session(&mut self) -> io::Result<Option<SavedSession>> {
        loop {
            if let Some(session) = self.layer.take_session() {
                return Ok(Some(session));
            }
            if self.peer_closed || !self.layer.brings_sessions() {
                return Ok(None);
            }
            poll_fn(|cx| self.poll_more(cx, None)).await?;
        }
    }

    /// Bytes received and sent over the socket, including the handshake.
    pub fn bytes(&self) -> (u64, u64) {
        (self.received_bytes, self.sent_bytes)
    }

    /// Whether the server has closed its side.
    pub fn is_peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// The underlying TCP connection.
    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// The underlying TCP connection, to close it without TLS.
    pub fn into_tcp(self) -> TcpStream {
        self.tcp
    }

    /// Decrypts pending data, after reading from the socket unless bytes remain from the handshake. Copies plaintext to
    /// `buffer` as far as it has room.
    fn poll_more(
        &mut self,
        cx: &mut Context<'_>,
        mut buffer: Option<&mut ReadBuf<'_>>,
    ) -> Poll<io::Result<()>> {
        INCOMING.with_borrow_mut(|bytes| {
            let kept = self.incoming.len();
            bytes[..kept].copy_from_slice(&self.incoming);
            let mut len = kept;
            if !self.unopened {
                let mut free = ReadBuf::new(&mut bytes[kept..kept + READ]);
                ready!(Pin::new(&mut self.tcp).poll_read(cx, &mut free))?;
                let read = free.filled().len();
                if read == 0 {
                    // RFC 8446 section 6.1: without `close_notify` the data may be truncated by an
                    // attacker.
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                if let Some(observer) = &self.observer {
                    observer.received(Instant::now(), &bytes[kept..kept + read]);
                }
                self.received_bytes += read as u64;
                len += read;
            }
            self.unopened = false;
            let plaintext = &mut self.plaintext;
            let mut take = |piece: &[u8]| {
                let mut rest = piece;
                // Once a piece did not fit, all later ones must follow it, even if they would fit.
                if let Some(buffer) = buffer.as_deref_mut().filter(|_| plaintext.is_empty()) {
                    let (now, later) = piece.split_at(piece.len().min(buffer.remaining()));
                    buffer.put_slice(now);
                    rest = later;
                }
                plaintext.extend_from_slice(rest);
            };
            let opened = self.layer.open(&mut bytes[..len], &mut self.outgoing, &mut take);
            let (used, closed) = opened?;
            self.peer_closed |= closed;
            self.incoming.clear();
            self.incoming.extend_from_slice(&bytes[used..len]);
            if self.incoming.len() > UNFINISHED_LIMIT {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            Poll::Ready(Ok(()))
        })
    }

    /// Copies buffered plaintext to the reader.
    fn read_kept(&mut self, buffer: &mut ReadBuf<'_>) {
        let kept = &self.plaintext[self.taken..];
        let len = kept.len().min(buffer.remaining());
        buffer.put_slice(&kept[..len]);
        self.taken += len;
        if self.taken == self.plaintext.len() {
            // Freed and not cleared, so that idle connections hold no memory.
            self.plaintext = Vec::new();
            self.taken = 0;
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.outgoing.len() {
            let at = self.observer.as_ref().map(|_| Instant::now());
            let len = ready!(Pin::new(&mut self.tcp).poll_write(cx, &self.outgoing[self.sent..]))?;
            if let (Some(observer), Some(at)) = (&self.observer, at) {
                observer.sent(at, &self.outgoing[self.sent..self.sent + len]);
            }
            self.sent += len;
            self.sent_bytes += len as u64;
        }
        self.outgoing = Vec::new();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        let before = buffer.filled().len();
        loop {
            if stream.taken < stream.plaintext.len() {
                stream.read_kept(buffer);
            }
            if buffer.filled().len() > before || stream.peer_closed || buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let more = stream.poll_more(cx, Some(buffer));
            // A reply to a key update, or an alert, is sent as soon as possible; the reader does not wait for it.
            if !stream.outgoing.is_empty() {
                let _ = stream.poll_send(cx);
            }
            ready!(more)?;
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        if stream.outgoing.len() - stream.sent > UNSENT_LIMIT {
            ready!(stream.poll_send(cx))?;
        }
        let mut accepted = 0;
        let plaintext = &mut stream.plaintext;
        let mut keep = |piece: &[u8]| plaintext.extend_from_slice(piece);
        // At most 64 KiB a call: the rest of a large buffer waits until the socket has accepted these
        // records.
        for piece in bytes.chunks(PLAINTEXT).take(UNSENT_LIMIT / PLAINTEXT) {
            stream.layer.seal(piece, &mut stream.incoming, &mut stream.outgoing, &mut keep)?;
            accepted += piece.len();
        }
        match stream.poll_send(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // Sealed data cannot be sealed again, so it is accepted even if the socket is full. The next
            // write or flush sends the records.
            _ => Poll::Ready(Ok(accepted)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_send(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        if !stream.closing {
            stream.closing = true;
            stream.layer.seal_close(&mut stream.incoming, &mut stream.outgoing)?;
        }
        ready!(stream.poll_send(cx))?;
        match ready!(Pin::new(&mut stream.tcp).poll_shutdown(cx)) {
            // The server closed the connection first.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }
}

impl fmt::Debug for ClientStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientStream").field("facts", &self.facts).finish_non_exhaustive()
    }
}

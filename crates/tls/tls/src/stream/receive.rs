//! Reading of records into a buffer of the worker, and their decryption there.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use brisk_tls_base::record::encode;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use tokio::io::{AsyncRead, ReadBuf};

use super::{Stream, broken};

/// Maximum bytes of one read from a socket: a few records, so that uploads need few system calls.
const READ: usize = 64 * 1024;

/// Maximum ciphertext that waits for the rest of its record or message. A record has at most 18 KiB, and a client may
/// send no message longer than a record after its handshake.
const UNFINISHED_LIMIT: usize = 32 * 1024;

thread_local! {
    static INCOMING: RefCell<Box<[u8]>> = RefCell::new(vec![0; UNFINISHED_LIMIT + READ].into_boxed_slice());
}

impl Stream {
    /// Reads from the socket once; `true` if there was plaintext. Data that `take` does not consume is kept.
    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut impl FnMut(&[u8]) -> usize,
    ) -> Poll<io::Result<bool>> {
        if self.failed || self.incoming.len() > UNFINISHED_LIMIT {
            return Poll::Ready(Err(self.fail("the client broke the protocol")));
        }
        // Borrowed while `take` runs, which therefore must not read from another stream.
        INCOMING.with_borrow_mut(|buffer| {
            let kept = self.incoming.len();
            // At most `UNFINISHED_LIMIT` bytes are kept, so there is always room for a full read.
            buffer[..kept].copy_from_slice(&self.incoming);
            let mut read = ReadBuf::new(&mut buffer[kept..]);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut read))?;
            let len = read.filled().len();
            if len == 0 {
                self.peer_closed = true;
                if self.tls.is_none() {
                    return Poll::Ready(Ok(false));
                }
                // RFC 8446 section 6.1: without close_notify, the data may be truncated.
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.bytes_received += len as u64;
            let opened = self.open(&mut buffer[..kept + len], take);
            self.note_confirmation();
            Poll::Ready(opened)
        })
    }

    /// Decrypts the records in `data`; `true` if there was plaintext. Keeps unprocessed bytes.
    fn open(&mut self, data: &mut [u8], take: &mut impl FnMut(&[u8]) -> usize) -> io::Result<bool> {
        let (mut used, mut any, mut full) = (0, false, false);
        let mut hand_over = |payload: &[u8]| {
            any |= !payload.is_empty();
            // Data kept from before must be read first.
            full |= self.taken < self.plaintext.len();
            let taken = if full { 0 } else { take(payload) };
            full |= taken < payload.len();
            self.plaintext.extend_from_slice(&payload[taken..]);
        };
        let Some(tls) = &mut self.tls else {
            hand_over(data);
            return Ok(any);
        };
        loop {
            let UnbufferedStatus { mut discard, state, .. } = tls.process_tls_records(&mut data[used..]);
            let mut done = false;
            let state = match state {
                Ok(state) => state,
                Err(error) => return Err(self.fail(error)),
            };
            match state {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(broken)?;
                        discard += record.discard;
                        hand_over(record.payload);
                    }
                }
                ConnectionState::ReadEarlyData(mut early) => {
                    while let Some(record) = early.next_record() {
                        let record = record.map_err(broken)?;
                        discard += record.discard;
                        self.early_bytes += record.payload.len() as u64;
                        hand_over(record.payload);
                    }
                }
                ConnectionState::EncodeTlsData(record) => {
                    // Sealed later than the records in the batch, so it must be sent later.
                    self.sealed.move_to(&mut self.outgoing);
                    encode(record, &mut self.outgoing);
                }
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
            // Released, so that an idle connection keeps no buffer.
            self.incoming = Vec::new();
        }
        Ok(any)
    }
}

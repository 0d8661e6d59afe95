//! A [`Batch`] of sealed records on their way to the socket, in a buffer borrowed from the worker.

use std::cell::RefCell;
use std::io;

use brisk_tls_base::record::{KEY_UPDATE, OVERHEAD, PLAINTEXT, encode};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::ConnectionState;

use crate::stream::broken;

/// Records sent by one system call: the first value initially and after the socket has refused some (a single record on a slow
/// connection), doubled up to the second whenever the socket has accepted a full batch at once. Records that the socket does not
/// accept stay with the connection, so a client that reads little makes it hold little.
const RECORDS_FIRST: usize = 2;
const RECORDS_MOST: usize = 16;

/// Bytes that a connection sends in batches of [`RECORDS_FIRST`] first: before, the rate of the connection is not known.
const GROWTH: u64 = 128 << 10;

const SIZE: usize = RECORDS_MOST * (PLAINTEXT + OVERHEAD) + KEY_UPDATE;

/// Unused buffers kept by a worker. A connection has one only while it is served, so one usually suffices.
const POOLED: usize = 4;

thread_local! {
    static BUFFERS: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// Sealed records. Holds a buffer from the first record to [`clear`](Self::clear).
pub(crate) struct Batch {
    buffer: Option<Box<[u8]>>,
    len: usize,
    /// Maximum number of records, from 1 to [`RECORDS_MOST`].
    records: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Self { buffer: None, len: 0, records: RECORDS_FIRST }
    }
}

impl Batch {
    /// Whether another record may not fit.
    pub(crate) fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Bytes of plaintext that fit in whole records.
    pub(crate) fn room(&self) -> usize {
        (self.records * (PLAINTEXT + OVERHEAD)).saturating_sub(self.len) / (PLAINTEXT + OVERHEAD) * PLAINTEXT
    }

    /// Makes the next batches small: the socket has refused records. With `is_slow`, they have a single record, since
    /// nothing can overtake them.
    pub(crate) fn narrow(&mut self, is_slow: bool) {
        self.records = if is_slow { 1 } else { RECORDS_FIRST };
    }

    /// Discards the records, which the socket has accepted; `sent` bytes of the connection altogether.
    pub(crate) fn sent(&mut self, sent: u64) {
        if self.is_full() && sent >= GROWTH {
            self.records = (2 * self.records).min(RECORDS_MOST);
        }
        self.clear();
    }

    /// The records so far.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[..self.len])
    }

    /// Appends the records to `outgoing`, which is sent first, so that records sealed later can follow there.
    pub(crate) fn move_to(&mut self, outgoing: &mut Vec<u8>) {
        outgoing.extend_from_slice(self.bytes());
        self.clear();
    }

    /// Appends a record with `plaintext`, at most [`PLAINTEXT`] bytes; records of rustls that must precede it are
    /// appended to `outgoing`. Without TLS, the record is the plaintext.
    ///
    /// `incoming` is the unprocessed part of the client's data; rustls keeps offsets into it.
    pub(crate) fn seal(
        &mut self,
        tls: Option<&mut UnbufferedServerConnection>,
        incoming: &mut [u8],
        outgoing: &mut Vec<u8>,
        plaintext: &[u8],
    ) -> io::Result<()> {
        let Some(tls) = tls else {
            self.free()[..plaintext.len()].copy_from_slice(plaintext);
            self.len += plaintext.len();
            return Ok(());
        };
        loop {
            match tls.process_tls_records(incoming).state.map_err(broken)? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    self.len += traffic.encrypt(plaintext, self.free()).map_err(io::Error::other)?;
                    return Ok(());
                }
                // A `KeyUpdate`, for example. It was sealed after the records in the batch, so it is sent
                // after them.
                ConnectionState::EncodeTlsData(record) => {
                    self.move_to(outgoing);
                    encode(record, outgoing);
                }
                ConnectionState::TransmitTlsData(records) => records.done(),
                // RFC 8446 section 6.1: the client has closed its own direction only, and can still
                // receive.
                ConnectionState::PeerClosed => {}
                _ => return Err(io::ErrorKind::NotConnected.into()),
            }
        }
    }

    /// Appends the alert `close_notify` if the connection can still send it.
    pub(crate) fn close_notify(&mut self, tls: &mut UnbufferedServerConnection, incoming: &mut [u8]) {
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) = tls.process_tls_records(incoming).state {
            self.len += traffic.queue_close_notify(self.free()).unwrap_or(0);
        }
    }

    /// Discards the records and returns the buffer to the worker, which keeps at most [`POOLED`].
    pub(crate) fn clear(&mut self) {
        self.len = 0;
        let Some(buffer) = self.buffer.take() else { return };
        BUFFERS.with_borrow_mut(|buffers| {
            if buffers.len() < POOLED {
                buffers.push(buffer);
            }
        });
    }

    fn free(&mut self) -> &mut [u8] {
        let buffer = self.buffer.get_or_insert_with(|| {
            let pooled = BUFFERS.with_borrow_mut(Vec::pop);
            pooled.unwrap_or_else(|| vec![0; SIZE].into_boxed_slice())
        });
        &mut buffer[self.len..]
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.clear();
    }
}

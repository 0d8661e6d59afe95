//! QUIC connection, as far as HTTP/3 depends on it.

use std::time::Duration;

use brisk_wire::h3::error::Code;
use bytes::Bytes;

/// Direction of a stream that a client has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Request stream.
    Both,
    /// Unidirectional stream.
    Uni,
}

/// Result of [`Transport::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The receiver of the bytes wants no more for now.
    Enough,
    /// No more bytes have arrived. [`Http3::readable`](super::Http3::readable) is called when more arrive.
    Blocked,
    /// The stream has ended.
    End,
    /// The client has reset the stream (`RESET_STREAM`).
    Reset,
    /// The stream was stopped, or its end was read before.
    Closed,
}

/// Result of [`Transport::write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// This number of bytes was accepted; the chunks are advanced.
    Written(usize),
    /// Flow control or the limit of unacknowledged bytes permits no write. [`Http3::writable`](super::Http3::writable) is
    /// called when the stream may be written again.
    Blocked,
    /// The client has stopped the stream (`STOP_SENDING`).
    Stopped,
}

/// QUIC connection with a client. Streams are named by their IDs (RFC 9000 section 2.1).
pub trait Transport {
    /// Takes the next stream that the client has opened; `None` if there is none. IDs of one [`Direction`] ascend.
    fn accept(&mut self, direction: Direction) -> Option<u64>;

    /// Opens a unidirectional stream; `None` while the client does not permit it.
    fn open(&mut self) -> Option<u64>;

    /// Passes available bytes of a stream to `take`, in order and in pieces of at most 16 KiB, until `take` returns `false`.
    fn read(&mut self, stream: u64, take: impl FnMut(&[u8]) -> bool) -> Read;

    /// Writes as much of `chunks` as is permitted. Written chunks are left empty.
    fn write(&mut self, stream: u64, chunks: &mut [Bytes]) -> Write;

    /// Ends a stream after the written bytes. [`Http3::finished`](super::Http3::finished) is called when the client has
    /// acknowledged all of them.
    fn finish(&mut self, stream: u64);

    /// Abandons the transmission of a stream with `RESET_STREAM`, if it has not ended.
    fn reset(&mut self, stream: u64, code: Code);

    /// Asks the client with `STOP_SENDING` to send no more on a stream, if it has not ended.
    fn stop(&mut self, stream: u64, code: Code);

    /// Sets the priority of a stream that is written: the highest is sent first, equal ones take turns.
    fn set_priority(&mut self, stream: u64, priority: i32);

    /// Estimate of the time of a round trip.
    fn round_trip(&self) -> Duration;

    /// Bytes of datagrams received and sent so far.
    fn bytes(&self) -> (u64, u64);
}

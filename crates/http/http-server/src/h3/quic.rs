//! [`Transport`] over `quinn-proto`.

use std::time::Duration;

use brisk_wire::h3::error::Code;
use bytes::Bytes;
use quinn_proto::{Connection, Dir, ReadError, StreamEvent, StreamId, VarInt, WriteError};

use super::Http3;
use super::transport::{Direction, Read, Transport, Write};

/// Maximum length in bytes of a piece that is read.
const PIECE: usize = 16 << 10;

fn id(stream: u64) -> StreamId {
    varint(stream).into()
}

fn varint(number: u64) -> VarInt {
    VarInt::from_u64(number).unwrap_or(VarInt::MAX)
}

impl Transport for Connection {
    fn accept(&mut self, direction: Direction) -> Option<u64> {
        let direction = match direction {
            Direction::Both => Dir::Bi,
            Direction::Uni => Dir::Uni,
        };
        self.streams().accept(direction).map(u64::from)
    }

    fn open(&mut self) -> Option<u64> {
        self.streams().open(Dir::Uni).map(u64::from)
    }

    fn read(&mut self, stream: u64, mut take: impl FnMut(&[u8]) -> bool) -> Read {
        let mut stream = self.recv_stream(id(stream));
        let Ok(mut chunks) = stream.read(true) else { return Read::Closed };
        let read = loop {
            match chunks.next(PIECE) {
                Ok(Some(chunk)) if take(&chunk.bytes) => {}
                Ok(Some(_)) => break Read::Enough,
                Ok(None) => break Read::End,
                Err(ReadError::Blocked) => break Read::Blocked,
                Err(ReadError::Reset(_)) => break Read::Reset,
            }
        };
        // The driver sends at the end of the turn in any case.
        let _ = chunks.finalize();
        read
    }

    fn write(&mut self, stream: u64, chunks: &mut [Bytes]) -> Write {
        match self.send_stream(id(stream)).write_chunks(chunks) {
            Ok(written) => Write::Written(written.bytes),
            Err(WriteError::Blocked) => Write::Blocked,
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => Write::Stopped,
        }
    }

    fn finish(&mut self, stream: u64) {
        // A stream that the client has stopped is reported as stopped.
        let _ = self.send_stream(id(stream)).finish();
    }

    fn reset(&mut self, stream: u64, code: Code) {
        // Fails if the stream has ended.
        let _ = self.send_stream(id(stream)).reset(varint(code.0));
    }

    fn stop(&mut self, stream: u64, code: Code) {
        // Fails if the stream has ended.
        let _ = self.recv_stream(id(stream)).stop(varint(code.0));
    }

    fn set_priority(&mut self, stream: u64, priority: i32) {
        // Fails if the stream has ended.
        let _ = self.send_stream(id(stream)).set_priority(priority);
    }

    fn round_trip(&self) -> Duration {
        self.rtt()
    }

    fn bytes(&self) -> (u64, u64) {
        let stats = self.stats();
        (stats.udp_rx.bytes, stats.udp_tx.bytes)
    }
}

impl Http3 {
    /// Reports an event of the connection's streams. To be followed by [`Self::poll`].
    pub fn event(&mut self, event: &StreamEvent) {
        match *event {
            StreamEvent::Readable { id } => self.readable(id.into()),
            StreamEvent::Writable { id } => self.writable(id.into()),
            StreamEvent::Finished { id } => self.finished(id.into()),
            StreamEvent::Stopped { id, .. } => self.stopped(id.into()),
            // New streams are accepted, and streams are opened, in each turn.
            StreamEvent::Opened { .. } | StreamEvent::Available { .. } => {}
        }
    }
}

//! Requests of HTTP/2 (RFC 9113).

use std::collections::HashMap;

use brisk_handshake_view::Party;
use brisk_wire::h2::frame::{FrameHead, HEAD, HeadersPayload, PREFACE, flag, kind};
use brisk_wire::h2::hpack::{Decoder, Fields, Name, constant};

use super::{Exchange, Exchanges, NotHttp, Place, short};

/// Size of the HPACK tables at most, as in browsers. An encoder that uses a larger table cannot be followed.
const TABLE: usize = 65_536;

/// Longest header block.
const BLOCK: usize = 64 * 1024;

/// Maximum number of fields of a head.
const FIELDS: usize = 256;

/// Maximum number of streams without a complete response.
const STREAMS: usize = 1000;

/// A header field.
type Line = (String, String);

/// Both directions of a connection.
#[derive(Debug, Default)]
pub(super) struct Http2 {
    sides: [Side; 2],
    /// Index of the request of each stream.
    streams: HashMap<u32, usize>,
}

#[derive(Debug)]
struct Side {
    /// Bytes of the preface that are still to come.
    preface: usize,
    /// Bytes of an incomplete frame head or header block.
    partial: Vec<u8>,
    /// The frame whose payload is read, and the number of bytes to come.
    frame: Option<(FrameHead, usize)>,
    /// Bytes of that frame's payload without content: those of padding with its length.
    padding: u64,
    /// Header block until its end: its first frame, and its bytes.
    block: Option<(FrameHead, Vec<u8>)>,
    decoder: Decoder<Line>,
}

impl Default for Side {
    fn default() -> Self {
        // The table may be larger than the encoder's: indices count from the newest entry (RFC 7541 section
        // 2.3.3), so older entries do no harm, and the SETTINGS of the peer need not be followed.
        let decoder = Decoder::new(TABLE);
        Self { preface: 0, partial: Vec::new(), frame: None, padding: 0, block: None, decoder }
    }
}

/// Decoded fields.
#[derive(Default)]
struct Lines(Vec<Line>);

impl Fields for Lines {
    type Field = Line;

    fn constant(&mut self, index: usize) -> Line {
        let (name, value) = constant(index).unwrap_or_default();
        (name.to_owned(), value.to_owned())
    }

    fn literal(&mut self, name: Name<'_, Line>, value: &[u8]) -> Line {
        let name = match name {
            Name::Constant(index) => self.constant(index).0,
            Name::Of((name, _)) => name.clone(),
            Name::New(name) => short(name),
        };
        (name, short(value))
    }

    fn take(&mut self, field: Line) {
        self.0.push(field);
    }
}

impl Lines {
    fn value(&self, name: &str) -> String {
        let mut lines = self.0.iter();
        lines.find(|(found, _)| found == name).map(|(_, value)| value.clone()).unwrap_or_default()
    }
}

impl Http2 {
    /// Adds bytes.
    pub(super) fn add(
        &mut self,
        from: Party,
        place: Place,
        mut bytes: &[u8],
        exchanges: &mut Exchanges,
    ) -> Result<(), NotHttp> {
        let side = &mut self.sides[from as usize];
        if from == Party::Client && side.preface < PREFACE.len() {
            let length = (PREFACE.len() - side.preface).min(bytes.len());
            // Only counted: no other protocol begins with `PRI`.
            side.preface += length;
            bytes = &bytes[length..];
        }
        while !bytes.is_empty() {
            bytes = self.part(from, place, bytes, exchanges).ok_or(NotHttp)?;
        }
        Ok(())
    }

    /// Takes a part of a frame and returns the bytes behind it.
    fn part<'a>(
        &mut self,
        from: Party,
        place: Place,
        bytes: &'a [u8],
        exchanges: &mut Exchanges,
    ) -> Option<&'a [u8]> {
        let side = &mut self.sides[from as usize];
        let Some((frame, left)) = &mut side.frame else {
            let (taken, rest) = bytes.split_at((HEAD - side.partial.len()).min(bytes.len()));
            side.partial.extend_from_slice(taken);
            let Ok(head) = <[u8; HEAD]>::try_from(&side.partial[..]) else { return Some(rest) };
            side.partial.clear();
            let head = FrameHead::read(&head);
            (side.frame, side.padding) = (Some((head, head.length as usize)), 0);
            if head.length == 0 {
                self.frame_end(from, place, exchanges)?;
            }
            return Some(rest);
        };
        let (taken, rest) = bytes.split_at((*left).min(bytes.len()));
        // RFC 9113 section 6.1: the first byte is the length of the padding.
        if frame.has(flag::PADDED) && *left == frame.length as usize {
            side.padding = 1 + taken.first().copied().map_or(0, u64::from);
        }
        *left -= taken.len();
        let (frame, is_complete) = (*frame, *left == 0);
        match frame.kind {
            kind::DATA => {
                if let Some(exchange) = exchanges.get(self.streams.get(&frame.stream).copied()) {
                    let count =
                        if from == Party::Client { &mut exchange.received } else { &mut exchange.sent };
                    *count += taken.len() as u64;
                    if is_complete {
                        *count = count.saturating_sub(side.padding);
                    }
                }
            }
            kind::HEADERS | kind::CONTINUATION => {
                side.partial.extend_from_slice(taken);
                let block = side.block.as_ref().map_or(0, |(_, block)| block.len());
                // RFC 9113 section 6.10 does not limit the number of CONTINUATION frames, so their sum is
                // limited.
                if side.partial.len() + block > BLOCK {
                    return None;
                }
            }
            _ => {}
        }
        if is_complete {
            self.frame_end(from, place, exchanges)?;
        }
        Some(rest)
    }

    /// The end of a frame.
    fn frame_end(&mut self, from: Party, place: Place, exchanges: &mut Exchanges) -> Option<()> {
        let side = &mut self.sides[from as usize];
        let (frame, _) = side.frame.take()?;
        let payload = std::mem::take(&mut side.partial);
        match frame.kind {
            kind::HEADERS => {
                let HeadersPayload { block, .. } = HeadersPayload::read(frame.flags, &payload).ok()?;
                side.block = Some((frame, block.to_vec()));
            }
            kind::CONTINUATION => side.block.as_mut()?.1.extend_from_slice(&payload),
            _ => {}
        }
        let is_headers = matches!(frame.kind, kind::HEADERS | kind::CONTINUATION);
        if is_headers && frame.has(flag::END_HEADERS) {
            let (first, block) = side.block.take()?;
            let mut lines = Lines::default();
            // Also for streams that are not kept: later blocks refer to entries of this one. After an error,
            // the rest of the connection cannot be decoded.
            side.decoder.decode(&block, FIELDS, BLOCK, &mut lines).ok()?;
            self.head(from, first, &lines, place, exchanges);
            if first.has(flag::END_STREAM) {
                self.stream_end(from, first.stream, place, exchanges);
            }
        } else if frame.kind == kind::DATA && frame.has(flag::END_STREAM) {
            self.stream_end(from, frame.stream, place, exchanges);
        } else if frame.kind == kind::RST_STREAM
            && let Some(exchange) = exchanges.get(self.streams.remove(&frame.stream))
        {
            (exchange.is_reset, exchange.end) = (true, Some(place));
        }
        Some(())
    }

    /// Head of a request or response, or trailers.
    fn head(
        &mut self,
        from: Party,
        frame: FrameHead,
        lines: &Lines,
        place: Place,
        exchanges: &mut Exchanges,
    ) {
        if let Some(exchange) = exchanges.get(self.streams.get(&frame.stream).copied()) {
            if let (Party::Server, Ok(status)) = (from, lines.value(":status").parse()) {
                // RFC 9110 section 15.2: interim responses precede the final one.
                if !matches!(status, 100..200) {
                    (exchange.status, exchange.response) = (Some(status), Some(place));
                }
            }
        // Trailers of a known stream end in the branch above.
        } else if from == Party::Client && self.streams.len() < STREAMS {
            let mut exchange = Exchange::new(frame.stream, place);
            exchange.method = lines.value(":method");
            exchange.host = lines.value(":authority");
            exchange.path = lines.value(":path");
            if let Some(index) = exchanges.add(exchange) {
                self.streams.insert(frame.stream, index);
            }
        }
    }

    /// The end of a direction of a stream.
    fn stream_end(&mut self, from: Party, stream: u32, place: Place, exchanges: &mut Exchanges) {
        if from == Party::Server
            && let Some(exchange) = exchanges.get(self.streams.remove(&stream))
        {
            exchange.end = Some(place);
        }
    }

    /// Heap memory in bytes. A field in a table takes at most twice the bytes that HPACK counts (RFC 7541 section 4.1).
    pub(super) fn memory(&self) -> usize {
        let sides = self.sides.iter().map(|side| {
            let block = side.block.as_ref().map_or(0, |(_, block)| block.capacity());
            side.partial.capacity() + block + 2 * side.decoder.size()
        });
        size_of::<Self>() + sides.sum::<usize>() + self.streams.capacity() * 32
    }
}

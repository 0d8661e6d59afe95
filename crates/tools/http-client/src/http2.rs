//! HTTP/2, one request after the other, with a log of the frames in both directions. Bodies are counted and discarded.

mod log;

use std::io;
use std::time::Instant;

use brisk_handshake_view::Party;
use brisk_report::text::{printable, printable_value};
use brisk_wire::h2::block;
use brisk_wire::h2::frame::{
    FrameHead, HEAD, PREFACE, Reason, WriteFrames, flag, kind, without_padding, word,
};
use brisk_wire::h2::hpack::{Decoder, Encoder, Fields, Name, constant};
use brisk_wire::h2::reader::{FrameOrder, HeaderBlock};
use brisk_wire::h2::settings::{DEFAULT_FRAME, DEFAULT_WINDOW, PeerSettings, id, payload};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::error::HttpError;
use crate::request::{CODINGS, Request};
use crate::response::{Response, number};
pub use log::Frame;
use log::Log;

/// Settings of Chrome: sizes in bytes of the header table, of a stream's window, and of a head.
const TABLE: u32 = 65_536;
const WINDOW: u32 = 6_291_456;
const LIST: u32 = 262_144;

/// Increment by which Chrome raises the window of the connection.
const RAISE: u32 = 15_663_105;

/// Maximum number of fields of a head.
const FIELDS: usize = 256;

/// Most frames other than `DATA` that a server may send for one response.
const CONTROL: u32 = 2000;

/// A header field as text.
type Line = (String, String);

/// Decoded header fields.
#[derive(Debug, Default)]
struct DecodedFields(Vec<Line>);

impl Fields for DecodedFields {
    type Field = Line;

    fn constant(&mut self, index: usize) -> Line {
        let (name, value) = constant(index).unwrap_or_default();
        (name.to_owned(), value.to_owned())
    }

    fn literal(&mut self, name: Name<'_, Line>, value: &[u8]) -> Line {
        let name = match name {
            Name::Constant(index) => self.constant(index).0,
            Name::Of((name, _)) => name.clone(),
            Name::New(name) => printable(&String::from_utf8_lossy(name)),
        };
        (name, printable_value(&String::from_utf8_lossy(value)))
    }

    fn take(&mut self, field: Line) {
        self.0.push(field);
    }
}

/// The response that is being read.
struct PendingResponse<'a> {
    stream: u32,
    response: &'a mut Response,
}

impl PendingResponse<'_> {
    fn end(&mut self) -> Result<(), HttpError> {
        let length = self.response.header("content-length").and_then(|length| number(length.as_bytes()));
        let ended = self.response.end(length);
        ended.map_err(|fault| HttpError::protocol(format!("the response is not HTTP/2: {fault}")))
    }
}

/// An HTTP/2 connection.
#[derive(Debug)]
pub struct Http2 {
    encoder: Encoder,
    decoder: Decoder<Line>,
    peer: PeerSettings,
    /// Bytes to send.
    out: Vec<u8>,
    /// Received bytes of an incomplete frame.
    buffer: Vec<u8>,
    order: FrameOrder,
    /// Number of the next stream.
    next: u32,
    /// Bytes that the server may still send on the connection, raised by `WINDOW_UPDATE`.
    connection_window: i64,
    /// Bytes that the server may still send on the stream.
    stream_window: i64,
    /// Frames other than `DATA` since the request.
    control: u32,
    /// Last stream and reason of the server's `GOAWAY`.
    goaway: Option<(u32, Reason)>,
    log: Log,
}

impl Default for Http2 {
    fn default() -> Self {
        Self::new()
    }
}

impl Http2 {
    /// A connection whose preface and `SETTINGS` are sent with the first request.
    pub fn new() -> Self {
        // Servers that send other frames before their settings are shown, not refused.
        let mut order = FrameOrder::default();
        order.settings_received();
        let mut new = Self {
            encoder: Encoder::new(),
            decoder: Decoder::new(TABLE as usize),
            peer: PeerSettings::default(),
            out: PREFACE.to_vec(),
            buffer: Vec::new(),
            order,
            next: 1,
            connection_window: i64::from(DEFAULT_WINDOW) + i64::from(RAISE),
            stream_window: i64::from(WINDOW),
            control: 0,
            goaway: None,
            log: Log::default(),
        };
        let settings = [
            (id::HEADER_TABLE_SIZE, TABLE),
            (id::ENABLE_PUSH, 0),
            (id::INITIAL_WINDOW_SIZE, WINDOW),
            (id::MAX_HEADER_LIST_SIZE, LIST),
        ];
        new.send(kind::SETTINGS, 0, 0, &payload(&settings));
        new.send(kind::WINDOW_UPDATE, 0, 0, &RAISE.to_be_bytes());
        new
    }

    /// The bytes of the next request, after the preface and pending control frames.
    pub fn request(&mut self, request: &Request<'_>) -> Vec<u8> {
        let stream = self.next;
        self.next += 2;
        (self.stream_window, self.control) = (i64::from(WINDOW), 0);
        let at = block::begin(&mut self.out);
        self.encoder.begin(&mut self.out);
        let fields = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", request.authority),
            (":path", request.path),
            ("user-agent", request.agent),
            ("accept", "*/*"),
            ("accept-encoding", CODINGS),
        ];
        for (name, value) in &fields {
            self.encoder.field(name.as_bytes(), value.as_bytes(), &mut self.out);
        }
        block::end(&mut self.out, at, stream, true);
        let head = FrameHead::read(self.out[at..].first_chunk().expect("the head of a frame"));
        let lines = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.log.headers(Party::Client, head, &lines, true);
        std::mem::take(&mut self.out)
    }

    /// Reads the response to the last request into `response` as it arrives; acknowledges `SETTINGS` and `PING`, and sends
    /// `WINDOW_UPDATE`, meanwhile.
    pub async fn read_response<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        response: &mut Response,
    ) -> Result<(), HttpError> {
        *response = Response { protocol: "h2".to_owned(), ..Response::default() };
        let mut wanted = PendingResponse { stream: self.next - 2, response };
        while wanted.response.done_at.is_none() {
            while let Some((head, payload)) = self.next_frame()? {
                self.frame(head, &payload, &mut wanted)?;
            }
            // Before the check of the end: acknowledgements must not wait for the next request.
            if !self.out.is_empty() {
                let out = std::mem::take(&mut self.out);
                // A server that closes no longer reads: the reason in its `GOAWAY` is the error to report.
                let _ = stream.write_all(&out).await;
            }
            if wanted.response.done_at.is_some() {
                break;
            }
            // RFC 9113 section 6.8: streams up to the last one that it names are still served.
            if let Some((last, reason)) = self.goaway
                && last < wanted.stream
            {
                return Err(ended(reason));
            }
            self.buffer.reserve(32 * 1024);
            match stream.read_buf(&mut self.buffer).await {
                Ok(0) => {
                    return Err(self.closed("the server closed the connection before the end of its answer"));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(self.closed("the server closed the connection without close_notify"));
                }
                Err(error) => return Err(self.closed(&format!("the connection broke: {error}"))),
            }
        }
        wanted.response.is_last = self.goaway.is_some();
        Ok(())
    }

    /// Error for the end of the connection: the reason of `GOAWAY`, or `otherwise`.
    fn closed(&self, otherwise: &str) -> HttpError {
        self.goaway.map_or_else(|| HttpError::connection(otherwise), |(_, reason)| ended(reason))
    }

    /// The [`Frame`]s until now, at most 4,000.
    pub fn frames(&self) -> &[Frame] {
        &self.log.frames
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.out.frame(kind, flags, stream, payload);
        let head = FrameHead { length: payload.len() as u32, kind, flags, stream };
        self.log.frame(Party::Client, head, payload, None);
    }

    fn next_frame(&mut self) -> Result<Option<(FrameHead, Vec<u8>)>, HttpError> {
        let Some(head) = self.buffer.first_chunk::<HEAD>() else { return Ok(None) };
        let head = FrameHead::read(head);
        if head.length > DEFAULT_FRAME {
            let reason = if self.log.is_answered() {
                "sends a frame that is too long"
            } else {
                "does not speak HTTP/2"
            };
            return Err(HttpError::protocol(format!("the server {reason}")));
        }
        let end = HEAD + head.length as usize;
        if self.buffer.len() < end {
            return Ok(None);
        }
        let payload = self.buffer[HEAD..end].to_vec();
        self.buffer.drain(..end);
        Ok(Some((head, payload)))
    }

    fn frame(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        wanted: &mut PendingResponse<'_>,
    ) -> Result<(), HttpError> {
        // Floods of `PING` or `SETTINGS` without a response would keep the client busy (CVE-2019-9512,
        // CVE-2019-9515).
        if head.kind != kind::DATA {
            self.control += 1;
            if self.control > CONTROL {
                return Err(Reason::ENHANCE_YOUR_CALM.into());
            }
        }
        self.order.check(head)?;
        if head.kind == kind::HEADERS && head.stream == wanted.stream {
            wanted.response.first_byte_at.get_or_insert_with(Instant::now);
        }
        match head.kind {
            kind::HEADERS | kind::CONTINUATION => return self.headers(head, payload, wanted),
            kind::DATA => return self.data(head, payload, wanted),
            _ => self.log.frame(Party::Server, head, payload, None),
        }
        match head.kind {
            kind::SETTINGS if !head.has(flag::ACK) => {
                let least = self.peer.apply(payload)?;
                // RFC 7541 section 4.2: the smallest size comes first, because the table of the peer has lost
                // its entries.
                self.encoder.resize(least as usize);
                self.encoder.resize(self.peer.header_table as usize);
                self.send(kind::SETTINGS, flag::ACK, 0, &[]);
            }
            kind::PING if !head.has(flag::ACK) => self.send(kind::PING, flag::ACK, 0, payload),
            kind::GOAWAY => {
                let reason = Reason(word(payload.get(4..).unwrap_or_default()));
                self.goaway = Some((word(payload) & 0x7fff_ffff, reason));
            }
            kind::RST_STREAM if head.stream == wanted.stream => return Err(Reason(word(payload)).into()),
            // RFC 9113 section 8.4: the settings of this side disable push.
            kind::PUSH_PROMISE => return Err(Reason::PROTOCOL_ERROR.into()),
            _ => {}
        }
        Ok(())
    }

    fn headers(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        wanted: &mut PendingResponse<'_>,
    ) -> Result<(), HttpError> {
        wanted.response.head_bytes += HEAD + payload.len();
        let block = if head.kind == kind::HEADERS {
            self.order.headers(head, payload)?
        } else {
            let block = self.order.continuation(head, payload, LIST as usize);
            block.map_err(|_| Reason::PROTOCOL_ERROR)?
        };
        let Some(block) = block else {
            self.log.frame(Party::Server, head, &[], None);
            return Ok(());
        };
        self.decoded(head, &block, wanted)
    }

    fn decoded(
        &mut self,
        head: FrameHead,
        block: &HeaderBlock<'_>,
        wanted: &mut PendingResponse<'_>,
    ) -> Result<(), HttpError> {
        let mut lines = DecodedFields::default();
        // Before the check of the stream: RFC 9113 section 4.3 has one table for the blocks of all streams.
        let decoded = self.decoder.decode(&block.bytes, FIELDS, LIST as usize, &mut lines);
        let whole = decoded.map_err(|_| Reason::COMPRESSION_ERROR)?.is_whole;
        self.log.headers(Party::Server, head, &lines.0, whole);
        if head.stream != wanted.stream {
            return Ok(());
        }
        let status = lines.0.iter().find(|(name, _)| name == ":status");
        let status: Option<u16> = status.and_then(|(_, value)| number(value.as_bytes()));
        match status {
            Some(100..200) => wanted.response.interim += 1,
            Some(status) if wanted.response.status == 0 => {
                wanted.response.status = status;
                wanted.response.headers =
                    lines.0.into_iter().filter(|(name, _)| !name.starts_with(':')).collect();
                wanted.response.head_at = Some(Instant::now());
            }
            _ if wanted.response.status == 0 => return Err(Reason::PROTOCOL_ERROR.into()),
            // Trailers.
            _ => {}
        }
        if block.is_last { wanted.end() } else { Ok(()) }
    }

    fn data(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        wanted: &mut PendingResponse<'_>,
    ) -> Result<(), HttpError> {
        let bytes = without_padding(head.flags, payload)?.len();
        // RFC 9113 section 6.9.1: padding counts against the windows too.
        let length = i64::from(head.length);
        (self.connection_window, self.stream_window) =
            (self.connection_window - length, self.stream_window - length);
        self.log.frame(Party::Server, head, payload, Some((self.connection_window, self.stream_window)));
        if self.connection_window < 0 || self.stream_window < 0 {
            return Err(Reason::FLOW_CONTROL_ERROR.into());
        }
        if head.stream != wanted.stream || wanted.response.status == 0 {
            return Err(Reason::PROTOCOL_ERROR.into());
        }
        wanted.response.body_bytes += bytes as u64;
        if head.has(flag::END_STREAM) {
            wanted.end()?;
        }
        // At half of the window: an update for each frame would cost a packet each.
        let (lacks, most) = (i64::from(WINDOW) - self.stream_window, i64::from(WINDOW) / 2);
        if lacks > most && wanted.response.done_at.is_none() {
            self.stream_window += lacks;
            self.send(kind::WINDOW_UPDATE, 0, wanted.stream, &(lacks as u32).to_be_bytes());
        }
        let full = i64::from(DEFAULT_WINDOW) + i64::from(RAISE);
        let lacks = full - self.connection_window;
        if lacks > full / 2 {
            self.connection_window += lacks;
            self.send(kind::WINDOW_UPDATE, 0, 0, &(lacks as u32).to_be_bytes());
        }
        Ok(())
    }
}

fn ended(reason: Reason) -> HttpError {
    HttpError::connection(format!("the server ended the connection: GOAWAY with {reason}"))
}

impl From<Reason> for HttpError {
    fn from(reason: Reason) -> Self {
        Self::protocol(match reason {
            Reason::COMPRESSION_ERROR => "a header block of the server cannot be decoded".to_owned(),
            Reason::ENHANCE_YOUR_CALM => {
                format!("the server sends more than {CONTROL} control frames, and no answer")
            }
            Reason::FLOW_CONTROL_ERROR => "the server sends more than the window allows".to_owned(),
            reason => format!("the stream was reset, or a frame breaks the protocol: {reason}"),
        })
    }
}

#[cfg(test)]
mod tests;

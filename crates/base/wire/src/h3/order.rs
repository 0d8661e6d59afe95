//! Rules for frames by stream, as far as a peer that accepts no pushes is concerned (RFC 9114 sections 4.1, 4.4, 6.2.1 and 7.2).

use super::error::Code;
use super::frame::{FrameHead, kind};

/// Treatment of a frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Passed on in parts, as it arrives.
    Parts,
    /// Passed on whole.
    Whole,
    /// Passed over: the type is unknown.
    Unknown,
    /// Passed over: a field section that exceeds the limit of its length.
    TooLong,
}

/// Order of the frames on a stream.
pub trait Order {
    /// Begins a frame. An error ends the connection.
    fn begin(&mut self, head: FrameHead) -> Result<Payload, Code>;
}

/// Order of frames on a request stream.
#[derive(Clone, Copy, Debug)]
pub struct RequestOrder {
    position: Position,
    /// Maximum length of an encoded field section.
    limit: u64,
}

/// Position in a request or response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Head,
    Body,
    /// `CONNECT` was accepted.
    Tunnel,
    /// Trailers were received.
    End,
}

impl RequestOrder {
    /// Order of a message whose encoded head and encoded trailers have at most `limit` bytes each.
    pub fn new(limit: u64) -> Self {
        Self { position: Position::Head, limit }
    }

    /// Permits only `DATA` from now on: the request is a `CONNECT` (RFC 9114 section 4.4).
    pub fn tunnel(&mut self) {
        self.position = Position::Tunnel;
    }

    /// Expects another head: the last one was that of an interim response (RFC 9114 section 4.1).
    pub fn interim(&mut self) {
        self.position = Position::Head;
    }

    /// Whether no head has begun.
    pub fn is_before_head(&self) -> bool {
        self.position == Position::Head
    }
}

impl Order for RequestOrder {
    fn begin(&mut self, head: FrameHead) -> Result<Payload, Code> {
        match (head.kind, self.position) {
            (kind::HEADERS, Position::Head) => self.position = Position::Body,
            // The second `HEADERS` are trailers, after which nothing may follow (RFC 9114 section 4.1).
            (kind::HEADERS, Position::Body) => self.position = Position::End,
            (kind::DATA, Position::Body | Position::Tunnel) => return Ok(Payload::Parts),
            // RFC 9114 sections 4.1 and 4.4: an invalid sequence, or a frame other than DATA in a tunnel.
            (kind::HEADERS | kind::DATA, _) => return Err(Code::FRAME_UNEXPECTED),
            (other, _) if is_known(other) => return Err(Code::FRAME_UNEXPECTED),
            // RFC 9114 section 9: unknown types are ignored.
            _ => return Ok(Payload::Unknown),
        }
        Ok(if head.length > self.limit { Payload::TooLong } else { Payload::Whole })
    }
}

/// Order of frames on the control stream of a peer.
#[derive(Clone, Copy, Debug, Default)]
pub struct ControlOrder {
    has_settings: bool,
}

/// Maximum length of a frame on a control stream: settings of a client have less than 100 bytes.
const CONTROL_LIMIT: u64 = 4 << 10;

impl Order for ControlOrder {
    fn begin(&mut self, head: FrameHead) -> Result<Payload, Code> {
        match head.kind {
            kind::SETTINGS if !self.has_settings => self.has_settings = true,
            // RFC 9114 section 7.2.4: a second SETTINGS.
            kind::SETTINGS => return Err(Code::FRAME_UNEXPECTED),
            // RFC 9114 section 6.2.1: SETTINGS come first.
            _ if !self.has_settings => return Err(Code::MISSING_SETTINGS),
            kind::GOAWAY
            | kind::MAX_PUSH_ID
            | kind::CANCEL_PUSH
            | kind::PRIORITY_UPDATE
            | kind::PRIORITY_UPDATE_PUSH => {}
            other if is_known(other) => return Err(Code::FRAME_UNEXPECTED),
            _ => return Ok(Payload::Unknown),
        }
        // RFC 9114 section 10.5: a limit on the memory of a peer's frames.
        if head.length > CONTROL_LIMIT { Err(Code::EXCESSIVE_LOAD) } else { Ok(Payload::Whole) }
    }
}

/// Whether a type is defined for some stream of HTTP/3, or reserved because HTTP/2 has defined it.
fn is_known(other: u64) -> bool {
    kind::is_of_http2(other)
        || matches!(
            other,
            kind::DATA
                | kind::HEADERS
                | kind::CANCEL_PUSH
                | kind::SETTINGS
                | kind::PUSH_PROMISE
                | kind::GOAWAY
                | kind::MAX_PUSH_ID
                | kind::PRIORITY_UPDATE
                | kind::PRIORITY_UPDATE_PUSH
        )
}

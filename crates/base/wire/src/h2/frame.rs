//! Frames: heads, common parts of payloads, and frames written by servers.

use std::fmt;

/// Bytes of the head of a frame.
pub const HEAD: usize = 9;

/// Connection preface of a client (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest window (RFC 9113 section 6.9.1).
pub const LARGEST_WINDOW: u32 = (1 << 31) - 1;

/// Types of frames.
pub mod kind {
    /// Part of a body (RFC 9113 section 6.1).
    pub const DATA: u8 = 0;
    /// The head of a message, or trailers.
    pub const HEADERS: u8 = 1;
    /// A priority by RFC 7540, which means nothing any more.
    pub const PRIORITY: u8 = 2;
    /// The early end of a stream.
    pub const RST_STREAM: u8 = 3;
    /// Settings, or their acknowledgement.
    pub const SETTINGS: u8 = 4;
    /// Only servers send it.
    pub const PUSH_PROMISE: u8 = 5;
    /// A round trip.
    pub const PING: u8 = 6;
    /// The end of the connection.
    pub const GOAWAY: u8 = 7;
    /// More may be sent.
    pub const WINDOW_UPDATE: u8 = 8;
    /// The rest of a header block that `HEADERS` began.
    pub const CONTINUATION: u8 = 9;
    /// A priority by RFC 9218.
    pub const PRIORITY_UPDATE: u8 = 0x10;
}

/// Flags of frames.
pub mod flag {
    /// Nothing follows on the stream.
    pub const END_STREAM: u8 = 1;
    /// `SETTINGS` and `PING` of the other side have been seen.
    pub const ACK: u8 = 1;
    /// No `CONTINUATION` follows.
    pub const END_HEADERS: u8 = 4;
    /// The payload begins with the length of the padding at its end.
    pub const PADDED: u8 = 8;
    /// A priority by RFC 7540 precedes the header block.
    pub const PRIORITY: u8 = 0x20;
}

/// An error code (RFC 9113 section 7).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Reason(pub u32);

impl Reason {
    /// No error.
    pub const NO_ERROR: Self = Self(0);
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1);
    /// This side failed.
    pub const INTERNAL_ERROR: Self = Self(2);
    /// More was sent than the window allows, or the window is too large.
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    /// A frame for a stream that has ended.
    pub const STREAM_CLOSED: Self = Self(5);
    /// The length of a frame is wrong.
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    /// The request was not processed, so the client may send it again.
    pub const REFUSED_STREAM: Self = Self(7);
    /// The stream is no longer wanted.
    pub const CANCEL: Self = Self(8);
    /// A header block cannot be decoded.
    pub const COMPRESSION_ERROR: Self = Self(9);
    /// Too much work for too little.
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
}

impl fmt::Debug for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::NO_ERROR => "NO_ERROR",
            Self::PROTOCOL_ERROR => "PROTOCOL_ERROR",
            Self::INTERNAL_ERROR => "INTERNAL_ERROR",
            Self::FLOW_CONTROL_ERROR => "FLOW_CONTROL_ERROR",
            Self::STREAM_CLOSED => "STREAM_CLOSED",
            Self::FRAME_SIZE_ERROR => "FRAME_SIZE_ERROR",
            Self::REFUSED_STREAM => "REFUSED_STREAM",
            Self::CANCEL => "CANCEL",
            Self::COMPRESSION_ERROR => "COMPRESSION_ERROR",
            Self::ENHANCE_YOUR_CALM => "ENHANCE_YOUR_CALM",
            Self(code) => return write!(formatter, "Reason({code:#x})"),
        };
        formatter.write_str(name)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Bytes of the payload, less than 2^24.
    pub length: u32,
    /// The type, one of [`kind`] or unknown.
    pub kind: u8,
    /// Flags of [`flag`]; their meaning depends on the type.
    pub flags: u8,
    /// The stream; 0 for the connection.
    pub stream: u32,
}

impl FrameHead {
    /// Reads the head of a frame. The reserved bit is ignored.
    pub fn read(bytes: &[u8; HEAD]) -> Self {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *bytes;
        let length = u32::from_be_bytes([0, l0, l1, l2]);
        let stream = u32::from_be_bytes([s0, s1, s2, s3]) & LARGEST_WINDOW;
        Self { length, kind, flags, stream }
    }

    /// The bytes of this head.
    pub fn to_bytes(self) -> [u8; HEAD] {
        let [_, l0, l1, l2] = self.length.to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [l0, l1, l2, self.kind, self.flags, s0, s1, s2, s3]
    }

    /// Fails unless the frame belongs to the connection, not to a stream.
    pub fn require_connection(self) -> Result<(), Reason> {
        if self.stream == 0 { Ok(()) } else { Err(Reason::PROTOCOL_ERROR) }
    }

    /// Whether all of these flags are set.
    pub fn has(self, flags: u8) -> bool {
        self.flags & flags == flags
    }
}

/// Payload of `HEADERS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadersPayload<'a> {
    /// The stream that this one depends on by RFC 7540.
    pub dependency: Option<u32>,
    /// The block, or its first part.
    pub block: &'a [u8],
}

impl<'a> HeadersPayload<'a> {
    /// Reads the payload of `HEADERS` with these flags.
    pub fn read(flags: u8, payload: &'a [u8]) -> Result<Self, Reason> {
        let rest = without_padding(flags, payload)?;
        if flags & flag::PRIORITY == 0 {
            return Ok(Self { dependency: None, block: rest });
        }
        let (priority, block) = rest.split_first_chunk::<5>().ok_or(Reason::FRAME_SIZE_ERROR)?;
        // The highest bit is the exclusive flag (RFC 7540 section 6.2).
        Ok(Self { dependency: Some(word(&priority[..4]) & LARGEST_WINDOW), block })
    }
}

/// A payload without its padding. RFC 9113 section 6.1: more padding than payload is a connection error.
pub fn without_padding(flags: u8, payload: &[u8]) -> Result<&[u8], Reason> {
    if flags & flag::PADDED == 0 {
        return Ok(payload);
    }
    // RFC 9113 section 4.2: a frame that is too short for its fields has a wrong size.
    let (&padding, rest) = payload.split_first().ok_or(Reason::FRAME_SIZE_ERROR)?;
    let end = rest.len().checked_sub(padding.into()).ok_or(Reason::PROTOCOL_ERROR)?;
    Ok(&rest[..end])
}

/// The first four bytes as a number; 0 where there are fewer.
pub fn word(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |word| u32::from_be_bytes(*word))
}

/// Appends frames, whole.
pub trait WriteFrames {
    /// Any frame with a payload of less than 2^24 bytes.
    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]);

    /// `RST_STREAM`
    fn rst_stream(&mut self, stream: u32, reason: Reason) {
        self.frame(kind::RST_STREAM, 0, stream, &reason.0.to_be_bytes());
    }

    /// `WINDOW_UPDATE` by `increment`, which is not 0 and less than 2^31.
    fn window_update(&mut self, stream: u32, increment: u32) {
        self.frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
    }

    /// `GOAWAY` after `last`, the last stream that was, or will be, looked at.
    fn goaway(&mut self, last: u32, reason: Reason) {
        let [a, b, c, d] = last.to_be_bytes();
        let [e, f, g, h] = reason.0.to_be_bytes();
        self.frame(kind::GOAWAY, 0, 0, &[a, b, c, d, e, f, g, h]);
    }
}

impl WriteFrames for Vec<u8> {
    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let head = FrameHead { length: payload.len() as u32, kind, flags, stream };
        self.extend_from_slice(&head.to_bytes());
        self.extend_from_slice(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let head = FrameHead { length: 0x01_0203, kind: 0x77, flags: 0x25, stream: 0x7654_3210 };
        assert_eq!(FrameHead::read(&head.to_bytes()), head);
        assert_eq!(FrameHead::read(&[0, 0, 0, 0, 0, 0x80, 0, 0, 1]).stream, 1, "the reserved bit");
        assert!(head.has(flag::END_HEADERS | flag::END_STREAM) && !head.has(flag::PADDED));
    }

    #[test]
    fn padding_and_old_priorities_are_taken_off() {
        let flags = flag::PADDED | flag::PRIORITY;
        let read = HeadersPayload::read(flags, &[2, 0x80, 0, 0, 3, 16, 0x82, 0x84, 0, 0]);
        assert_eq!(read, Ok(HeadersPayload { dependency: Some(3), block: &[0x82, 0x84] }));
        assert_eq!(HeadersPayload::read(flag::PRIORITY, &[0; 4]), Err(Reason::FRAME_SIZE_ERROR));
        assert_eq!(without_padding(flag::PADDED, &[]), Err(Reason::FRAME_SIZE_ERROR));
        assert_eq!(without_padding(flag::PADDED, &[1]), Err(Reason::PROTOCOL_ERROR));
        assert_eq!(without_padding(flag::PADDED, &[1, 9]), Ok(&[][..]));
        assert_eq!(without_padding(0, &[1, 9]), Ok(&[1, 9][..]));
    }

    #[test]
    fn frames_are_written_whole() {
        let mut out = Vec::new();
        out.goaway(7, Reason::ENHANCE_YOUR_CALM);
        assert_eq!(out, [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0xb]);
        out.clear();
        out.rst_stream(3, Reason::CANCEL);
        out.window_update(0, 0x1_0000);
        assert_eq!(out, [0, 0, 4, 3, 0, 0, 0, 0, 3, 0, 0, 0, 8, 0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
    }
}

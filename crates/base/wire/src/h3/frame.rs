//! Frames of HTTP/3 (RFC 9114 section 7): types, heads, and frames written by servers.

use super::error::Code;
use super::varint;

/// Types of frames.
pub mod kind {
    /// Part of a body.
    pub const DATA: u64 = 0;
    /// Head of a message, or trailers.
    pub const HEADERS: u64 = 1;
    /// Cancellation of a push.
    pub const CANCEL_PUSH: u64 = 3;
    /// Settings of the connection.
    pub const SETTINGS: u64 = 4;
    /// Promise of a push; sent by servers only.
    pub const PUSH_PROMISE: u64 = 5;
    /// End of the connection.
    pub const GOAWAY: u64 = 7;
    /// Largest permitted push ID.
    pub const MAX_PUSH_ID: u64 = 0xd;
    /// Priority of a request (RFC 9218 section 7.2).
    pub const PRIORITY_UPDATE: u64 = 0xf_0700;
    /// Priority of a push (RFC 9218 section 7.2).
    pub const PRIORITY_UPDATE_PUSH: u64 = 0xf_0701;

    /// Whether `kind` is a type of HTTP/2 without a counterpart in HTTP/3: `PRIORITY`, `PING`, `WINDOW_UPDATE` and
    /// `CONTINUATION` (RFC 9114 section 7.2.8).
    pub fn is_of_http2(kind: u64) -> bool {
        matches!(kind, 2 | 6 | 8 | 9)
    }
}

/// Types of unidirectional streams (RFC 9114 section 6.2, RFC 9204 section 4.2).
pub mod stream {
    /// Control stream.
    pub const CONTROL: u64 = 0;
    /// Push stream; opened by servers only.
    pub const PUSH: u64 = 1;
    /// QPACK encoder stream.
    pub const ENCODER: u64 = 2;
    /// QPACK decoder stream.
    pub const DECODER: u64 = 3;
}

/// Head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Type: one of [`kind`], or unknown.
    pub kind: u64,
    /// Bytes of the payload.
    pub length: u64,
}

impl FrameHead {
    /// Appends the head.
    pub fn write(self, out: &mut Vec<u8>) {
        varint::write(self.kind, out);
        varint::write(self.length, out);
    }
}

/// Appends `GOAWAY` with the ID of the first stream that is not processed (RFC 9114 section 5.2).
pub fn goaway(id: u64, out: &mut Vec<u8>) {
    let at = begin(kind::GOAWAY, out);
    varint::write(id, out);
    end(at, out);
}

/// Bytes reserved for the length of a frame that is written before its length is known: enough for 16 KiB.
const RESERVED: usize = 2;

/// Begins a frame whose payload is appended next. Returns the position for [`end`].
pub fn begin(kind: u64, out: &mut Vec<u8>) -> usize {
    varint::write(kind, out);
    out.extend_from_slice(&[0; RESERVED]);
    out.len()
}

/// Ends the frame whose payload begins at `at`.
pub fn end(at: usize, out: &mut Vec<u8>) {
    let length = out.len() - at;
    if let Some(short) = u16::try_from(length).ok().filter(|short| *short < 0x4000) {
        out[at - RESERVED..at].copy_from_slice(&(short | 0x4000).to_be_bytes());
        return;
    }
    // Sections above 16 KiB are rare, so only they are moved for a longer length.
    let mut longer = Vec::with_capacity(varint::LONGEST);
    varint::write(length as u64, &mut longer);
    out.splice(at - RESERVED..at, longer);
}

/// Reads the payload of `GOAWAY`, `MAX_PUSH_ID` or `CANCEL_PUSH`: one ID.
pub fn id(payload: &[u8]) -> Result<u64, Code> {
    // RFC 9114 section 7.1: bytes beyond the fields, and a payload that ends before the end of its fields.
    varint::whole(payload).ok_or(Code::FRAME_ERROR)
}

/// Reads the payload of `PRIORITY_UPDATE`: the ID of a request stream or push, and a priority field value.
pub fn priority_update(payload: &[u8]) -> Result<(u64, &[u8]), Code> {
    varint::split(payload).ok_or(Code::FRAME_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_written_with_their_length() {
        let mut out = Vec::new();
        goaway(0x1234, &mut out);
        assert_eq!(out, [7, 0x40, 2, 0x52, 0x34]);
        for length in [0, 1, 0x3fff, 0x4000, 0x5_0000] {
            out.clear();
            out.push(0xee);
            let at = begin(kind::HEADERS, &mut out);
            out.resize(out.len() + length, 0xaa);
            end(at, &mut out);
            assert_eq!(out[..2], [0xee, 1]);
            let (written, payload) = varint::split(&out[2..]).expect("a length");
            assert_eq!((written, payload.len()), (length as u64, length));
            assert!(payload.iter().all(|byte| *byte == 0xaa));
        }
        out.clear();
        FrameHead { kind: kind::PRIORITY_UPDATE, length: 70 }.write(&mut out);
        assert_eq!(out, [0x80, 0xf, 7, 0, 0x40, 70]);
    }

    #[test]
    fn payloads_with_ids_end_where_their_fields_end() {
        assert_eq!(id(&[0x52, 0x34]), Ok(0x1234));
        for wrong in [&[][..], &[0x52], &[1, 0]] {
            assert_eq!(id(wrong), Err(Code::FRAME_ERROR));
        }
        assert_eq!(priority_update(b"\x08u=1"), Ok((8, &b"u=1"[..])));
        assert_eq!(priority_update(b"\x08"), Ok((8, &b""[..])));
        assert_eq!(priority_update(b""), Err(Code::FRAME_ERROR));
    }
}

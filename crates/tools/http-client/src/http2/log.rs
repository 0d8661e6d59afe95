//! Log of the frames of a connection, as text.

use std::time::Instant;

use brisk_handshake_view::Party;
use brisk_wire::h2::frame::{FrameHead, LARGEST_WINDOW, Reason, flag, kind, word};
use brisk_wire::h2::settings::id;
use serde::Serialize;

/// Maximum number of [`Frame`]s kept; further ones are not logged.
const MOST: usize = 4000;

/// Maximum bytes of [`Frame::headers`] kept, of all frames.
const FIELDS: usize = 1 << 20;

/// A frame of HTTP/2.
#[derive(Clone, Debug, Serialize)]
pub struct Frame {
    /// Sender.
    pub from: Party,
    /// Time at which the frame was written or had been read.
    #[serde(skip)]
    pub at: Instant,
    /// Name of the type, or its number.
    pub kind: String,
    /// Stream; 0 for the connection.
    pub stream: u32,
    /// Names of the flags, such as `END_STREAM`.
    pub flags: Vec<&'static str>,
    /// Size of the payload in bytes.
    pub length: u32,
    /// Content as text: settings, an increment, a reason.
    pub detail: String,
    /// Decoded fields of a head.
    pub headers: Vec<(String, String)>,
    /// Bytes that the server may still send after the frame: on the connection, and on the stream.
    pub windows: Option<(i64, i64)>,
}

/// The frames of a connection in order.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) frames: Vec<Frame>,
    /// The server has sent a frame.
    is_answered: bool,
    /// Bytes of header fields kept.
    kept: usize,
}

impl Log {
    /// Whether the server has sent a frame.
    pub(super) fn is_answered(&self) -> bool {
        self.is_answered
    }

    pub(super) fn frame(
        &mut self,
        from: Party,
        head: FrameHead,
        payload: &[u8],
        windows: Option<(i64, i64)>,
    ) {
        self.push(from, head, detail(head, payload), Vec::new(), windows);
    }

    /// Adds the frame that ends a header block.
    pub(super) fn headers(&mut self, from: Party, head: FrameHead, lines: &[(String, String)], whole: bool) {
        self.kept += lines.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        let (lines, whole) = if self.kept > FIELDS { (&[][..], false) } else { (lines, whole) };
        let detail = if whole { String::new() } else { "fields beyond the limit are left out".to_owned() };
        self.push(from, head, detail, lines.to_vec(), None);
    }

    fn push(
        &mut self,
        from: Party,
        head: FrameHead,
        detail: String,
        headers: Vec<(String, String)>,
        windows: Option<(i64, i64)>,
    ) {
        self.is_answered |= from == Party::Server;
        if self.frames.len() == MOST {
            return;
        }
        let FrameHead { length, stream, .. } = head;
        let (kind, flags) = (name(head.kind), flags(head));
        self.frames.push(Frame {
            from,
            at: Instant::now(),
            kind,
            stream,
            flags,
            length,
            detail,
            headers,
            windows,
        });
    }
}

fn name(kind: u8) -> String {
    match kind {
        kind::DATA => "DATA",
        kind::HEADERS => "HEADERS",
        kind::PRIORITY => "PRIORITY",
        kind::RST_STREAM => "RST_STREAM",
        kind::SETTINGS => "SETTINGS",
        kind::PUSH_PROMISE => "PUSH_PROMISE",
        kind::PING => "PING",
        kind::GOAWAY => "GOAWAY",
        kind::WINDOW_UPDATE => "WINDOW_UPDATE",
        kind::CONTINUATION => "CONTINUATION",
        kind::PRIORITY_UPDATE => "PRIORITY_UPDATE",
        0xa => "ALTSVC",
        0xc => "ORIGIN",
        other => return format!("{other:#04x}"),
    }
    .to_owned()
}

fn flags(head: FrameHead) -> Vec<&'static str> {
    let names: &[(u8, &str)] = match head.kind {
        kind::DATA => &[(flag::END_STREAM, "END_STREAM"), (flag::PADDED, "PADDED")],
        kind::HEADERS => &[
            (flag::END_STREAM, "END_STREAM"),
            (flag::END_HEADERS, "END_HEADERS"),
            (flag::PADDED, "PADDED"),
            (flag::PRIORITY, "PRIORITY"),
        ],
        kind::SETTINGS | kind::PING => &[(flag::ACK, "ACK")],
        kind::CONTINUATION => &[(flag::END_HEADERS, "END_HEADERS")],
        _ => &[],
    };
    names.iter().filter(|(bit, _)| head.has(*bit)).map(|(_, name)| *name).collect()
}

fn detail(head: FrameHead, payload: &[u8]) -> String {
    match head.kind {
        kind::SETTINGS => settings(payload),
        kind::WINDOW_UPDATE => format!("+{}", word(payload) & LARGEST_WINDOW),
        kind::RST_STREAM => Reason(word(payload)).to_string(),
        kind::GOAWAY => {
            let reason = Reason(word(payload.get(4..).unwrap_or_default()));
            format!("{reason}, last stream {}", word(payload) & LARGEST_WINDOW)
        }
        _ => String::new(),
    }
}

fn settings(payload: &[u8]) -> String {
    let (settings, _) = payload.as_chunks::<6>();
    let setting = |&[i0, i1, v0, v1, v2, v3]: &[u8; 6]| {
        let value = u32::from_be_bytes([v0, v1, v2, v3]);
        let name = match u16::from_be_bytes([i0, i1]) {
            id::HEADER_TABLE_SIZE => "HEADER_TABLE_SIZE",
            id::ENABLE_PUSH => "ENABLE_PUSH",
            id::MAX_CONCURRENT_STREAMS => "MAX_CONCURRENT_STREAMS",
            id::INITIAL_WINDOW_SIZE => "INITIAL_WINDOW_SIZE",
            id::MAX_FRAME_SIZE => "MAX_FRAME_SIZE",
            id::MAX_HEADER_LIST_SIZE => "MAX_HEADER_LIST_SIZE",
            id::ENABLE_CONNECT_PROTOCOL => "ENABLE_CONNECT_PROTOCOL",
            id::NO_RFC7540_PRIORITIES => "NO_RFC7540_PRIORITIES",
            other => return format!("{other:#x} {value}"),
        };
        format!("{name} {value}")
    };
    // A frame may have up to 2,730 settings.
    settings.iter().take(32).map(setting).collect::<Vec<_>>().join(", ")
}

//! Frames of a response's body in memory.

use std::collections::VecDeque;

use brisk_http::http1::chunked::{JOINED, SHORT};
use bytes::{Bytes, BytesMut};
use http_body::Frame;

/// The frames of a response's body that were read. Data below [`SHORT`] bytes is joined: a piece that shares the read buffer
/// holds all of it.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    #[expect(clippy::struct_field_names, reason = "frames, beside pieces that are no frame yet")]
    frames: VecDeque<Frame<Bytes>>,
    /// Short pieces behind `frames`, joined.
    short: BytesMut,
    /// Number of bytes of data.
    length: usize,
    /// Number of frames that were added.
    pieces: usize,
}

impl Frames {
    /// Adds a frame.
    pub(super) fn push(&mut self, frame: Frame<Bytes>) {
        self.pieces += 1;
        match frame.data_ref() {
            Some(data) if data.len() < SHORT => {
                self.length += data.len();
                self.short.extend_from_slice(data);
                if self.short.len() >= JOINED {
                    self.end_short();
                }
            }
            data => {
                self.length += data.map_or(0, Bytes::len);
                self.end_short();
                self.frames.push_back(frame);
            }
        }
    }

    fn end_short(&mut self) {
        if !self.short.is_empty() {
            self.frames.push_back(Frame::data(self.short.split().freeze()));
        }
    }

    /// Number of bytes of data.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Number of pieces in which the frames have arrived.
    pub(super) fn pieces(&self) -> usize {
        self.pieces
    }

    /// The frames in their order.
    pub(crate) fn into_queue(mut self) -> VecDeque<Frame<Bytes>> {
        self.end_short();
        self.frames
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    #[test]
    fn short_pieces_are_joined_in_their_order() {
        let mut frames = Frames::default();
        for data in [&b"a"[..], b"b", &[b'x'; SHORT], b"c", b"", b"d"] {
            frames.push(Frame::data(Bytes::from(data)));
        }
        frames.push(Frame::trailers(HeaderMap::new()));
        assert_eq!((frames.length(), frames.pieces()), (SHORT + 4, 7));
        let frames = frames.into_queue();
        let data: Vec<_> = frames.iter().filter_map(Frame::data_ref).collect();
        assert_eq!(data, [&b"ab"[..], &[b'x'; SHORT], b"cd"]);
        assert!(frames.len() == 4 && frames[3].is_trailers());
    }

    #[test]
    fn joined_pieces_hold_no_more_than_their_bytes() {
        let mut frames = Frames::default();
        let whole = Bytes::from(vec![b'x'; 2 * JOINED]);
        for at in 0..2 * JOINED {
            frames.push(Frame::data(whole.slice(at..=at)));
        }
        assert!(whole.is_unique());
        let lengths: Vec<_> =
            frames.into_queue().iter().filter_map(Frame::data_ref).map(Bytes::len).collect();
        assert_eq!(lengths, [JOINED, JOINED]);
    }
}

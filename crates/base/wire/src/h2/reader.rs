//! Rules for reading frames, shared by servers and clients: order of frames, header blocks, `DATA` in parts, errors.
//!
//! The caller owns the buffers and passes each frame head to [`FrameOrder::check`] first. Only header blocks in several
//! frames are copied.

use std::borrow::Cow;

use super::frame::{FrameHead, HeadersPayload, LARGEST_WINDOW, Reason, flag, kind};
use super::settings::DEFAULT_FRAME;

/// Frames of a header block in addition to the number that its maximum length needs.
const BLOCK_FRAMES: usize = 8;

/// Error in a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Ends the connection with `GOAWAY`.
    Connection(Reason),
    /// Ends this stream with `RST_STREAM`.
    Stream(u32, Reason),
}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Self {
        Self::Connection(reason)
    }
}

/// A complete header block.
#[derive(Debug, PartialEq, Eq)]
pub struct HeaderBlock<'a> {
    /// Stream of the block.
    pub stream: u32,
    /// No more frames follow on the stream.
    pub is_last: bool,
    /// The stream that this one depends on by RFC 7540.
    pub dependency: Option<u32>,
    /// Encoded fields.
    pub bytes: Cow<'a, [u8]>,
}

/// State that determines which frames may come next on a connection.
#[derive(Debug, Default)]
pub struct FrameOrder {
    /// An incomplete header block and the number of its frames.
    block: Option<(HeaderBlock<'static>, usize)>,
    has_settings: bool,
}

impl FrameOrder {
    /// Checks the length of a frame and its place among the others: `SETTINGS` come first (RFC 9113 section 3.4) and only
    /// `CONTINUATION` on the same stream follows an incomplete header block (section 6.10).
    pub fn check(&self, head: FrameHead) -> Result<(), Reason> {
        // No `SETTINGS` of this project announce a larger `MAX_FRAME_SIZE`.
        if head.length > DEFAULT_FRAME {
            // RFC 9113 section 4.2
            return Err(Reason::FRAME_SIZE_ERROR);
        }
        // RFC 9113 section 3.4: the first frame is `SETTINGS`, and no acknowledgement.
        let is_allowed = match (&self.block, head.kind) {
            (Some((block, _)), kind::CONTINUATION) => block.stream == head.stream,
            (Some(_), _) | (None, kind::CONTINUATION) => false,
            (None, kind) => self.has_settings || kind == kind::SETTINGS && !head.has(flag::ACK),
        };
        if is_allowed { Ok(()) } else { Err(Reason::PROTOCOL_ERROR) }
    }

    /// Whether the first `SETTINGS` have been received.
    pub fn has_settings(&self) -> bool {
        self.has_settings
    }

    /// Records the first `SETTINGS`: from now on other frames are allowed.
    pub fn settings_received(&mut self) {
        self.has_settings = true;
    }

    /// Takes the payload of `HEADERS`. Returns the block if it is complete, without a copy; otherwise keeps a copy.
    pub fn headers<'a>(
        &mut self,
        head: FrameHead,
        payload: &'a [u8],
    ) -> Result<Option<HeaderBlock<'a>>, Reason> {
        let HeadersPayload { dependency, block } = HeadersPayload::read(head.flags, payload)?;
        let (stream, is_last) = (head.stream, head.has(flag::END_STREAM));
        if head.has(flag::END_HEADERS) {
            return Ok(Some(HeaderBlock { stream, is_last, dependency, bytes: Cow::Borrowed(block) }));
        }
        let bytes = Cow::Owned(block.to_vec());
        self.block = Some((HeaderBlock { stream, is_last, dependency, bytes }, 1));
        Ok(None)
    }

    /// Takes the payload of `CONTINUATION`. Returns the block if it is complete.
    ///
    /// [`Reason::ENHANCE_YOUR_CALM`] if the block is longer than `head_size` and one frame, or has more frames than that
    /// length needs and eight more. Both limits are necessary (CVE-2024-27316).
    pub fn continuation(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        head_size: usize,
    ) -> Result<Option<HeaderBlock<'static>>, Reason> {
        let (mut block, frames) = self.block.take().ok_or(Reason::PROTOCOL_ERROR)?;
        let limit = head_size + DEFAULT_FRAME as usize;
        let most = BLOCK_FRAMES + limit / DEFAULT_FRAME as usize;
        if block.bytes.len() + payload.len() > limit || frames == most {
            return Err(Reason::ENHANCE_YOUR_CALM);
        }
        block.bytes.to_mut().extend_from_slice(payload);
        if head.has(flag::END_HEADERS) {
            return Ok(Some(block));
        }
        self.block = Some((block, frames + 1));
        Ok(None)
    }
}

/// A `DATA` frame whose payload arrives in parts.
#[derive(Clone, Copy, Debug)]
pub struct DataFrame {
    /// Stream of the frame.
    pub stream: u32,
    /// Missing bytes of data.
    pub left: u32,
    /// Missing bytes of padding, once its length is known.
    padding: u32,
    /// The length of the padding is the next byte.
    is_padded: bool,
    /// No more frames follow on the stream.
    pub is_last: bool,
    /// The data has a reader; set by the caller.
    pub is_wanted: bool,
}

/// The next part of a `DATA` frame in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPart {
    /// One byte: the length of the padding, which also counts against the windows.
    PaddingLength(u32),
    /// This number of bytes of data.
    Data(usize),
    /// This number of bytes of padding.
    Padding(usize),
}

impl DataFrame {
    /// The frame with this head.
    pub fn new(head: FrameHead) -> Result<Self, Reason> {
        let is_padded = head.has(flag::PADDED);
        // RFC 9113 section 4.2: a frame that is too short for its fields has a wrong size.
        let left = head.length.checked_sub(u32::from(is_padded)).ok_or(Reason::FRAME_SIZE_ERROR)?;
        let is_last = head.has(flag::END_STREAM);
        Ok(Self { stream: head.stream, left, padding: 0, is_padded, is_last, is_wanted: false })
    }

    /// Advances over the next part of a non-empty buffer. The caller removes the bytes of that part.
    pub fn next_part(&mut self, bytes: &[u8]) -> Result<DataPart, Reason> {
        if self.is_padded {
            self.is_padded = false;
            self.padding = bytes[0].into();
            // RFC 9113 section 6.1
            self.left = self.left.checked_sub(self.padding).ok_or(Reason::PROTOCOL_ERROR)?;
            return Ok(DataPart::PaddingLength(self.padding));
        }
        if self.left > 0 {
            let length = bytes.len().min(self.left as usize);
            self.left -= length as u32;
            return Ok(DataPart::Data(length));
        }
        let length = bytes.len().min(self.padding as usize);
        self.padding -= length as u32;
        Ok(DataPart::Padding(length))
    }

    /// Whether the whole payload has been received.
    pub fn is_complete(&self) -> bool {
        self.left == 0 && self.padding == 0 && !self.is_padded
    }
}

/// A payload of exactly `N` bytes.
pub fn exactly<const N: usize>(payload: &[u8]) -> Result<&[u8; N], Reason> {
    payload.try_into().map_err(|_| Reason::FRAME_SIZE_ERROR)
}

/// Changes a window for sending, which may become negative (RFC 9113 section 6.9.2) but not larger than 2^31-1.
pub fn change_window(window: &mut i64, change: i64) -> Result<(), Reason> {
    *window += change;
    if *window > LARGEST_WINDOW.into() { Err(Reason::FLOW_CONTROL_ERROR) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(kind: u8, flags: u8, length: u32) -> FrameHead {
        FrameHead { length, kind, flags, stream: 1 }
    }

    #[test]
    fn settings_come_first_and_header_blocks_are_not_interrupted() {
        let mut order = FrameOrder::default();
        assert_eq!(order.check(head(kind::HEADERS, 0, 9)), Err(Reason::PROTOCOL_ERROR));
        assert_eq!(order.check(head(kind::SETTINGS, flag::ACK, 0)), Err(Reason::PROTOCOL_ERROR));
        assert_eq!(order.check(head(kind::SETTINGS, 0, DEFAULT_FRAME + 1)), Err(Reason::FRAME_SIZE_ERROR));
        assert_eq!(order.check(head(kind::SETTINGS, 0, 6)), Ok(()));
        order.settings_received();
        assert_eq!(order.check(head(kind::CONTINUATION, 0, 1)), Err(Reason::PROTOCOL_ERROR));
        assert_eq!(order.headers(head(kind::HEADERS, flag::END_STREAM, 1), b"a"), Ok(None));
        assert_eq!(order.check(head(kind::PING, 0, 8)), Err(Reason::PROTOCOL_ERROR));
        let other = FrameHead { stream: 3, ..head(kind::CONTINUATION, 0, 1) };
        assert_eq!(order.check(other), Err(Reason::PROTOCOL_ERROR));
        assert_eq!(order.continuation(head(kind::CONTINUATION, 0, 1), b"b", 100), Ok(None));
        let block = order.continuation(head(kind::CONTINUATION, flag::END_HEADERS, 1), b"c", 100);
        let expected = HeaderBlock { stream: 1, is_last: true, dependency: None, bytes: b"abc"[..].into() };
        assert_eq!(block, Ok(Some(expected)));
        assert_eq!(order.check(head(kind::PING, 0, 8)), Ok(()));
    }

    #[test]
    fn header_blocks_have_limits_of_length_and_frames() {
        let mut order = FrameOrder::default();
        assert_eq!(order.headers(head(kind::HEADERS, 0, 0), b""), Ok(None));
        let long = vec![0; DEFAULT_FRAME as usize];
        let next = head(kind::CONTINUATION, 0, DEFAULT_FRAME);
        assert_eq!(order.continuation(next, &long, 10), Ok(None));
        assert_eq!(order.continuation(next, &[0; 11], 10), Err(Reason::ENHANCE_YOUR_CALM));
        assert_eq!(order.headers(head(kind::HEADERS, 0, 0), b""), Ok(None));
        let results: Vec<_> = (0..9).map(|_| order.continuation(next, b"", 10)).collect();
        assert!(results[..8].iter().all(|result| *result == Ok(None)), "{results:?}");
        assert_eq!(results[8], Err(Reason::ENHANCE_YOUR_CALM));
    }

    #[test]
    fn data_arrives_in_parts_however_the_buffers_are_cut() {
        let payload = b"\x02hello\0\0";
        for size in 1..=payload.len() {
            let mut frame = DataFrame::new(head(kind::DATA, flag::PADDED, 8)).expect("a frame");
            let (mut data, mut padding) = (Vec::new(), 0);
            for mut bytes in payload.chunks(size) {
                while !bytes.is_empty() {
                    assert!(!frame.is_complete());
                    let length = match frame.next_part(bytes).expect("a part") {
                        DataPart::PaddingLength(2) => 1,
                        DataPart::PaddingLength(other) => panic!("padding of {other} bytes"),
                        DataPart::Data(length) => {
                            data.extend_from_slice(&bytes[..length]);
                            length
                        }
                        DataPart::Padding(length) => {
                            padding += length;
                            length
                        }
                    };
                    bytes = &bytes[length..];
                }
            }
            assert!(frame.is_complete(), "in buffers of {size}");
            assert_eq!((&data[..], padding), (&b"hello"[..], 2));
        }
        assert_eq!(DataFrame::new(head(kind::DATA, flag::PADDED, 0)).err(), Some(Reason::FRAME_SIZE_ERROR));
        let mut frame = DataFrame::new(head(kind::DATA, flag::PADDED, 3)).expect("a frame");
        assert_eq!(frame.next_part(&[3]), Err(Reason::PROTOCOL_ERROR));
    }

    #[test]
    fn payloads_and_windows_are_checked() {
        assert_eq!(exactly::<4>(b"abcd"), Ok(b"abcd"));
        assert_eq!(exactly::<4>(b"abcde"), Err(Reason::FRAME_SIZE_ERROR));
        let mut window = -5;
        assert_eq!(change_window(&mut window, i64::from(LARGEST_WINDOW) + 5), Ok(()));
        assert_eq!(change_window(&mut window, 1), Err(Reason::FLOW_CONTROL_ERROR));
    }
}

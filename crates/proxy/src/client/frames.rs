//! Where the frames of HTTP/2 begin and end in a stream of plaintext (RFC 9113 section 4.1). Payloads are skipped.

/// Bytes of a frame's head.
const HEAD: usize = 9;
/// Bytes of `RST_STREAM`'s payload, which are read too.
const CODE: usize = 4;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
/// `END_STREAM` of `DATA` and `HEADERS`, `ACK` of `PING` and `SETTINGS`.
pub(crate) const FLAG: u8 = 1;

/// The head of a frame, and its error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// Bytes of the payload.
    pub(crate) length: u32,
    pub(crate) stream: u32,
    /// The error code of `RST_STREAM`, 0 for other frames.
    pub(crate) code: u32,
}

impl Frame {
    pub(crate) fn has_flag(&self) -> bool {
        self.flags & FLAG != 0
    }

    /// From the head, and what comes after it, which means something in `RST_STREAM` only.
    fn read(bytes: &[u8; HEAD + CODE]) -> Self {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3, code @ ..] = *bytes;
        let length = u32::from_be_bytes([0, l0, l1, l2]);
        let stream = u32::from_be_bytes([s0, s1, s2, s3]) & (u32::MAX >> 1);
        let has_code = kind == RST_STREAM && length >= CODE as u32;
        Self { kind, flags, length, stream, code: if has_code { u32::from_be_bytes(code) } else { 0 } }
    }

    /// Bytes that are read of it: the head, and the code of `RST_STREAM`.
    fn extent(&self) -> usize {
        if self.kind == RST_STREAM && self.length >= CODE as u32 { HEAD + CODE } else { HEAD }
    }
}

/// Finds the frames of one direction of a connection, whatever pieces they come in.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    head: [u8; HEAD + CODE],
    /// Bytes of `head` that are there.
    have: usize,
    /// Bytes to go until the next head.
    skip: usize,
}

impl Frames {
    /// Frames that follow `preface` bytes of something else.
    pub(crate) fn after(preface: usize) -> Self {
        Self { skip: preface, ..Self::default() }
    }

    /// Whether the last frame is complete, so that another may follow.
    pub(crate) fn at_boundary(&self) -> bool {
        self.skip == 0 && self.have == 0
    }

    /// Goes over the next bytes; `each` gets a frame as soon as its head is complete.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Frame)) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let frame = match bytes.first_chunk() {
                // Nearly always: the head is in one piece.
                Some(head) if self.have == 0 => {
                    let frame = Frame::read(head);
                    bytes = &bytes[frame.extent()..];
                    frame
                }
                _ => {
                    let needed = if self.have < HEAD { HEAD } else { self.head.len() };
                    let taken = (needed - self.have).min(bytes.len());
                    self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
                    self.have += taken;
                    bytes = &bytes[taken..];
                    let frame = Frame::read(&self.head);
                    if self.have < HEAD || self.have < frame.extent() {
                        continue;
                    }
                    self.have = 0;
                    frame
                }
            };
            self.skip = HEAD + frame.length as usize - frame.extent();
            each(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = &[
        0, 0, 3, DATA, FLAG, 0, 0, 0, 1, 7, 7, 7, // DATA of three bytes
        0, 0, 4, RST_STREAM, 0, 0x80, 0, 0, 3, 0, 0, 0, 8, // RST_STREAM with CANCEL
        0, 0, 0, SETTINGS, 0, 0, 0, 0, 0,
    ];

    fn found(pieces: usize) -> Vec<Frame> {
        let mut frames = Frames::after(2);
        let mut all = Vec::new();
        for piece in [b"xx", STREAM].concat().chunks(pieces) {
            frames.feed(piece, |frame| all.push(frame));
        }
        assert!(frames.at_boundary());
        all
    }

    #[test]
    fn frames_are_the_same_in_pieces_of_every_size() {
        let whole = found(usize::MAX);
        let kinds: Vec<_> = whole.iter().map(|frame| (frame.kind, frame.stream, frame.code)).collect();
        assert_eq!(kinds, [(DATA, 1, 0), (RST_STREAM, 3, 8), (SETTINGS, 0, 0)]);
        assert_eq!((whole[0].length, whole[0].has_flag()), (3, true));
        for pieces in 1..40 {
            assert_eq!(found(pieces), whole, "pieces of {pieces}");
        }
    }

    #[test]
    fn a_part_of_a_frame_is_no_boundary() {
        for length in [1, 8, 9, 11, 13, 22, 24] {
            let mut frames = Frames::default();
            frames.feed(&STREAM[..length], |_| ());
            assert!(!frames.at_boundary(), "{length} bytes");
        }
    }
}

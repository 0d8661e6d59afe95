//! Writer of header blocks: the block is encoded directly after the head of its first frame.

use super::frame::{FrameHead, HEAD, WriteFrames, flag, kind};
use super::settings::DEFAULT_FRAME;

/// Reserves room in `out` for the head of the frame whose block is appended next, and returns its offset.
pub fn begin(out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.extend_from_slice(&[0; HEAD]);
    at
}

/// Fills in the head of the `HEADERS` on `stream` that begin at offset `at` of `out` and end with `out`. A block that
/// is too long for one frame continues in `CONTINUATION`. `is_last`: no more frames follow on the stream.
pub fn end(out: &mut Vec<u8>, at: usize, stream: u32, is_last: bool) {
    // The size that every peer accepts, so the `MAX_FRAME_SIZE` of the peer need not be kept.
    let most = DEFAULT_FRAME as usize;
    let length = out.len() - at - HEAD;
    let end_stream = if is_last { flag::END_STREAM } else { 0 };
    let end_headers = if length <= most { flag::END_HEADERS } else { 0 };
    let flags = end_stream | end_headers;
    let head = FrameHead { length: length.min(most) as u32, kind: kind::HEADERS, flags, stream };
    out[at..at + HEAD].copy_from_slice(&head.to_bytes());
    if length > most {
        let rest = out.split_off(at + HEAD + most);
        let parts = rest.chunks(most).count();
        for (number, part) in rest.chunks(most).enumerate() {
            let flags = if number + 1 == parts { flag::END_HEADERS } else { 0 };
            out.frame(kind::CONTINUATION, flags, stream, part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(mut bytes: &[u8]) -> Vec<FrameHead> {
        let mut heads = Vec::new();
        while let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() {
            let head = FrameHead::read(head);
            bytes = &rest[head.length as usize..];
            heads.push(head);
        }
        heads
    }

    #[test]
    fn a_block_of_any_length_is_written_in_frames_that_are_not_too_long() {
        for (length, lengths) in [(0, vec![0]), (16_384, vec![16_384]), (40_000, vec![16_384, 16_384, 7232])]
        {
            let mut out = b"before".to_vec();
            let at = begin(&mut out);
            out.resize(at + HEAD + length, 7);
            end(&mut out, at, 5, true);
            let heads = heads(&out[at..]);
            assert_eq!(heads.iter().map(|head| head.length).collect::<Vec<_>>(), lengths);
            assert!(heads[0].kind == kind::HEADERS && heads[0].has(flag::END_STREAM));
            assert!(
                heads[1..].iter().all(|head| head.kind == kind::CONTINUATION && !head.has(flag::END_STREAM))
            );
            let ends: Vec<_> = heads.iter().map(|head| head.has(flag::END_HEADERS)).collect();
            assert_eq!(ends.iter().filter(|ends| **ends).count(), 1);
            assert_eq!(ends.last(), Some(&true));
        }
    }
}

//! Streaming decoders with a bounded amount of output per call, for content of untrusted peers.

use std::fmt;

use brotli::enc::StandardAlloc;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use thiserror::Error;
use zlib_rs::{Inflate, InflateFlush, Status};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use crate::Coding;

/// Maximum output of one call, in bytes.
pub(crate) const ROOM: usize = 32 << 10;

/// Largest accepted window of `zstd`, as a power of two: 8 MiB, the limit of RFC 9659.
const LARGEST_WINDOW: u32 = 23;

/// Parameter of zlib for `gzip` framing with a window of 32 KiB.
const GZIP: u8 = 16 + 15;

/// First bytes of a `gzip` member (RFC 1952 section 2.3.1). Other bytes after a member are padding.
const MEMBER: [u8; 3] = [0x1f, 0x8b, 8];

/// Reasons for which content cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecoderError {
    /// The bytes are not valid in this coding.
    #[error("the content is not valid {}, although its Content-Encoding says so", .0.name())]
    Malformed(Coding),
    /// The content ends before its coding is complete.
    #[error("the {} message ends early", .0.name())]
    Truncated(Coding),
}

/// Result of [`Decoder::write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeProgress {
    /// Number of consumed input bytes.
    pub taken: usize,
    /// More output may follow without further input.
    pub has_more: bool,
}

/// A decoder for one message body.
pub struct Decoder {
    coding: Coding,
    codec: Codec,
    /// The content is complete, or a `gzip` member that could be the last has ended.
    is_complete: bool,
    /// All further input is ignored.
    is_over: bool,
    /// No input has arrived.
    is_empty: bool,
    /// Number of matched bytes of [`MEMBER`], the header of a possible next `gzip` member.
    begun: usize,
}

enum Codec {
    Zstd(DCtx<'static>),
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    Gzip(Box<Inflate>),
}

impl Decoder {
    /// A decoder for one message body in `coding`.
    pub fn new(coding: Coding) -> Self {
        let alloc = StandardAlloc::default;
        let codec = match coding {
            Coding::Zstd => {
                let mut context = DCtx::create();
                context
                    .set_parameter(DParameter::WindowLogMax(LARGEST_WINDOW))
                    .expect("a window that zstd has");
                Codec::Zstd(context)
            }
            // Strict: large windows are an extension that `br` does not include, and exceed the memory of
            // `memory`.
            Coding::Brotli => Codec::Brotli(Box::new(BrotliState::new_strict(alloc(), alloc(), alloc()))),
            Coding::Gzip => Codec::Gzip(Box::new(Inflate::new(true, GZIP))),
        };
        Self { coding, codec, is_complete: false, is_over: false, is_empty: true, begun: 0 }
    }

    /// Maximum memory of a decoder, in bytes. The largest window that the content may declare decides; see
    /// `LARGEST_WINDOW`.
    pub fn memory(coding: Coding) -> usize {
        match coding {
            Coding::Zstd => 9 << 20,
            Coding::Brotli => 17 << 20,
            Coding::Gzip => 64 << 10,
        }
    }

    /// Decodes some of `input` and appends up to 32 KiB to `output`. Call it again while input is left or
    /// [`DecodeProgress::has_more`] is set.
    ///
    /// # Errors
    ///
    /// [`DecoderError::Malformed`] if the bytes are invalid or the decoder makes no progress.
    pub fn write(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<DecodeProgress, DecoderError> {
        if self.is_over {
            return Ok(DecodeProgress { taken: input.len(), has_more: false });
        }
        self.is_empty &= input.is_empty();
        if self.is_complete && self.coding == Coding::Gzip {
            return Ok(self.after_member(input));
        }
        let malformed = DecoderError::Malformed(self.coding);
        let start = output.len();
        output.resize(start + ROOM, 0);
        let stepped = match &mut self.codec {
            Codec::Zstd(context) => zstd(context, input, &mut output[start..]),
            Codec::Brotli(state) => brotli(state, input, &mut output[start..]),
            Codec::Gzip(inflate) => gzip(inflate, input, &mut output[start..]),
        };
        let Some(step) = stepped else {
            output.truncate(start);
            return Err(malformed);
        };
        output.truncate(start + step.made);
        // A call without input after the end of a frame returns a hint for the next frame, which must not
        // make complete content incomplete.
        if step.taken > 0 || step.made > 0 || step.ended {
            self.is_complete = step.ended;
        }
        // RFC 7932 has no second stream, so bytes after the end are ignored as padding.
        self.is_over = step.ended && self.coding == Coding::Brotli;
        // No progress although there is input and room: without this check, callers would repeat the call without end.
        if step.taken == 0 && step.made == 0 && !input.is_empty() && !self.is_over {
            return Err(malformed);
        }
        Ok(DecodeProgress { taken: step.taken, has_more: step.made == ROOM })
    }

    /// Handles the input after a `gzip` member: another member (RFC 1952 section 2.2) or padding. Padding is ignored.
    fn after_member(&mut self, input: &[u8]) -> DecodeProgress {
        for (at, byte) in input.iter().enumerate() {
            if *byte != MEMBER[self.begun] {
                self.is_over = true;
                return DecodeProgress { taken: input.len(), has_more: false };
            }
            self.begun += 1;
            if self.begun == MEMBER.len() {
                let mut inflate = Inflate::new(true, GZIP);
                // These bytes are only a part of the header, so there is no output.
                let begins = inflate.decompress(&MEMBER, &mut [0], InflateFlush::NoFlush).is_ok();
                self.codec = Codec::Gzip(Box::new(inflate));
                (self.begun, self.is_complete, self.is_over) = (0, !begins, !begins);
                return DecodeProgress { taken: at + 1, has_more: false };
            }
        }
        DecodeProgress { taken: input.len(), has_more: false }
    }

    /// Checks that the content is complete at the end of the input. Empty input counts as complete, as in browsers:
    /// responses without content may still have a `Content-Encoding`.
    ///
    /// # Errors
    ///
    /// [`DecoderError::Truncated`] if the content ends early.
    pub fn finish(&self) -> Result<(), DecoderError> {
        if self.is_complete || self.is_empty { Ok(()) } else { Err(DecoderError::Truncated(self.coding)) }
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").field("coding", &self.coding).finish_non_exhaustive()
    }
}

struct CodecProgress {
    taken: usize,
    made: usize,
    ended: bool,
}

fn zstd(context: &mut DCtx<'_>, input: &[u8], output: &mut [u8]) -> Option<CodecProgress> {
    let mut source = InBuffer::around(input);
    let mut target = OutBuffer::around(output);
    let left = context.decompress_stream(&mut target, &mut source).ok()?;
    Some(CodecProgress { taken: source.pos(), made: target.pos(), ended: left == 0 })
}

fn brotli(
    state: &mut BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
    input: &[u8],
    output: &mut [u8],
) -> Option<CodecProgress> {
    let (mut left, mut taken, mut room, mut made, mut total) = (input.len(), 0, output.len(), 0, 0);
    let result =
        BrotliDecompressStream(&mut left, &mut taken, input, &mut room, &mut made, output, &mut total, state);
    let ended = matches!(result, BrotliResult::ResultSuccess);
    (!matches!(result, BrotliResult::ResultFailure)).then_some(CodecProgress { taken, made, ended })
}

fn gzip(inflate: &mut Inflate, input: &[u8], output: &mut [u8]) -> Option<CodecProgress> {
    let (taken, made) = (inflate.total_in(), inflate.total_out());
    let status = inflate.decompress(input, output, InflateFlush::NoFlush).ok()?;
    Some(CodecProgress {
        taken: (inflate.total_in() - taken) as usize,
        made: (inflate.total_out() - made) as usize,
        ended: status == Status::StreamEnd,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Encoder;

    fn encoded(coding: Coding, plain: &[u8]) -> Vec<u8> {
        let mut output = Vec::new();
        Encoder::new(coding, 4).write_whole(plain, &mut output).expect("a codec");
        output
    }

    fn decoded(coding: Coding, pieces: &[&[u8]]) -> Result<Vec<u8>, DecoderError> {
        let (mut decoder, mut output) = (Decoder::new(coding), Vec::new());
        for piece in pieces {
            let mut rest = *piece;
            loop {
                let before = output.len();
                let step = decoder.write(rest, &mut output)?;
                assert!(output.len() - before <= ROOM);
                rest = &rest[step.taken..];
                if rest.is_empty() && !step.has_more {
                    break;
                }
            }
        }
        decoder.finish().map(|()| output)
    }

    #[test]
    fn what_was_encoded_comes_back_whatever_the_pieces() {
        let plain: Vec<u8> = (0..300_000_u32).map(|at| (at.wrapping_mul(at) / 977 % 251) as u8).collect();
        for coding in Coding::ALL {
            for (plain, lengths) in [
                (&plain[..], &[1000, 1 << 20][..]),
                (&plain[..500], &[1, 7][..]),
                (&b""[..], &[1][..]),
                (&b"x"[..], &[1][..]),
            ] {
                let encoded = encoded(coding, plain);
                for &length in lengths {
                    let pieces: Vec<_> = encoded.chunks(length).collect();
                    assert!(decoded(coding, &pieces).as_deref() == Ok(plain), "{coding:?} {length}");
                }
            }
        }
    }

    #[test]
    fn bombs_come_in_bounded_pieces_and_what_is_cut_or_wrong_is_an_error() {
        let zeros = vec![0; 8 << 20];
        for coding in Coding::ALL {
            let bomb = encoded(coding, &zeros);
            assert!(decoded(coding, &[&bomb]).as_deref() == Ok(&zeros[..]), "{coding:?}");
            let cut = &bomb[..bomb.len() - 1];
            assert_eq!(decoded(coding, &[cut]).err(), Some(DecoderError::Truncated(coding)));
            assert_eq!(decoded(coding, &[&bomb[..1]]).err(), Some(DecoderError::Truncated(coding)));
            assert_eq!(decoded(coding, &[]).as_deref(), Ok(&b""[..]), "no content at all");
            let noise: Vec<u8> = (0..999_u32).map(|at| (at.wrapping_mul(7919) >> 3) as u8 | 0x80).collect();
            assert!(decoded(coding, &[&noise]).is_err(), "{coding:?}");
        }
        let two =
            [encoded(Coding::Gzip, b"a"), encoded(Coding::Gzip, b"b"), b"\0\0padding".to_vec()].concat();
        assert_eq!(decoded(Coding::Gzip, &[&two]).as_deref(), Ok(&b"ab"[..]));
    }

    #[test]
    fn what_follows_a_member_of_gzip_is_another_one_or_padding() {
        let one = encoded(Coding::Gzip, b"a");
        for padding in [&b"\n"[..], b"\0", b"\0\0\0", b"\x1f", b"\x1f\x8b", b"\x1f\x8b\n", b"\r\n<!-- x -->"]
        {
            let padded = [&one[..], padding].concat();
            for length in [1, 2, 3, padded.len()] {
                let pieces: Vec<_> = padded.chunks(length).collect();
                assert_eq!(
                    decoded(Coding::Gzip, &pieces).as_deref(),
                    Ok(&b"a"[..]),
                    "{padding:?} in pieces of {length}"
                );
            }
        }
        let two = [&one[..], &one].concat();
        for length in 1..two.len() {
            let pieces: Vec<_> = two.chunks(length).collect();
            assert_eq!(decoded(Coding::Gzip, &pieces).as_deref(), Ok(&b"aa"[..]), "{length}");
        }
        let cut = &two[..two.len() - 1];
        assert_eq!(decoded(Coding::Gzip, &[cut]).err(), Some(DecoderError::Truncated(Coding::Gzip)));
    }
}

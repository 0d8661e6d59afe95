//! Streaming encoders with one interface for all codings.

use std::fmt;

use brotli::enc::StandardAlloc;
use brotli::enc::encode::{BrotliEncoderOperation, BrotliEncoderParameter, BrotliEncoderStateStruct};
use zlib_rs::{Deflate, DeflateFlush, Status};
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

use crate::{Coding, Dictionary};

/// Window of streams for `br` and `zstd`, as a power of two: 256 KiB. The client must allocate it, and it is most of an
/// encoder's memory. RFC 8878 section 3.1.1.1.2 and RFC 9659 would allow 8 MiB.
const WINDOW: u32 = 18;

/// Largest window that every client supports, as a power of two: 8 MiB (RFC 9659).
const LARGEST_WINDOW: u32 = 23;

/// Granularity of output buffers, in bytes.
const ROOM: usize = 16 << 10;

/// Operation after the input of a call has been consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushMode {
    /// Keep output until enough has accumulated.
    Buffer,
    /// Emit all output, so that the peer can decode all input so far.
    Flush,
    /// End the content.
    Finish,
}

/// The codec failed. This is a defect of the program: no input is invalid for an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderError(Coding);

impl fmt::Display for EncoderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} encoder failed", self.0.name())
    }
}

impl std::error::Error for EncoderError {}

/// An encoder. After [`reset`](Self::reset) it can be used for another message.
pub struct Encoder {
    coding: Coding,
    level: u8,
    codec: Codec,
    /// Bytes before the first output: the header of a `dcz` response.
    preface: Option<[u8; 40]>,
    has_dictionary: bool,
}

enum Codec {
    Zstd(CCtx<'static>),
    Brotli(Box<BrotliEncoderStateStruct<StandardAlloc>>),
    Gzip(Box<Deflate>),
}

impl Encoder {
    /// An encoder with a level of [`Coding::levels`].
    pub fn new(coding: Coding, level: u8) -> Self {
        let codec = match coding {
            Coding::Zstd => Codec::Zstd(zstd(level, WINDOW)),
            Coding::Brotli => Codec::Brotli(brotli(level, WINDOW)),
            Coding::Gzip => Codec::Gzip(Box::new(Deflate::new(level.into(), true, GZIP))),
        };
        Self { coding, level, codec, preface: None, has_dictionary: false }
    }

    /// An encoder for `dcz` (RFC 9842). `length` is the length of the content, if known. The window covers dictionary
    /// and content, up to 8 MiB.
    pub fn with_dictionary(
        level: u8,
        dictionary: &Dictionary,
        length: Option<u64>,
    ) -> Result<Self, EncoderError> {
        let mut context = zstd(level, Self::window(dictionary, length));
        context.load_dictionary(dictionary.bytes()).map_err(|_| EncoderError(Coding::Zstd))?;
        let preface = Some(dictionary.preface());
        Ok(Self { coding: Coding::Zstd, level, codec: Codec::Zstd(context), preface, has_dictionary: true })
    }

    /// Maximum memory of an encoder of [`with_dictionary`](Self::with_dictionary), in bytes.
    pub fn memory_with(dictionary: &Dictionary, length: Option<u64>) -> usize {
        Self::memory(Coding::Zstd) + 2 * dictionary.bytes().len() + (2 << Self::window(dictionary, length))
    }

    fn window(dictionary: &Dictionary, length: Option<u64>) -> u32 {
        // A window smaller than both together would lose the start of the dictionary before the content ends.
        let both = dictionary.bytes().len() as u64 + length.unwrap_or(1 << 20).min(1 << LARGEST_WINDOW);
        both.next_power_of_two().ilog2().clamp(WINDOW, LARGEST_WINDOW)
    }

    /// An encoder for static files, which are encoded once and sent often: it uses the largest window that every client
    /// supports.
    pub fn for_files(coding: Coding, level: u8) -> Self {
        let codec = match coding {
            Coding::Zstd => Codec::Zstd(zstd(level, LARGEST_WINDOW)),
            // RFC 7932 section 9.1: a window of 24 bits is the largest, and every decoder supports it.
            Coding::Brotli => Codec::Brotli(brotli(level, 24)),
            Coding::Gzip => return Self::new(coding, level),
        };
        Self { coding, level, codec, preface: None, has_dictionary: false }
    }

    /// The coding.
    pub fn coding(&self) -> Coding {
        self.coding
    }

    /// The level.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Maximum memory of an encoder for content of unknown length, in bytes.
    pub fn memory(coding: Coding) -> usize {
        match coding {
            Coding::Zstd => 2 << 20,
            Coding::Brotli => 3 << 20,
            Coding::Gzip => 300 << 10,
        }
    }

    /// Consumes all of `input` and appends available output to `output`. The time is proportional to the length of
    /// `input`, except that `br` and `zstd` collect up to 128 KiB and encode them in one call.
    ///
    /// # Errors
    ///
    /// [`EncoderError`] if the codec fails; the encoder must be dropped.
    pub fn write(&mut self, input: &[u8], output: &mut Vec<u8>, step: FlushMode) -> Result<(), EncoderError> {
        if let Some(preface) = self.preface.take() {
            output.extend_from_slice(&preface);
        }
        let written = match &mut self.codec {
            Codec::Zstd(context) => write_zstd(context, input, output, step),
            Codec::Brotli(state) => write_brotli(state, input, output, step),
            Codec::Gzip(deflate) => write_gzip(deflate, input, output, step),
        };
        written.ok_or(EncoderError(self.coding))
    }

    /// Encodes a complete body. The known length makes the output smaller than that of [`write`](Self::write).
    pub fn write_whole(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<(), EncoderError> {
        match &mut self.codec {
            Codec::Zstd(context) => {
                context
                    .set_pledged_src_size(Some(input.len() as u64))
                    .map_err(|_| EncoderError(self.coding))?;
            }
            Codec::Brotli(state) => {
                state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_SIZE_HINT, input.len() as u32);
            }
            Codec::Gzip(_) => {}
        }
        self.write(input, output, FlushMode::Finish)
    }

    /// Prepares the encoder for another message. Returns `false` if reuse saves nothing; the encoder must be dropped
    /// then.
    pub fn reset(&mut self) -> bool {
        // The next message may have another dictionary, and loading one is the costly part.
        if self.has_dictionary {
            return false;
        }
        match &mut self.codec {
            Codec::Zstd(context) => context.reset(ResetDirective::SessionOnly).is_ok(),
            Codec::Brotli(_) => false,
            Codec::Gzip(deflate) => {
                deflate.reset();
                true
            }
        }
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder")
            .field("coding", &self.coding)
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}

/// Parameter of zlib for `gzip` framing with a window of 32 KiB.
const GZIP: u8 = 16 + 15;

fn zstd(level: u8, window: u32) -> CCtx<'static> {
    let mut context = CCtx::create();
    for parameter in [
        CParameter::CompressionLevel(level.into()),
        CParameter::WindowLog(window),
        CParameter::ChecksumFlag(false),
    ] {
        context.set_parameter(parameter).expect("parameters in the ranges of zstd");
    }
    context
}

fn brotli(quality: u8, window: u32) -> Box<BrotliEncoderStateStruct<StandardAlloc>> {
    let mut state = Box::new(BrotliEncoderStateStruct::new(StandardAlloc::default()));
    state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_QUALITY, quality.into());
    state.set_parameter(BrotliEncoderParameter::BROTLI_PARAM_LGWIN, window);
    state
}

fn write_zstd(context: &mut CCtx<'_>, input: &[u8], output: &mut Vec<u8>, step: FlushMode) -> Option<()> {
    let directive = match step {
        FlushMode::Buffer => ZSTD_EndDirective::ZSTD_e_continue,
        FlushMode::Flush => ZSTD_EndDirective::ZSTD_e_flush,
        FlushMode::Finish => ZSTD_EndDirective::ZSTD_e_end,
    };
    let mut source = InBuffer::around(input);
    loop {
        output.reserve(ROOM);
        let start = output.len();
        let mut target = OutBuffer::around_pos(output, start);
        let left = context.compress_stream2(&mut target, &mut source, directive).ok()?;
        let taken = source.pos() == input.len();
        // With `Buffer`, zstd may keep output for later calls, so `left` need not become 0.
        if taken && (left == 0 || step == FlushMode::Buffer) {
            return Some(());
        }
    }
}

fn write_brotli(
    state: &mut BrotliEncoderStateStruct<StandardAlloc>,
    input: &[u8],
    output: &mut Vec<u8>,
    step: FlushMode,
) -> Option<()> {
    let operation = match step {
        FlushMode::Buffer => BrotliEncoderOperation::BROTLI_OPERATION_PROCESS,
        FlushMode::Flush => BrotliEncoderOperation::BROTLI_OPERATION_FLUSH,
        FlushMode::Finish => BrotliEncoderOperation::BROTLI_OPERATION_FINISH,
    };
    let (mut left, mut offset) = (input.len(), 0);
    loop {
        let start = output.len();
        output.resize(start + ROOM, 0);
        let (mut room, mut made) = (ROOM, 0);
        let went_on = state.compress_stream(
            operation,
            &mut left,
            input,
            &mut offset,
            &mut room,
            &mut output[start..],
            &mut made,
            &mut None,
            &mut |_, _, _, _| (),
        );
        output.truncate(start + made);
        if !went_on {
            return None;
        }
        let is_done = step != FlushMode::Finish || state.is_finished();
        if left == 0 && !state.has_more_output() && is_done {
            return Some(());
        }
    }
}

fn write_gzip(deflate: &mut Deflate, input: &[u8], output: &mut Vec<u8>, step: FlushMode) -> Option<()> {
    let flush = match step {
        FlushMode::Buffer => DeflateFlush::NoFlush,
        FlushMode::Flush => DeflateFlush::SyncFlush,
        FlushMode::Finish => DeflateFlush::Finish,
    };
    let mut rest = input;
    loop {
        let start = output.len();
        output.resize(start + ROOM, 0);
        let (taken, made) = (deflate.total_in(), deflate.total_out());
        let status = deflate.compress(rest, &mut output[start..], flush).ok()?;
        let made = (deflate.total_out() - made) as usize;
        rest = &rest[(deflate.total_in() - taken) as usize..];
        output.truncate(start + made);
        match (status, step) {
            (Status::StreamEnd, _) => return Some(()),
            (_, FlushMode::Finish) => {}
            // Room was left in the buffer: all available output has been emitted.
            _ if rest.is_empty() && made < ROOM => return Some(()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn decoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::with_capacity(4 << 20);
        match coding {
            Coding::Zstd => {
                zstd_safe::decompress(&mut plain, bytes).expect("a zstd frame");
            }
            Coding::Brotli => {
                brotli::Decompressor::new(bytes, 4096).read_to_end(&mut plain).expect("a brotli stream");
            }
            Coding::Gzip => plain = inflated(bytes, true),
        }
        plain
    }

    fn inflated(bytes: &[u8], is_whole: bool) -> Vec<u8> {
        let mut inflate = zlib_rs::Inflate::new(true, GZIP);
        let mut plain = vec![0; 4 << 20];
        let status =
            inflate.decompress(bytes, &mut plain, zlib_rs::InflateFlush::NoFlush).expect("a gzip member");
        assert_eq!(status == Status::StreamEnd, is_whole);
        plain.truncate(inflate.total_out() as usize);
        plain
    }

    /// Text that compresses well, but not to nothing.
    fn text(length: usize) -> Vec<u8> {
        let words = ["lamp ", "river ", "stone ", "seven ", "under ", "glass ", "northern ", "\n"];
        let mut state = 1_u32;
        let mut text = Vec::new();
        while text.len() < length {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            text.extend_from_slice(words[(state >> 24) as usize % words.len()].as_bytes());
        }
        text.truncate(length);
        text
    }

    fn levels(coding: Coding) -> Vec<u8> {
        match coding {
            Coding::Zstd => vec![1, 3, 9],
            Coding::Brotli => vec![0, 1, 4, 5, 9],
            Coding::Gzip => vec![1, 6, 9],
        }
    }

    #[test]
    fn what_goes_in_comes_out_whatever_the_pieces() {
        let whole = text(300_000);
        for coding in Coding::ALL {
            for level in levels(coding) {
                for piece in [1000, 16 << 10, 300_000] {
                    let mut encoder = Encoder::new(coding, level);
                    let mut output = Vec::new();
                    for part in whole.chunks(piece) {
                        encoder.write(part, &mut output, FlushMode::Buffer).expect("a codec");
                    }
                    encoder.write(&[], &mut output, FlushMode::Finish).expect("a codec");
                    assert!(output.len() < whole.len() / 2, "{coding:?} {level}: {}", output.len());
                    assert!(decoded(coding, &output) == whole, "{coding:?} {level} {piece}");
                }
            }
        }
    }

    #[test]
    fn a_whole_message_and_an_empty_one_can_be_decoded_and_encoders_used_again() {
        for coding in Coding::ALL {
            let mut encoder = Encoder::new(coding, 4);
            for length in [0, 1, 700, 30_000, 100_000] {
                let message = text(length);
                let mut output = Vec::new();
                encoder.write_whole(&message, &mut output).expect("a codec");
                assert!(decoded(coding, &output) == message, "{coding:?} {length}");
                if !encoder.reset() {
                    encoder = Encoder::new(coding, 4);
                }
            }
        }
    }

    #[test]
    fn what_was_flushed_can_be_decoded_before_the_end() {
        for coding in Coding::ALL {
            let mut encoder = Encoder::new(coding, 4);
            let mut output = Vec::new();
            for event in ["data: one\n\n", "data: two\n\n"] {
                let before = output.len();
                encoder.write(event.as_bytes(), &mut output, FlushMode::Flush).expect("a codec");
                assert!(output.len() > before, "{coding:?}");
            }
            let seen = match coding {
                Coding::Gzip => inflated(&output, false),
                Coding::Brotli => {
                    let mut seen = vec![0; 22];
                    brotli::Decompressor::new(&output[..], 4096)
                        .read_exact(&mut seen)
                        .expect("what was flushed");
                    seen
                }
                Coding::Zstd => {
                    let mut seen = Vec::with_capacity(100);
                    let mut context = zstd_safe::DCtx::create();
                    let mut source = InBuffer::around(&output);
                    context
                        .decompress_stream(&mut OutBuffer::around(&mut seen), &mut source)
                        .expect("a frame");
                    seen
                }
            };
            assert_eq!(seen, b"data: one\n\ndata: two\n\n", "{coding:?}");
        }
    }

    #[test]
    fn a_new_version_takes_little_beside_the_old_one() {
        let old = text(200_000);
        let mut new = old.clone();
        new[100_000..100_010].copy_from_slice(b"0123456789");
        let dictionary = Dictionary::new(old.clone()).expect("a dictionary");
        let length = Some(new.len() as u64);
        let mut encoder = Encoder::with_dictionary(3, &dictionary, length).expect("an encoder");
        let mut output = Vec::new();
        for piece in new.chunks(10_000) {
            encoder.write(piece, &mut output, FlushMode::Buffer).expect("a codec");
        }
        encoder.write(&[], &mut output, FlushMode::Finish).expect("a codec");
        assert!(!encoder.reset(), "it is for one message");
        let mut alone = Vec::new();
        Encoder::new(Coding::Zstd, 3).write_whole(&new, &mut alone).expect("a codec");
        assert!(output.len() < alone.len() / 2, "{} of {}", output.len(), alone.len());
        assert_eq!(output[..8], [0x5e, 0x2a, 0x4d, 0x18, 0x20, 0, 0, 0]);
        assert_eq!(output[8..40], dictionary.hash()[..]);
        let mut plain = Vec::with_capacity(new.len());
        let mut context = zstd_safe::DCtx::create();
        context.decompress_using_dict(&mut plain, &output[40..], &old).expect("a frame");
        assert!(plain == new);
    }

    #[test]
    fn files_are_encoded_at_the_highest_levels() {
        let whole = text(50_000);
        for coding in Coding::ALL {
            let mut output = Vec::new();
            let level = if coding == Coding::Zstd { 19 } else { *coding.levels().end() };
            Encoder::for_files(coding, level).write_whole(&whole, &mut output).expect("a codec");
            assert!(decoded(coding, &output) == whole, "{coding:?}");
        }
    }
}

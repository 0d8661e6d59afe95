//! Content codings of HTTP (RFC 9110 section 8.4): negotiation of `Accept-Encoding`, encoders and decoders for `zstd`,
//! `br` and `gzip`, and the dictionaries of `dcz`.
//!
//! Callers decide which content is encoded and how much memory and processor time it may use. Nothing in this crate
//! performs I/O or blocks.

mod accept;
mod decoder;
mod dictionary;
mod encoder;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod padding;

pub use accept::AcceptedCodings;
pub use decoder::{DecodeProgress, Decoder, DecoderError};
pub use dictionary::Dictionary;
pub use encoder::{Encoder, EncoderError, FlushMode};
pub use padding::{pad_gzip, padding_length};

/// A content coding that [`Encoder`] and [`Decoder`] support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// `zstd` (RFC 8878).
    Zstd,
    /// `br` (RFC 7932).
    Brotli,
    /// `gzip` (RFC 1952).
    Gzip,
}

impl Coding {
    /// All codings, in the order of [`Coding::index`].
    pub const ALL: [Self; 3] = [Self::Zstd, Self::Brotli, Self::Gzip];

    /// The name in `Accept-Encoding` and `Content-Encoding`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// The extension of precompressed files, without the dot: `zst` for `a.css.zst`.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Zstd => "zst",
            Self::Brotli => "br",
            Self::Gzip => "gz",
        }
    }

    /// Parses a name without regard to case. `x-gzip` is an alias of `gzip` (RFC 9110 section 8.4.1.3).
    pub fn named(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("x-gzip") {
            return Some(Self::Gzip);
        }
        Self::ALL.into_iter().find(|coding| name.eq_ignore_ascii_case(coding.name()))
    }

    /// The index in [`Coding::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// The supported compression levels: those of the library for `gzip` and `zstd`, qualities for `br`.
    pub fn levels(self) -> std::ops::RangeInclusive<u8> {
        match self {
            Self::Zstd => 1..=22,
            Self::Brotli => 0..=11,
            Self::Gzip => 1..=9,
        }
    }
}

//! Content codings of HTTP: which of them a client takes, and the codecs that make them.
//!
//! What may be coded, and how much of it at a time, is for callers to decide: nothing here waits or reads.

mod accept;
mod decoder;
mod dictionary;
mod encoder;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;

pub use accept::Accepted;
pub use decoder::{Decoded, Decoder, DecoderError};
pub use dictionary::Dictionary;
pub use encoder::{Encoder, EncoderError, Step};

/// A content coding that can be made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// `zstd`, RFC 8878.
    Zstd,
    /// `br`, RFC 7932.
    Brotli,
    /// `gzip`, RFC 1952.
    Gzip,
}

impl Coding {
    /// All of them, in the order of [`Coding::index`].
    pub const ALL: [Self; 3] = [Self::Zstd, Self::Brotli, Self::Gzip];

    /// The name in `Accept-Encoding` and `Content-Encoding`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// The end of the names of files that hold it, without a dot.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Zstd => "zst",
            Self::Brotli => "br",
            Self::Gzip => "gz",
        }
    }

    /// The coding of a name, without regard to case. `x-gzip` is gzip (RFC 9110 section 8.4.1.3).
    pub fn named(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("x-gzip") {
            return Some(Self::Gzip);
        }
        Self::ALL.into_iter().find(|coding| name.eq_ignore_ascii_case(coding.name()))
    }

    /// Its place among [`Coding::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// The levels that it has: for gzip and zstd those of their libraries, for brotli its qualities.
    pub fn levels(self) -> std::ops::RangeInclusive<u8> {
        match self {
            Self::Zstd => 1..=22,
            Self::Brotli => 0..=11,
            Self::Gzip => 1..=9,
        }
    }
}

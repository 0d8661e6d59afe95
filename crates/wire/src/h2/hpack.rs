//! HPACK (RFC 7541): header blocks into fields and back.

mod constants;
mod decoder;
mod encoder;
mod huffman;

pub use constants::{CONSTANTS, constant, index_of_name};
pub use decoder::{Decoded, Decoder, Fields, HpackError, Name};
pub use encoder::Encoder;

/// Bytes that each field of a table, or of a list, counts beside its name and value (RFC 7541 section 4.1, RFC 9113
/// section 6.5.2).
pub const OVERHEAD: usize = 32;

/// Bytes of a table before any setting (RFC 9113 section 6.5.2).
pub const DEFAULT_TABLE: usize = 4096;

#[cfg(test)]
mod tests;

//! HPACK (RFC 7541): header blocks into fields and back.

mod constants;
mod decoder;
mod encoder;

pub use constants::{CONSTANTS, constant, index_of_name};
pub use decoder::Decoder;
pub use encoder::Encoder;

pub use crate::fields::{Decoded, FieldBlockError as HpackError, Fields, Name, OVERHEAD};

/// Bytes of a table before any setting (RFC 9113 section 6.5.2).
pub const DEFAULT_TABLE: usize = 4096;

#[cfg(test)]
mod tests;

//! QPACK (RFC 9204) with the static table only: field sections into fields and back.
//!
//! Both sides keep the capacity of the dynamic table at 0, which is the default of `QPACK_MAX_TABLE_CAPACITY`. So no field
//! section waits for another stream, and neither side has state beyond a section.

mod constants;
mod decoder;
mod encoder;
pub mod instructions;

pub use constants::CONSTANTS;
pub use decoder::Decoder;
pub use encoder::{begin, field, status};

#[cfg(test)]
mod tests;

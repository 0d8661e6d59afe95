//! Files with secrets: reading, base64 and PEM, and buffers of secrets to be sent, without copies that remain in memory.
//!
//! Parsers for general use grow their buffers, and a buffer that grows leaves a copy of its content in memory that the
//! allocator may not reuse for days. Functions of this crate allocate each buffer once in its final size, and return it
//! as [`Zeroizing`]. Their errors contain no part of a file.
//!
//! [`Zeroizing`]: zeroize::Zeroizing

mod base64;
pub mod buffer;
mod file;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod pem;

pub use base64::{decode, decode_url};
pub use file::{read, read_at_most, read_open, read_text};
pub use pem::{PemError, PrivateKeyDocument};

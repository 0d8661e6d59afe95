//! Connections of clients and the request bodies that arrive on them.
//!
//! A [`Connection`] is shared by its driver (`brisk-http-server`) and the requests in flight on it. It belongs to one
//! worker's thread and is not `Send`. The modules of [`body`] are the stages of a request body on its way to an
//! upstream.

pub mod body;
pub mod buffers;
pub mod chunk;
pub mod connection;
pub mod discards;
pub mod end;
pub mod forwarded;
pub mod gathering;
pub mod handshake;
pub mod held;
pub mod holding;
pub mod interim;
pub mod keep_alive;
mod multiplexed;
pub mod pace;
pub mod proxy_header;
pub mod settings;
pub mod streams;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod wakes;
pub mod work;

pub use connection::Connection;

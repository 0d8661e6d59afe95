//! Connections of clients and the bodies that arrive on them, for the driver of a connection and the code that answers.
//!
//! A [`Connection`] is shared by its driver (`brisk-http-server`) and the requests in flight on it; it lives on one worker's
//! thread and is not `Send`. Modules of [`body`] are the stations of a request body on its way to an upstream.

pub mod body;
pub mod buffers;
pub mod chunk;
pub mod connection;
pub mod discards;
pub mod end;
pub mod forwarded;
pub mod handshake;
pub mod interim;
pub mod keep_alive;
mod multiplexed;
pub mod settings;
pub mod streams;
pub mod wakes;

pub use connection::Connection;

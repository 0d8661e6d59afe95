//! Bodies of requests, from the connection of the client to the writer of the upstream.

pub mod client;
pub mod copied;
pub mod gathered;
pub mod inbox;
pub mod request;

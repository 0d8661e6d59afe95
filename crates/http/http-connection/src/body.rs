//! Bodies of requests, from the connection of the client ([`client::ClientBody`]) to the writer of the upstream
//! ([`request::RequestBody`]).

pub mod client;
pub mod copied;
pub mod gathered;
pub mod inbox;
pub mod request;

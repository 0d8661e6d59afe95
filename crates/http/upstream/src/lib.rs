//! Forwarding to upstreams: of requests over HTTP/1.1 and HTTP/2, with pools, pipelines and retries, and of the bytes of TCP
//! connections.
//!
//! [`forward`](forward::forward) sends a request to a server of a [`Group`] and returns the response with an
//! [`UpstreamBody`]; [`stream`] connects a client's TCP connection with a server. Connections belong to one worker and never leave its thread. The settings and servers of a group, which
//! all workers share, are in [`brisk_upstream_group`].

mod admission;
mod body;
mod call_counts;
mod calls;
mod direction;
mod error;
pub mod forward;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod group;
mod head_watch;
mod http1;
mod http2;
mod interim;
mod login;
mod open;
mod pipeline;
mod pool;
mod proxied;
pub mod stream;
pub mod upgrade;

pub use body::UpstreamBody;
pub use error::UpstreamError;
pub use group::{Group, Server};

//! Upstreams: groups of servers with their connections and health, and the forwarding of requests to them.
//!
//! [`forward`](forward::forward) sends a request to a server of a [`Group`] and returns the response with an
//! [`UpstreamBody`]. Connections belong to one worker and never leave its thread; [`GroupState`], shared by all
//! workers, is `Send`.

mod admission;
mod balance;
mod body;
pub mod checks;
mod error;
pub mod forward;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod group;
mod health;
mod hedge;
mod http1;
mod http2;
mod interim;
mod io;
mod login;
pub mod metrics;
mod open;
mod pipeline;
mod places;
mod pool;
mod proxied;
pub mod resolution;
pub mod settings;
pub mod upgrade;
mod waits;

pub use body::UpstreamBody;
pub use error::UpstreamError;
pub use group::{Group, GroupState, Server, ServerState};

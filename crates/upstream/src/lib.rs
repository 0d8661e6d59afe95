//! Upstreams: groups of servers with their connections and health, and the way of a request through them.
//!
//! [`forward`](forward::forward) takes a request to a server of a [`Group`] and returns the response with an [`UpstreamBody`]. Connections live on one
//! worker's thread; [`GroupState`], which the workers share, is `Send`.

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
mod http1;
mod http2;
mod io;
mod login;
mod open;
mod places;
mod pool;
pub mod settings;
pub mod upgrade;

pub use body::UpstreamBody;
pub use error::UpstreamError;
pub use group::{Group, GroupState, Server, ServerState};

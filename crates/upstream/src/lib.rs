//! The upstreams' side: groups of servers with their connections and health, and the way of a request through them.

pub(crate) mod admission;
pub(crate) mod balance;
pub(crate) mod body;
pub mod checks;
pub mod forward;
pub(crate) mod group;
pub(crate) mod health;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod io;
pub(crate) mod login;
pub(crate) mod open;
pub(crate) mod places;
pub(crate) mod pool;
pub mod settings;
pub mod upgrade;

pub use group::{Group, GroupState, Server, ServerState};

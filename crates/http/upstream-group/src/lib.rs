//! Upstream groups as all workers share them: settings, servers with their addresses, health, permits for connections, and the
//! choice among the servers.
//!
//! Connections carry requests in `brisk_upstream`. [`GroupState`] and [`ServerState`] are `Send`; [`Members`] belongs to one
//! worker.

mod balance;
pub mod checks;
mod group;
mod health;
pub mod hedge;
mod io;
mod members;
pub mod places;
pub mod resolution;
mod server;
pub mod settings;
mod tls;
mod waits;

pub use balance::Member;
pub use group::{GroupState, SharedMembers};
pub use io::{DialError, UpstreamIo};
pub use members::Members;
pub use server::ServerState;

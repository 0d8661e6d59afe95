//! Upstream groups as all workers share them: keys and settings, servers with their addresses, health, permits for
//! connections, and the choice among the servers.
//!
//! Connections carry requests in `brisk_upstream`. [`GroupState`] and [`ServerState`] are `Send`; [`Members`] belongs to one
//! worker.

mod concurrency;
pub mod features;
mod group;
mod io;
pub mod metrics;
mod server;
pub mod settings;
mod tls;

pub use concurrency::{Concurrency, RequestCounts};
pub use features::balance::choice::Member;
pub use features::balance::members::Members;
pub use features::dns::resolution;
pub use features::health::checks;
pub use features::hedge;
pub use features::pool::places;
pub use features::retry;
pub use group::{GroupState, SharedMembers};
pub use io::{DialError, UpstreamIo};
pub use server::ServerState;

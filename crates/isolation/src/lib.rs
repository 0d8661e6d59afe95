//! `[keys] isolate`: private keys in a process beside the gateway, which reads input of strangers and holds no key.
//!
//! The gateway starts a [keeper], which starts the key process ([holder]) and starts it again when it ends. Orders go over one pair
//! of sockets ([control]), operations over others, in the protocol of key servers. [`Isolation`] is the gateway's side;
//! [`run`] is the other one, which the program calls with the engines that it knows.

mod control;
mod error;
mod holder;
mod isolation;
mod keeper;
mod metrics;
mod rights;
mod role;
mod state;
mod timeouts;

pub use control::Settings;
pub use error::IsolationError;
pub use isolation::{Isolation, LoadedKeys, trouble_with_user};
pub use metrics::IsolationMetrics;
pub use rights::keep_memory_private;
pub use role::{Operations, Program, Role, SUBCOMMAND, run};

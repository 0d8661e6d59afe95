//! `[keys] isolate`: private keys in a separate process, while the gateway, which reads untrusted input, holds no
//! key.
//!
//! The gateway starts two processes, each a `keeper`. One starts the key process (`holder`) and restarts it when it ends; the
//! other replaces the first when that ends, because a gateway in its sandbox starts no processes. Orders use
//! one pair of sockets (`control`); operations use others, with the protocol of key servers ([`brisk_keyless`]).
//! [`KeyProcess`] and [`Isolation`] are the gateway's side. [`run`] is the side of the `keeper` and the `holder`; the program
//! calls it with its engines as a [`Program`].

mod control;
mod error;
mod holder;
mod isolation;
mod keeper;
mod keepers;
mod metrics;
mod rights;
mod role;
mod state;
mod timeouts;

pub use control::Settings;
pub use error::IsolationError;
pub use isolation::{Isolation, LoadedKeys};
pub use keepers::KeyProcess;
pub use metrics::IsolationMetrics;
pub use rights::keep_memory_private;
pub use role::{Operations, Program, Role, SUBCOMMAND, run};

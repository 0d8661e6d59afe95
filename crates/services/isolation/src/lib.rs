//! `[keys] isolate`: private keys in a separate process, while the gateway, which reads untrusted input, holds no
//! key.
//!
//! The gateway starts a `keeper`, which starts the key process (`holder`) and restarts it when it ends. Orders use
//! one pair of sockets (`control`); operations use others, with the protocol of key servers ([`brisk_keyless`]).
//! [`Isolation`] is the gateway's side. [`run`] is the side of the `keeper` and the `holder`; the program calls it with
//! its engines as a [`Program`].

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

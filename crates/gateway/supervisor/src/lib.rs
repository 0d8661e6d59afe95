//! Supervision of a gateway: the main process, which holds the sockets and starts generations of the gateway, and the
//! protocol between a service manager and its service, on both sides.
//!
//! [`run`] is the supervisor: small, with one thread of its own and without keys, so that it survives the faults of the gateway. A
//! *generation* is one process of the gateway. Its side of the protocol, which systemd speaks too, is [`inherited`] for
//! descriptors, [`Notifier`] for reports and [`succession`] for the state that passes from a generation to the next.

mod control;
mod environment;
mod error;
mod generation;
pub mod inherited;
mod message;
mod notifier;
mod pid_file;
mod program;
mod reports;
mod signals;
mod store;
pub mod succession;
mod supervisor;
mod timing;

pub use control::request_upgrade;
pub use environment::{end_with_supervisor, is_supervised};
pub use error::{SupervisorError, UpgradeError};
pub use notifier::Notifier;
pub use program::program_path;
pub use supervisor::{Settings, run};

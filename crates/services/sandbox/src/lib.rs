//! The rights of a process: its user and capabilities, the folders that it may use, and its system calls.
//!
//! A program gives up rights in two steps. [`drop_privileges`] comes first, while the process has one thread: the configuration
//! and its keys are then read as later reloads read them. [`confine`] follows when the configuration is known, for all threads: it
//! limits file access to [`Folders`] (Landlock) and the process to the [`Calls`] of a server (seccomp), without `exec` and `fork`.
//! The crate knows no configuration and logs nothing: the results describe the rights in force.

mod calls;
mod confinement;
mod error;
mod filter;
mod folders;
mod granted;
mod privileges;
mod system;
mod threads;

pub use calls::Calls;
pub use confinement::{Confinement, confine};
pub use error::SandboxError;
pub use folders::{Access, Folders};
pub use granted::{Granted, Rights, outside};
pub use privileges::{Privileges, drop_privileges, keep_capabilities, look_up_user, trouble_with_user};

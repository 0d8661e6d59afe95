//! The processes that an isolated gateway starts, and their command lines.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use brisk_keys::Keystore;

use crate::control::{Control, Settings};
use crate::error::IsolationError;
use crate::{holder, keeper};

/// The subcommand of the processes.
pub const SUBCOMMAND: &str = "key-process";

/// The duty of one process, as on the command line that [`Role::words`] writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Whether the process holds keys; otherwise it starts the one that does.
    pub holds_keys: bool,
    /// Id of the process with which this one ends: the gateway, or the keeper of a process that holds keys.
    pub parent: u32,
    /// Name of the user that holds keys (`keys.isolate_user`); `None` if the configuration names none.
    pub user: Option<String>,
    /// The filter for [`Program::open_log`].
    pub log: String,
}

impl Role {
    /// Arguments of the command line after the program's name, starting with [`SUBCOMMAND`].
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![SUBCOMMAND.to_owned()];
        words.extend(self.holds_keys.then(|| "--holds-keys".to_owned()));
        for (option, value) in [("--log", &self.log), ("--parent", &self.parent.to_string())] {
            words.extend([option.to_owned(), value.clone()]);
        }
        words.extend(self.user.iter().flat_map(|user| ["--user".to_owned(), user.clone()]));
        words
    }
}

/// The program of a key process: the engines that perform its operations, and its log.
pub trait Program {
    /// Guard of the open log.
    type Log;

    /// Opens the log with this `filter`. An `Err` ends the process with [`IsolationError::Program`].
    fn open_log(&self, filter: &str) -> Result<Self::Log, String>;

    /// Starts engines for the keys in `keys`. Called once per process, after the first keys were read.
    fn start(&self, settings: &Settings, keys: &Arc<Keystore>) -> io::Result<Box<dyn Operations>>;
}

/// The engines of a key process, and the threads that serve its gateway.
pub trait Operations {
    /// Replaces the [`Keystore`]. Operations in progress finish with the previous one.
    fn hold(&self, keys: &Arc<Keystore>);

    /// Serves the gateway over `socket` with the protocol of key servers.
    fn serve(&mut self, socket: UnixStream);

    /// Reason for which one of the threads has ended, so that the process must end and be restarted; `None` while they run.
    fn failure(&self) -> Option<String>;

    /// Operations of the engine's threads, by size of their batch.
    fn by_size(&self) -> [u64; 4];

    /// Results of the engine's threads that failed verification.
    fn faults(&self) -> u64;
}

/// Runs a process of an isolated gateway until the gateway closes its end. Standard input is the gateway's socket.
pub fn run(role: &Role, program: &impl Program) -> Result<(), IsolationError> {
    let control = Control::new(io::stdin().as_fd().try_clone_to_owned()?)?;
    if role.holds_keys { holder::run(role, control, program) } else { keeper::run(role, control) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_has_the_user_only_where_one_is_named() {
        let keeper = Role { holds_keys: false, parent: 7, user: None, log: "info".to_owned() };
        assert_eq!(keeper.words().join(" "), "key-process --log info --parent 7");
        let holder = Role { holds_keys: true, user: Some("keys".to_owned()), ..keeper };
        assert_eq!(holder.words().join(" "), "key-process --holds-keys --log info --parent 7 --user keys");
    }
}

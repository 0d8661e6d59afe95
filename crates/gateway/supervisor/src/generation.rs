//! One generation of the gateway: a child process.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use command_fds::{CommandFdExt, FdMapping};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{Pid, Signal, WaitStatus, kill_process};
use tokio::time::Instant;

use crate::environment::{
    FDSTORE, LISTEN_FDNAMES, LISTEN_FDS, LISTEN_PID, NOTIFY_SOCKET, SUPERVISOR, WATCHDOG_PID,
};
use crate::store::{MOST, Store};
use crate::succession::{Order, PREDECESSOR, STATE};

/// Number of the first passed descriptor, `SD_LISTEN_FDS_START`.
const FIRST: i32 = 3;

/// A running process of the gateway.
#[derive(Debug)]
pub(crate) struct Generation {
    child: Child,
    /// Outer end of the pair over which the generation receives [`Order`]s and passes its state.
    state: UnixDatagram,
    /// Time of the start.
    pub(crate) started: Instant,
    /// Last sign of life for the watchdog.
    pub(crate) beat: Instant,
}

/// The command line of all generations.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [OsString],
    /// Value of `NOTIFY_SOCKET`.
    pub(crate) notify: String,
}

impl Generation {
    /// Starts a generation with the descriptors of `store`, which can ask `predecessor` for its state.
    pub(crate) fn start(line: &Line<'_>, store: &Store, predecessor: Option<&Self>) -> io::Result<Self> {
        let (state, inner) = UnixDatagram::pair()?;
        let mut passed = store.copies()?;
        passed.push((STATE.to_owned(), inner.into()));
        if let Some(predecessor) = predecessor {
            passed.push((PREDECESSOR.to_owned(), predecessor.state.try_clone()?.into()));
        }
        let child = command(line, passed)?.spawn()?;
        let now = Instant::now();
        Ok(Self { child, state, started: now, beat: now })
    }

    /// Process id.
    pub(crate) fn id(&self) -> Pid {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        id.expect("the id of a child process is a positive number")
    }

    /// Sends a signal. A generation that has ended meanwhile is noticed by `SIGCHLD`.
    pub(crate) fn signal(&self, signal: Signal) {
        // The id is still that of the child: the supervisor has not waited for it.
        if let Err(error) = kill_process(self.id(), signal) {
            tracing::debug!(process = %self.id(), %error, "a signal was not sent");
        }
    }

    /// Sends an order. It is left out with a debug line if the generation reads none.
    pub(crate) fn order(&self, order: Order) {
        // By flags: `O_NONBLOCK` would also apply to a successor, which shares the socket.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if let Err(error) = send(self.state.as_fd(), &order.to_bytes(), flags) {
            tracing::debug!(process = %self.id(), ?order, %error, "an order was not sent");
        }
    }

    /// Removes answers that a successor has not read, without reading more than their first byte.
    pub(crate) fn discard_answers(&self) {
        let mut first = [0];
        // Bounded by the queue of the socket, to which only the generation writes.
        while recv(self.state.as_fd(), &mut first[..], RecvFlags::DONTWAIT).is_ok() {}
    }
}

/// The command that starts a generation with these descriptors.
fn command(line: &Line<'_>, passed: Vec<(String, OwnedFd)>) -> io::Result<Command> {
    // Names and numbers have the same order, which the generation relies on for its datagram sockets.
    let (names, descriptors): (Vec<_>, Vec<_>) = passed.into_iter().unzip();
    let mut command = Command::new(line.program);
    command.arg("serve").args(line.arguments).stdin(Stdio::null());
    command.env(LISTEN_FDS, names.len().to_string()).env(LISTEN_FDNAMES, names.join(":"));
    command.env(SUPERVISOR, std::process::id().to_string());
    command.env(NOTIFY_SOCKET, &line.notify).env(FDSTORE, MOST.to_string());
    // Meant for the supervisor itself; the time of the watchdog applies to the generation too.
    command.env_remove(LISTEN_PID).env_remove(WATCHDOG_PID);
    if env::var_os(WATCHDOG_PID).is_some_and(|id| *id != *std::process::id().to_string()) {
        command.env_remove(crate::environment::WATCHDOG_USEC);
    }
    // A group of its own: Ctrl-C of a terminal would reach the generation twice, and the second signal cuts its connections.
    command.process_group(0);
    let mapping = |(parent_fd, child_fd)| FdMapping { parent_fd, child_fd };
    let mappings = descriptors.into_iter().zip(FIRST..).map(mapping).collect();
    command.fd_mappings(mappings).map_err(io::Error::other)?;
    Ok(command)
}

/// The end of a process in words.
pub(crate) fn ended(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}

/// The exit status that a shell would report for the end of a process.
pub(crate) fn exit_code(status: WaitStatus) -> u8 {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

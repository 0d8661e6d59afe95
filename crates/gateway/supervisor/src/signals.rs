//! Signals of the supervisor with their effects.

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// The signals that a supervisor receives; none of them ends it.
#[derive(Debug)]
pub(crate) struct Signals {
    child: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    quit: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
    reopen: tokio::signal::unix::Signal,
    upgrade: tokio::signal::unix::Signal,
    alarm: tokio::signal::unix::Signal,
}

/// The effect of a signal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// `SIGCHLD`: a child has ended.
    Reap,
    /// `SIGTERM`, `SIGINT` or `SIGQUIT`, which is forwarded as it is.
    Stop(Signal),
    /// `SIGHUP`.
    Reload,
    /// `SIGUSR1`.
    ReopenLogs,
    /// `SIGUSR2`.
    Upgrade,
    /// `SIGALRM`, which would end the process.
    Ignore,
}

impl Signals {
    /// Must be called inside a runtime.
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self {
            child: signal(SignalKind::child())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
            upgrade: signal(SignalKind::user_defined2())?,
            alarm: signal(SignalKind::alarm())?,
        })
    }

    /// The effect of the next signal.
    pub(crate) async fn next(&mut self) -> Action {
        tokio::select! {
            _ = self.child.recv() => Action::Reap,
            _ = self.terminate.recv() => Action::Stop(Signal::TERM),
            _ = self.interrupt.recv() => Action::Stop(Signal::INT),
            _ = self.quit.recv() => Action::Stop(Signal::QUIT),
            _ = self.hangup.recv() => Action::Reload,
            _ = self.reopen.recv() => Action::ReopenLogs,
            _ = self.upgrade.recv() => Action::Upgrade,
            _ = self.alarm.recv() => Action::Ignore,
        }
    }
}

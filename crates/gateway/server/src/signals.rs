//! Signals of the process with their effects.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::ServerError;

/// The signals that a server obeys. After [`Signals::catch`], none of them ends the process any more.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hangup: Signal,
    reopen: Signal,
    user2: Signal,
    alarm: Signal,
}

/// The action that a signal requests.
pub(crate) enum SignalAction {
    /// `SIGTERM`, `SIGINT`, and `SIGQUIT`, which ends nginx after the running requests.
    Stop,
    /// `SIGHUP`.
    Reload,
    /// `SIGUSR1`, sent by programs that rotate logs.
    ReopenLogs,
    /// A signal without a meaning, by its name. Its default effect, the end of the process, would cut running requests.
    Ignore(&'static str),
}

impl Signals {
    /// Must be called inside a runtime. A refusal of the system is [`ServerError::Signals`].
    pub(crate) fn catch() -> Result<Self, ServerError> {
        let listen = |kind| signal(kind).map_err(ServerError::Signals);
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            quit: listen(SignalKind::quit())?,
            hangup: listen(SignalKind::hangup())?,
            reopen: listen(SignalKind::user_defined1())?,
            user2: listen(SignalKind::user_defined2())?,
            alarm: listen(SignalKind::alarm())?,
        })
    }

    /// The action of the next signal.
    pub(crate) async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.terminate.recv() => SignalAction::Stop,
            _ = self.interrupt.recv() => SignalAction::Stop,
            _ = self.quit.recv() => SignalAction::Stop,
            _ = self.hangup.recv() => SignalAction::Reload,
            _ = self.reopen.recv() => SignalAction::ReopenLogs,
            _ = self.user2.recv() => SignalAction::Ignore("SIGUSR2"),
            _ = self.alarm.recv() => SignalAction::Ignore("SIGALRM"),
        }
    }
}

//! Signals of the process with their effects.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::ServerError;

/// The signals that a server obeys. After [`Signals::catch`], none of them ends the process any more.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    reopen: Signal,
}

/// The action that a signal requests.
pub(crate) enum SignalAction {
    /// `SIGTERM`, `SIGINT`.
    Stop,
    /// `SIGHUP`.
    Reload,
    /// `SIGUSR1`, sent by programs that rotate logs.
    ReopenLogs,
}

impl Signals {
    /// Must be called inside a runtime. A refusal of the system is [`ServerError::Signals`].
    pub(crate) fn catch() -> Result<Self, ServerError> {
        let listen = |kind| signal(kind).map_err(ServerError::Signals);
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
            reopen: listen(SignalKind::user_defined1())?,
        })
    }

    /// The action of the next signal.
    pub(crate) async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.terminate.recv() => SignalAction::Stop,
            _ = self.interrupt.recv() => SignalAction::Stop,
            _ = self.hangup.recv() => SignalAction::Reload,
            _ = self.reopen.recv() => SignalAction::ReopenLogs,
        }
    }

    /// Waits for [`SignalAction::Stop`], and ignores others.
    pub(crate) async fn stopped(&mut self) {
        while !matches!(self.next().await, SignalAction::Stop) {}
    }
}

//! Environment variables of the protocol, and the tie of a generation to its supervisor.

use std::{env, io};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Process id of the supervisor, in the environment of its generations. It takes the place of `LISTEN_PID`, which is the id of the
/// child itself: the child could be given that only between `fork` and `exec`, where no memory may be allocated. Programs that a
/// generation starts inherit the variable: a `brisk serve` among their descendants has to be started without it.
pub(crate) const SUPERVISOR: &str = "BRISK_SUPERVISOR";

/// Socket for notifications: a path, or a name in the abstract namespace after `@`; `sd_notify(3)`.
pub(crate) const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// Number of descriptors that the service manager stores at most; systemd sets it since version 254.
pub(crate) const FDSTORE: &str = "FDSTORE";

/// Microseconds after the last `WATCHDOG=1` at which the service manager ends the service; `sd_watchdog_enabled(3)`.
pub(crate) const WATCHDOG_USEC: &str = "WATCHDOG_USEC";

/// Process for which [`WATCHDOG_USEC`] is meant; any process without it.
pub(crate) const WATCHDOG_PID: &str = "WATCHDOG_PID";

/// Number of passed descriptors; `sd_listen_fds(3)`.
pub(crate) const LISTEN_FDS: &str = "LISTEN_FDS";

/// Names of the passed descriptors, separated by colons.
pub(crate) const LISTEN_FDNAMES: &str = "LISTEN_FDNAMES";

/// Process for which the descriptors are meant.
pub(crate) const LISTEN_PID: &str = "LISTEN_PID";

/// Whether the parent of this process is a supervisor, which has passed its descriptors to this process.
pub fn is_supervised() -> bool {
    supervisor().is_some_and(|supervisor| getppid() == Some(supervisor))
}

/// Makes the kernel send `SIGTERM` to this process when its supervisor ends, even by `SIGKILL`: the process drains and releases
/// its ports, so that another supervisor can bind them. An error if the supervisor has ended, also before the call: the process
/// has to end then. Does nothing if the environment names no supervisor.
///
/// To be called on the main thread, after the last `exec` and the last change of the user, which reset it.
pub fn end_with_supervisor() -> io::Result<()> {
    let Some(supervisor) = supervisor() else { return Ok(()) };
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // A supervisor that ended before the call above causes no signal.
    if getppid() == Some(supervisor) {
        Ok(())
    } else {
        Err(io::Error::other(format!("{supervisor}, its process by BRISK_SUPERVISOR, is not the parent")))
    }
}

fn supervisor() -> Option<Pid> {
    env::var(SUPERVISOR).ok()?.parse().ok().and_then(Pid::from_raw)
}

//! One generation of the gateway: a child process.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitStatus, kill_process, waitid};
use tokio::time::Instant;

use crate::environment::{
    FDSTORE, LISTEN_FDNAMES, LISTEN_FDS, LISTEN_PID, NOTIFY_SOCKET, SUPERVISOR, WATCHDOG_PID, WATCHDOG_USEC,
};
use crate::reports::Reports;
use crate::store::{MOST, Store};
use crate::succession::{Order, PREDECESSOR, REPORTS, STATE};

/// Number of the first passed descriptor, `SD_LISTEN_FDS_START`.
const FIRST: i32 = 3;

/// Shortest time within which a generation that is stopped has to report that it drains: the work of a moment, unless its main
/// thread hangs or reloads.
const OBEDIENCE: Duration = Duration::from_secs(10);

/// Time within which a [`Generation`] whose connections are cut has to end. Its threads have five seconds of it, and its parts,
/// such as page views, eight.
const END: Duration = Duration::from_secs(20);

/// A running process of the gateway.
#[derive(Debug)]
pub(crate) struct Generation {
    child: Child,
    /// Outer end of the pair over which the generation receives [`Order`]s and passes its state.
    state: UnixDatagram,
    pub(crate) reports: Reports,
    /// Time of the start; of the readiness, when it is ready.
    pub(crate) since: Instant,
    /// Last sign of life for the watchdog.
    pub(crate) beat: Instant,
    /// Whether a reload is under way, of which the service manager knows (`RELOADING=1`).
    pub(crate) is_reloading: bool,
    /// Time at which it is killed, while it has not obeyed a signal.
    kill_at: Option<Instant>,
    /// Whether it has reported that it drains (`STOPPING=1`).
    is_draining: bool,
    /// Whether it has got a second signal, which cuts its connections.
    is_cut: bool,
}

/// The command line of all generations.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [OsString],
}

impl Generation {
    /// Starts a generation with the descriptors of `store`, which can ask `predecessor` for its state.
    pub(crate) fn start(line: &Line<'_>, store: &Store, predecessor: Option<&Self>) -> io::Result<Self> {
        let (state, inner) = UnixDatagram::pair()?;
        let mut passed = store.copies()?;
        passed.push((STATE.to_owned(), inner.into()));
        let (reports, inner) = Reports::pair()?;
        passed.push((REPORTS.to_owned(), inner));
        if let Some(predecessor) = predecessor {
            passed.push((PREDECESSOR.to_owned(), predecessor.state.try_clone()?.into()));
        }
        let child = command(line, passed)?.spawn()?;
        Ok(Self::of(child, state, reports))
    }

    fn of(child: Child, state: UnixDatagram, reports: Reports) -> Self {
        let now = Instant::now();
        Self {
            child,
            state,
            reports,
            since: now,
            beat: now,
            is_reloading: false,
            kill_at: None,
            is_draining: false,
            is_cut: false,
        }
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

    /// Sends a signal to stop, after which the generation has to report within [`OBEDIENCE`] or `limit`, the longer of both, that
    /// it drains. It obeys no signal while it reloads, which may take as long as a start. One that drains is [`cut`](Self::cut).
    pub(crate) fn stop(&mut self, signal: Signal, limit: Duration) {
        if self.is_draining {
            self.cut(signal);
            return;
        }
        self.signal(signal);
        // Further signals do not postpone the end of a generation that obeys none.
        self.kill_at.get_or_insert(Instant::now() + limit.max(OBEDIENCE));
    }

    /// Sends a further signal to stop, once, which cuts the connections of a generation that drains. It has to end within [`END`].
    /// Returns whether the signal was sent.
    pub(crate) fn cut(&mut self, signal: Signal) -> bool {
        if self.is_cut {
            return false;
        }
        self.signal(signal);
        (self.kill_at, self.is_cut) = (Some(Instant::now() + END), true);
        true
    }

    /// Notes that the generation drains. It limits the time of its connections and, after their end, of its threads.
    pub(crate) fn drains(&mut self) {
        self.is_draining = true;
        if !self.is_cut {
            self.kill_at = None;
        }
    }

    /// The time at which [`end_if_late`](Self::end_if_late) kills it; `None` without a signal that it has not obeyed.
    pub(crate) fn kill_at(&self) -> Option<Instant> {
        self.kill_at
    }

    /// Kills a generation that has not obeyed a signal in time. `SIGCHLD` reports its end.
    pub(crate) fn end_if_late(&mut self, now: Instant) {
        if self.kill_at.take_if(|at| *at <= now).is_some() {
            tracing::error!(process = %self.id(), "a gateway does not respond to a signal to stop: it is killed");
            self.signal(Signal::KILL);
        }
    }

    /// Whether the process has ended. Its status stays for `wait`.
    pub(crate) fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.id()), options).is_ok_and(|status| status.is_some())
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
    command.env(FDSTORE, MOST.to_string());
    // Meant for the supervisor itself; the time of the watchdog applies to the generation too.
    command.env_remove(NOTIFY_SOCKET).env_remove(LISTEN_PID).env_remove(WATCHDOG_PID);
    if env::var_os(WATCHDOG_PID).is_some_and(|id| *id != *std::process::id().to_string()) {
        command.env_remove(WATCHDOG_USEC);
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

/// Whether a process was ended by a signal to stop, which it did not catch yet.
pub(crate) fn is_stopped(status: WaitStatus) -> bool {
    let stops = [Signal::TERM, Signal::INT, Signal::QUIT];
    status.terminating_signal().is_some_and(|signal| stops.iter().any(|stop| stop.as_raw() == signal))
}

/// The exit status that a shell would report for the end of a process.
pub(crate) fn exit_code(status: WaitStatus) -> u8 {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{fs, thread};

    use super::*;

    /// A process that is no gateway. Must be called inside a runtime.
    pub(crate) fn generation(line: &str) -> Generation {
        // Programs in the background of a shell ignore some signals, and so would their child.
        let mut command = Command::new("env");
        let child = command.arg("--default-signal").args(line.split(' ')).spawn().expect("a process");
        let name = format!("/proc/{}/comm", child.id());
        while fs::read_to_string(&name).is_ok_and(|name| name.trim_end() == "env") {
            thread::yield_now();
        }
        let state = UnixDatagram::pair().expect("a pair").0;
        Generation::of(child, state, Reports::pair().expect("a pair").0)
    }

    /// Waits for the end, whose status stays.
    pub(crate) fn end(generation: &mut Generation) -> WaitStatus {
        while !generation.has_ended() {
            thread::yield_now();
        }
        assert!(generation.has_ended(), "the status stays");
        let status = rustix::process::waitpid(Some(generation.id()), rustix::process::WaitOptions::empty());
        status.expect("a child").expect("an end").1
    }

    #[tokio::test]
    async fn a_generation_that_has_ended_is_recognised_before_its_status_is_read() {
        let mut generation = generation("true");
        assert_eq!(exit_code(end(&mut generation)), 0);
        assert!(!generation.has_ended(), "no child any more");
    }

    #[tokio::test]
    async fn a_generation_that_does_not_obey_is_killed_at_its_time_only() {
        let mut generation = generation("sleep 600");
        // A stopped process obeys nothing but `SIGKILL`, like one whose main thread hangs.
        generation.signal(Signal::STOP);
        let (start, reload) = (Instant::now(), Duration::from_mins(1));
        generation.stop(Signal::TERM, reload);
        let at = generation.kill_at().expect("a time");
        assert!(at >= start + reload, "a reload may take as long as a start");
        generation.end_if_late(at - Duration::from_millis(1));
        generation.stop(Signal::TERM, 2 * reload);
        assert_eq!(generation.kill_at(), Some(at), "a further signal does not postpone the end");
        generation.drains();
        assert_eq!(generation.kill_at(), None, "it drains, for a time of its own");
        generation.stop(Signal::INT, reload);
        let at = generation.kill_at().expect("a time");
        generation.drains();
        assert!(!generation.cut(Signal::TERM));
        generation.stop(Signal::TERM, reload);
        assert_eq!(generation.kill_at(), Some(at), "a drain that was cut is over, and is not cut again");
        assert!(!generation.has_ended());
        generation.end_if_late(at);
        let status = end(&mut generation);
        assert_eq!((exit_code(status), is_stopped(status)), (137, false));
    }

    #[tokio::test]
    async fn an_end_by_a_signal_to_stop_is_no_failure() {
        for (signal, stops) in
            [(Signal::TERM, true), (Signal::INT, true), (Signal::QUIT, true), (Signal::ABORT, false)]
        {
            let mut generation = generation("sleep 600");
            generation.signal(signal);
            assert_eq!(is_stopped(end(&mut generation)), stops, "{signal:?}");
        }
    }
}

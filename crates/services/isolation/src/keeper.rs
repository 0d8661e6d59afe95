//! A keeper, a process beside the gateway: starts the key process and restarts it whenever it ends. It has the privileges for
//! this, holds no keys, and reads no input of peers.
//!
//! A gateway in its sandbox can start no process, so it has two keepers from the start: one with the key process, and one that
//! waits to replace it ([`Task::Standby`]). Each can start a further one. All end with the gateway, whose end closes their
//! sockets.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio, exit};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::control::{Control, Received, Report, Task};
use crate::error::IsolationError;
use crate::rights;
use crate::role::Role;

/// Path of the running program, valid even if its file was replaced.
const PROGRAM: &str = "/proc/self/exe";

/// Pause before a restart of the key process: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(5)];

/// Run time after which the pause is reset to the first of [`PAUSES`].
const GOOD: Duration = Duration::from_secs(10);

/// Maximum number of keepers that one keeper has started and that run: one, and those that are about to end.
const STANDBYS: usize = 4;

/// Time for a key process to end with its gateway, before `SIGKILL`.
const CLOSING: Duration = Duration::from_secs(2);

/// Starts a process with this role, whose standard input is `socket`.
pub(crate) fn spawn(role: &Role, socket: OwnedFd) -> io::Result<Child> {
    let mut command = Command::new(PROGRAM);
    command.arg0("brisk").args(role.words()).stdin(Stdio::from(socket)).stdout(Stdio::null());
    // A process group of its own, so that signals of a terminal reach the gateway only.
    command.process_group(0).spawn()
}

/// Runs a keeper until the gateway has closed `tasks`, or the key process exits with [`rights::REFUSED`].
pub(crate) fn run(role: &Role, tasks: Control) -> Result<(), IsolationError> {
    rights::keep_memory_private();
    let _signals = rights::outlive_signals()?;
    let (events, happened) = channel();
    let of_tasks = events.clone();
    thread::Builder::new().name("tasks".to_owned()).spawn(move || forward(&tasks, &of_tasks))?;
    Keeper { role, events, kept: None, standbys: Vec::new() }.run(&happened);
    Ok(())
}

/// An occurrence for the main thread of a keeper.
enum Event {
    Task(Task, Option<UnixStream>),
    /// The end of the key process, for which `wait` is to be called.
    Ended,
    /// The end of the gateway, or of its use for this keeper.
    Closed,
}

/// Forwards each [`Task`] to the main thread, until the gateway closes its end.
fn forward(tasks: &Control, events: &Sender<Event>) {
    loop {
        let event = match tasks.receive() {
            Ok(Received::Packet(task, socket)) => Event::Task(task, socket),
            Ok(Received::Nothing) => continue,
            Ok(Received::End) | Err(_) => break,
        };
        // The main thread lives as long as the process, so a send cannot fail.
        let _ = events.send(event);
    }
    let _ = events.send(Event::Closed);
}

struct Keeper<'r> {
    role: &'r Role,
    events: Sender<Event>,
    kept: Option<Kept>,
    /// Keepers that this one has started by [`Task::Standby`], to be reaped.
    standbys: Vec<Child>,
}

/// A key process that is kept running, by [`Task::Keep`].
struct Kept {
    control: Control,
    /// `None` until [`Self::due`].
    process: Option<Child>,
    started: Instant,
    /// Time of the next restart.
    due: Instant,
    pause: Duration,
}

impl Kept {
    /// Sets [`Self::due`] for a process that has ended, or was not started.
    fn postpone(&mut self) {
        if self.started.elapsed() >= GOOD {
            self.pause = PAUSES[0];
        }
        self.due = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSES[1]);
    }
}

impl Keeper<'_> {
    fn run(mut self, happened: &Receiver<Event>) {
        loop {
            let waiting = self.kept.as_ref().filter(|kept| kept.process.is_none());
            let event = match waiting {
                Some(kept) => happened.recv_timeout(kept.due.saturating_duration_since(Instant::now())),
                None => happened.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(Event::Task(Task::Keep, Some(socket))) => self.keep(socket),
                Ok(Event::Task(Task::Standby, Some(socket))) => self.start_standby(socket),
                Ok(Event::Task(Task::Renew, _)) => self.kill(),
                Ok(Event::Task(_, None)) => {}
                Ok(Event::Ended) => self.ended(),
                Err(RecvTimeoutError::Timeout) => self.start(),
                // `Disconnected` is impossible: `self` has a sender.
                Ok(Event::Closed) | Err(RecvTimeoutError::Disconnected) => return self.end(happened),
            }
        }
    }

    fn keep(&mut self, socket: UnixStream) {
        let now = Instant::now();
        match Control::new(socket.into()) {
            Ok(control) => {
                self.kept = Some(Kept { control, process: None, started: now, due: now, pause: PAUSES[0] });
                self.start();
            }
            Err(error) => rights::say(format_args!("the key process cannot be started: {error}")),
        }
    }

    fn start_standby(&mut self, socket: UnixStream) {
        // Reaps those that have ended.
        self.standbys.retain_mut(|standby| matches!(standby.try_wait(), Ok(None)));
        // Only a compromised gateway asks for more. It could otherwise occupy all processes of the machine.
        if self.standbys.len() >= STANDBYS {
            return;
        }
        match spawn(self.role, socket.into()) {
            Ok(standby) => self.standbys.push(standby),
            Err(error) => rights::say(format_args!("a keeper of the key process cannot be started: {error}")),
        }
    }

    fn start(&mut self) {
        let Some(kept) = &mut self.kept else { return };
        kept.started = Instant::now();
        let holder = Role { holds_keys: true, parent: std::process::id(), ..self.role.clone() };
        let socket = kept.control.try_clone();
        match socket.and_then(|socket| watched(spawn(&holder, socket)?, &self.events)) {
            Ok(process) => kept.process = Some(process),
            Err(error) => {
                kept.postpone();
                rights::say(format_args!("the key process cannot be started: {error}"));
            }
        }
    }

    fn kill(&mut self) {
        if let Some(process) = self.kept.as_mut().and_then(|kept| kept.process.as_mut()) {
            // An error means that it has ended.
            let _ = process.kill();
        }
    }

    fn ended(&mut self) {
        let Some(kept) = &mut self.kept else { return };
        let Some(mut process) = kept.process.take() else { return };
        let status = process.wait();
        if status.as_ref().is_ok_and(|status| status.code() == Some(rights::REFUSED)) {
            // The process has logged the reason itself, and a restart would fail in the same way. Without
            // the report, the gateway would use the other keeper.
            let _ = kept.control.send(&Report::Refused);
            exit(rights::REFUSED);
        }
        if kept.control.is_closed() {
            self.kept = None;
            return;
        }
        kept.postpone();
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        rights::say(format_args!("the key process ended ({status}); it is started again"));
    }

    /// Waits for the key process, which ends when the gateway closes its end of [`Kept::control`], at most [`CLOSING`].
    fn end(mut self, happened: &Receiver<Event>) {
        let limit = Instant::now() + CLOSING;
        let Some(Kept { process: Some(process), .. }) = &mut self.kept else { return };
        while matches!(process.try_wait(), Ok(None)) {
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let _ = process.kill();
                let _ = process.wait();
                return;
            }
            // Woken by `Event::Ended`.
            let _ = happened.recv_timeout(left);
        }
    }
}

/// Has the end of `process` reported to `events`. The thread only looks and the main thread waits for the process, which thus never
/// signals another one with the same id. Ends the process if there is no thread.
fn watched(mut process: Child, events: &Sender<Event>) -> io::Result<Child> {
    let id = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
    let events = events.clone();
    let look = move || {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while id.is_some_and(|id| matches!(waitid(WaitId::Pid(id), ended), Err(Errno::INTR))) {}
        let _ = events.send(Event::Ended);
    };
    if let Err(error) = thread::Builder::new().name("key-process".to_owned()).spawn(look) {
        let _ = process.kill();
        let _ = process.wait();
        return Err(error);
    }
    Ok(process)
}

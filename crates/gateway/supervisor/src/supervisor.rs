//! The supervisor: starts generations of the gateway, replaces them after a crash and for an upgrade, and forwards signals.

mod upgrade;

use std::ffi::OsString;
use std::future::poll_fn;
use std::io;
use std::mem;
use std::path::PathBuf;
use std::task::Poll;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, wait};
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep_until};

use self::upgrade::{MOST_DRAINING, Purpose, Starting};
use crate::control::{ControlSocket, Operator};
use crate::error::SupervisorError;
use crate::generation::{Generation, Line, ended, exit_code, is_stopped};
use crate::inherited;
use crate::notifier::Notifier;
use crate::pid_file::PidFile;
use crate::reports::Received;
use crate::signals::{Action, Signals};
use crate::store::Store;
use crate::timing::{Look, Restarts, Watchdog};

/// Reports of a generation that are read at once: more than wait in the queue of a socket by default.
const MOST_REPORTS: usize = 1024;

/// The settings of a supervisor.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Absolute path of the program. Each generation runs the file that is there at its start.
    pub program: PathBuf,
    /// Arguments of `serve`, the same for all generations.
    pub arguments: Vec<OsString>,
    /// Maximum time from the start of a generation until it is ready.
    pub ready_timeout: Duration,
    /// File for the process id of the supervisor.
    pub pid_file: Option<PathBuf>,
}

/// Runs a supervisor until it is stopped, or until the first generation fails before it is ready. Returns the exit status for the
/// process, that of the last generation.
///
/// To be called on the main thread, whose end ends the generations.
pub fn run(settings: &Settings) -> Result<u8, SupervisorError> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(SupervisorError::System)?;
    runtime.block_on(async {
        let signals = Signals::catch().map_err(SupervisorError::Signals)?;
        let mut supervisor = Supervisor::new(settings)?;
        supervisor.start_first()?;
        Ok(supervisor.run(signals).await)
    })
}

/// The generations of a gateway, of which one serves.
struct Supervisor<'s> {
    settings: &'s Settings,
    /// `None` if another process has taken its name; `SIGUSR2` upgrades then too.
    control: Option<ControlSocket>,
    /// The service manager of the supervisor itself.
    manager: Notifier,
    watchdog: Option<Watchdog>,
    store: Store,
    pid_file: Option<PidFile>,
    serving: Option<Generation>,
    starting: Option<Starting>,
    /// Generations that finish their connections, the oldest first.
    draining: Vec<Generation>,
    restarts: Restarts,
    /// Time of the next restart, while none serves or starts.
    restart_at: Option<Instant>,
    is_stopping: bool,
    /// Exit status of the generation that ended last.
    last: u8,
    /// Whether the first generation has failed.
    has_failed: bool,
}

impl<'s> Supervisor<'s> {
    fn new(settings: &'s Settings) -> Result<Self, SupervisorError> {
        let pid_file = settings.pid_file.as_deref().map(|path| {
            let wrong = |source| SupervisorError::PidFile { path: path.to_owned(), source };
            PidFile::prepare(path).map_err(wrong)
        });
        let pid_file = pid_file.transpose()?;
        let control = ControlSocket::bind().inspect_err(|error| {
            tracing::warn!(%error, "`brisk upgrade` cannot reach this supervisor; SIGUSR2 upgrades");
        });
        let manager = Notifier::from_environment();
        let mut store = Store::default();
        // Sockets of systemd, for the first generation. Those that it does not store are closed when it is ready.
        for passed in inherited::take() {
            if !store.add(&passed.name, passed.descriptor) {
                tracing::error!(
                    name = passed.name,
                    "a socket of the service manager is closed: there are too many"
                );
            }
        }
        Ok(Self {
            settings,
            control: control.ok(),
            watchdog: manager.watchdog().map(Watchdog::new),
            manager,
            store,
            pid_file,
            serving: None,
            starting: None,
            draining: Vec::new(),
            restarts: Restarts::default(),
            restart_at: None,
            is_stopping: false,
            last: 0,
            has_failed: false,
        })
    }

    async fn run(&mut self, mut signals: Signals) -> u8 {
        let mut control = self.control.take();
        while !self.has_ended() {
            let wake = self.wake();
            tokio::select! {
                (sender, received) = self.next_report() => match received {
                    Ok(received) => self.obey(sender, received),
                    Err(error) => tracing::error!(%error, "a report of a generation was not received"),
                },
                action = signals.next() => self.act(action),
                operator = self.next_order(&mut control) => self.upgrade(Some(operator)),
                () = sleep_until(wake) => self.look(),
            }
        }
        self.last
    }

    fn has_ended(&self) -> bool {
        let has_none = self.serving.is_none() && self.starting.is_none() && self.draining.is_empty();
        has_none && (self.is_stopping || self.has_failed)
    }

    /// The time at which [`look`](Self::look) has something to do.
    fn wake(&self) -> Instant {
        let starting = self.starting.as_ref().map(|starting| starting.deadline);
        let watchdog = self.watchdog.as_ref().map(Watchdog::due);
        let drains = self.draining.iter().filter_map(Generation::kill_at);
        let times = [starting, watchdog, self.restart_at].into_iter().flatten().chain(drains);
        times.min().unwrap_or_else(|| Instant::now() + Duration::from_hours(1))
    }

    fn line(&self) -> Line<'s> {
        Line { program: &self.settings.program, arguments: &self.settings.arguments }
    }

    /// Starts the first generation.
    fn start_first(&mut self) -> Result<(), SupervisorError> {
        let started = Generation::start(&self.line(), &self.store, None);
        let program = &self.settings.program;
        let generation =
            started.map_err(|source| SupervisorError::Start { program: program.clone(), source })?;
        self.starting = Some(Starting::new(generation, Purpose::First, self.settings.ready_timeout));
        Ok(())
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Reap => self.reap(),
            Action::Stop(signal) => self.stop(signal),
            Action::Reload => self.reload(),
            Action::ReopenLogs => self.reopen_logs(),
            Action::Upgrade => self.upgrade(None),
            Action::Ignore => tracing::warn!("SIGALRM is ignored: SIGUSR2 upgrades, SIGTERM drains and ends"),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Generation> {
        let starting = self.starting.as_ref().map(|starting| &starting.generation);
        self.draining.iter().chain(&self.serving).chain(starting)
    }

    /// Forwards the first signal to the generations that are not draining yet, since a second one would cut their connections, and
    /// each later one to all, which have a limited time to obey.
    fn stop(&mut self, signal: Signal) {
        self.restart_at = None;
        if self.is_stopping {
            // One may have reported meanwhile that it drains.
            self.read_reports();
            let serving = self.serving.take();
            self.draining.extend(serving);
            let limit = self.settings.ready_timeout;
            self.draining.iter_mut().for_each(|generation| generation.stop(signal, limit));
            if let Some(starting) = &self.starting {
                starting.generation.signal(signal);
            }
            return;
        }
        self.is_stopping = true;
        // Earlier failures are not those of the stop.
        self.last = 0;
        // Before the generations stop, so that no end of one looks like a crash to the service manager.
        self.manager.stopping();
        let starting = self.starting.as_ref().map(|starting| &starting.generation);
        self.serving.iter().chain(starting).for_each(|generation| generation.signal(signal));
    }

    /// The generation that starts would be ended by the signal until it catches signals, so it gets it when it is ready.
    fn reopen_logs(&mut self) {
        self.draining.iter().chain(&self.serving).for_each(|generation| generation.signal(Signal::USR1));
        if let Some(starting) = &mut self.starting {
            starting.reopens = true;
        }
    }

    /// The generation that starts may have read the former configuration already, so it reloads when it is ready.
    fn reload(&mut self) {
        if self.serving.is_none() && self.starting.is_none() && !self.is_stopping {
            // The next generation reads the configuration, and its readiness ends the reload.
            self.manager.reloading();
        }
        if let Some(serving) = &self.serving {
            serving.signal(Signal::HUP);
        }
        if let Some(starting) = &mut self.starting {
            starting.reloads = true;
        }
    }

    /// The next report of any generation, with its process id.
    async fn next_report(&self) -> (Pid, io::Result<Option<Received>>) {
        poll_fn(|context| {
            let mut polled = self.all().map(|generation| (generation.id(), generation.reports.poll(context)));
            let ready = polled.find_map(|(id, report)| match report {
                Poll::Ready(received) => Some((id, received)),
                Poll::Pending => None,
            });
            ready.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// The next order; none without a socket. Generations have the user of the supervisor and still no right to order: a gateway
    /// that an attacker controls must not start others.
    async fn next_order(&self, control: &mut Option<ControlSocket>) -> Operator {
        let is_generation =
            |process: i32| self.all().any(|generation| generation.id().as_raw_pid() == process);
        match control {
            Some(control) => control.order(is_generation).await,
            None => std::future::pending().await,
        }
    }

    /// Follows a report of the generation with this process id.
    fn obey(&mut self, sender: Pid, received: Option<Received>) {
        let Some(Received { message, descriptors }) = received else { return };
        if let Some(starting) = self.starting.as_mut().filter(|own| own.generation.id() == sender) {
            if message.stores {
                starting.keep(message.name.as_deref(), descriptors);
            }
            if message.is_ready && starting.can_serve() {
                self.ready();
            }
        } else if let Some(serving) = self.serving.as_mut().filter(|own| own.id() == sender) {
            serving.beat = Instant::now();
            // Each change once: a report to the service manager may block, and a generation could send any number of them.
            if message.is_reloading {
                if !mem::replace(&mut serving.is_reloading, true) {
                    self.manager.reloading();
                }
            } else if message.is_ready && mem::take(&mut serving.is_reloading) {
                self.manager.reloaded(message.status.as_deref().unwrap_or("serves"));
            }
            if message.is_stopping {
                serving.drains();
                if !self.is_stopping {
                    self.replace_stopping();
                }
            }
        } else if let Some(draining) = self.draining.iter_mut().find(|own| own.id() == sender)
            && message.is_stopping
        {
            draining.drains();
        }
    }

    /// The serving generation was stopped by another process: it accepts no further connections, which wait in the sockets.
    fn replace_stopping(&mut self) {
        tracing::warn!("the gateway stops although the supervisor has not stopped it: it is started again");
        self.end_drains(MOST_DRAINING - 1);
        let serving = self.serving.take();
        self.draining.extend(serving);
        self.restart_after(Duration::ZERO);
    }

    /// Waits for all children that have ended.
    fn reap(&mut self) {
        // First the reports that they have sent before their end.
        self.read_reports();
        while let Ok(Some((id, status))) = wait(WaitOptions::NOHANG) {
            self.note_end(id, status);
        }
    }

    /// Follows the reports that have arrived.
    fn read_reports(&mut self) {
        let generations: Vec<_> = self.all().map(Generation::id).collect();
        for id in generations {
            for _ in 0..MOST_REPORTS {
                let generation = self.all().find(|generation| generation.id() == id);
                let Some(Ok(received)) = generation.map(|own| own.reports.try_receive()) else { break };
                self.obey(id, received);
            }
        }
    }

    fn note_end(&mut self, id: Pid, status: WaitStatus) {
        let code = if self.is_stopping && is_stopped(status) { 0 } else { exit_code(status) };
        if let Some(place) = self.draining.iter().position(|generation| generation.id() == id) {
            self.draining.remove(place);
            self.last = code;
            tracing::info!(process = %id, "a drained gateway has ended: {}", ended(status));
        }
        if let Some(starting) = self.starting.take_if(|starting| starting.generation.id() == id) {
            self.last = code;
            self.abandon(starting, &ended(status));
        }
        if let Some(serving) = self.serving.take_if(|serving| serving.id() == id) {
            self.last = code;
            if !self.is_stopping {
                // The next generation uses the datagram sockets of one that still drains.
                self.end_drains(MOST_DRAINING);
                self.restart_after(serving.since.elapsed());
                let reason = ended(status);
                tracing::error!(process = %id, "the gateway has ended ({reason}): it is started again, connections wait");
            }
        }
    }

    /// Plans a restart after a generation that ran for this time, unless another starts already.
    fn restart_after(&mut self, ran: Duration) {
        if self.starting.is_none() && self.serving.is_none() && !self.is_stopping {
            self.restart_at = Some(Instant::now() + self.restarts.pause_after(ran));
        }
    }

    /// Does everything that is due by time.
    fn look(&mut self) {
        // Those that have arrived while the supervisor was held up, before it judges by time.
        self.read_reports();
        let now = Instant::now();
        if self.restart_at.take_if(|at| *at <= now).is_some() {
            self.restart();
        }
        if let Some(starting) = &mut self.starting {
            starting.end_if_late(now, self.settings.ready_timeout);
        }
        self.draining.iter_mut().for_each(|generation| generation.end_if_late(now));
        let Some(watchdog) = &mut self.watchdog else { return };
        // A generation that drains sends no beats.
        let serving = self.serving.as_mut().filter(|_| !self.is_stopping);
        match watchdog.look(now, serving.map(|serving| &mut serving.beat)) {
            Look::TooEarly => {}
            Look::Alive => self.manager.alive(),
            Look::Silent => {
                // The supervisor itself is alive, and replaces the gateway faster than a restart of both.
                self.manager.alive();
                if let Some(serving) = &self.serving {
                    tracing::error!(process = %serving.id(), "the gateway does not respond: it is killed and started again");
                    serving.signal(Signal::KILL);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::generation::tests::{end, generation};
    use crate::message::Message;

    fn settings() -> Settings {
        let ready_timeout = Duration::from_mins(1);
        Settings { program: PathBuf::new(), arguments: Vec::new(), ready_timeout, pid_file: None }
    }

    /// A supervisor whose serving generation is a process that obeys no signal but `SIGKILL`.
    fn supervisor(settings: &Settings, manager: Notifier) -> Supervisor<'_> {
        let serving = generation("sleep 600");
        serving.signal(Signal::STOP);
        Supervisor {
            settings,
            control: None,
            manager,
            watchdog: None,
            store: Store::default(),
            pid_file: None,
            serving: Some(serving),
            starting: None,
            draining: Vec::new(),
            restarts: Restarts::default(),
            restart_at: None,
            is_stopping: false,
            last: 0,
            has_failed: false,
        }
    }

    /// Reports the lines of `text` as the only generation.
    fn report(supervisor: &mut Supervisor<'_>, text: &str) {
        let sender = supervisor.all().next().expect("a generation").id();
        let message = Message::read(text.as_bytes()).expect("a message");
        supervisor.obey(sender, Some(Received { message, descriptors: Vec::new() }));
    }

    #[tokio::test]
    async fn a_reload_is_reported_once_and_readiness_without_a_reload_is_not() {
        let (own, manager) = UnixDatagram::pair().expect("a pair");
        manager.set_nonblocking(true).expect("a socket");
        let received = || {
            let mut bytes = [0; 64];
            let length = manager.recv(&mut bytes).ok()?;
            String::from_utf8_lossy(&bytes[..length]).lines().next().map(str::to_owned)
        };
        let settings = settings();
        let mut supervisor = supervisor(&settings, Notifier::through(own.into()));
        report(&mut supervisor, "READY=1");
        assert_eq!(received(), None);
        for line in ["RELOADING=1", "RELOADING=1", "READY=1", "READY=1"] {
            report(&mut supervisor, line);
        }
        assert_eq!((received().as_deref(), received().as_deref()), (Some("RELOADING=1"), Some("READY=1")));
        assert_eq!(received(), None);
        let mut serving = supervisor.serving.take().expect("a generation");
        serving.signal(Signal::KILL);
        end(&mut serving);
    }

    #[tokio::test]
    async fn signals_after_the_first_end_a_gateway_that_obeys_none() {
        let settings = settings();
        let mut supervisor = supervisor(&settings, Notifier::default());
        supervisor.stop(Signal::TERM);
        assert!(supervisor.is_stopping && supervisor.serving.is_some(), "a drain may take its time");
        supervisor.stop(Signal::TERM);
        let at = supervisor.draining[0].kill_at().expect("a time");
        assert_eq!(supervisor.wake(), at);
        report(&mut supervisor, "STOPPING=1");
        assert_eq!(supervisor.draining[0].kill_at(), None, "it drains");
        supervisor.stop(Signal::TERM);
        let at = supervisor.draining[0].kill_at().expect("a time");
        supervisor.draining[0].end_if_late(at);
        end(&mut supervisor.draining[0]);
    }
}

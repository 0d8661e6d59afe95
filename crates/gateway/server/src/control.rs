//! The main thread: signals, reloads, the watchdog, the drain.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use brisk_net::datagram::Halves;
use brisk_net::drain::DrainTrigger;
use brisk_pressure::{INTERVAL, Mode, Sample};
use brisk_supervisor::Notifier;
use brisk_supervisor::succession::{Order, StatePart};
use brisk_telemetry::metrics::Reload;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::AbortHandle;
use tokio::time::{Instant, Interval, MissedTickBehavior, sleep_until};

use crate::ServerError;
use crate::admin::Exit;
use crate::ending::drain;
use crate::files::WatchedFiles;
use crate::part::Parts;
use crate::sampling::Sampling;
use crate::settings::ServerSettings;
use crate::signals::{SignalAction, Signals};
use crate::succession::Successors;
use crate::watchdog::{BEAT, Watchdog};

/// Interval of [`Control::each_minute`].
const MINUTE: Duration = Duration::from_mins(1);

/// Interval at which the program's own log is checked for dropped lines.
const LOG_CHECK: Duration = Duration::from_secs(10);

/// The reason for a reload.
const CHANGED: &str = "changed files";

/// Maximum time for which the main thread waits until workers have applied new settings. The watchdog deals with a
/// worker that does not.
const TAKE_OVER_LIMIT: Duration = Duration::from_secs(1);

/// Shortest interval of beats for the service manager.
const SHORTEST: Duration = Duration::from_millis(10);

/// Maximum length of the reason for a refused reload in a report to the service manager, in characters.
const LONGEST_REASON: usize = 400;

/// Reason for which [`Control::read`] has no settings, or a [`Part`](crate::Part) refuses them.
#[derive(Debug)]
pub struct Refusal {
    /// The fault, for the operator.
    pub message: String,
    /// The files that the settings were read from. They are watched too, so that a correction is noticed.
    pub files: Vec<PathBuf>,
}

/// Number of parts of [`TAKE_OVER_LIMIT`], each with a timeout of its own. A pause of the whole process uses up one part, and
/// workers have the others.
const TAKE_OVER_PARTS: u32 = 20;

/// The report of a start, which may block ([`Control::announcement`]).
pub type Announcement = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// Duties of the main thread for a service. All methods are called inside the runtime of that thread.
pub trait Control {
    /// A configuration: the settings of all parts and of the server.
    type Settings: AsRef<ServerSettings>;

    /// Reports the start to people and programs, when connections reach this process. Called once, after `READY=1`.
    fn announcement(&mut self) -> Option<Announcement> {
        None
    }

    /// Called once, when the workers run, before the first signal is obeyed.
    fn start(&mut self);

    /// State for a successor that asks for it by [`Order::Export`].
    fn export(&self) -> Vec<StatePart> {
        Vec::new()
    }

    /// Reads the settings again. After an `Err`, the old settings stay in force.
    fn read(&mut self) -> Result<Self::Settings, Refusal>;

    /// The parts of the process, which a reload prepares and then commits.
    fn parts(&self) -> &Parts<Self::Settings>;

    /// Resolves when every worker has applied the latest settings. Resolves at once if workers keep no settings.
    fn taken_over(&self) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// Publishes the certificates in the `changed` files without other changes of the configuration. On `Some(Err)`
    /// nothing changes. `None` if a reload is necessary because other files have changed.
    fn renew(&mut self, changed: &BTreeSet<PathBuf>) -> Option<Result<(), String>> {
        let _ = changed;
        None
    }

    /// Counts a reload, also one by [`renew`](Self::renew).
    fn reloaded(&self, outcome: Reload);

    /// Opens log files again, after they were moved away: the effect of `SIGUSR1`.
    fn reopen_logs(&mut self);

    /// Sets the sources of overload that the service has, at every [`INTERVAL`]. `mode` is that of the settings in force.
    fn measure(&mut self, sample: &mut Sample, mode: Mode) {
        let _ = (sample, mode);
    }

    /// Called at the start and then once a minute, for state that expires without connections too.
    fn each_minute(&mut self);

    /// Ends all work beside the workers: the drain begins.
    fn end(&mut self);
}

/// The main thread, from the start of the workers to the end of the drain.
pub(crate) struct MainThread<C> {
    pub(crate) control: C,
    pub(crate) settings: ServerSettings,
    pub(crate) files: WatchedFiles,
    pub(crate) signals: Signals,
    pub(crate) watchdog: Watchdog,
    pub(crate) sampling: Sampling,
    pub(crate) failures: UnboundedReceiver<ServerError>,
    pub(crate) dropped_log_lines: fn() -> u64,
    pub(crate) refused: Refused,
    pub(crate) outside: Outside,
}

/// Connections of the main thread with its service manager ([`Notifier`]), its [`Successors`], and the admin listener.
pub(crate) struct Outside {
    pub(crate) manager: Notifier,
    pub(crate) successors: Successors,
    pub(crate) halves: Rc<[Halves]>,
    /// The tasks that accept connections to the admin listener.
    pub(crate) admin: Vec<AbortHandle>,
    pub(crate) exit: Arc<Exit>,
}

/// Changes that were refused since the configuration in force.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// Another configuration.
    configuration: bool,
    /// The files of this configuration. Some may be unknown to the configuration in force.
    sources: BTreeSet<PathBuf>,
    /// Files of certificates.
    files: BTreeSet<PathBuf>,
}

impl<C: Control> MainThread<C> {
    /// Runs until [`SignalAction::Stop`] and the end of the drain, or until a worker fails.
    pub(crate) async fn run(mut self, trigger: &DrainTrigger) -> Result<(), ServerError> {
        self.control.start();
        let mut minute = tokio::time::interval(MINUTE);
        let mut log_check = tokio::time::interval(LOG_CHECK);
        let mut dropped = 0;
        let mut looks = beats(BEAT);
        let mut samples = beats(INTERVAL);
        let watched = self.outside.manager.watchdog();
        // A third of the limit, so that one late beat is no sign of death.
        let mut alive = beats(watched.map_or(BEAT, |limit| (limit / 3).clamp(SHORTEST, BEAT)));
        let mut leave = None;
        loop {
            tokio::select! {
                _ = minute.tick() => self.control.each_minute(),
                _ = log_check.tick() => dropped = self.report_dropped_lines(dropped),
                _ = looks.tick() => self.watchdog.look(),
                _ = samples.tick() => self.sample(),
                // Without a worker that turns, the service manager is to start the process again.
                _ = alive.tick() => if self.watchdog.sees_life() { self.outside.manager.alive() },
                Some(failure) = self.failures.recv() => return Err(failure),
                order = self.outside.successors.next() => self.obey(order),
                () = at(leave) => break,
                action = self.signals.next() => match action {
                    // The second signal ends the delay.
                    SignalAction::Stop if leave.is_some() => {
                        self.outside.successors.has_lost_supervisor().await;
                        break;
                    }
                    SignalAction::Stop => leave = Some(self.leave().await),
                    SignalAction::Reload => self.reload("SIGHUP").await,
                    SignalAction::ReopenLogs => self.control.reopen_logs(),
                    SignalAction::Ignore(signal) => {
                        tracing::warn!(signal, "ignored: SIGHUP reloads, SIGUSR1 reopens logs, SIGTERM drains and ends");
                    }
                },
                changed = self.files.changed() => self.follow(changed).await,
            }
        }
        let Self { mut control, settings, mut signals, mut watchdog, mut outside, .. } = self;
        outside.manager.stopping();
        // Before the drain, so that the addresses of the dashboard and of the listeners are
        // free for the next process.
        control.end();
        watchdog.end();
        if outside.successors.is_replaced {
            outside.give_way();
        }
        drain(trigger, settings.drain_timeout, (&mut signals, &mut outside), &mut control).await;
        Ok(())
    }

    /// The time at which the drain begins, after [`SignalAction::Stop`]: now, if a successor serves, or if another supervisor needs
    /// the ports since the one of this process has ended.
    async fn leave(&mut self) -> Instant {
        for order in self.outside.successors.waiting() {
            self.obey(order);
        }
        let Self { settings: ServerSettings { drain_delay, .. }, outside, .. } = self;
        outside.exit.is_replaced.store(outside.successors.is_replaced, Ordering::Relaxed);
        // A successor accepts already, so the drain must not wait for the answer.
        if outside.successors.is_replaced
            || outside.successors.has_lost_supervisor().await
            || drain_delay.is_zero()
        {
            return Instant::now();
        }
        outside.exit.is_near.store(true, Ordering::Relaxed);
        tracing::info!(delay = ?drain_delay, "the drain begins after the delay: /readyz responds with 503");
        Instant::now() + *drain_delay
    }

    /// Measures the load, which decides about refused work.
    fn sample(&mut self) {
        let (control, mode) = (&mut self.control, self.settings.overload);
        self.sampling.take(&self.settings, &self.watchdog, |sample| control.measure(sample, mode));
    }

    /// Follows an [`Order`] of the supervisor or of a successor.
    fn obey(&mut self, order: Order) {
        match order {
            Order::Export(number) => {
                // Until the outcome is known, since the successor may accept at any time from now on.
                self.watchdog.share_sockets(true);
                self.outside.successors.answer(number, &self.control.export());
            }
            Order::Replaced => self.outside.successors.is_replaced = true,
            Order::Abandoned => {
                self.watchdog.share_sockets(false);
                // The successor may have ended after it had directed new connections to itself.
                if let Err(error) = self.outside.halves.iter().try_for_each(Halves::take_over) {
                    tracing::error!(%error, "new connections over HTTP/3 may not reach this process; restart it");
                }
            }
        }
    }

    /// Follows a change of the files `changed`. An empty set is a change of a file that another process watches.
    async fn follow(&mut self, changed: BTreeSet<PathBuf>) {
        // A previous refusal remains until all of its files are valid, so they are read again.
        self.refused.files.extend(changed);
        // After a refused configuration, any file may be the one that was wrong: all of it is read again.
        let renewed = if self.refused.configuration || self.refused.files.is_empty() {
            None
        } else {
            self.control.renew(&self.refused.files)
        };
        match renewed {
            None => self.reload(CHANGED).await,
            Some(Ok(())) => {
                self.refused = Refused::default();
                self.control.reloaded(Reload::Applied);
                tracing::info!(why = CHANGED, "reloaded: the changed certificates are in use");
            }
            Some(Err(error)) => self.refuse(CHANGED, &error),
        }
    }

    fn refuse(&self, why: &'static str, error: &str) {
        self.control.reloaded(Reload::Refused);
        tracing::error!(why, "not reloaded, the old configuration stays in force: {error}");
    }

    async fn reload(&mut self, why: &'static str) {
        self.outside.manager.reloading();
        let (mut watch, mut result) = self.adopt();
        // A file that the refused settings were the first to name may have changed before it was watched.
        if result.as_ref().is_err_and(|refusal| self.are_news(&refusal.files)) {
            self.refused.sources.extend(result.err().into_iter().flat_map(|refusal| refusal.files));
            (watch, result) = self.adopt();
        }
        match result {
            Ok((settings, files)) => {
                self.settings.warn_unchangeable(&settings);
                self.settings = settings;
                self.files.go_on_with(files);
                self.refused = Refused::default();
                self.control.reloaded(Reload::Applied);
                brisk_defects::reloaded();
                // Waits so that the log line below is true for every worker.
                if !self.is_taken_over().await {
                    tracing::warn!(waited = ?TAKE_OVER_LIMIT, "a worker has not adopted the new configuration yet");
                }
                tracing::info!(why, "reloaded: the new configuration is in force");
                self.outside.manager.reloaded("serves");
            }
            Err(refusal) => {
                self.files.replace_with(watch);
                self.refused.configuration = true;
                self.refused.sources = refusal.files.into_iter().collect();
                self.refuse(why, &refusal.message);
                let reason: String =
                    refusal.message.lines().next().unwrap_or_default().chars().take(LONGEST_REASON).collect();
                self.outside.manager.reloaded(&format!("serves with the old configuration: {reason}"));
            }
        }
    }

    /// Whether one of `files` is watched neither for the settings in force nor for those refused last.
    fn are_news(&self, files: &[PathBuf]) -> bool {
        files.iter().any(|file| !self.settings.files.contains(file) && !self.refused.sources.contains(file))
    }

    /// Reads the settings and puts them in force, or returns the [`Refusal`]. Also returns [`WatchedFiles`] of the files that were
    /// known before.
    fn adopt(&mut self) -> (WatchedFiles, Result<(ServerSettings, WatchedFiles), Refusal>) {
        // Watched from before the files are read: if they are refused, they are not read again before they change.
        let known: Vec<_> = self.settings.files.iter().chain(&self.refused.sources).cloned().collect();
        let watch = WatchedFiles::start(&known);
        let adopted = self.control.read().and_then(|settings| {
            let server = settings.as_ref().clone();
            // Watched from before the parts are prepared, which may read files too, so that no change is missed.
            let files = WatchedFiles::start(&server.files);
            let prepared = self
                .control
                .parts()
                .prepare(&settings)
                .map_err(|error| Refusal { message: error.to_string(), files: server.files.clone() })?;
            prepared.commit();
            Ok((server, files))
        });
        (watch, adopted)
    }

    /// Waits for [`Control::taken_over`], at most [`TAKE_OVER_LIMIT`]. Returns whether it resolved.
    async fn is_taken_over(&self) -> bool {
        let mut taken_over = pin!(self.control.taken_over());
        // One timeout could be over before workers had a turn: after a pause of the process, the main thread may run first.
        for _ in 0..TAKE_OVER_PARTS {
            let part = tokio::time::timeout(TAKE_OVER_LIMIT / TAKE_OVER_PARTS, taken_over.as_mut());
            if part.await.is_ok() {
                return true;
            }
        }
        false
    }

    /// Warns if [`Program::dropped_log_lines`](crate::Program::dropped_log_lines) is more than `before`. Returns the number
    /// dropped so far.
    fn report_dropped_lines(&self, before: u64) -> u64 {
        let dropped = (self.dropped_log_lines)();
        if dropped > before {
            tracing::warn!(dropped, "log lines were dropped: standard error is not read fast enough");
        }
        // Counted again: the warning itself may have been dropped, which needs no further warning.
        (self.dropped_log_lines)()
    }
}

impl Outside {
    /// Leaves the admin socket to a successor, which has the same: a balancer must not learn from this process that it drains.
    pub(crate) fn give_way(&self) {
        self.exit.is_replaced.store(true, Ordering::Relaxed);
        self.admin.iter().for_each(AbortHandle::abort);
    }
}

fn beats(interval: Duration) -> Interval {
    let mut beats = tokio::time::interval(interval);
    // A process that was held up as a whole has no beats to make up for.
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beats
}

/// Waits until `time`, or without an end if there is none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

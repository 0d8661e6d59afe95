//! `[keys] isolate`: private keys in a process beside the gateway, which reads what strangers send and holds no key.
//!
//! The gateway starts a [keeper], which starts the key process ([holder]) and starts it again when it ends. Orders go over one pair
//! of sockets ([control]), operations over others, in the protocol of key servers.

mod control;
mod holder;
mod keeper;
mod metrics;
mod rights;

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use brisk_keyless::{Passage, RemoteEngine, RemoteSettings};
use rustix::process::{Signal, getpid, kill_process};

pub(crate) use self::control::Settings;
use self::control::{Control, Figures, Order, Received, Report, loads};
pub(crate) use self::metrics::IsolationMetrics;
use self::rights::Left;
use crate::args::KeyProcess;

/// How long a key process may take to begin, and to read files.
const LIMIT: Duration = Duration::from_secs(20);

/// How long the end of the gateway waits for that of the key process.
const CLOSING: Duration = Duration::from_secs(2);

/// The pause before a keeper is started again.
const PAUSE: Duration = Duration::from_secs(1);

/// How long an operation may take in all. A key process that was ended is there again within a fraction of it.
const DEADLINE: Duration = Duration::from_secs(4);

/// The key process of this gateway, if it has one.
static GATEWAY: OnceLock<Gateway> = OnceLock::new();

/// The engine with the keys of the process.
static ENGINE: OnceLock<Arc<RemoteEngine>> = OnceLock::new();

/// The gateway's side.
#[derive(Debug)]
struct Gateway {
    arguments: KeyProcess,
    left: Left,
    control: Mutex<Arc<Control>>,
    keeper: Mutex<Child>,
    state: Mutex<State>,
    /// What was asked for was found, or the process has ended.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the last configuration.
    number: u64,
    in_force: Vec<String>,
    next: Option<Next>,
    settings: Option<Settings>,
    /// Key processes that have begun.
    starts: u64,
    is_started: bool,
    figures: Figures,
    /// It will not be started again: by the will of the gateway, or since it cannot be.
    is_over: bool,
}

/// A configuration that may come into force.
#[derive(Debug)]
struct Next {
    number: u64,
    files: Vec<String>,
    found: Vec<Result<String, String>>,
}

/// `brisk key-process`, which no operator types.
pub(crate) fn run(arguments: &KeyProcess) -> anyhow::Result<()> {
    let control = Control::new(io::stdin().as_fd().try_clone_to_owned()?)?;
    if arguments.holds_keys { holder::run(arguments, control) } else { keeper::run(arguments, &control) }
}

/// Starts the key process, and gives up the gateway's own rights to read the files of keys. To be called while the gateway has one
/// thread.
pub(crate) fn start(user: Option<String>, log: &str) -> anyhow::Result<()> {
    let arguments = KeyProcess { holds_keys: false, parent: std::process::id(), user, log: log.to_owned() };
    let (control, keeper) = start_keeper(&arguments)?;
    let gateway = Gateway {
        arguments,
        left: rights::give_up()?,
        control: Mutex::new(Arc::new(control)),
        keeper: Mutex::new(keeper),
        state: Mutex::default(),
        changed: Condvar::new(),
    };
    if GATEWAY.set(gateway).is_ok()
        && let Some(gateway) = GATEWAY.get()
    {
        thread::Builder::new().name("key-process".to_owned()).spawn(|| gateway.follow())?;
    }
    Ok(())
}

fn start_keeper(arguments: &KeyProcess) -> io::Result<(Control, Child)> {
    let (control, other) = Control::pair()?;
    let mut command = Command::new(keeper::PROGRAM);
    command.arg0("brisk").args(["key-process", "--log", &arguments.log, "--parent"]);
    command.arg(arguments.parent.to_string());
    if let Some(user) = &arguments.user {
        command.args(["--user", user]);
    }
    // A group of its own: what a terminal sends is for the gateway.
    let keeper = command.stdin(Stdio::from(other)).stdout(Stdio::null()).process_group(0).spawn()?;
    Ok((control, keeper))
}

/// Whether keys are in a process of their own.
pub(crate) fn is_used() -> bool {
    GATEWAY.get().is_some()
}

/// Says what the gateway may still read.
pub(crate) fn log_rights() {
    match GATEWAY.get().map(|gateway| gateway.left) {
        None => {}
        Some(Left::Root) => tracing::warn!(
            "keys are in a process of their own, but this one is root and could read their files: give it a user of its own"
        ),
        Some(Left::GaveUp) => tracing::info!("the gateway gave up its rights to read files of others"),
        Some(Left::SameUser) => tracing::info!(
            "keys are in a process of the same user: their files are readable for the gateway, their memory is not"
        ),
    }
}

/// The engine whose keys are in the process, over this number of connections if this is the first call.
pub(crate) fn engine(connections: NonZeroUsize) -> Arc<RemoteEngine> {
    let make = || {
        let mut settings = RemoteSettings::beside("isolate", Arc::new(Sockets));
        settings.connections = connections;
        settings.deadline = DEADLINE;
        settings.hedge = DEADLINE / 4;
        Arc::new(RemoteEngine::new(settings))
    };
    Arc::clone(ENGINE.get_or_init(make))
}

/// Why the key process performs no operations now, if so.
pub(crate) fn trouble() -> Option<String> {
    ENGINE.get().filter(|_| is_used())?.trouble()
}

/// Has the process read these files beside those in force. What was found is the name of each key, or what is wrong. The error is
/// that there is no process that answers.
pub(crate) fn load(files: &[PathBuf]) -> Result<Vec<Result<String, String>>, String> {
    let gateway = GATEWAY.get().ok_or("there is no key process")?;
    // Names come from TOML, which is UTF-8.
    let files: Vec<_> = files.iter().map(|file| file.to_string_lossy().into_owned()).collect();
    gateway.load(files)
}

/// The keys that were loaded last are in force and no others, or they will not be.
pub(crate) fn settle(is_in_force: bool) {
    if let Some(gateway) = GATEWAY.get() {
        gateway.settle(&mut gateway.state(), is_in_force);
    }
}

/// Has the process perform operations by these settings.
pub(crate) fn begin(settings: Settings) {
    let Some(gateway) = GATEWAY.get() else { return };
    let mut state = gateway.state();
    state.settings = Some(settings.clone());
    if state.is_started {
        gateway.send(&Order::Start(settings));
    }
}

/// Ends the key process: the gateway has drained.
pub(crate) fn end() {
    let Some(gateway) = GATEWAY.get() else { return };
    gateway.state().is_over = true;
    gateway.control().close();
    let limit = Instant::now() + CLOSING;
    let mut keeper = gateway.keeper.lock().unwrap_or_else(PoisonError::into_inner);
    while matches!(keeper.try_wait(), Ok(None)) && Instant::now() < limit {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sockets to the key process.
#[derive(Debug)]
struct Sockets;

impl Passage for Sockets {
    fn open(&self) -> io::Result<UnixStream> {
        let gateway = GATEWAY.get().ok_or(io::ErrorKind::NotConnected)?;
        let (own, other) = UnixStream::pair()?;
        gateway.control().send_with(&Order::Connect, &other)?;
        Ok(own)
    }
}

impl Gateway {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn control(&self) -> Arc<Control> {
        Arc::clone(&self.control.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// An order that does not get through is repeated when the next process begins.
    fn send(&self, order: &Order) {
        if let Err(error) = self.control().send(order) {
            tracing::warn!(%error, "the key process takes no orders");
        }
    }

    fn load(&self, files: Vec<String>) -> Result<Vec<Result<String, String>>, String> {
        let count = files.len();
        let mut state = self.state();
        self.settle(&mut state, false);
        state.number += 1;
        let number = state.number;
        let orders = if state.is_started { loads(number, &files) } else { Vec::new() };
        state.next = Some(Next { number, files, found: Vec::new() });
        drop(state);
        orders.iter().for_each(|order| self.send(order));
        let is_found = |state: &State| state.next.as_ref().is_some_and(|next| next.found.len() >= count);
        let waits = |state: &mut State| !state.is_over && !(is_found(state) && state.is_started);
        let waited = self.changed.wait_timeout_while(self.state(), LIMIT, waits);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match &state.next {
            Some(next) if state.is_started && next.found.len() >= count => Ok(next.found[..count].to_vec()),
            _ if state.is_over => {
                Err("the key process cannot be started; the lines above say why".to_owned())
            }
            _ => Err(format!("the key process has not answered within {} seconds", LIMIT.as_secs())),
        }
    }

    fn settle(&self, state: &mut State, is_in_force: bool) {
        let Some(next) = state.next.take() else { return };
        self.send(&Order::Settle { number: next.number, is_in_force });
        if is_in_force {
            state.in_force = next.files;
        }
    }

    /// Reads reports until the gateway ends. Starts the keeper again if it is gone.
    fn follow(&'static self) {
        loop {
            match self.control().receive::<Report>() {
                Ok(Received::Packet(report, _)) => self.take(report),
                Ok(Received::Nothing) => {}
                Ok(Received::End) | Err(_) => {
                    if !self.start_again() {
                        return;
                    }
                }
            }
        }
    }

    fn take(&'static self, report: Report) {
        let mut state = self.state();
        match report {
            Report::Started => self.begun(&mut state),
            Report::Loaded { number, found } => {
                match state.next.as_mut().filter(|next| next.number == number) {
                    Some(next) => next.found.extend(found),
                    None => found.into_iter().filter_map(Result::err).for_each(|error| {
                        tracing::error!("a key is missing in the key process: {error}");
                    }),
                }
                self.changed.notify_all();
            }
            Report::Changed => {
                tracing::info!("the file of a key has changed");
                // To this process itself, which has a handler.
                let _ = kill_process(getpid(), Signal::HUP);
            }
            Report::Figures(figures) => state.figures = figures,
        }
    }

    /// A key process has begun, which has no keys yet.
    fn begun(&'static self, state: &mut State) {
        state.starts += 1;
        state.is_started = true;
        let mut orders = Vec::new();
        if state.starts > 1 {
            tracing::warn!(starts = state.starts, "the key process was started again");
            state.number += 1;
            orders.extend(loads(state.number, &state.in_force));
            orders.push(Order::Settle { number: state.number, is_in_force: true });
        }
        orders.extend(state.settings.clone().map(Order::Start));
        if let Some(next) = &mut state.next {
            next.found.clear();
            state.number += 1;
            next.number = state.number;
            orders.extend(loads(next.number, &next.files));
        }
        self.changed.notify_all();
        // Not here: who sends waits until the other side has room, and it may wait until its reports are read.
        let send = move || orders.iter().for_each(|order| self.send(order));
        if let Err(error) = thread::Builder::new().name("key-orders".to_owned()).spawn(send) {
            tracing::error!(%error, "the key process gets no orders");
        }
    }

    /// The keeper is gone; whether there is another.
    fn start_again(&self) -> bool {
        let mut state = self.state();
        state.is_started = false;
        if state.is_over {
            return false;
        }
        drop(state);
        let status = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).wait();
        if status.is_ok_and(|status| status.code() == Some(rights::REFUSED)) {
            self.state().is_over = true;
            self.changed.notify_all();
            return false;
        }
        loop {
            thread::sleep(PAUSE);
            match start_keeper(&self.arguments) {
                Ok((control, keeper)) => {
                    *self.control.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(control);
                    *self.keeper.lock().unwrap_or_else(PoisonError::into_inner) = keeper;
                    return true;
                }
                Err(error) => tracing::error!(%error, "the key process cannot be started"),
            }
        }
    }
}

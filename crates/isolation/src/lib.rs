//! `[keys] isolate`: private keys in a process beside the gateway, which reads what strangers send and holds no key.
//!
//! The gateway starts a [keeper], which starts the key process ([holder]) and starts it again when it ends. Orders go over one pair
//! of sockets ([control]), operations over others, in the protocol of key servers.

mod control;
mod holder;
mod keeper;
mod metrics;
mod rights;
mod state;
mod timeouts;

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use brisk_keyless::{Passage, RemoteEngine, RemoteSettings};
use tokio::sync::Notify;

pub(crate) use self::control::Settings;
use self::control::{Control, Order, Received, Report, loads};
pub(crate) use self::metrics::IsolationMetrics;
use self::rights::Left;
use self::state::{Found, Keys, State};
use crate::args::KeyProcess;

/// Most bytes in the name of a file: those that Linux opens.
const LONGEST_NAME: usize = 4096;

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
    /// There was a report, or the process has ended.
    changed: Condvar,
    /// Orders, in the sequence in which they were given: one thread sends them.
    orders: Sender<Order>,
    /// Where changed files are reported.
    reader: OnceLock<Arc<Notify>>,
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
    let (orders, given) = channel();
    let gateway = Gateway {
        arguments,
        left: rights::give_up()?,
        control: Mutex::new(Arc::new(control)),
        keeper: Mutex::new(keeper),
        state: Mutex::default(),
        changed: Condvar::new(),
        orders,
        reader: OnceLock::new(),
    };
    if GATEWAY.set(gateway).is_ok()
        && let Some(gateway) = GATEWAY.get()
    {
        thread::Builder::new().name("key-process".to_owned()).spawn(|| gateway.follow())?;
        thread::Builder::new().name("key-orders".to_owned()).spawn(move || gateway.send_all(&given))?;
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
    if GATEWAY.get().is_some_and(|own| own.left == Left::Root && own.arguments.user.is_none()) {
        tracing::warn!(
            "the key process is the user 65534, as other services may be, which could end it: name one by isolate_user"
        );
    }
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

/// The engine whose keys are in the process, over this number of connections and with this many operations at a time if this is the
/// first call.
pub(crate) fn engine(connections: NonZeroUsize, queue: NonZeroUsize) -> Arc<RemoteEngine> {
    let make = || {
        let mut settings = RemoteSettings::beside("isolate", Arc::new(Sockets));
        settings.connections = connections;
        settings.queue = queue;
        settings.deadline = DEADLINE;
        settings.hedge = DEADLINE / 4;
        Arc::new(RemoteEngine::new(settings))
    };
    Arc::clone(ENGINE.get_or_init(make))
}

/// Why the key process performs no operations now, if so.
pub(crate) fn trouble() -> Option<String> {
    let gateway = GATEWAY.get()?;
    ENGINE.get()?.trouble().or_else(|| gateway.state().trouble())
}

/// What is wrong with the user of the key process, if anything.
pub(crate) fn trouble_with_user(name: &str) -> Option<String> {
    rights::look_up(name).err().map(|error| error.to_string())
}

/// Reports changed files of keys here, including changes before the call.
pub(crate) fn report_changes(reader: Arc<Notify>) {
    let Some(gateway) = GATEWAY.get() else { return };
    let state = gateway.state();
    if gateway.reader.set(reader).is_ok() && state.has_changed {
        gateway.report_change();
    }
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
    if state.process.is_some() {
        gateway.give([Order::Start(settings)]);
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

    /// Queues orders behind the earlier ones. To be called with the state locked that they are derived from.
    fn give(&self, orders: impl IntoIterator<Item = Order>) {
        // The thread that takes them does not end.
        orders.into_iter().for_each(|order| drop(self.orders.send(order)));
    }

    /// Sends what is given: who sends waits until the other side has room, and no other thread is to wait for that. An order that does not
    /// get through is repeated when the next process begins.
    fn send_all(&self, given: &Receiver<Order>) {
        for order in given {
            if let Err(error) = self.control().send(&order)
                && !self.state().is_over
            {
                tracing::warn!(%error, "the key process takes no orders");
            }
        }
    }

    fn load(&self, files: Vec<String>) -> Result<Vec<Found>, String> {
        if files.iter().any(|file| file.len() > LONGEST_NAME) {
            return Err(format!("the name of a file has more than {LONGEST_NAME} bytes"));
        }
        let mut state = self.state();
        self.settle(&mut state, false);
        let number = state.another_number();
        if state.process.is_some() {
            self.give(loads(number, &files));
        }
        state.next = Some(Keys { number, files, ..Keys::default() });
        let mut state = self.wait_for_keys(state);
        let is_started = state.process.is_some();
        if let Some(next) = state.next.as_mut().filter(|next| is_started && next.is_complete()) {
            return Ok(next.expect());
        }
        if state.is_over {
            return Err("the key process cannot be started; the lines above say why".to_owned());
        }
        // What it does with them does not matter any more, and the next one does not get them.
        self.settle(&mut state, false);
        self.kill(&state);
        Err("the key process does not answer; it is started again".to_owned())
    }

    fn settle(&self, state: &mut State, is_in_force: bool) {
        let Some(next) = state.next.take() else { return };
        self.give([Order::Settle { number: next.number, is_in_force }]);
        if is_in_force {
            state.in_force = next;
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

    fn take(&self, report: Report) {
        let mut state = self.state();
        match report {
            Report::Started { process } => self.begun(&mut state, process),
            Report::Loaded { number, found } => {
                if state.found(number, found) {
                    state.in_force.missing().iter().for_each(|missing| {
                        tracing::error!("a key in force is missing in the key process: {missing}");
                    });
                }
            }
            Report::Changed => {
                state.has_changed = true;
                self.report_change();
            }
            Report::Figures(figures) => state.figures = figures,
        }
        state.reports += 1;
        self.changed.notify_all();
    }

    fn report_change(&self) {
        if let Some(reader) = self.reader.get() {
            tracing::info!("the file of a key has changed");
            reader.notify_one();
        }
    }

    /// A key process has begun, which has no keys yet.
    fn begun(&self, state: &mut State, process: u32) {
        state.starts += 1;
        state.process = Some(process);
        if state.starts > 1 {
            tracing::warn!(starts = state.starts, "the key process was started again");
            let number = state.another_number();
            (state.in_force.number, state.in_force.found) = (number, Vec::new());
            self.give(loads(number, &state.in_force.files));
            self.give([Order::Settle { number, is_in_force: true }]);
        }
        self.give(state.settings.clone().map(Order::Start));
        let number = state.another_number();
        if let Some(next) = &mut state.next {
            (next.number, next.found) = (number, Vec::new());
            self.give(loads(number, &next.files));
        }
    }

    /// The keeper is gone; whether there is another.
    fn start_again(&self) -> bool {
        let mut state = self.state();
        state.process = None;
        if state.is_over {
            return false;
        }
        drop(state);
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        // It may be there still, if what it said made no sense. One that has ended keeps its status.
        let _ = keeper.kill();
        let status = keeper.wait();
        drop(keeper);
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

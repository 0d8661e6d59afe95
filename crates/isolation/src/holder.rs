//! The key process itself: reads the files of keys, and performs operations for the gateway that started it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_certs::FileWatch;
use brisk_config::{GpuSettings, KeySettings};
use brisk_keys::{BatchSettings, BatchStatistics, Keystore, Offload, Threads};
use brisk_keys_pkcs11::TokenSettings;
use brisk_keyserver::{Environment, KeyProcess};
use brisk_telemetry::Metrics;
use brisk_tls::gather;
use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::control::{Control, Figures, Order, Received, Report, Settings};
use super::rights::{self, REFUSED};
use crate::args;
use crate::{engines, limits, log};

/// Time without further changes after which changed files are reported, as in the gateway.
const QUIET: Duration = Duration::from_millis(500);

/// How often files, figures and keys of before are looked after.
const BEAT: Duration = Duration::from_millis(250);

/// After this time nothing asks for keys of the configuration before.
const GRACE: Duration = Duration::from_secs(10);

/// Files of which one packet says what was found.
const AT_ONCE: usize = 16;

/// Most bytes of what is said of a file. Six times as many in JSON, at worst.
const LONGEST: usize = 1024;

/// Most bytes of the file of a key.
const MOST_BYTES: u64 = 1024 * 1024;

/// Holds keys until the gateway is gone.
pub(super) fn run(arguments: &args::KeyProcess, control: Control) -> anyhow::Result<()> {
    // Before anything else: no process of this user may begin to trace this one from here on.
    limits::keep_memory_private();
    let locked = rights::lock_memory();
    if let Err(error) = rights::refuse_tracer().and_then(|()| rights::drop_to(arguments.user.as_deref())) {
        rights::say(format_args!("{error}"));
        exit(REFUSED);
    }
    rights::end_with(arguments.parent)?;
    // Once more: another user may have changed it.
    limits::keep_memory_private();
    let runtime = rights::outlive_signals()?;
    let _log = log::start(&arguments.log)?;
    if let Err(reason) = locked {
        tracing::warn!(
            reason,
            "the memory of the key process is not locked: keys could come to a swap device"
        );
    }
    control.wake_every(BEAT)?;
    control.send(&Report::Started { process: std::process::id() })?;
    let mut holder = Holder::new(control, runtime);
    loop {
        match holder.control.receive()? {
            Received::Packet(order, socket) => holder.follow(order, socket)?,
            Received::Nothing => {}
            Received::End => return Ok(()),
        }
        holder.look_after(Instant::now())?;
    }
}

/// The keys of one configuration.
#[derive(Default)]
struct Set {
    number: u64,
    keys: Keystore,
    files: Vec<PathBuf>,
}

struct Holder {
    control: Control,
    runtime: Runtime,
    in_force: Set,
    /// The keys of a configuration that may come into force.
    next: Option<Set>,
    is_loaded: bool,
    settings: Option<Settings>,
    /// What performs operations, once there are settings and keys.
    process: Option<(KeyProcess, Arc<BatchStatistics>)>,
    /// Connections that wait for it.
    waiting: Vec<UnixStream>,
    held: usize,
    /// When the keys of before are given up.
    given_up: Option<Instant>,
    watch: Option<FileWatch>,
    reported: Figures,
}

impl Holder {
    fn new(control: Control, runtime: Runtime) -> Self {
        Self {
            control,
            runtime,
            in_force: Set::default(),
            next: None,
            is_loaded: false,
            settings: None,
            process: None,
            waiting: Vec::new(),
            held: 0,
            given_up: None,
            watch: None,
            reported: Figures::default(),
        }
    }

    fn follow(&mut self, order: Order, socket: Option<UnixStream>) -> anyhow::Result<()> {
        match order {
            Order::Load { number, files, is_last } => self.load(number, files, is_last)?,
            Order::Settle { number, is_in_force } => self.settle(number, is_in_force),
            Order::Start(settings) => {
                self.settings = Some(settings);
                self.start()?;
            }
            Order::Connect => {
                let Some(socket) = socket else { return Ok(()) };
                match &mut self.process {
                    Some((process, _)) => process.serve(socket),
                    None => self.waiting.push(socket),
                }
            }
        }
        Ok(())
    }

    fn load(&mut self, number: u64, files: Vec<String>, is_last: bool) -> io::Result<()> {
        let mut next = self.next.take().filter(|next| next.number == number).unwrap_or_default();
        next.number = number;
        next.files.extend(files.into_iter().map(PathBuf::from));
        if !is_last {
            self.next = Some(next);
            return Ok(());
        }
        // All of them from before the first is read, so that no change is missed.
        self.watch_files(&next.files);
        let Set { files, keys, .. } = &mut next;
        let mut last = Vec::new();
        for (place, file) in files.iter().enumerate() {
            last.push(read(file, keys));
            // What is said of these is one packet.
            if last.len() == AT_ONCE && place + 1 < files.len() {
                self.control.send(&Report::Loaded { number, found: mem::take(&mut last) })?;
            }
        }
        self.next = Some(next);
        self.is_loaded = true;
        self.given_up = None;
        self.hold();
        self.control.send(&Report::Loaded { number, found: last })?;
        // Behind the report, since to measure takes a while.
        self.start()
    }

    fn settle(&mut self, number: u64, is_in_force: bool) {
        let Some(next) = self.next.take_if(|next| next.number == number) else { return };
        if !is_in_force {
            // Nothing has asked for keys of a configuration that was refused.
            return self.hold();
        }
        self.in_force = next;
        // Handshakes that have begun may still ask for a key of before.
        self.given_up = Some(Instant::now() + GRACE);
    }

    /// The keys in force, and those that may come into force: handshakes of either configuration find theirs.
    fn both(&self) -> Arc<Keystore> {
        let mut keys = Keystore::new();
        keys.add_all(&self.in_force.keys);
        if let Some(next) = &self.next {
            keys.add_all(&next.keys);
        }
        Arc::new(keys)
    }

    fn hold(&mut self) {
        let keys = self.both();
        self.held = keys.len();
        if let Some((process, _)) = &self.process {
            process.hold(&keys);
        }
    }

    fn watch_files(&mut self, next: &[PathBuf]) {
        let files: BTreeSet<_> = self.in_force.files.iter().chain(next).cloned().collect();
        self.watch = FileWatch::start(files, QUIET)
            .inspect_err(|error| tracing::warn!(%error, "changed keys are not noticed; SIGHUP still reloads"))
            .ok();
    }

    /// Begins to perform operations, if there are settings and keys.
    fn start(&mut self) -> io::Result<()> {
        let (None, Some(settings), true) = (&self.process, &self.settings, self.is_loaded) else {
            return Ok(());
        };
        let keys = self.both();
        let metrics = Metrics::new();
        let (engines, batches) = engines::start_counting(&key_settings(settings), &keys, &metrics)?;
        let workers = NonZeroUsize::new(settings.workers).unwrap_or(NonZeroUsize::MIN);
        let environment = Environment { engines, gathers: settings.simd, metrics };
        let mut process = KeyProcess::start(workers, &keys, environment)?;
        self.waiting.drain(..).for_each(|socket| process.serve(socket));
        self.process = Some((process, batches));
        tracing::info!(
            keys = keys.len(),
            user = geteuid().as_raw(),
            "the keys are in a process of their own"
        );
        Ok(())
    }

    /// Gives up keys of before, and reports what has changed.
    fn look_after(&mut self, now: Instant) -> io::Result<()> {
        if self.given_up.take_if(|at| *at <= now).is_some() && self.next.is_none() {
            self.hold();
        }
        if let Some(watch) = &mut self.watch {
            let changed = self.runtime.block_on(async { timeout(Duration::ZERO, watch.changed()).await });
            if matches!(changed, Ok(Some(()))) {
                self.control.send(&Report::Changed)?;
            }
        }
        let figures = self.figures();
        if figures != self.reported {
            self.control.send(&Report::Figures(figures.clone()))?;
            self.reported = figures;
        }
        Ok(())
    }

    fn figures(&self) -> Figures {
        let gathered = gather::figures();
        let (by_size, faults) = self
            .process
            .as_ref()
            .map_or_else(Default::default, |(_, batches)| (batches.performed(), batches.faults()));
        Figures {
            keys: if self.process.is_some() { self.held as u64 } else { 0 },
            by_size,
            gathered: [gathered.signatures.in_lanes, gathered.signatures.alone],
            faults: faults + gathered.faults,
        }
    }
}

/// Reads the key in a file. What was found is its name, or what is wrong, in words that do not quote the file.
fn read(file: &Path, keys: &mut Keystore) -> Result<String, String> {
    let shown = file.display();
    let pem =
        contents(file).map_err(|error| shortened(format!("cannot read {shown}: {error}{}", who(&error))))?;
    let key = keys.add_pem(&pem).map_err(|error| shortened(format!("{shown}: {error}")))?;
    Ok(key.to_string())
}

/// What is in the file of a key: memory is locked, so it takes no other file for one.
fn contents(file: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    // Nothing is waited for, as the other end of a pipe would be.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(file, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if metadata.len() > MOST_BYTES {
        return Err(io::Error::other("it is longer than 1 MiB, which no key is"));
    }
    // Room for all of it from the start: no copies are left behind.
    let mut contents = Zeroizing::new(Vec::with_capacity(MOST_BYTES.min(metadata.len() + 1) as usize));
    file.take(MOST_BYTES).read_to_end(&mut contents)?;
    Ok(contents)
}

/// A message that fits into a packet with others, however long the names of files are.
fn shortened(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(LONGEST));
    message
}

/// Whom a file has to be readable for.
fn who(error: &io::Error) -> String {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return String::new();
    }
    format!(" (the key process is the user {})", geteuid().as_raw())
}

fn key_settings(settings: &Settings) -> KeySettings {
    let number = |number: usize| NonZeroUsize::new(number).unwrap_or(NonZeroUsize::MIN);
    let (cores, workers) = settings.machine;
    let [rsa, ecdsa, ed25519] = settings.offload;
    let beside = Threads::Beside { cores: number(cores), workers: number(workers) };
    let wait = settings.cuda_wait_us.map(Duration::from_micros);
    KeySettings {
        processor: BatchSettings {
            threads: settings.threads.map_or(beside, |threads| Threads::Exactly(number(threads))),
            cores: settings.cores.clone(),
            queue: number(settings.queue),
            offload: Offload { rsa, ecdsa, ed25519 },
            simd: settings.simd,
        },
        gpu: settings.cuda.then_some(GpuSettings { wait }),
        tokens: TokenSettings::default(),
        isolation: None,
    }
}

//! `[keys] isolate`: the key process as a [`Part`] of the gateway, and the program of the key process itself.

use std::io;
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_config::{GpuSettings, IsolationSettings, KeySettings, Resolved, Running};
use brisk_isolation::{Isolation, LoadedKeys, Operations, Program, Role, Settings};
use brisk_keys::{BatchSettings, BatchStatistics, Keystore, Offload, Threads};
use brisk_keys_pkcs11::TokenSettings;
use brisk_keyserver::{Environment, KeyProcess};
use brisk_server::{Part, PartError};
use brisk_telemetry::Metrics;
use tokio::sync::Notify;

use crate::args;
use crate::engines;
use crate::key_servers::connect;
use crate::log::{self, Log};

/// The [`Isolation`] of the gateway; `None` if keys are not isolated.
pub(crate) struct IsolatedKeys(Option<Arc<Isolation>>);

impl IsolatedKeys {
    /// Activates the keys of the first configuration and begins operations. Changes of key files, which only the key process
    /// can read, are reported to `changes`.
    pub(crate) fn start(
        running: &Running,
        first: &Resolved,
        changes: Arc<Notify>,
    ) -> Result<Self, PartError> {
        let part = Self(running.isolation.clone());
        // In force before the first connection, so that no operation finds a process without keys.
        part.commit(part.prepare(&first.isolated)?);
        if let Some((isolation, settings)) = part.0.as_ref().zip(first.keys.isolation.as_ref()) {
            // Before the operations begin, so that no change of a key file is missed.
            isolation.report_changes(changes);
            let settings = self::settings(settings, first.sandbox.is_on);
            let engine = isolation.engine(settings.connections(), settings.operations());
            isolation.begin(settings);
            connect(&engine)?;
            running.key_servers.metrics().show(&engine);
        }
        Ok(part)
    }
}

impl Part for IsolatedKeys {
    type Settings = Option<LoadedKeys>;
    /// Identifier of a set of keys that the key process has loaded.
    type Prepared = Option<u64>;

    /// Returns the identifier of the keys: the key process loaded them while the configuration was read.
    fn prepare(&self, loaded: &Self::Settings) -> Result<Option<u64>, PartError> {
        Ok(loaded.as_ref().map(LoadedKeys::id))
    }

    fn commit(&self, loaded: Option<u64>) {
        if let Some((isolation, loaded)) = self.0.as_ref().zip(loaded) {
            isolation.put_in_force(loaded);
        }
    }

    fn stop(&self, deadline: Instant) {
        if let Some(isolation) = &self.0 {
            isolation.end(deadline);
        }
    }
}

/// Settings of the key process in the format sent to it, with `server.sandbox`.
fn settings(settings: &IsolationSettings, is_confined: bool) -> Settings {
    let IsolationSettings { processor, gpu, workers } = settings;
    let BatchSettings { threads, cores, queue, offload, simd } = processor;
    let (threads, machine) = match *threads {
        Threads::Exactly(number) => (Some(number.get()), (1, 1)),
        Threads::Beside { cores, workers } => (None, (cores.get(), workers.get())),
    };
    let wait = gpu.and_then(|gpu| gpu.wait);
    Settings {
        threads,
        machine,
        cores: cores.clone(),
        queue: queue.get(),
        offload: [offload.rsa, offload.ecdsa, offload.ed25519],
        simd: *simd,
        cuda: gpu.is_some(),
        cuda_wait_us: wait.map(|wait| wait.as_micros() as u64),
        workers: workers.get(),
        is_confined,
    }
}

/// Runs `brisk key-process` (internal: started by a gateway with `keys.isolate`).
pub(crate) fn run(arguments: args::KeyProcess) -> anyhow::Result<()> {
    let args::KeyProcess { holds_keys, parent, user, log } = arguments;
    Ok(brisk_isolation::run(&Role { holds_keys, parent, user, log }, &ThisProgram)?)
}

/// [`Program`] of the key process: this program's log and engines.
struct ThisProgram;

impl Program for ThisProgram {
    type Log = Log;

    fn open_log(&self, filter: &str) -> Result<Log, String> {
        log::start(filter).map_err(|error| error.to_string())
    }

    fn start(&self, settings: &Settings, keys: &Arc<Keystore>) -> io::Result<Box<dyn Operations>> {
        let (running, metrics) = (Running::default(), Metrics::new());
        let (engines, batches) = engines::start_counting(&key_settings(settings), keys, &running, &metrics)?;
        let workers = NonZeroUsize::new(settings.workers).unwrap_or(NonZeroUsize::MIN);
        let environment = Environment { engines, gathers: settings.simd, metrics };
        Ok(Box::new(Performing { process: KeyProcess::start(workers, keys, environment)?, batches }))
    }
}

/// Running engines and threads of a key process.
struct Performing {
    process: KeyProcess,
    batches: Arc<BatchStatistics>,
}

impl Operations for Performing {
    fn hold(&self, keys: &Arc<Keystore>) {
        self.process.hold(keys);
    }

    fn serve(&mut self, socket: UnixStream) {
        self.process.serve(socket);
    }

    fn failure(&self) -> Option<String> {
        self.process.failure()
    }

    fn by_size(&self) -> [u64; 4] {
        self.batches.performed()
    }

    fn faults(&self) -> u64 {
        self.batches.faults()
    }
}

fn key_settings(settings: &Settings) -> KeySettings {
    // Never 0: the gateway sends the values of `NonZeroUsize`, for which the message has no type.
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
        simd_wait: Duration::ZERO,
        gpu: settings.cuda.then_some(GpuSettings { wait }),
        tokens: TokenSettings::default(),
        // This is the key process: it performs the operations itself.
        isolation: None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn the_command_line_of_a_key_process_is_read_as_it_is_written() {
        let role =
            Role { holds_keys: true, parent: 7, user: Some("keys".to_owned()), log: "warn".to_owned() };
        let words = [vec!["brisk".to_owned()], role.words()].concat();
        let Command::KeyProcess(read) = Cli::parse_from(words).command else { panic!("another command") };
        let args::KeyProcess { holds_keys, parent, user, log } = read;
        assert_eq!(Role { holds_keys, parent, user, log }, role);
    }
}

//! The running process as `brisk_config` knows it: engines that stay across reloads, and the process that has isolated keys.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use brisk_config::{IsolationSettings, KeyProcess, Process};
use brisk_keyless::{RemoteEngine, RemoteSettings};
use brisk_keys::{BatchSettings, Threads};

use crate::{isolated, remote};

/// This process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThisProcess;

impl Process for ThisProcess {
    fn engine(&self, settings: RemoteSettings) -> Arc<RemoteEngine> {
        remote::engine(settings)
    }

    fn key_process(&self) -> Option<&dyn KeyProcess> {
        isolated::is_used().then_some(self)
    }

    fn trouble_with_user(&self, name: &str) -> Option<String> {
        isolated::trouble_with_user(name)
    }
}

impl KeyProcess for ThisProcess {
    fn engine(&self, connections: NonZeroUsize, operations: NonZeroUsize) -> Arc<RemoteEngine> {
        isolated::engine(connections, operations)
    }

    fn load(&self, files: &[PathBuf]) -> Result<Vec<Result<String, String>>, String> {
        isolated::load(files)
    }
}

/// The settings of the key process as they are sent to it.
pub(crate) fn isolation(settings: &IsolationSettings) -> isolated::Settings {
    let IsolationSettings { processor, gpu, workers } = settings;
    let BatchSettings { threads, cores, queue, offload, simd } = processor;
    let (threads, machine) = match *threads {
        Threads::Exactly(number) => (Some(number.get()), (1, 1)),
        Threads::Beside { cores, workers } => (None, (cores.get(), workers.get())),
    };
    let wait = gpu.and_then(|gpu| gpu.wait);
    isolated::Settings {
        threads,
        machine,
        cores: cores.clone(),
        queue: queue.get(),
        offload: [offload.rsa, offload.ecdsa, offload.ed25519],
        simd: *simd,
        cuda: gpu.is_some(),
        cuda_wait_us: wait.map(|wait| wait.as_micros() as u64),
        workers: workers.get(),
    }
}

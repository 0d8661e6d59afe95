//! `[keys]`: engines of key operations.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use brisk_config_file::{KeyPath, Period};
use brisk_keys::{BatchSettings, Offload, Threads};
use brisk_keys_pkcs11::TokenSettings;

use super::context::Context;
use crate::certificate_files::TokenDefaults;
use crate::key_settings::{GpuSettings, KeySettings};
use crate::raw::{self, KeyFamily};

// 1024 is the size of the set that `sched_setaffinity` takes (`CPU_SETSIZE`).
/// The numbers that cores can have on Linux.
const CORES: RangeInclusive<u16> = 0..=1023;

/// Maximum wait of an operation for a full batch of vector lanes, if it is not set.
const SIMD_WAIT: Period = Period(Duration::from_micros(500));

/// Permitted wait of an operation for a full batch of vector lanes.
const SIMD_WAITS: RangeInclusive<Period> = Period(Duration::ZERO)..=Period(Duration::from_millis(10));

/// Permitted wait of an operation for others before it is sent to a GPU.
const WAITS: RangeInclusive<Period> = Period(Duration::from_millis(1))..=Period(Duration::from_secs(1));

/// Resolves `[keys]`. `cores` are the machine's cores, `workers` the threads that serve connections.
pub(super) fn keys(
    raw: &raw::Keys,
    cores: NonZeroUsize,
    workers: NonZeroUsize,
    context: &mut Context<'_>,
) -> KeySettings {
    let (path, usual) = (KeyPath::of("keys"), BatchSettings::default());
    let simd = raw.simd.unwrap_or(usual.simd);
    let offload = raw.offload.as_deref().map_or(usual.offload, offload);
    let kept_on = kept_on(&raw.cores, &path, context);
    let findings = &mut context.shared.findings;
    let written = raw.threads.map(|_| findings.within(&path.key("threads"), raw.threads, 1, &(1..=1024)));
    // Without a number, each listed core has a thread; without both, cores without a worker decide.
    let threads = written.map_or(kept_on.len(), usize::from);
    let threads = NonZeroUsize::new(threads).map_or(Threads::Beside { cores, workers }, Threads::Exactly);
    let queue =
        findings.within(&path.key("queue"), raw.queue, usual.queue.get() as u32, &(1..=1_000_000)) as usize;
    let queue = NonZeroUsize::new(queue).unwrap_or(usual.queue);
    if raw.offload.as_ref().is_some_and(Vec::is_empty) && (raw.threads.is_some() || !raw.cores.is_empty()) {
        findings.warn(
            "[keys]: offload = [] leaves all operations to the workers: threads and cores mean nothing",
        );
    }
    let sessions = TokenSettings::default().sessions.get() as u16;
    let sessions = findings.within(&path.key("pkcs11_sessions"), raw.pkcs11_sessions, sessions, &(1..=256));
    let sessions = NonZeroUsize::new(sessions.into()).unwrap_or(NonZeroUsize::MIN);
    let processor = BatchSettings { threads, cores: kept_on, queue, offload, simd };
    let tokens = TokenSettings { sessions, queue };
    let simd_wait = findings.within(&path.key("simd_wait"), raw.simd_wait, SIMD_WAIT, &SIMD_WAITS).0;
    KeySettings { processor, simd_wait, gpu: gpu(raw, offload, context), tokens, isolation: None }
}

/// Settings common to keys in tokens. `base` is the base of relative paths.
pub(super) fn tokens(raw: &raw::Keys, settings: TokenSettings, base: &Path) -> TokenDefaults {
    TokenDefaults { settings, module: raw.pkcs11_module.as_ref().map(|path| base.join(path)) }
}

/// Settings of the GPU, if enabled; the processor performs the operations in `offload`.
fn gpu(raw: &raw::Keys, offload: Offload, context: &mut Context<'_>) -> Option<GpuSettings> {
    let (path, findings) = (KeyPath::of("keys"), &mut context.shared.findings);
    // Checked also without `cuda`, so that a mistake shows before the GPU is switched on.
    let wait = raw.cuda_wait.map(|wait| findings.within(&path.key("cuda_wait"), Some(wait), wait, &WAITS).0);
    if !raw.cuda.unwrap_or(false) {
        return None;
    }
    if !cfg!(feature = "cuda") {
        let message = "this brisk was built without it: build it with `cargo build --release -p brisk-cli --features cuda`, or write \
                       `false`";
        findings.wrong(&path.key("cuda"), message);
    } else if !offload.rsa {
        let message = "needs offload to name \"rsa\", so that there are threads beside the GPU";
        findings.wrong(&path.key("cuda"), message);
    }
    Some(GpuSettings { wait })
}

fn offload(families: &[KeyFamily]) -> Offload {
    let named = |family| families.contains(&family);
    Offload { rsa: named(KeyFamily::Rsa), ecdsa: named(KeyFamily::Ecdsa), ed25519: named(KeyFamily::Ed25519) }
}

/// Each core once.
fn kept_on(cores: &[u16], path: &KeyPath, context: &mut Context<'_>) -> Vec<usize> {
    let path = path.key("cores");
    for (index, core) in cores.iter().enumerate() {
        let place = path.index(index);
        context.shared.findings.within(&place, Some(*core), 0, &CORES);
        // The default of `threads` is the length of this list, so a repeated core would add a thread.
        if let Some(first) = cores[..index].iter().position(|other| other == core) {
            context.shared.findings.wrong(&place, format!("{} is {core} already", path.index(first)));
        }
    }
    cores.iter().map(|core| usize::from(*core)).collect()
}

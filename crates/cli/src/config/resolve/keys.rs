//! `[keys]`: where and how key operations are performed.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::time::Duration;

#[cfg(feature = "cuda")]
use brisk_keys::CudaSettings;
use brisk_keys::{BatchSettings, Offload, Threads};

use super::Context;
use crate::config::error::KeyPath;
use crate::config::raw::{self, KeyFamily};
use crate::config::units::Period;
#[cfg(not(feature = "cuda"))]
use crate::speed::WITHOUT_CUDA;

/// The numbers that cores can have on Linux.
const CORES: RangeInclusive<u16> = 0..=1023;

/// How long an operation may wait for others on their way to a card.
const WAITS: RangeInclusive<Period> = Period(Duration::from_millis(1))..=Period(Duration::from_secs(1));

/// `cores` are those of the machine, `workers` the threads that serve connections.
pub(super) fn keys(
    raw: &raw::Keys,
    cores: NonZeroUsize,
    workers: NonZeroUsize,
    context: &mut Context<'_>,
) -> BatchSettings {
    let (path, usual) = (KeyPath::of("keys"), BatchSettings::default());
    let simd = raw.simd.unwrap_or(usual.simd);
    let offload = raw.offload.as_deref().map_or(usual.offload, offload);
    let kept_on = kept_on(&raw.cores, &path, context);
    let findings = &mut context.findings;
    let written = raw.threads.map(|_| findings.within(&path.key("threads"), raw.threads, 1, &(1..=1024)));
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
    BatchSettings { threads, cores: kept_on, queue, offload, simd }
}

/// The card, if there is to be one; `keys` is what the processor's part came to.
#[cfg(feature = "cuda")]
pub(super) fn cuda(raw: &raw::Keys, keys: &BatchSettings, context: &mut Context<'_>) -> Option<CudaSettings> {
    let (path, usual, findings) = (KeyPath::of("keys"), CudaSettings::default(), &mut context.findings);
    let wait = findings.within(&path.key("cuda_wait"), raw.cuda_wait, Period(usual.wait), &WAITS).0;
    let wanted = raw.cuda.unwrap_or(false);
    if wanted && !keys.offload.rsa {
        findings.wrong(
            &path.key("cuda"),
            "needs offload to name \"rsa\", so that there are threads beside the GPU",
        );
    }
    wanted.then_some(CudaSettings { wait, ..usual })
}

/// Says so if a card is asked for: this program knows none.
#[cfg(not(feature = "cuda"))]
pub(super) fn cuda(raw: &raw::Keys, _: &BatchSettings, context: &mut Context<'_>) {
    let (path, findings) = (KeyPath::of("keys"), &mut context.findings);
    findings.within(&path.key("cuda_wait"), raw.cuda_wait, *WAITS.start(), &WAITS);
    if raw.cuda == Some(true) {
        findings.wrong(&path.key("cuda"), format!("{WITHOUT_CUDA}, or write `false`"));
    }
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
        context.findings.within(&place, Some(*core), 0, &CORES);
        if let Some(first) = cores[..index].iter().position(|other| other == core) {
            context.findings.wrong(&place, format!("{} is {core} already", path.index(first)));
        }
    }
    cores.iter().map(|core| usize::from(*core)).collect()
}

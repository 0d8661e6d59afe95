//! `[keys] isolate`: certificates whose keys the key process reads, and not this one.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use brisk_certs::{CertError, Chain, Loaded};
use brisk_keys::{BatchSettings, Threads};

use super::sessions::warn_of_access;
use super::{Context, Development};
use crate::config::error::KeyPath;
use crate::config::raw;
use crate::engines::KeySettings;
use crate::gpu;
use crate::isolated;

/// Workers of the gateway for which one thread of the key process suffices: it signs, and they do everything else.
const WORKERS: usize = 8;

/// The keys that are to be in the key process; `None` where they are in this one.
#[derive(Debug, Default)]
pub(super) struct Isolated(Option<Vec<Wanted>>);

/// A key that a certificate has.
#[derive(Debug)]
struct Wanted {
    chain: PathBuf,
    key: PathBuf,
    subject: String,
    id: String,
    /// Where the configuration names the file.
    path: KeyPath,
}

impl Isolated {
    /// What this process is about to do: keys are in another one if it was started so. `brisk check` reads them itself.
    pub(super) fn new(development: Development) -> Self {
        Self((isolated::is_used() && development == Development::Create).then(Vec::new))
    }

    /// Whether keys are in another process.
    pub(super) fn is_used(&self) -> bool {
        self.0.is_some()
    }
}

/// The certificate in `chain`, whose key the key process will find in `key`. The error says which of the two is at fault.
pub(super) fn load(
    chain: &Path,
    key: &Path,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Result<Loaded, (&'static str, String)> {
    let chain = Chain::read(chain).map_err(|error| ("chain", error.to_string()))?;
    let (workers, queue) = context.key_process;
    let id = context.keystore.add_elsewhere(chain.public_key(), isolated::engine(workers, queue));
    warn_of_access(key, context);
    let subject = chain.subject().to_owned();
    let loaded = Loaded::of_chain(chain, SystemTime::now());
    let chain = loaded.certificate.source.clone();
    let wanted = Wanted { chain, key: key.to_owned(), subject, id: id.to_string(), path: path.key("key") };
    if let Some(all) = &mut context.isolated.0 {
        all.push(wanted);
    }
    Ok(loaded)
}

/// Warns of the keys of hosts that are in the gateway all the same.
pub(super) fn warn_of_exceptions(raw: &raw::Config, context: &mut Context<'_>) {
    if raw.keys.isolate != Some(true) {
        return;
    }
    for host in &raw.host {
        let has_fallback = host.certificates.iter().any(|files| files.fallback_key.is_some());
        let obtained = host.acme.is_on() || host.on_demand.is_some();
        let exceptions = [(has_fallback, "fallback_key is"), (obtained, "keys of certificates by ACME are")];
        for (_, what) in exceptions.into_iter().filter(|(is_there, _)| *is_there) {
            let name = host.names.first().map_or("", String::as_str);
            let message = format!("keys.isolate: {what} in the gateway itself for the host \"{name}\"");
            context.findings.warn(message);
        }
    }
}

/// Has the key process read the keys, and reports what it did not find.
pub(super) fn read(raw: &raw::Keys, development: Development, context: &mut Context<'_>) {
    if let Some(trouble) = raw.isolate_user.as_deref().and_then(isolated::trouble_with_user) {
        context.findings.wrong(&KeyPath::of("keys").key("isolate_user"), trouble);
    }
    if raw.isolate == Some(true) && !isolated::is_used() && development == Development::Create {
        let message = "was not there when brisk was started, so keys would be in the gateway: start it again";
        context.findings.wrong(&KeyPath::of("keys").key("isolate"), message);
    }
    if raw.isolate_user.is_some() && raw.isolate != Some(true) {
        let path = KeyPath::of("keys").key("isolate_user");
        context.findings.wrong(&path, "has no effect: it is for isolate = true");
    }
    let Some(wanted) = context.isolated.0.take() else { return };
    let mut files: Vec<_> = wanted.iter().map(|wanted| wanted.key.clone()).collect();
    files.sort();
    files.dedup();
    let found = match isolated::load(&files) {
        Ok(found) => found,
        Err(message) => return context.findings.wrong(&KeyPath::of("keys").key("isolate"), message),
    };
    for Wanted { chain, key, subject, id, path } in wanted {
        let place = files.binary_search(&key);
        match place.ok().and_then(|place| found.get(place)) {
            Some(Ok(found)) if *found == id => {}
            Some(Ok(_)) => {
                let error = CertError::KeyMismatch { chain, key, subject };
                context.findings.wrong(&path, error.to_string());
            }
            Some(Err(message)) => context.findings.wrong(&path, message.clone()),
            None => context.findings.wrong(&path, "the key process did not read it"),
        }
    }
}

/// The settings of the key process, and those that remain for the gateway, which has no keys.
pub(super) fn settings(
    raw: &raw::Keys,
    keys: KeySettings,
    (cores, workers): (NonZeroUsize, NonZeroUsize),
) -> KeySettings {
    if raw.isolate != Some(true) {
        return keys;
    }
    let BatchSettings { threads, cores: kept_on, queue, offload, simd } = keys.processor;
    let isolation = isolated::Settings {
        threads: match threads {
            Threads::Exactly(number) => Some(number.get()),
            Threads::Beside { .. } => None,
        },
        machine: (cores.get(), workers.get()),
        cores: kept_on,
        queue: queue.get(),
        offload: [offload.rsa, offload.ecdsa, offload.ed25519],
        simd,
        cuda: raw.cuda.unwrap_or(false),
        cuda_wait_us: raw.cuda_wait.map(|wait| wait.0.as_micros() as u64),
        workers: self::workers(workers).get(),
    };
    let processor = BatchSettings { queue, offload, simd, ..BatchSettings::default() };
    KeySettings { processor, gpu: gpu::Settings::default(), isolation: Some(isolation), ..keys }
}

/// Threads of the key process that serve the connections of a gateway with this number of workers.
pub(super) fn workers(workers: NonZeroUsize) -> NonZeroUsize {
    NonZeroUsize::new(workers.get().div_ceil(WORKERS)).unwrap_or(NonZeroUsize::MIN)
}

//! `[keys] isolate`: certificates whose keys only the key process reads.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::SystemTime;

use brisk_certs::{CertError, Chain, Loaded};
use brisk_config_file::KeyPath;
use brisk_isolation::{Isolation, LoadedKeys};
use brisk_keys::BatchSettings;
use brisk_sandbox::trouble_with_user;

use super::context::{Context, Development, Wanted};
use crate::key_settings::{IsolationSettings, KeySettings};
use crate::raw;

/// Workers of the gateway for which one thread of the key process suffices: it signs, and they do everything else.
const WORKERS: usize = 8;

/// Loads the certificate in `chain`; `process` reads its key from `key`. The error names the file at fault.
pub(super) fn load(
    process: &Isolation,
    (chain, key): (&Path, &Path),
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Result<Loaded, (&'static str, String)> {
    let chain = Chain::read(chain).map_err(|error| ("chain", error.to_string()))?;
    let (workers, queue) = context.key_process;
    // The public key of the chain is the identity: which file has the private key is seen by the key process
    // alone.
    let id = context.keystore.add_elsewhere(chain.public_key(), process.engine(workers, queue));
    context.shared.warn_of_access(key);
    let subject = chain.subject().to_owned();
    let loaded = Loaded::of_chain(chain, SystemTime::now());
    let chain = loaded.certificate.source.clone();
    let wanted = Wanted { chain, key: key.to_owned(), subject, id: id.to_string(), path: path.key("key") };
    if let Some((_, all)) = &mut context.isolated.0 {
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
        let has_fallback = host.own.certificates.iter().any(|files| files.fallback_key.is_some());
        let obtained = host.own.acme.is_on() || host.own.on_demand.is_some();
        let exceptions = [(has_fallback, "fallback_key is"), (obtained, "keys of certificates by ACME are")];
        for (_, what) in exceptions.into_iter().filter(|(is_there, _)| *is_there) {
            let name = host.names().first().map_or("", String::as_str);
            let message = format!("keys.isolate: {what} in the gateway itself for the host \"{name}\"");
            context.shared.findings.warn(message);
        }
    }
}

/// Makes the key process load the keys and reports missing ones. `None` without a key process.
pub(super) fn read(
    config: &raw::Config,
    development: Development,
    context: &mut Context<'_>,
) -> Option<LoadedKeys> {
    let raw = &config.keys;
    if let Some(trouble) = raw.isolate_user.as_deref().and_then(trouble_with_user) {
        context.shared.findings.wrong(&KeyPath::of("keys").key("isolate_user"), trouble);
    }
    // The key process is started with the gateway, before it has a key or a second thread. A reload is too
    // late.
    if raw.isolate == Some(true) && context.running.isolation.is_none() && development == Development::Create
    {
        let message = "was not there when brisk was started, so keys would be in the gateway: start it again";
        context.shared.findings.wrong(&KeyPath::of("keys").key("isolate"), message);
    }
    if raw.isolate_user.is_some() && raw.isolate != Some(true) {
        let path = KeyPath::of("keys").key("isolate_user");
        context.shared.findings.wrong(&path, "has no effect: it is for isolate = true");
    }
    let (process, wanted) = context.isolated.0.take()?;
    // Certificates may share a key file. Sorted, for the search below, and once each: the key process reads
    // each file once.
    let mut files: Vec<_> = wanted.iter().map(|wanted| wanted.key.clone()).collect();
    files.sort();
    files.dedup();
    let wrong = |message| context.shared.findings.wrong(&KeyPath::of("keys").key("isolate"), message);
    let loaded = process.load(&files).map_err(wrong).ok()?;
    for Wanted { chain, key, subject, id, path } in wanted {
        let place = files.binary_search(&key);
        let holder = key.display().to_string();
        let message = match place.ok().and_then(|place| loaded.found().get(place)) {
            // The key process returns the identity of the public half, so a wrong file is found without its
            // private key.
            Some(Ok(found)) if *found == id => continue,
            Some(Ok(_)) => CertError::KeyMismatch { chain, key, subject }.to_string(),
            Some(Err(message)) => message.clone(),
            None => "the key process did not read it".to_owned(),
        };
        context.refuse_key(&path, config, holder, &message);
        context.shared.findings.wrong(&path, message);
    }
    Some(loaded)
}

/// Moves the engines of `keys` to the key process, if `isolate` is set. The gateway then keeps the queue and the choice of
/// offloaded operations only.
pub(super) fn settings(raw: &raw::Keys, keys: KeySettings, workers: NonZeroUsize) -> KeySettings {
    if raw.isolate != Some(true) {
        return keys;
    }
    let BatchSettings { queue, offload, simd, .. } = keys.processor;
    let processor = BatchSettings { queue, offload, simd, ..BatchSettings::default() };
    let isolation =
        IsolationSettings { processor: keys.processor, gpu: keys.gpu, workers: self::workers(workers) };
    KeySettings { processor, gpu: None, isolation: Some(isolation), ..keys }
}

/// Threads of the key process that serve the connections of a gateway with this number of workers.
pub(super) fn workers(workers: NonZeroUsize) -> NonZeroUsize {
    NonZeroUsize::new(workers.get().div_ceil(WORKERS)).unwrap_or(NonZeroUsize::MIN)
}

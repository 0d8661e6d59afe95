//! `[keyserver.NAME]`: key servers with keys of hosts.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brisk_certs::certificate::Loaded;
use brisk_certs::{Certificate, Chain, load};
use brisk_config_file::{KeyPath, Period};
use brisk_keyless::{Fallback, RemoteEngine, RemoteSettings};
use brisk_keys::{Keystore, LocalEngine, PrivateKeyEngine};
use brisk_tls::connector::{ConnectorSettings, Identity};

use super::clients::authorities;
use super::context::Context;
use super::files::blamed;
use super::names::host_name;
use super::upstreams::identity;
use crate::raw;
use crate::values::KeyPlace;

const DEADLINES: RangeInclusive<Period> = Period(Duration::from_millis(10))..=Period(Duration::from_secs(4));
const HEDGES: RangeInclusive<Period> = Period(Duration::from_millis(1))..=Period(Duration::from_secs(4));

/// Error for a key whose signatures exceed a frame of the protocol of key servers.
pub(super) const ML_DSA: &str = "an ML-DSA key can be neither on key servers nor in the process of keys.isolate: its signatures \
                                 are too long for their protocol";

/// The engines of the sets of key servers, by name. None is connected yet.
pub(super) type Engines = BTreeMap<String, Arc<RemoteEngine>>;

/// Resolves every set of the file.
pub(super) fn engines(raw: &raw::Config, context: &mut Context<'_>) -> Engines {
    let all = KeyPath::of("keyserver");
    let engine = |(name, raw): (&String, &raw::KeyServers)| {
        let settings = settings(name, raw, &all.key(name), context);
        (name.clone(), context.running.key_servers.engine(settings))
    };
    raw.keyserver.iter().map(engine).collect()
}

fn settings(name: &str, raw: &raw::KeyServers, path: &KeyPath, context: &mut Context<'_>) -> RemoteSettings {
    let servers = path.key("servers");
    if raw.servers.is_empty() && !context.shared.findings.written(&servers.index(0)) {
        context.shared.findings.wrong(&servers, "no server: write at least one, as \"10.0.0.5:8444\"");
    }
    if raw.servers.len() > 64 {
        context.shared.findings.wrong(&servers, "more than 64 servers");
    }
    let tls = ConnectorSettings {
        authorities: ca(raw, path, context),
        identity: client(raw, path, context),
        ..ConnectorSettings::default()
    };
    // The settings name files, and engines are reused by equal settings. The stamp makes them different after
    // a change of the content.
    let stamp = stamp(&tls);
    let mut settings = RemoteSettings::new(name, raw.targets(), tls);
    settings.stamp = stamp;
    settings.server_name = server_name(raw, &path.key("server_name"), context);
    let findings = &mut context.shared.findings;
    let connections = findings.within(&path.key("connections"), raw.connections, 1, &(1..=64));
    settings.connections = NonZeroUsize::new(connections.into()).unwrap_or(NonZeroUsize::MIN);
    let usual = Period(settings.deadline);
    settings.deadline = findings.within(&path.key("deadline"), raw.deadline, usual, &DEADLINES).0;
    let usual = Period(settings.deadline / 4);
    settings.hedge = findings.within(&path.key("hedge"), raw.hedge, usual, &HEDGES).0;
    if settings.hedge > settings.deadline {
        let message = format!("is longer than the deadline of {}", Period(settings.deadline));
        findings.wrong(&path.key("hedge"), message);
    }
    let usual = u32::try_from(settings.queue.get()).unwrap_or(u32::MAX);
    let queue = findings.within(&path.key("queue"), raw.queue, usual, &(1..=1_000_000));
    settings.queue = NonZeroUsize::new(queue as usize).unwrap_or(settings.queue);
    settings
}

fn ca(raw: &raw::KeyServers, path: &KeyPath, context: &mut Context<'_>) -> Option<PathBuf> {
    let Some(ca) = &raw.ca else {
        if !context.shared.findings.written(&path.key("ca")) {
            let message = "needs `ca`, the file with the authority of the key servers' certificates";
            context.shared.findings.incomplete(path, message);
        }
        return None;
    };
    let ca = context.file(ca);
    if let Err(error) = authorities(&ca) {
        context.shared.findings.wrong(&path.key("ca"), error);
    }
    Some(ca)
}

fn client(raw: &raw::KeyServers, path: &KeyPath, context: &mut Context<'_>) -> Option<Identity> {
    let certificate = path.key("certificate");
    let Some(files) = &raw.certificate else {
        if !context.shared.findings.written(&certificate) {
            let message = "needs `certificate`, the client certificate for the key servers, as certificate = \
                           { chain = \"FILE\", key = \"FILE\" }";
            context.shared.findings.incomplete(path, message);
        }
        return None;
    };
    identity(files, &certificate, context)
}

fn server_name(raw: &raw::KeyServers, path: &KeyPath, context: &mut Context<'_>) -> Option<String> {
    let name = raw.server_name.as_ref()?;
    match host_name(name) {
        Ok(name) if !name.starts_with("*.") => return Some(name),
        Ok(_) => context.shared.findings.wrong(path, "a wildcard cannot be verified: write one name"),
        Err(message) => context.shared.findings.wrong(path, message),
    }
    None
}

/// Distinguishes files with the same names and other contents, so that new certificates are used.
fn stamp(tls: &ConnectorSettings) -> Vec<u8> {
    let identity = tls.identity.iter().flat_map(|identity| [&identity.chain, &identity.key]);
    let mut hasher = DefaultHasher::new();
    for file in identity.chain(&tls.authorities) {
        // No error here: the files were read by the checks above, which have reported it.
        hasher.write(&brisk_secrets::read(file).unwrap_or_default());
    }
    hasher.finish().to_be_bytes().to_vec()
}

/// The certificate of a host whose key the set `name` has; the key is noted in the keystore.
pub(super) fn certificate(
    files: &raw::Certificate,
    name: &str,
    engines: &Engines,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Arc<Certificate>> {
    let Some(engine) = engines.get(name) else {
        let known = engines.keys().cloned().collect();
        context.shared.findings.unknown(&path.key("key"), name, known);
        return None;
    };
    let chain = context.file(&files.chain);
    let chain = Chain::read(&chain)
        .map_err(|error| context.shared.findings.wrong(&path.key("chain"), error.to_string()));
    let chain = chain.ok()?;
    // Here and not at the server: the operations would fail at each handshake, since a frame of the protocol
    // cannot hold the signature.
    if !chain.algorithm().signs_tls12() {
        context.shared.findings.wrong(&path.key("key"), ML_DSA);
        return None;
    }
    let engine: Arc<dyn PrivateKeyEngine> = match &files.fallback_key {
        None => Arc::clone(engine) as _,
        Some(_) => Arc::new(Fallback::new(Arc::clone(engine), local(files, path, context)?)),
    };
    context.keystore.add_elsewhere(chain.public_key(), engine);
    let loaded = Loaded::of_chain(chain, SystemTime::now());
    loaded.warnings.iter().for_each(|warning| context.shared.findings.warn(warning.to_string()));
    Some(Arc::new(loaded.certificate))
}

/// An engine with the key in `fallback_key`.
fn local(
    files: &raw::Certificate,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<Arc<dyn PrivateKeyEngine>> {
    let (chain, key) = (context.file(&files.chain), context.file(files.fallback_key.as_ref()?));
    // A store of its own: the common one has this key at the key servers, under the same identity.
    let mut keystore = Keystore::new();
    if let Err(error) = load(&chain, &key, &mut keystore, SystemTime::now()) {
        let at = if blamed(&error, &key) == "key" { "fallback_key" } else { "chain" };
        context.shared.findings.wrong(&path.key(at), error.to_string());
        return None;
    }
    context.shared.warn_of_access(&key);
    Some(Arc::new(LocalEngine::new(Arc::new(keystore))))
}

/// The sets that certificates name. Warns of the others, which are not connected.
pub(super) fn used(
    raw: &raw::Config,
    mut engines: Engines,
    context: &mut Context<'_>,
) -> Vec<Arc<RemoteEngine>> {
    let certificates = raw.host.iter().flat_map(|host| &host.own.certificates);
    let named: Vec<_> = certificates.filter_map(|files| named(files)).collect();
    for name in raw.keyserver.keys().filter(|name| !named.contains(&name.as_str())) {
        context
            .shared
            .findings
            .warn(format!("[keyserver.{name}]: no certificate has key = \"keyserver:{name}\""));
        engines.remove(name);
    }
    engines.into_values().collect()
}

/// The set that has the key of this certificate, if one has.
fn named(files: &raw::Certificate) -> Option<&str> {
    match &files.key {
        KeyPlace::KeyServer(name) => Some(name),
        KeyPlace::File(_) | KeyPlace::Token(_) => None,
    }
}

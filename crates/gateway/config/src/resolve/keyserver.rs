//! The file of a key server.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use brisk_config_file::{Document, Findings, KeyPath, Located, Period};
use brisk_keyless::{ALPN, Shape};
use brisk_keys::{KeyId, Keystore};
use brisk_keyserver::KeyServerSettings;
use brisk_keyserver::policy::{Keys, Policy};
use brisk_net::ListenerSettings;
use brisk_pressure::Mode;
use brisk_server::ServerSettings;
use brisk_tls::connector::Identity;
use brisk_tls::mutual::MutualSettings;

use super::clients::authorities;
use super::context::Context;
use super::sandbox::{self, SandboxSettings};
use super::upstreams::identity;
use super::{keys, tokens};
use crate::key_settings::KeySettings;
use crate::process::Running;
use crate::raw::{self, Operation};
use crate::values::KeyPlace;
use brisk_answer::features::TIMEOUTS;

/// Settings of a key server, with their warnings.
#[derive(Debug)]
pub struct ResolvedKeyServer {
    /// Settings of the key server.
    pub settings: KeyServerSettings,
    /// Settings of key operations.
    pub keys: KeySettings,
    /// Rights that the process keeps.
    pub sandbox: SandboxSettings,
    /// Warnings: the configuration is served as written all the same.
    pub warnings: Vec<String>,
}

impl AsRef<ServerSettings> for ResolvedKeyServer {
    fn as_ref(&self) -> &ServerSettings {
        &self.settings.server
    }
}

/// The keys of the folder by their file names.
type Named = BTreeMap<String, KeyId>;

/// Resolves `raw`, which was deserialized from `document` without the values in `unread`.
pub(crate) fn resolve(
    raw: &raw::ServerConfig,
    document: &Document<'_>,
    unread: Vec<Located>,
    base: &Path,
    running: &Running,
) -> Result<ResolvedKeyServer, Vec<Located>> {
    let findings = Findings::new(document, unread);
    let mut context = Context::new(findings, base, running);
    let path = KeyPath::of("server");
    let listen = listen(raw, &path, &mut context);
    let tls = tls(&raw.server, &path, &mut context);
    let (server, keys) = server(raw, &path, &mut context);
    context.files.tokens = keys::tokens(&raw.keys, keys.tokens, base);
    let mut named = folder(&raw.server, &path, &mut context);
    in_tokens(&raw.server, &path, &mut named, &mut context);
    sandbox::review_tokens(!raw.server.certificates.is_empty(), &mut context);
    let policy = policy(&raw.client, &named, &mut context);
    let usual = 1024;
    let operations = context.shared.findings.within(
        &path.key("operations"),
        raw.server.operations,
        usual,
        &(1..=u16::MAX),
    );
    let Context { shared, keystore, mut files, .. } = context;
    files.others.extend(shared.files);
    let warnings = shared.findings.conclude()?;
    // At the end, when all files have been read, which are the ones to watch.
    let server = ServerSettings { files: files.all(), ..server };
    let sandbox = sandbox::of_key_server(raw, (base, &server.files), &keys);
    let keystore = Arc::new(keystore);
    let settings = KeyServerSettings { server, listen, tls, keystore, policy: Arc::new(policy), operations };
    Ok(ResolvedKeyServer { settings, keys, sandbox, warnings })
}

fn listen(raw: &raw::ServerConfig, path: &KeyPath, context: &mut Context<'_>) -> Vec<ListenerSettings> {
    let path = path.key("listen");
    if raw.server.listen.is_empty() && !context.shared.findings.written(&path.index(0)) {
        context
            .shared
            .findings
            .wrong(&path, "nothing listens: write listen = [\"0.0.0.0:8444\"] in [server]");
    }
    let mut taken: Vec<SocketAddr> = Vec::new();
    for (index, address) in raw.server.listen.iter().enumerate().filter(|(_, at)| at.0.port() != 0) {
        if taken.contains(&address.0) {
            context.shared.findings.wrong(&path.index(index), format!("{address} is listed already"));
        }
        taken.push(address.0);
    }
    raw.server.listen.iter().map(|address| ListenerSettings::new(address.0)).collect()
}

/// Resolves certificate and authorities. Missing ones are reported, and the result is not used then.
fn tls(raw: &raw::ServerSection, path: &KeyPath, context: &mut Context<'_>) -> MutualSettings {
    let certificate = path.key("certificate");
    if raw.certificate.is_none() {
        missing(&certificate, "certificate = { chain = \"server.pem\", key = \"server.key\" }", context);
    }
    let identity = raw.certificate.as_ref().and_then(|files| identity(files, &certificate, context));
    let identity = identity.unwrap_or(Identity { chain: PathBuf::new(), key: PathBuf::new() });
    let client_ca = path.key("client_ca");
    let clients = if let Some(ca) = &raw.client_ca {
        let ca = context.file(ca);
        if let Err(error) = authorities(&ca) {
            context.shared.findings.wrong(&client_ca, error);
        }
        ca
    } else {
        missing(&client_ca, "client_ca = \"ca.pem\", the authority of the gateways' certificates", context);
        PathBuf::new()
    };
    MutualSettings { identity, clients, protocol: ALPN }
}

fn missing(path: &KeyPath, example: &str, context: &mut Context<'_>) {
    if !context.shared.findings.written(path) {
        context.shared.findings.wrong(path, format!("is missing: write {example}"));
    }
}

/// Reads every key of the folder.
fn folder(raw: &raw::ServerSection, path: &KeyPath, context: &mut Context<'_>) -> Named {
    let path = path.key("key_folder");
    let Some(folder) = &raw.key_folder else {
        if !raw.certificates.is_empty() {
            return Named::new();
        }
        missing(
            &path,
            "key_folder = \"keys\", a folder with private keys, each a file *.key or *.pem",
            context,
        );
        return Named::new();
    };
    // Watched as a folder too: a new key is served without a change of another file.
    let folder = context.file(folder);
    let entries = fs::read_dir(&folder).and_then(|entries| {
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()
    });
    let mut files = match entries {
        Ok(files) => files,
        Err(error) => {
            context
                .shared
                .findings
                .wrong(&path, format!("cannot read the folder {}: {error}", folder.display()));
            return Named::new();
        }
    };
    // `read_dir` has no order, and errors should have one.
    files.sort();
    let mut named = Named::new();
    for file in files.iter().filter(|file| is_key_file(file)) {
        context.files.others.insert(file.clone());
        match read_key(file, &mut context.keystore) {
            Ok(key) => {
                context.shared.warn_of_access(file);
                named.insert(name_of(file), key);
            }
            Err(reason) => context.shared.findings.wrong(&path, format!("{}: {reason}", file.display())),
        }
    }
    if named.is_empty() {
        let folder = folder.display();
        context
            .shared
            .findings
            .warn(format!("{folder}: no key in it yet: put in PEM files named *.key or *.pem"));
    }
    named
}

/// Finds the keys of certificates in their tokens. They are named as the files of the chains are.
fn in_tokens(raw: &raw::ServerSection, path: &KeyPath, named: &mut Named, context: &mut Context<'_>) {
    let path = path.key("certificates");
    for (index, files) in raw.certificates.iter().enumerate() {
        let path = path.index(index);
        let KeyPlace::Token(uri) = &files.key else {
            let message = "is for keys in tokens (\"pkcs11:...\"): keys in files belong into key_folder";
            context.shared.findings.wrong(&path.key("key"), message);
            continue;
        };
        let chain = context.file(&files.chain);
        match tokens::attach(&chain, uri, context) {
            Ok((key, _)) => {
                // The name is the one in `client.NAME.keys`: two keys of one name would widen a permission
                // without a word.
                if named.insert(name_of(&chain), key).is_some_and(|other| other != key) {
                    let message = format!("another key is called \"{}\" already", name_of(&chain));
                    context.shared.findings.wrong(&path.key("chain"), message);
                }
            }
            Err((blamed, message)) => context.shared.findings.wrong(&path.key(blamed), message),
        }
    }
}

/// Files that editors and tools leave behind are no keys. A file that cannot be examined, such as a link to a missing one,
/// counts as a key, so that reading it reports the error.
fn is_key_file(path: &Path) -> bool {
    let is_hidden = name_of(path).starts_with('.');
    let is_named = path.extension().is_some_and(|extension| extension == "key" || extension == "pem");
    !is_hidden && is_named && fs::metadata(path).map_or(true, |facts| facts.is_file())
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn read_key(file: &Path, keystore: &mut Keystore) -> Result<KeyId, String> {
    let pem = brisk_secrets::read(file).map_err(|error| error.to_string())?;
    keystore.add_pem(&pem).map_err(|error| error.to_string())
}

fn policy(raw: &BTreeMap<String, raw::Client>, named: &Named, context: &mut Context<'_>) -> Policy {
    let path = KeyPath::of("client");
    if raw.is_empty() && !context.shared.findings.written(&path) {
        let message = "no client: write [client.NAME], with the common name of a gateway's certificate";
        context.shared.findings.wrong(&path, message);
    }
    let mut policy = Policy::new();
    for (name, client) in raw {
        let path = path.key(name);
        let keys = match &client.keys {
            None => Keys::All,
            Some(keys) => Keys::Some(chosen(keys, named, &path.key("keys"), context)),
        };
        let operations = match client.operations.as_deref() {
            // Signatures of servers only: signatures of clients, and decryption, which opens recorded
            // sessions, have to be written.
            None => vec![Shape::Tls13Server, Shape::Tls12Server],
            Some(operations) => operations.iter().copied().filter_map(shape).collect(),
        };
        policy.add(name, keys, operations, client.rate.map(|rate| rate.0));
        if client.operations.iter().flatten().any(|operation| *operation == Operation::Tls12RsaDecryption) {
            policy.allow_decryption(name);
        }
    }
    policy
}

/// The message that an operation signs; `None` for a decryption.
const fn shape(operation: Operation) -> Option<Shape> {
    match operation {
        Operation::Tls13 => Some(Shape::Tls13Server),
        Operation::Tls12 => Some(Shape::Tls12Server),
        Operation::Tls13Client => Some(Shape::Tls13Client),
        Operation::Tls12RsaDecryption => None,
    }
}

fn chosen(keys: &[String], named: &Named, path: &KeyPath, context: &mut Context<'_>) -> HashSet<KeyId> {
    let mut chosen = HashSet::new();
    for (index, name) in keys.iter().enumerate() {
        match named.get(name) {
            Some(key) => drop(chosen.insert(*key)),
            None => {
                context.shared.findings.unknown(&path.index(index), name, named.keys().cloned().collect());
            }
        }
    }
    chosen
}

fn server(
    raw: &raw::ServerConfig,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> (ServerSettings, KeySettings) {
    let cores = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let usual = cores.get().min(1024) as u16;
    let findings = &mut context.shared.findings;
    let workers = findings.within(&path.key("workers"), raw.server.workers, usual, &(1..=1024));
    let workers = NonZeroUsize::new(workers.into()).unwrap_or(NonZeroUsize::MIN);
    let most = raw.server.max_connections;
    let max_connections = findings.within(&path.key("max_connections"), most, 1024, &(1..=1_000_000));
    let drains = Period(Duration::ZERO)..=*TIMEOUTS.end();
    let drain = Period(Duration::from_secs(30));
    let drain = findings.within(&path.key("drain_timeout"), raw.server.drain_timeout, drain, &drains);
    if raw.keys.isolate.is_some() || raw.keys.isolate_user.is_some() {
        context
            .shared
            .findings
            .warn("[keys]: isolate and isolate_user are for gateways: they mean nothing here");
    }
    let keys = keys::keys(&raw.keys, cores, workers, context);
    let settings = ServerSettings {
        workers,
        max_connections: max_connections as usize,
        descriptors_per_connection: 1,
        admin: raw.admin.listen.map(|address| address.0),
        drain_timeout: drain.0,
        // Gateways notice the drain by themselves; no balancer is asked.
        drain_delay: Duration::ZERO,
        // Its queue refuses operations already, and gateways need to learn that at once.
        overload: Mode::Observe,
        files: Vec::new(),
    };
    (settings, keys)
}

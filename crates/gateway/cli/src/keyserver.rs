//! `brisk keyserver`: the server in the foreground, and the commands that create its folder and certificates.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;

use anyhow::{anyhow, bail};
use brisk_certs::{CertError, PrivateCa, Purpose};
use brisk_config::{ResolvedKeyServer, Running};
use brisk_keys::prepare_randomness;
use brisk_keyserver::{Environment, KeyServer, KeyServerSockets};
use brisk_server::{Parts, Process, ServerError, Sockets, WatchedFiles};
use brisk_telemetry::Metrics;

use crate::args::{self, Enrol, Init, KeyServerCommand, ServeKeys};
use crate::fixed_keys::FixedKeys;
use crate::sandbox::Sandbox;
use crate::serve::{PROGRAM, log_warnings};
use crate::source::refusal;
use crate::{engines, limits, log, memory};

/// Names in the server's certificate if `init` has no `--name`.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Runs the subcommand of `brisk keyserver`, or without one the server.
pub(crate) fn run(arguments: args::KeyServer) -> anyhow::Result<()> {
    match arguments.command {
        None => serve(&arguments.serve),
        Some(KeyServerCommand::Init(init)) => self::init(&init),
        Some(KeyServerCommand::Enrol(enrol)) => self::enrol(&enrol),
        Some(KeyServerCommand::Check(check)) => self::check(&check.file),
    }
}

/// Runs the [`KeyServer`] until a stop signal, and then until it has drained.
fn serve(arguments: &ServeKeys) -> anyhow::Result<()> {
    let Some(file) = &arguments.config else {
        bail!("no configuration: write --config FILE; `brisk keyserver init DIR` makes one");
    };
    memory::small_pages();
    prepare_randomness();
    let _log = log::start(&arguments.log)?;
    // Before the configuration is read, which loads the private keys.
    brisk_isolation::keep_memory_private();
    let sockets = Sockets::inherited();
    let running = Rc::new(Running::default());
    let ResolvedKeyServer { settings, keys, sandbox, warnings } = brisk_config::keyserver(file, &running)?;
    // Before the start, which takes a while: a change in that time is noticed too.
    let files = WatchedFiles::start(&settings.server.files);
    log_warnings(&warnings);
    limits::raise_open_files();
    // Before the engines, which take longer: gateways wait in the queues of the sockets
    // instead of being refused.
    let sockets = KeyServerSockets::bind(&settings, Process { program: PROGRAM, sockets, files })?;
    let metrics = Metrics::new();
    let engines =
        engines::start(&keys, &settings.keystore, &running, &metrics).map_err(ServerError::Threads)?;
    // After the engines, since the driver of a GPU may start a program first, and before everything that reads data of peers.
    let sandbox = Sandbox::start(&sandbox, &running);
    metrics.register(sandbox.limits());
    let count = settings.keystore.count_anywhere();
    let environment = Environment { engines, gathers: keys.processor.simd, metrics };
    let server = KeyServer::new(&settings, sockets, environment)?;
    // The keys of the start would otherwise stay in memory after a reload has removed them.
    drop(settings);
    print_start(&server, count).map_err(|error| anyhow!("cannot write to standard output: {error}"))?;
    let mut parts = Parts::new();
    // First: another part would report a missing right as its own error.
    parts.add(sandbox, |new: &ResolvedKeyServer| &new.sandbox);
    parts.add(FixedKeys::new(&keys), |new| &new.keys);
    parts.add(server.part(), |new| &new.settings);
    let read = || {
        let resolved = brisk_config::keyserver(file, &running);
        resolved.inspect(|new| log_warnings(&new.warnings)).map_err(|error| refusal(&error))
    };
    Ok(server.run(&parts, read)?)
}

/// Prints the addresses in a single write, so that a reader of a pipe gets either all lines or none.
fn print_start(server: &KeyServer, keys: usize) -> io::Result<()> {
    let mut out = format!("brisk {} serves\n", env!("CARGO_PKG_VERSION"));
    let mut line = |kind: &str, value: String| {
        // Writing to a `String` does not fail.
        let _ = writeln!(out, "  {kind:<6} {value}");
    };
    for address in server.addresses() {
        line("keys", format!("tls://{address}"));
    }
    if let Some(address) = server.admin_address() {
        line("admin", format!("http://{address}"));
    }
    line("hold", private_keys(keys));
    let mut stdout = io::stdout().lock();
    stdout.write_all(out.as_bytes())?;
    stdout.flush()
}

/// Number of private keys, for example `1 private key`.
fn private_keys(count: usize) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} private key{s}")
}

/// Creates the folder of a key server: CA, certificates of the server and of the first gateway, and configuration.
fn init(arguments: &Init) -> anyhow::Result<()> {
    let (folder, now) = (&*arguments.folder, SystemTime::now());
    let config = folder.join("keyserver.toml");
    // First: the CA of a folder that is in use must not be replaced.
    if config.exists() {
        return Err(CertError::Exists { path: config }.into());
    }
    let names = match &*arguments.name {
        [] => NAMES.map(str::to_owned).to_vec(),
        names => names.to_vec(),
    };
    let server = Purpose::Server(names.clone());
    // Checks all names before the first file is written: `init` refuses a folder with files, so a half-made one would be
    // stuck.
    PrivateCa::check(&folder.join("server"), &server)?;
    if let Some(other) = &arguments.ca {
        return join(arguments, &PrivateCa::open(other)?, &server, &names);
    }
    PrivateCa::check(&stem(folder, &arguments.gateway), &Purpose::Client(arguments.gateway.clone()))?;
    let ca = PrivateCa::create(folder, "brisk key server CA", now)?;
    ca.issue(&folder.join("server"), &server, now)?;
    let keys = folder.join("keys");
    // Only the owner may enter: keys are copied into the folder with any mode.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&keys)?;
    let client = gateway(&ca, folder, &arguments.gateway, now)?;
    // Last, since `init` recognizes a complete folder by this file.
    fs::write(&config, configuration(&arguments.gateway))?;
    let (folder, keys, config) = (folder.display(), keys.display(), config.display());
    let server = names.first().map_or("", String::as_str);
    println!(
        "{folder}: made a CA (its key, ca.key, is needed for `enrol` alone: keep it offline), a certificate for {}, \
         and one for the gateway {}\n\n1. Put the private keys of the hosts into {keys} (PEM, *.key or *.pem)\n\
         2. Start the server: brisk keyserver --config {config}\n\
         3. Copy ca.pem, {} and {} to the gateway, and write into its brisk.toml:\n\n{}",
        names.join(", "),
        arguments.gateway,
        client.chain.display(),
        client.key.display(),
        for_gateway(server, &arguments.gateway),
    );
    Ok(())
}

/// Creates the folder of a further key server, whose certificate is issued by the CA of another one.
fn join(arguments: &Init, ca: &PrivateCa, server: &Purpose, names: &[String]) -> anyhow::Result<()> {
    let folder = &*arguments.folder;
    // As `init`, refuses to write over a folder that is in use.
    let certificate = folder.join("ca.pem");
    if certificate.exists() {
        return Err(CertError::Exists { path: certificate }.into());
    }
    ca.issue(&folder.join("server"), server, SystemTime::now())?;
    let keys = folder.join("keys");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&keys)?;
    fs::copy(ca.certificate(), certificate)?;
    let config = folder.join("keyserver.toml");
    fs::write(&config, configuration(&arguments.gateway))?;
    let name = names.first().map_or("", String::as_str);
    println!(
        "{}: made a certificate for {}, issued by the CA of {}\n\n\
         1. Copy the private keys of the other key server into {}, and its [client.NAME] tables into {}\n\
         2. Copy the folder to the machine of this key server, and start it there: \
         brisk keyserver --config keyserver.toml\n\
         3. On each gateway, add \"{}:8444\" to `servers` of [keyserver.NAME]",
        folder.display(),
        names.join(", "),
        ca.certificate().parent().unwrap_or(Path::new("")).display(),
        keys.display(),
        config.display(),
        bracketed(name),
    );
    Ok(())
}

/// Issues a client certificate for another gateway.
fn enrol(arguments: &Enrol) -> anyhow::Result<()> {
    let ca = PrivateCa::open(&arguments.folder)?;
    let name = &arguments.name;
    let client = gateway(&ca, &arguments.folder, name, SystemTime::now())?;
    println!(
        "made {} and {}: copy them to the gateway, with ca.pem.\nThe key server lets it in with this in keyserver.toml:\n\n\
         [client.{}]\n",
        client.chain.display(),
        client.key.display(),
        quoted(name),
    );
    Ok(())
}

fn gateway(
    ca: &PrivateCa,
    folder: &Path,
    name: &str,
    now: SystemTime,
) -> Result<brisk_certs::Issued, CertError> {
    ca.issue(&stem(folder, name), &Purpose::Client(name.to_owned()), now)
}

/// Path of a gateway's certificate and key, without extension.
fn stem(folder: &Path, name: &str) -> PathBuf {
    folder.join("gateways").join(name)
}

/// Prints the warnings and the confirmation that the file is valid. Returns the errors of the file.
fn check(file: &Path) -> anyhow::Result<()> {
    let resolved = brisk_config::keyserver(file, &Running::default())?;
    for warning in &resolved.warnings {
        eprintln!("warning: {warning}");
    }
    println!("{}: ok, {}", file.display(), private_keys(resolved.settings.keystore.count_anywhere()));
    Ok(())
}

/// A TOML key for `name`, quoted if it contains a dot.
fn quoted(name: &str) -> String {
    if name.contains('.') { format!("\"{name}\"") } else { name.to_owned() }
}

fn configuration(gateway: &str) -> String {
    let gateway = quoted(gateway);
    format!(
        r#"# The key server; docs/keyless.md describes every key.
[server]
listen = ["0.0.0.0:8444"]
certificate = {{ chain = "server.pem", key = "server.key" }}
client_ca = "ca.pem"
key_folder = "keys"

[admin]
listen = "127.0.0.1:9444"

# What the gateway with this common name may do. Without more it may use all keys for TLS 1.3 and 1.2.
[client.{gateway}]
# keys = ["example.com.key"]
# operations = ["tls1.3", "tls1.2"]
# rate = "10000/s"
"#
    )
}

/// A host in an address: IPv6 in brackets.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn for_gateway(server: &str, gateway: &str) -> String {
    let server = bracketed(server);
    format!(
        r#"[keyserver.main]
servers = ["{server}:8444"]
ca = "ca.pem"
certificate = {{ chain = "{gateway}.pem", key = "{gateway}.key" }}

[[host]]
names = ["example.com"]
certificates = [{{ chain = "example.com.pem", key = "keyserver:main" }}]"#
    )
}

//! `[keys] isolate`: a gateway with its keys in a separate process, which is killed, reloaded, and ends with the gateway.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use brisk_behaviour::memory::Secrets;
use brisk_behaviour::openssl::ask;
use brisk_behaviour::site::{NAME, NAMES, setup};
use brisk_testkit::brisk::{Brisk, base, host};
use brisk_testkit::ca::{LeafKey, TestCa};
use brisk_testkit::client::TlsClient;
use brisk_testkit::process::wait_until;
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::keyless::{is_ready, wait_until_ready};

pub(crate) const ISOLATE: &str = "keys.isolate = true\n";

/// Timeout of an operation of the key process.
const DEADLINE: Duration = Duration::from_secs(4);

/// The running processes of an isolated gateway that end with the process `parent`.
fn key_processes(parent: u32, holds_keys: bool) -> Vec<u32> {
    let is_meant = |process: &u32| {
        // A process that has ended and whose parent has not read its status has an empty command line.
        let line = fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split('\0').collect();
        let has_parent = words.windows(2).any(|pair| *pair == ["--parent", &parent.to_string()]);
        words.contains(&"key-process") && has_parent && words.contains(&"--holds-keys") == holds_keys
    };
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_meant).collect()
}

/// The keepers of a gateway.
pub(crate) fn keepers(gateway: u32) -> Vec<u32> {
    key_processes(gateway, false)
}

/// The keeper of a gateway that has the key process.
pub(crate) fn keeper(gateway: u32) -> Option<u32> {
    keepers(gateway).into_iter().find(|keeper| !key_processes(*keeper, true).is_empty())
}

/// The process that holds the keys of a gateway.
pub(crate) fn holder(gateway: u32) -> Option<u32> {
    key_processes(keeper(gateway)?, true).first().copied()
}

pub(crate) fn kill(process: u32, signal: Signal) {
    let process = Pid::from_raw(process.try_into().expect("a process")).expect("a process");
    kill_process(process, signal).expect("a process");
}

/// What `/proc/PID/status` says under this name.
pub(crate) fn status(process: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("a line").trim().to_owned()
}

pub(crate) fn full(ca: &TestCa, gateway: &Brisk) -> std::io::Result<()> {
    let mut connection = TlsClient::new(&ca.root_file(), NAME).connect(gateway.https())?;
    assert_eq!(connection.get(NAME, "/").status(), 200);
    Ok(())
}

fn exists(process: u32) -> bool {
    // One that has ended and that nobody waited for is there, as a zombie.
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

#[test]
fn keys_are_in_a_process_that_nobody_looks_into_and_the_gateway_has_none() {
    let ca = TestCa::new();
    let (ecdsa, rsa) = (ca.server(&NAMES).issue(), ca.server(&NAMES).key(LeafKey::Rsa2048).issue());
    let gateway = setup().config(&(base(ISOLATE) + &host(&NAMES, &[&ecdsa, &rsa]))).start();
    wait_until_ready(&gateway);
    for (version, algorithms) in [
        ("-tls1_3", "ECDSA+SHA256"),
        ("-tls1_3", "RSA-PSS+SHA256"),
        ("-tls1_2", "ECDSA+SHA256"),
        ("-tls1_2", "RSA+SHA256"),
    ] {
        let output = ask(&ca, &gateway, &["-servername", NAME, version, "-sigalgs", algorithms]);
        assert!(output.stdout.contains("200"), "{version} {algorithms}: {}", output.text());
    }
    let metrics = gateway.metrics();
    let done = metrics.sum("brisk_key_operations_total", &["engine=\"keyserver\"", "outcome=\"ok\""]);
    assert_eq!(done as u64, 4, "{}", metrics.0);
    assert_eq!(metrics.sum("brisk_key_process_up", &[]) as u64, 1);
    assert_eq!(metrics.sum("brisk_key_process_starts_total", &[]) as u64, 1);
    wait_until("figures of the key process", || {
        let metrics = gateway.metrics();
        let rsa = metrics.sum("brisk_key_process_batch_operations_total", &[]) as u64;
        let keys = metrics.sum("brisk_key_process_keys", &[]) as u64;
        // Two of handshakes, and one that showed at the start that the process has the key.
        ((rsa, keys) == (3, 2)).then_some(())
    });
    let gateway_id = gateway.process().id();
    let holder = holder(gateway_id).expect("a key process");
    let secrets = Secrets::default().key("RSA", &rsa).key("P-256", &ecdsa);
    for process in [gateway_id, keeper(gateway_id).expect("a keeper")] {
        match secrets.found_in(process) {
            Some(found) => assert!(found.is_empty(), "keys outside of the key process:\n{found}"),
            None => assert!(!geteuid().is_root(), "root looks into every process"),
        }
    }
    if let Some(found) = secrets.found_in(holder) {
        assert!(found.has("RSA") && found.has("P-256"), "the search misses keys: {found}");
    } else {
        assert!(!geteuid().is_root(), "root looks into every process");
        eprintln!("not looked at: the memory of the key process, which is private to others than root");
    }
    assert_eq!((status(holder, "NoNewPrivs"), status(holder, "Seccomp")), ("1".to_owned(), "2".to_owned()));
    assert_eq!(status(holder, "Threads").parse::<u32>().map(|threads| threads > 1), Ok(true));
    // Dumpable is what decides whose the files in /proc are.
    let owner = fs::metadata(format!("/proc/{holder}/maps")).expect("a process").uid();
    assert_eq!(owner, 0, "it may be dumped");
    if geteuid().is_root() {
        // The user nobody, who may read files and nothing else; the files are root's.
        let user: u32 =
            status(holder, "Uid").split_whitespace().next().expect("a user").parse().expect("a number");
        assert_ne!(user, 0);
        assert_eq!(status(holder, "CapPrm"), "0000000000000004");
        // Where the system forbids that, it is said.
        let forbidden = gateway.process().stderr().contains("the memory of the key process is not locked");
        assert_eq!(status(holder, "VmLck").starts_with("0 "), forbidden);
    }
}

#[test]
fn handshakes_wait_for_a_key_process_that_was_killed() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let is_served = || {
        let gateway = setup().config(&(base(ISOLATE) + &host(&NAMES, &[&leaf]))).start();
        wait_until_ready(&gateway);
        serves_while_processes_are_killed(&ca, &gateway)
    };
    // On a busy machine, the start of a process may take longer than the deadline of the handshakes.
    assert!((0..8).any(|_| is_served()), "no handshake waits long enough for another key process");
}

/// Handshakes while the key process and its keeper are killed. `false` if one failed after [`DEADLINE`]; fails the test if one
/// did before.
fn serves_while_processes_are_killed(ca: &TestCa, gateway: &Brisk) -> bool {
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let more = |number: usize| {
        let before = done.load(Ordering::Relaxed);
        wait_until("more handshakes", || {
            let enough = done.load(Ordering::Relaxed) >= before + number;
            (enough || stop.load(Ordering::Relaxed)).then_some(())
        });
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let started = Instant::now();
                        let Err(error) = full(ca, gateway) else {
                            done.fetch_add(1, Ordering::Relaxed);
                            continue;
                        };
                        stop.store(true, Ordering::Relaxed);
                        assert!(started.elapsed() >= DEADLINE, "a handshake does not wait: {error}");
                        return false;
                    }
                    true
                })
            })
            .collect();
        more(10);
        // One keeper after the other: each time, the one that waits has the key process then, and starts another.
        for killed in [holder, keeper, keeper, holder] {
            wait_until("two keepers", || (keepers(gateway.process().id()).len() == 2).then_some(()));
            let before = killed(gateway.process().id()).expect("a process");
            kill(before, Signal::KILL);
            wait_until("another process", || {
                killed(gateway.process().id())
                    .filter(|now| *now != before && holder(gateway.process().id()).is_some())
            });
            more(10);
        }
        stop.store(true, Ordering::Relaxed);
        let join = |client: thread::ScopedJoinHandle<'_, bool>| client.join().expect("each handshake waits");
        // Each is waited for, also after one that was late.
        let joined: Vec<_> = clients.into_iter().map(join).collect();
        if joined.contains(&false) {
            return false;
        }
        gateway.log_with("the key process was started again");
        let starts = gateway.metrics().sum("brisk_key_process_starts_total", &[]);
        assert!(starts > 2.5, "{starts}");
        true
    })
}

#[test]
fn a_key_process_that_stands_still_is_reported_and_resumed_sessions_go_on() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let gateway = setup().config(&(base(ISOLATE) + &host(&NAMES, &[&leaf]))).start();
    wait_until_ready(&gateway);
    let client = TlsClient::new(&ca.root_file(), NAME);
    client.connect(gateway.https()).expect("a handshake").get(NAME, "/");
    let holder = holder(gateway.process().id()).expect("a key process");
    kill(holder, Signal::STOP);
    wait_until("a gateway that is not ready", || (!is_ready(&gateway)).then_some(()));
    let page = gateway.ask_admin("/readyz").text();
    assert!(page.contains("the key process"), "{page}");
    assert_eq!(gateway.metrics().sum("brisk_key_process_up", &[]) as u64, 0);
    client.connect(gateway.https()).expect("a resumed handshake").get(NAME, "/");
    kill(holder, Signal::CONT);
    wait_until_ready(&gateway);
    full(&ca, &gateway).expect("a handshake");
}

#[test]
fn a_new_certificate_and_its_key_are_served_and_a_wrong_key_is_refused() {
    let ca = TestCa::new();
    let (first, second) = (ca.server(&NAMES).issue(), ca.server(&NAMES).key(LeafKey::EcdsaP384).issue());
    let config = base(ISOLATE)
        + &format!(
            "[[host]]\nnames = {NAMES:?}\ncertificates = [{{ chain = \"a.pem\", key = \"a.key\" }}]\n"
        );
    let setup = setup().config(&config).file("a.pem", &first.chain_pem).file("a.key", &first.key_pem);
    fs::set_permissions(setup.folder().join("a.key"), fs::Permissions::from_mode(0o600)).expect("a mode");
    let gateway = setup.start();
    wait_until_ready(&gateway);
    full(&ca, &gateway).expect("a handshake");
    // The key alone: noticed by the process that reads it, and not that of the certificate.
    gateway.write("a.key", &second.key_pem);
    let log = gateway.log_with("not reloaded");
    assert!(log.contains("a.key") && log.contains("certificates[0].key"), "{log}");
    full(&ca, &gateway).expect("a handshake with the key of before");
    gateway.write("a.pem", &second.chain_pem);
    gateway.log_with("new handshakes are shown a new certificate");
    full(&ca, &gateway).expect("a handshake");
    let schemes = gateway.metrics().sum("brisk_handshakes_total", &["scheme=\"ecdsa_secp384r1_sha384\""]);
    assert_eq!(schemes as u64, 1);
    // The new key is there after a restart of the process too.
    let before = holder(gateway.process().id()).expect("a key process");
    kill(before, Signal::KILL);
    wait_until("another process", || holder(gateway.process().id()).filter(|now| *now != before));
    full(&ca, &gateway).expect("a handshake");
    gateway.write("a.key", "no key");
    let log = gateway.log_with("no private key");
    assert!(log.contains("a.key"), "{log}");
    full(&ca, &gateway).expect("a handshake");
}

#[test]
fn what_is_wrong_with_keys_is_said_at_the_start_by_line() {
    let ca = TestCa::new();
    let (own, other) = (ca.server(&NAMES).issue(), ca.server(&NAMES).issue());
    let with = |chain: &Path, key: &Path, keys: &str| {
        let config = base(keys)
            + &format!(
                "[[host]]\nnames = {NAMES:?}\ncertificates = [{{ chain = {chain:?}, key = {key:?} }}]\n"
            );
        setup().config(&config).fail()
    };
    let failed = with(&own.chain, &other.key, ISOLATE);
    assert_eq!(failed.status.code(), Some(2), "{}", failed.text());
    assert!(failed.stderr.contains("host[0].certificates[0].key"), "{}", failed.text());
    let failed = with(&own.chain, Path::new("/nowhere.key"), ISOLATE);
    assert!(failed.stderr.contains("cannot read /nowhere.key: No such file"), "{}", failed.text());
    let failed = with(&own.chain, &own.key, "keys.isolate_user = \"nobody\"\n");
    assert!(failed.stderr.contains("has no effect: it is for isolate = true"), "{}", failed.text());
    let nobody = "keys.isolate = true\nkeys.isolate_user = \"who-is-this\"\n";
    let failed = with(&own.chain, &own.key, nobody);
    assert!(failed.stderr.contains("there is no user \"who-is-this\""), "{}", failed.text());
    assert!(failed.stderr.contains("the key process cannot be started"), "{}", failed.text());
}

#[test]
fn the_key_process_lives_as_long_as_the_drain_and_no_longer_than_the_gateway() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let start = || {
        let gateway = setup().config(&(base(ISOLATE) + &host(&NAMES, &[&leaf]))).start();
        wait_until_ready(&gateway);
        let id = gateway.process().id();
        let own = [keepers(id), vec![holder(id).expect("a key process")]].concat();
        assert_eq!(own.len(), 3, "two keepers and the key process");
        (gateway, own)
    };
    let (mut gateway, own) = start();
    // What a service manager sends to all processes of a service.
    for signal in [Signal::TERM, Signal::INT] {
        for process in &own {
            kill(*process, signal);
        }
    }
    full(&ca, &gateway).expect("a handshake");
    gateway.terminate();
    assert!(gateway.wait().success());
    wait_until("no orphans after the drain", || own.iter().all(|process| !exists(*process)).then_some(()));

    let (gateway, own) = start();
    // Killed: it ends nothing itself.
    drop(gateway);
    wait_until("processes that are gone", || own.iter().all(|process| !exists(*process)).then_some(()));
}

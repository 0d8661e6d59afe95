//! `[keys] isolate` in error cases: keys missing at a restart of the key process, refused reloads, an unread standard error,
//! a configuration that can be read only once, inherited sockets.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread;

use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::{NAMES, setup};
use brisk_testkit::brisk::{Brisk, Setup, base, host};
use brisk_testkit::ca::{LeafKey, TestCa};
use brisk_testkit::process::{Finished, wait_until};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use crate::isolated::{ISOLATE, full, holder, keeper, kill, status};
use crate::keyless::{is_ready, wait_until_ready};

/// Kills the key process of `gateway` and waits for the next.
fn renew(gateway: &Brisk) {
    let before = holder(gateway.process().id()).expect("a key process");
    kill(before, Signal::KILL);
    wait_until("another process", || holder(gateway.process().id()).filter(|now| *now != before));
}

/// A named pipe.
fn make_pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
}

/// A configuration with a certificate in `a.pem` and `a.key`, which tests replace.
fn replaceable() -> String {
    base(ISOLATE)
        + &format!("[[host]]\nnames = {NAMES:?}\ncertificates = [{{ chain = \"a.pem\", key = \"a.key\" }}]\n")
}

#[test]
fn a_key_in_force_that_a_new_process_does_not_find_is_reported() {
    let ca = TestCa::new();
    let (first, second) = (ca.server(&NAMES).issue(), ca.server(&NAMES).key(LeafKey::EcdsaP384).issue());
    let gateway =
        setup().config(&replaceable()).file("a.pem", &first.chain_pem).file("a.key", &first.key_pem).start();
    wait_until_ready(&gateway);
    gateway.write("a.key", &second.key_pem);
    gateway.log_with("not reloaded");
    assert!(is_ready(&gateway), "the process has the key of before");
    renew(&gateway);
    let log = gateway.log_with("a key in force is missing in the key process");
    assert!(log.contains("a.key has another one now"), "{log}");
    wait_until("a reason on /readyz", || {
        gateway.ask_admin("/readyz").text().contains("lacks 1 of the keys in force").then_some(())
    });
    assert!(!is_ready(&gateway));
    // The key is back, and a reload finds it.
    gateway.write("a.key", &first.key_pem);
    wait_until_ready(&gateway);
    full(&ca, &gateway).expect("a handshake");
}

#[test]
fn keys_of_a_refused_configuration_are_given_up() {
    let ca = TestCa::new();
    let [first, second] = [(); 2].map(|()| ca.server(&NAMES).key(LeafKey::Rsa2048).issue());
    let gateway =
        setup().config(&replaceable()).file("a.pem", &first.chain_pem).file("a.key", &first.key_pem).start();
    wait_until_ready(&gateway);
    gateway.write("a.key", &second.key_pem);
    gateway.log_with("not reloaded");
    // Figures from after the refusal: they have a signature that was made after it.
    let signed = || {
        let metrics = gateway.metrics();
        let done = metrics.sum("brisk_key_process_batch_operations_total", &[]) as u64;
        (done, metrics.sum("brisk_key_process_keys", &[]) as u64)
    };
    full(&ca, &gateway).expect("a handshake");
    wait_until("one key after a handshake", || {
        let (done, keys) = signed();
        (done >= 1 && keys == 1).then_some(())
    });
}

#[test]
fn the_keeper_goes_on_where_nobody_reads_its_standard_error() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    // A shell that becomes brisk, with a standard error whose reader is gone.
    let script = format!("exec 3<>err && exec '{}' serve \"$@\" 2>err 3<&-", brisk_program().display());
    let gateway = Setup::new(Path::new("/bin/sh"))
        .file("serve", script)
        .config(&(base(ISOLATE) + &host(&NAMES, &[&leaf])));
    make_pipe(&gateway.folder().join("err"));
    let gateway = gateway.start();
    wait_until_ready(&gateway);
    let kept_by = keeper(gateway.process().id()).expect("a keeper");
    for _ in 0..2 {
        renew(&gateway);
        full(&ca, &gateway).expect("a handshake");
    }
    assert_eq!(keeper(gateway.process().id()), Some(kept_by), "the keeper has ended");
}

#[test]
fn a_configuration_that_can_be_read_once_is_read_once() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    for keys in ["", ISOLATE] {
        let setup = setup().option("--config").option("pipe.toml");
        let pipe = setup.folder().join("pipe.toml");
        make_pipe(&pipe);
        let config = base(keys) + &host(&NAMES, &[&leaf]);
        let writer = thread::spawn(move || fs::write(pipe, config));
        let gateway = setup.start();
        writer.join().expect("a thread").expect("a reader");
        wait_until_ready(&gateway);
        full(&ca, &gateway).expect("a handshake");
        assert_eq!(keeper(gateway.process().id()).is_some(), !keys.is_empty());
    }
}

#[test]
fn the_key_process_has_no_sockets_of_a_supervisor_and_the_gateway_no_way_to_new_rights() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = socket.local_addr().expect("an address");
    let keys = format!("{ISOLATE}server.https = [\"{address}\"]\n");
    let gateway = setup().config(&(base(&keys) + &host(&NAMES, &[&leaf]))).inherit("", &socket).start();
    wait_until_ready(&gateway);
    full(&ca, &gateway).expect("a handshake");
    let inherited = fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).expect("a socket");
    let id = gateway.process().id();
    let open = |process: u32| -> Vec<PathBuf> {
        // Of processes that cannot be looked into, root alone sees this.
        let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).collect()
    };
    assert!(open(id).contains(&inherited) || !rustix::process::geteuid().is_root());
    for process in [keeper(id).expect("a keeper"), holder(id).expect("a key process")] {
        assert!(!open(process).contains(&inherited), "{process} has the socket of the supervisor");
    }
    if !rustix::process::geteuid().is_root() {
        assert_eq!(status(id, "NoNewPrivs"), "1");
    }
}

#[test]
fn what_is_no_file_of_a_key_is_refused_without_waiting_and_exceptions_are_named() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let with = |key: &str, keys: &str| -> Finished {
        let chain = &leaf.chain;
        let config = base(keys)
            + &format!(
                "[[host]]\nnames = {NAMES:?}\ncertificates = [{{ chain = {chain:?}, key = \"{key}\" }}]\n"
            );
        let setup = setup().config(&config).file("long.key", vec![b'x'; (1 << 20) + 1]);
        make_pipe(&setup.folder().join("pipe.key"));
        setup.fail()
    };
    let failed = with("pipe.key", ISOLATE);
    assert!(failed.stderr.contains("it is not a regular file"), "{}", failed.text());
    let failed = with("long.key", ISOLATE);
    assert!(failed.stderr.contains("longer than 1 MiB"), "{}", failed.text());
    let config = base("keys.isolate = true\nkeys.isolate_user = \"who-is-this\"\n") + &host(&NAMES, &[&leaf]);
    let setup = setup().config(&config);
    let checked = setup.check("brisk.toml");
    assert_eq!(checked.status.code(), Some(2), "{}", checked.text());
    assert!(checked.stderr.contains("there is no user \"who-is-this\""), "{}", checked.text());
}

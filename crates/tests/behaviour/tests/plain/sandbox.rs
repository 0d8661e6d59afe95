//! `server.sandbox` and `server.user`: the rights of the running gateway, and configurations that need others.
//!
//! `crates/services/sandbox/tests/inside.rs` shows from inside of a process that the limits refuse programs, processes and files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use brisk_behaviour::site::{NAME, NAMES, setup};
use brisk_testkit::brisk::{Brisk, base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::client::TlsClient;
use brisk_testkit::process::wait_until;
use rustix::process::{Signal, geteuid};

/// User of tests that root starts, and its number on Debian.
const USER: (&str, u32) = ("nobody", 65534);

/// A field of `/proc/PID/status` of the gateway.
fn status(brisk: &Brisk, name: &str) -> String {
    let file = format!("/proc/{}/status", brisk.process().id());
    let status = fs::read_to_string(file).expect("a running gateway");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("a field").trim().to_owned()
}

/// Number of filters of system calls, of each thread.
fn filters(brisk: &Brisk) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", brisk.process().id())).expect("a running gateway");
    let of_thread = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
        line.map(|number| number.trim().to_owned())
    };
    tasks.filter_map(|task| of_thread(task.expect("a thread"))).collect()
}

fn get(ca: &TestCa, brisk: &Brisk) -> String {
    let mut connection = TlsClient::new(&ca.root_file(), NAME).connect(brisk.https()).expect("a handshake");
    connection.get(NAME, "/").text()
}

fn limit(brisk: &Brisk, name: &str) -> u64 {
    brisk.metrics().sum("brisk_sandbox_limits", &[&format!("limit=\"{name}\"")]) as u64
}

/// Whether the kernel limits file access; otherwise reports that the test is skipped.
fn limits_files(brisk: &Brisk) -> bool {
    let limits = limit(brisk, "files") == 1;
    if !limits {
        eprintln!("skipped: {}", brisk.log_with("the sandbox is incomplete"));
    }
    limits
}

/// Whether root runs the test; otherwise reports that it is skipped.
fn is_root() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        eprintln!("skipped: only root can start a gateway that changes its user");
    }
    is_root
}

/// A host with the files `tls/site.pem` and `tls/site.key`, and files of the folder `www`.
fn site(folder: &str) -> String {
    format!(
        "\n[[host]]\nnames = {NAMES:?}\ncertificates = [{{ chain = \"tls/site.pem\", key = \"tls/site.key\" }}]\n\
         [[host.route]]\npath = \"/\"\nstatic = {folder:?}\n"
    )
}

#[test]
fn a_gateway_gives_up_the_rights_that_it_does_not_need() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let brisk = setup().config(&(base("") + &host(&NAMES, &[&leaf]))).start();
    get(&ca, &brisk);
    let log = brisk.log_with("rights of the process: ");
    assert_eq!(status(&brisk, "NoNewPrivs"), "1", "{log}");
    assert_eq!(status(&brisk, "Seccomp"), "2", "{log}");
    assert_eq!(limit(&brisk, "system_calls"), 1);
    let filters = filters(&brisk);
    assert!(filters.len() > 2 && filters.iter().all(|number| *number == filters[0]), "{filters:?}");
    assert_eq!(limit(&brisk, "user"), u64::from(!geteuid().is_root()));
    if geteuid().is_root() {
        assert_eq!(status(&brisk, "CapBnd"), "0".repeat(16));
        // The capabilities to read and write files of others, and to bind ports below 1024.
        let left = u64::from_str_radix(&status(&brisk, "CapPrm"), 16).expect("a number");
        assert_eq!(left & !0b100_0000_0110, 0, "{left:x}");
        brisk.log_with("brisk runs as root: with server.user");
    }
}

#[test]
fn a_gateway_without_a_sandbox_logs_that() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let brisk = setup().config(&(base("server.sandbox = \"off\"\n") + &host(&NAMES, &[&leaf]))).start();
    brisk.log_with("server.sandbox is \"off\"");
    assert_eq!(limit(&brisk, "files") + limit(&brisk, "system_calls"), 0);
    brisk.write("brisk.toml", base("") + &host(&NAMES, &[&leaf]));
    assert!(brisk.reload().contains("reloaded: "));
    let log = brisk.log_with("takes effect only after a restart");
    assert!(log.contains("server.sandbox"), "{log}");
}

#[test]
fn a_configuration_with_files_elsewhere_is_refused_until_a_restart() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let elsewhere = tempfile::tempdir().expect("a folder");
    let path = |name: &str| elsewhere.path().join(name).display().to_string();
    fs::create_dir(path("www")).expect("a folder");
    fs::write(path("www/index.html"), "elsewhere").expect("a file");
    fs::write(path("clients.pem"), ca.root_pem()).expect("a file");
    fs::write(path("more.toml"), "").expect("a file");
    let setup = setup().file("www/index.html", "here");
    let setup = setup.file("tls/site.pem", &leaf.chain_pem).file("tls/site.key", &leaf.key_pem);
    let brisk = setup.config(&(base("") + &site("www"))).start();
    if !limits_files(&brisk) {
        return;
    }
    let clients =
        format!("client_certificates = {{ mode = \"optional\", ca = {:?} }}\n", path("clients.pem"));
    let with_clients = (base("") + &site("www")).replace("[[host.route]]", &(clients + "[[host.route]]"));
    let with_log = base(&format!("access_log.file = {:?}\n", path("access.log"))) + &site("www");
    let with_more = format!("include = {:?}\n{}", path("more.toml"), base("") + &site("www"));
    let with_pattern = format!("include = {:?}\n{}", path("*.toml"), base("") + &site("www"));
    let outside = "is outside of the folders of the sandbox";
    for (text, file, reason) in [
        (base("") + &site(&path("www")), "www", outside),
        (with_clients, "clients.pem", outside),
        (with_log, "access.log", outside),
        (with_more, "more.toml", outside),
        (with_pattern, "*.toml", "restart brisk to include files of others"),
    ] {
        brisk.write("brisk.toml", text);
        let before = brisk.process().stderr().len();
        let line = brisk.reload();
        assert!(line.contains("not reloaded"), "{line}");
        // The message may have several lines.
        wait_until("the reason", || {
            let log = brisk.process().stderr()[before..].to_owned();
            (log.contains(reason) && log.contains(file) && log.contains("restart brisk")).then_some(())
        });
        assert_eq!(get(&ca, &brisk), "here");
    }
    // Within the folders, everything may change.
    brisk.write("brisk.toml", base("") + &site("other"));
    fs::create_dir(brisk.folder().join("other")).expect("a folder");
    brisk.write("other/index.html", "other");
    brisk.process().signal(Signal::HUP);
    brisk.log_with("reloaded: the new configuration");
    assert_eq!(get(&ca, &brisk), "other");
}

#[test]
fn files_may_be_replaced_by_names_and_links() {
    let ca = TestCa::new();
    let (old, new) = (ca.server(&NAMES).issue(), ca.server(&NAMES).issue());
    let setup = setup().file("releases/1/index.html", "one").file("releases/2/index.html", "two");
    let setup = setup.file("archive/site1.pem", &old.chain_pem).file("archive/site1.key", &old.key_pem);
    let setup = setup.file("tls/none", "");
    for (target, link) in [
        ("releases/1", "current"),
        ("../archive/site1.pem", "tls/site.pem"),
        ("../archive/site1.key", "tls/site.key"),
    ] {
        symlink(target, setup.folder().join(link)).expect("a link");
    }
    let brisk = setup.config(&(base("") + &site("current"))).start();
    assert_eq!(get(&ca, &brisk), "one");
    let path = |name: &str| brisk.folder().join(name);
    symlink("releases/2", path("next")).expect("a link");
    fs::rename(path("next"), path("current")).expect("the link of before");
    assert_eq!(get(&ca, &brisk), "two", "a deployment by a link");
    brisk.write("archive/site2.pem", &new.chain_pem);
    brisk.write("archive/site2.key", &new.key_pem);
    for file in ["site.pem", "site.key"] {
        let name = file.replace("site", "site2");
        symlink(format!("../archive/{name}"), path("tls/next")).expect("a link");
        fs::rename(path("tls/next"), path("tls").join(file)).expect("the link of before");
    }
    brisk.log_with("new handshakes are shown a new certificate");
    // The log is renamed by another program and opened again by this one.
    fs::rename(path("access.log"), path("access.log.1")).expect("a log");
    brisk.process().signal(Signal::USR1);
    wait_until("a new log", || {
        get(&ca, &brisk);
        path("access.log").exists().then_some(())
    });
}

/// Makes the folder of a gateway and all files in it those of [`USER`], except the private key.
fn give_away(folder: &Path) {
    let owner = Some(USER.1);
    for path in [folder.to_owned(), folder.join("tls"), folder.join("tls/site.pem")] {
        chown(path, owner, owner).expect("root may do so");
    }
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(folder.join("tls/site.key"), mode).expect("a file of root");
}

#[test]
fn root_becomes_another_user_which_must_be_able_to_read_its_files() {
    if !is_root() {
        return;
    }
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let prepared = || {
        let keys = format!("server.user = {:?}\n", USER.0);
        let setup = setup().config(&(base(&keys) + &site("www"))).file("www/index.html", "here");
        let setup = setup.file("tls/site.pem", &leaf.chain_pem).file("tls/site.key", &leaf.key_pem);
        give_away(setup.folder());
        setup
    };
    let failed = prepared().fail();
    assert_eq!(failed.status.code(), Some(2), "{}", failed.text());
    for part in ["tls/site.key is not readable for the user nobody", "chgrp nobody", "keys.isolate = true"] {
        assert!(failed.stderr.contains(part), "{part}: {}", failed.text());
    }
    let setup = prepared();
    chown(setup.folder().join("tls/site.key"), Some(USER.1), Some(USER.1)).expect("root may do so");
    let brisk = setup.start();
    assert_eq!(get(&ca, &brisk), "here");
    for name in ["Uid", "Gid"] {
        let ids = status(&brisk, name);
        assert!(ids.split_whitespace().all(|id| id == USER.1.to_string()), "{name}: {ids}");
    }
    assert!(
        !status(&brisk, "Groups").split_whitespace().any(|group| group == "0"),
        "groups of root are left"
    );
    // The capability to bind ports below 1024 is left.
    assert_eq!(status(&brisk, "CapPrm"), format!("{:016x}", 1 << 10));
    assert_eq!(limit(&brisk, "user"), 1);
    // A reload reads the files as the start did, and logs and state are files of the user.
    assert!(brisk.reload().contains("reloaded: "));
    brisk.logged("/");
}

#[test]
fn an_unknown_user_is_reported_and_one_that_cannot_be_had_ignored() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let with =
        |user: &str| setup().config(&(base(&format!("server.user = {user:?}\n")) + &host(&NAMES, &[&leaf])));
    let unknown = with("who-is-this");
    for failed in [unknown.fail(), unknown.check("brisk.toml")] {
        assert!(!failed.status.success(), "{}", failed.text());
        assert!(failed.stderr.contains("server.user: there is no user \"who-is-this\""), "{}", failed.text());
    }
    if !geteuid().is_root() {
        let brisk = with(USER.0).start();
        get(&ca, &brisk);
        brisk.log_with("server.user has no effect");
    }
}

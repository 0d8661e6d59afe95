//! `brisk supervise`: upgrades without a failed request, programs that fail, and crashes of the gateway.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use brisk_behaviour::h3_client;
use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::{NAME, setup};
use brisk_testkit::brisk::{Brisk, Setup, base, host};
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::client::{TlsClient, TlsStream};
use brisk_testkit::http1::Message;
use brisk_testkit::origin::GatedOrigin;
use brisk_testkit::process::{Finished, TIMEOUT, run, wait_until};
use brisk_testkit::quic::QuicClient;
use rustix::process::{Pid, Signal, kill_process};
use rustls::HandshakeKind;
use tempfile::TempDir;

use super::http3::{get, request, response};
use super::http3_workers::{self, LONG};

/// A supervisor whose program is a link, in place of which tests put other programs.
pub(crate) struct Supervised {
    pub(crate) brisk: Brisk,
    ca: TestCa,
    leaf: Leaf,
    programs: TempDir,
}

impl Supervised {
    fn new() -> Self {
        Self::with(|setup, leaf| setup.config(&config(leaf, "first")))
    }

    fn with(prepare: impl FnOnce(Setup, &Leaf) -> Setup) -> Self {
        let programs = TempDir::with_prefix("brisk-programs-").expect("a folder");
        let program = programs.path().join("brisk");
        symlink(brisk_program(), &program).expect("a link");
        let ca = TestCa::new();
        let leaf = ca.server(&[NAME]).issue();
        let brisk = prepare(Setup::new(&program).supervised(), &leaf).start();
        // The supervisor may log later than the addresses are printed that the gateway serves.
        brisk.generation_after(0);
        Self { brisk, ca, leaf, programs }
    }

    fn client(&self) -> TlsClient {
        TlsClient::new(&self.ca.root_file(), NAME)
    }

    /// The body of the response over a new connection.
    fn ask(&self) -> String {
        answered(self.client().connect(self.brisk.https()).expect("a handshake"))
    }

    /// Runs `brisk upgrade`.
    fn order(&self) -> Finished {
        let mut command = Command::new(brisk_program());
        run(command.args(["upgrade", "--pid", &self.brisk.process().id().to_string()]), b"", TIMEOUT)
    }

    /// Runs `brisk upgrade` with success, and returns the process id of the new gateway.
    #[track_caller]
    fn upgrade(&self) -> u32 {
        let out = self.order().success();
        let id = out.trim().strip_prefix("upgraded: process ").and_then(|text| text.strip_suffix(" serves"));
        id.and_then(|id| id.parse().ok()).unwrap_or_else(|| panic!("{out}"))
    }

    /// Puts a shell script in the place of the program.
    fn replace_program(&self, script: &str, mode: u32) {
        let (new, program) = (self.programs.path().join("new"), self.program());
        fs::write(&new, format!("#!/bin/sh\n{script}\n")).expect("a file");
        fs::set_permissions(&new, fs::Permissions::from_mode(mode)).expect("a file");
        fs::rename(new, program).expect("a file");
    }

    /// Asserts that an upgrade to this program is refused for `reason`, and that the old gateway serves.
    #[track_caller]
    fn assert_refused(&self, script: &str, mode: u32, reason: &str) {
        self.replace_program(script, mode);
        let refused = self.order();
        assert_eq!(refused.status.code(), Some(1), "{}", refused.text());
        let is_named = refused.stderr.contains("not upgraded: ") && refused.stderr.contains(reason);
        assert!(is_named, "{}", refused.stderr);
        assert_eq!(self.ask(), "first");
    }

    fn restore_program(&self) {
        let new = self.programs.path().join("new");
        symlink(brisk_program(), &new).expect("a link");
        fs::rename(new, self.program()).expect("a link");
    }

    fn program(&self) -> PathBuf {
        self.programs.path().join("brisk")
    }
}

fn config(leaf: &Leaf, body: &str) -> String {
    base("")
        + &host(&[NAME], &[leaf])
        + &format!("[[host.route]]\npath = \"/\"\nrespond = {{ body = {body:?} }}\n")
}

fn answered(mut stream: TlsStream) -> String {
    stream.get(NAME, "/").text()
}

pub(crate) fn signal(process: u32, signal: Signal) {
    let id = i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(id, signal).expect("a running process");
}

/// A connection with a request that waits for `slow`.
pub(crate) fn slow_request(client: &TlsClient, brisk: &Brisk, slow: &GatedOrigin) -> TlsStream {
    let mut stream = client.connect(brisk.https()).expect("a handshake");
    stream.write_all(format!("GET /slow HTTP/1.1\r\nHost: {NAME}\r\n\r\n").as_bytes()).expect("sent");
    wait_until("the request", || (!slow.requests().is_empty()).then_some(()));
    stream
}

/// One client, which repeats a request on a new connection only if a connection closes before the response, as browsers do.
fn load(client: &TlsClient, address: SocketAddr, keeps: bool, ends: &AtomicBool, done: &AtomicUsize) {
    let mut kept: Option<TlsStream> = None;
    while !ends.load(Ordering::Relaxed) {
        let answer = (0..3).find_map(|_| {
            let mut stream = match kept.take() {
                Some(stream) => stream,
                None => client.over(TcpStream::connect(address).expect("no refused connection")).ok()?,
            };
            let sent = stream.write_all(format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n").as_bytes());
            let answer = sent.and_then(|()| Message::read_response(&mut stream)).ok()?;
            kept = keeps.then_some(stream);
            Some(answer)
        });
        let answer = answer.expect("a response at the third attempt at last");
        assert!((answer.status(), answer.text().as_str()) == (200, "first"));
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ends the clients of [`load`] when it is dropped.
struct Ended<'e>(&'e AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn five_upgrades_under_load_fail_no_request() {
    let site = Supervised::new();
    let address = site.brisk.https();
    let (ends, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut generations = vec![site.brisk.generation_after(0)];
    thread::scope(|scope| {
        // A failed assertion must end the clients too.
        let ended = Ended(&ends);
        for number in 0..6 {
            let (client, ends, done) = (site.client(), &ends, &done);
            scope.spawn(move || load(&client, address, number % 2 == 0, ends, done));
        }
        for _ in 0..5 {
            let before = done.load(Ordering::Relaxed);
            wait_until("responses", || (done.load(Ordering::Relaxed) > before + 50).then_some(()));
            let process = site.upgrade();
            // The admin socket is the same, and the process that drains does not answer there any more.
            assert_eq!(site.brisk.ask_admin("/readyz").status(), 200);
            generations.push(process);
        }
        drop(ended);
    });
    wait_until("the log", || (site.brisk.generations() == generations).then_some(()));
    // All but the last end, and none was cut.
    wait_until("the drained gateways", || {
        let log = site.brisk.process().stderr();
        (log.matches("a drained gateway has ended: exit status 0").count() == 5).then_some(())
    });
    assert!(!site.brisk.process().stderr().contains("connections are cut"));
}

#[test]
fn sessions_are_resumed_across_upgrades() {
    let site = Supervised::new();
    for client in [site.client(), site.client().tls12()] {
        let kind = |client: &TlsClient| {
            let mut stream = client.connect(site.brisk.https()).expect("a handshake");
            stream.get(NAME, "/");
            stream.tls().handshake_kind()
        };
        assert_eq!(kind(&client), Some(HandshakeKind::Full));
        for _ in 0..2 {
            site.upgrade();
            // TLS 1.3 clients use each ticket once, and get another with each connection.
            assert_eq!(kind(&client), Some(HandshakeKind::Resumed));
        }
    }
    site.brisk.log_with("the ticket keys of the predecessor stay in use");
}

#[test]
fn a_connection_of_http3_is_served_by_the_old_gateway_and_new_ones_by_the_new() {
    let slow = GatedOrigin::new("slow");
    let server = format!("server.workers = 2\n{LONG}");
    let site =
        Supervised::with(|setup, leaf| setup.config(&http3_workers::config(&slow, leaf, &server, "first")));
    let client = QuicClient::new(&site.ca.root_file(), NAME, "h3");
    let mut before: Vec<_> = (0..8).map(|_| h3_client::connect(&client, site.brisk.https())).collect();
    let streams: Vec<_> = before.iter_mut().map(|own| request(own, "/slow")).collect();
    wait_until("the requests", || (slow.requests().len() == 8).then_some(()));
    site.brisk.write("brisk.toml", http3_workers::config(&slow, &site.leaf, &server, "second"));
    site.upgrade();
    for _ in 0..8 {
        assert_eq!(get(&mut h3_client::connect(&client, site.brisk.https()), "/").1, "second");
    }
    slow.open();
    for (connection, stream) in before.iter_mut().zip(streams) {
        assert_eq!(response(connection, stream).expect("a response of the old gateway").1, "slow");
        connection.close();
    }
    site.brisk.log_with("a drained gateway has ended: exit status 0");
}

#[test]
fn a_program_that_is_not_ready_in_time_leaves_the_old_gateway() {
    // A site of its own, since the limit is for each start.
    let site = Supervised::with(|setup, leaf| {
        setup.option("--ready-timeout").option("20").config(&config(leaf, "first"))
    });
    let generation = site.brisk.generation_after(0);
    site.assert_refused("exec sleep 600", 0o755, "it was not ready within 20 s");
    assert_eq!(site.brisk.generations(), [generation]);
}

#[test]
fn a_program_that_fails_leaves_the_old_gateway_and_the_operator_learns_why() {
    let site = Supervised::new();
    let generation = site.brisk.generation_after(0);
    site.assert_refused("exit 3", 0o755, "exit status 3");
    site.assert_refused("kill -SEGV $$", 0o755, "signal 11");
    site.assert_refused("exit 0", 0o644, "Permission denied");
    fs::remove_file(site.program()).expect("the script");
    assert!(site.order().stderr.contains("No such file"));
    site.restore_program();
    site.brisk.write("brisk.toml", "server.htps = []\n");
    let refused = site.order();
    assert!(refused.stderr.contains("exit status 2; its log has the reason"), "{}", refused.stderr);
    site.brisk.log_with("htps");
    assert_eq!((site.ask().as_str(), site.brisk.generations()), ("first", vec![generation]));
    site.brisk.write("brisk.toml", config(&site.leaf, "second"));
    site.upgrade();
    assert_eq!(site.ask(), "second");
}

#[test]
fn one_upgrade_is_under_way_at_a_time_and_a_stop_ends_both_gateways() {
    let mut site = Supervised::new();
    site.replace_program("exec sleep 600", 0o755);
    site.brisk.process().signal(Signal::USR2);
    site.brisk.log_with("upgrade: a new gateway starts");
    // Would end the new one, which does not catch it yet.
    reopen_logs(&site);
    let refused = site.order();
    assert!(refused.stderr.contains("an upgrade is under way"), "{}", refused.stderr);
    assert_eq!(site.ask(), "first");
    site.brisk.terminate();
    assert!(site.brisk.wait().success());
    TcpStream::connect(site.brisk.https()).expect_err("the sockets are closed");
}

#[test]
fn a_connection_that_was_made_while_no_gateway_ran_is_answered() {
    let site = Supervised::new();
    let address = site.brisk.https();
    for count in 1..4 {
        let failures = || site.brisk.process().stderr().matches("cannot start ").count();
        let before = failures();
        // No new gateway starts before the program is back.
        fs::rename(site.program(), site.programs.path().join("away")).expect("the program");
        signal(site.brisk.generation_after(count - 1), Signal::KILL);
        wait_until("a failed restart", || (failures() > before).then_some(()));
        let waiting = TcpStream::connect(address).expect("the supervisor holds the socket");
        fs::rename(site.programs.path().join("away"), site.program()).expect("the program");
        assert_eq!(answered(site.client().over(waiting).expect("a handshake")), "first");
        site.brisk.generation_after(count);
    }
    assert!(site.brisk.process().stderr().contains("the gateway has ended (signal 9)"));
}

#[test]
fn a_gateway_that_another_process_stops_is_replaced() {
    let site = Supervised::new();
    signal(site.brisk.generation_after(0), Signal::TERM);
    let next = site.brisk.generation_after(1);
    assert_ne!(next, site.brisk.generations()[0]);
    assert_eq!(site.ask(), "first");
}

#[test]
fn a_gateway_that_another_process_stops_leaves_the_admin_socket_to_the_next() {
    let slow = GatedOrigin::new("slow");
    let site =
        Supervised::with(|setup, leaf| setup.config(&http3_workers::config(&slow, leaf, LONG, "first")));
    let mut stream = slow_request(&site.client(), &site.brisk, &slow);
    signal(site.brisk.generation_after(0), Signal::TERM);
    site.brisk.generation_after(1);
    let is_ready = |_| site.brisk.ask_admin("/readyz").status() == 200;
    // Two processes that accept would both answer in a row of this length.
    wait_until("the readiness", || (0..30).all(is_ready).then_some(()));
    slow.open();
    assert_eq!(Message::read_response(&mut stream).expect("a response").text(), "slow");
}

/// Moves the access log away and waits for a new one.
fn reopen_logs(site: &Supervised) {
    site.ask();
    fs::rename(site.brisk.folder().join("access.log"), site.brisk.folder().join("old.log")).expect("the log");
    site.brisk.process().signal(Signal::USR1);
    wait_until("a new log", || {
        site.ask();
        (!site.brisk.access_log().is_empty()).then_some(())
    });
}

#[test]
fn signals_reach_the_gateway() {
    let mut site = Supervised::new();
    site.brisk.write("brisk.toml", config(&site.leaf, "second"));
    assert!(site.brisk.reload().contains("reloaded:"));
    assert_eq!(site.ask(), "second");
    reopen_logs(&site);
    site.brisk.terminate();
    assert!(site.brisk.wait().success());
    assert!(site.brisk.process().stderr().contains("drained"));
}

#[test]
fn a_gateway_ends_with_a_supervisor_that_is_killed() {
    // A delay of an orphan would keep the ports.
    let mut site = Supervised::with(|setup, leaf| {
        setup.config(&("server.drain_delay = \"1h\"\n".to_owned() + &config(leaf, "first")))
    });
    let gateway = PathBuf::from(format!("/proc/{}", site.brisk.generation_after(0)));
    site.brisk.process().signal(Signal::KILL);
    site.brisk.wait();
    wait_until("the end of the gateway", || {
        let stat = fs::read_to_string(gateway.join("stat")).unwrap_or_default();
        // Without an init process, as in some containers, it stays as a zombie.
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    });
    TcpStream::connect(site.brisk.https()).expect_err("the port is free");
}

#[test]
fn a_drain_goes_on_when_the_supervisor_is_killed() {
    let slow = GatedOrigin::new("slow");
    let mut site =
        Supervised::with(|setup, leaf| setup.config(&http3_workers::config(&slow, leaf, LONG, "first")));
    let mut stream = slow_request(&site.client(), &site.brisk, &slow);
    site.upgrade();
    site.brisk.log_with("draining: no new connections");
    site.brisk.process().signal(Signal::KILL);
    // The new gateway closes the port when it gets the signal of the kernel, as the one that drains does.
    wait_until("the end of the new gateway", || {
        TcpStream::connect(site.brisk.https()).is_err().then_some(())
    });
    slow.open();
    assert_eq!(Message::read_response(&mut stream).expect("a response").text(), "slow");
    site.brisk.wait();
}

#[test]
fn an_error_of_the_first_start_is_that_of_the_supervisor() {
    let failed = setup().supervised().config("server.htps = []\n").fail();
    assert_eq!(failed.status.code(), Some(2), "{}", failed.stderr);
    assert!(failed.stderr.contains("htps"), "{}", failed.stderr);
    let failed = setup().supervised().option("--upstram").option("http://127.0.0.1:1").fail();
    assert_eq!(failed.status.code(), Some(2), "{}", failed.stderr);
}

#[test]
fn a_gateway_whose_supervisor_ended_before_it_started_does_not_serve() {
    // No process has this id.
    let orphan = setup().environment("BRISK_SUPERVISOR", &i32::MAX.to_string());
    let failed = orphan.config("server.htps = []\n").fail();
    assert_eq!(failed.status.code(), Some(1), "{}", failed.stderr);
    assert!(failed.stderr.contains("cannot follow the supervisor: "), "{}", failed.stderr);
}

#[test]
fn a_pid_file_names_the_supervisor() {
    let mut site = Supervised::with(|setup, leaf| {
        setup.option("--pid-file").option("brisk.pid").config(&config(leaf, "first"))
    });
    let file = site.brisk.folder().join("brisk.pid");
    assert_eq!(fs::read_to_string(&file).expect("a file").trim(), site.brisk.process().id().to_string());
    let mut command = Command::new(brisk_program());
    run(command.args(["upgrade", "--pid-file"]).arg(&file), b"", TIMEOUT).success();
    // Another one, started by mistake.
    let mut command = Command::new(brisk_program());
    let refused = run(command.args(["supervise", "--pid-file"]).arg(&file), b"", TIMEOUT);
    assert!(refused.stderr.contains("it is the file of supervisor "), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(&file).expect("a file").trim(), site.brisk.process().id().to_string());
    site.brisk.terminate();
    assert!(site.brisk.wait().success());
    assert!(!file.exists());
}

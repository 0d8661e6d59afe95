//! Reports to a service manager by the protocol of systemd, its watchdog, and the delay before a drain.

use std::os::unix::net::UnixDatagram;

use brisk_behaviour::site::{NAME, Site, setup};
use brisk_testkit::brisk::{Setup, base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::client::TlsClient;
use brisk_testkit::http1::Message;
use brisk_testkit::origin::GatedOrigin;
use brisk_testkit::process::{TIMEOUT, wait_until};
use rustix::process::Signal;

use super::http3_workers::{self, LONG};
use super::upgrade::{signal, slow_request};

/// A service manager.
struct Manager(UnixDatagram);

impl Manager {
    /// Listens in the folder of `setup`, and names itself in its environment.
    fn of(setup: Setup) -> (Self, Setup) {
        let path = setup.folder().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        (Self(socket), setup.environment("NOTIFY_SOCKET", path.to_str().expect("UTF-8")))
    }

    fn next(&self) -> String {
        let mut bytes = [0; 4096];
        let length = self.0.recv(&mut bytes).expect("a report");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    /// Waits for a report that begins with `text`, and returns those before it, without beats.
    #[track_caller]
    fn until(&self, text: &str) -> Vec<String> {
        let mut before = Vec::new();
        loop {
            let report = self.next();
            if report.starts_with(text) {
                return before;
            }
            before.extend(Some(report).filter(|report| report != "WATCHDOG=1"));
        }
    }
}

/// A configuration, and the authority whose folder has its files.
fn config() -> (TestCa, String) {
    let ca = TestCa::new();
    let leaf = ca.server(&[NAME]).issue();
    let config = base("") + &host(&[NAME], &[&leaf]);
    (ca, config)
}

#[test]
fn a_gateway_reports_start_reload_and_stop() {
    let (_ca, config) = config();
    let (manager, setup) = Manager::of(setup().config(&config));
    let mut brisk = setup.environment("WATCHDOG_USEC", "30000000").start();
    assert!(manager.until("READY=1").is_empty());
    manager.until("WATCHDOG=1");
    brisk.reload();
    assert!(manager.until("RELOADING=1\nMONOTONIC_USEC=").is_empty());
    assert!(manager.until("READY=1").is_empty());
    brisk.write("brisk.toml", "server.htps = []\n");
    brisk.process().signal(Signal::HUP);
    manager.until("RELOADING=1");
    assert!(manager.until("READY=1\nSTATUS=serves with the old configuration: ").is_empty());
    brisk.terminate();
    manager.until("STOPPING=1");
    assert!(brisk.wait().success());
}

#[test]
fn sockets_are_stored_before_the_gateway_is_ready_if_there_is_a_store() {
    let (_ca, config) = config();
    let (manager, setup) = Manager::of(setup().config(&config));
    let _brisk = setup.environment("FDSTORE", "64").start();
    let stored = manager.until("READY=1");
    let names = ["https.0", "https.1", "http.0", "http.1", "admin.0"];
    assert_eq!(stored, names.map(|name| format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}@127.0.0.1,0")));
}

#[test]
fn a_store_without_room_for_all_sockets_gets_none() {
    let (_ca, config) = config();
    let (manager, setup) = Manager::of(setup().config(&config));
    let brisk = setup.environment("FDSTORE", "2").start();
    assert!(manager.until("READY=1").is_empty());
    brisk.log_with("FileDescriptorStoreMax=5");
}

#[test]
fn a_supervisor_reports_for_its_gateways_and_replaces_one_that_is_silent() {
    let (_ca, config) = config();
    let (manager, setup) = Manager::of(setup().supervised().config(&config));
    let mut brisk = setup.environment("WATCHDOG_USEC", "8000000").start();
    assert!(manager.until(&format!("READY=1\nMAINPID={}", brisk.process().id())).is_empty());
    manager.until("WATCHDOG=1");
    brisk.reload();
    manager.until("RELOADING=1\nMONOTONIC_USEC=");
    manager.until("READY=1");
    brisk.write("brisk.toml", "server.htps = []\n");
    brisk.process().signal(Signal::HUP);
    manager.until("READY=1\nSTATUS=serves with the old configuration: ");
    brisk.write("brisk.toml", &config);
    brisk.reload();
    manager.until("READY=1\nSTATUS=serves");
    let first = brisk.generation_after(0);
    signal(first, Signal::STOP);
    // Reports and beats arrive meanwhile, so they are read.
    wait_until("another gateway", || {
        manager.next();
        (brisk.generations().len() > 1).then_some(())
    });
    assert!(brisk.process().stderr().contains("the gateway does not respond"));
    brisk.terminate();
    manager.until("STOPPING=1");
    assert!(brisk.wait().success());
}

#[test]
fn the_watchdog_leaves_a_gateway_that_drains() {
    let (ca, slow) = (TestCa::new(), GatedOrigin::new("slow"));
    let leaf = ca.server(&[NAME]).issue();
    let config = http3_workers::config(&slow, &leaf, LONG, "");
    let (manager, setup) = Manager::of(setup().supervised().config(&config));
    let mut brisk = setup.environment("WATCHDOG_USEC", "9000000").start();
    manager.until("READY=1");
    let mut stream = slow_request(&TlsClient::new(&ca.root_file(), NAME), &brisk, &slow);
    brisk.terminate();
    manager.until("STOPPING=1");
    // The supervisor sends two within the limit of its watchdog: beyond it, a gateway without beats would be killed.
    (0..4).for_each(|_| drop(manager.until("WATCHDOG=1")));
    slow.open();
    assert_eq!(Message::read_response(&mut stream).expect("a response").text(), "slow");
    assert!(brisk.wait().success());
}

#[test]
fn a_gateway_serves_and_is_not_ready_for_the_delay_before_a_drain() {
    let mut site = Site::custom("server.drain_delay = \"1h\"\n", "", |setup| setup);
    assert_eq!(site.brisk.ask_admin("/readyz").status(), 200);
    site.brisk.terminate();
    wait_until("the delay", || (site.brisk.ask_admin("/readyz").status() == 503).then_some(()));
    site.assert_alive();
    // The second signal begins the drain, which has nothing to wait for.
    site.brisk.terminate();
    assert!(site.brisk.wait().success());
}

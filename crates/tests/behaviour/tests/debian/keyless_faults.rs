//! Key servers that are killed, stopped and restarted: no handshake fails while one server works, and servers recover.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use brisk_behaviour::site::NAME;
use brisk_testkit::brisk::Brisk;
use brisk_testkit::process::{free_port, wait_until};
use rustix::process::Signal;
use rustls::HandshakeKind;

use crate::keyless::{Fleet, is_ready, wait_until_ready};

/// Timeout of an operation: the longest that the configuration allows.
const DEADLINE: Duration = Duration::from_secs(4);

/// Full handshakes on some threads while `meanwhile` runs; how many there were. `None` if one failed after [`DEADLINE`]; fails the
/// test if one did before.
fn under_load(fleet: &Fleet, gateway: &Brisk, meanwhile: impl FnOnce(&dyn Fn(usize))) -> Option<usize> {
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let started = Instant::now();
                        let Err(error) = fleet.full(gateway) else {
                            done.fetch_add(1, Ordering::Relaxed);
                            continue;
                        };
                        stop.store(true, Ordering::Relaxed);
                        assert!(started.elapsed() >= DEADLINE, "a handshake fails: {error}");
                        return false;
                    }
                    true
                })
            })
            .collect();
        let more = |number: usize| {
            let before = done.load(Ordering::Relaxed);
            wait_until("more handshakes", || {
                let enough = done.load(Ordering::Relaxed) >= before + number;
                (enough || stop.load(Ordering::Relaxed)).then_some(())
            });
        };
        meanwhile(&more);
        stop.store(true, Ordering::Relaxed);
        let join = |client: thread::ScopedJoinHandle<'_, bool>| client.join().expect("each handshake waits");
        // Each is waited for, also after one that was late.
        let joined: Vec<_> = clients.into_iter().map(join).collect();
        (!joined.contains(&false)).then(|| done.load(Ordering::Relaxed))
    })
}

fn usable(gateway: &Brisk, address: &str) -> bool {
    let label = format!("server=\"{address}\"");
    gateway.metrics().sum("brisk_keyserver_connections", &[&label]) > 0.5
}

#[test]
fn no_handshake_fails_while_one_of_two_key_servers_is_killed_stopped_and_restarted() {
    let fleet = Fleet::new();
    // On a busy machine, the only key server that works may be later than the deadline.
    assert!((0..8).any(|_| works_without_one_of_two(&fleet)), "handshakes fail at their deadline");
}

/// `false` if a handshake failed after [`DEADLINE`].
fn works_without_one_of_two(fleet: &Fleet) -> bool {
    let ports = [free_port(), free_port()];
    let addresses = ports.map(|port| format!("127.0.0.1:{port}"));
    let mut first = Some(fleet.server_on(ports[0], "", ""));
    let second = fleet.server_on(ports[1], "", "");
    let servers = ports.map(|port| std::net::SocketAddr::from(([127, 0, 0, 1], port)));
    let gateway = fleet.gateway(&servers, "deadline = \"4s\"\nhedge = \"50ms\"\n");
    wait_until("both connected", || addresses.iter().all(|at| usable(&gateway, at)).then_some(()));
    let handshakes = under_load(fleet, &gateway, |more| {
        more(20);
        // Killed with SIGKILL: it closes nothing itself.
        drop(first.take());
        more(20);
        first = Some(fleet.server_on(ports[0], "", ""));
        wait_until("the first is back", || usable(&gateway, &addresses[0]).then_some(()));
        more(20);
        // Stopped: it accepts and does not answer.
        second.process().pause();
        more(20);
        wait_until("the second is missed", || (!usable(&gateway, &addresses[1])).then_some(()));
        more(20);
        second.process().signal(Signal::CONT);
        wait_until("the second is back", || usable(&gateway, &addresses[1]).then_some(()));
        more(20);
        // Drained: it answers what it has, and refuses nothing.
        if let Some(server) = first.as_mut() {
            server.terminate();
            assert!(server.wait().success());
        }
        more(20);
    });
    let Some(handshakes) = handshakes else { return false };
    assert!(handshakes >= 140);
    wait_until_ready(&gateway);
    let metrics = gateway.metrics();
    assert!(metrics.sum("brisk_keyserver_hedges_total", &[]) > 0.5, "{}", metrics.0);
    assert!(
        metrics.sum("brisk_handshakes_failed_total", &["reason=\"key-operation\""]) < 0.5,
        "{}",
        metrics.0
    );
    true
}

#[test]
fn without_a_key_server_sessions_resume_and_full_handshakes_wait_and_fail_until_one_is_back() {
    let fleet = Fleet::new();
    let port = free_port();
    let server = fleet.server_on(port, "", "");
    let gateway = fleet.gateway(&[server.keys()], "deadline = \"2s\"\n");
    wait_until_ready(&gateway);
    let (tls13, tls12) = (fleet.tls(), fleet.tls().tls12());
    let resumed = |client: &brisk_testkit::client::TlsClient| {
        let mut connection = client.connect(gateway.https()).expect("a handshake");
        assert_eq!(connection.get(NAME, "/").status(), 200);
        connection.tls().handshake_kind() == Some(HandshakeKind::Resumed)
    };
    assert!(!resumed(&tls13) && !resumed(&tls12));
    drop(server);
    wait_until("a gateway that is not ready", || (!is_ready(&gateway)).then_some(()));
    let started = Instant::now();
    let error = fleet.full(&gateway).expect_err("no key server is left");
    assert!(started.elapsed() >= Duration::from_millis(1900), "{:?}", started.elapsed());
    // RFC 8446 section 6.2.
    assert!(error.to_string().contains("InternalError"), "{error}");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(resumed(&tls13) && resumed(&tls12));
    wait_until("a page with the reason", || {
        let page = gateway.ask_admin("/readyz").text();
        (page.contains("no key server of \"main\" answers") && page.contains("refused")).then_some(())
    });
    assert_eq!(gateway.ask_admin("/healthz").status(), 200);
    assert!(gateway.metrics().sum("brisk_keyserver_late_total", &[]) > 0.5);

    // A handshake that begins while the server comes back waits for it.
    let server = fleet.server_on(port, "", "");
    wait_until_ready(&gateway);
    fleet.full(&gateway).expect("a handshake");
    assert!(resumed(&tls13));
    assert_eq!(server.ask_admin("/readyz").status(), 200);
}

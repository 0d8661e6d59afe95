//! The faults, done to a world: each begins, lasts while requests go on, and ends.

use std::fs;
use std::os::unix::fs::symlink;
use std::thread::sleep;
use std::time::Duration;

use brisk_behaviour::site::NAME;
use brisk_testkit::client::TlsClient;
use brisk_testkit::process::wait_until;
use rustix::process::Signal;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::fault::Fault;
use crate::floods::{self, Target};
use crate::plan::Step;
use crate::processes::{descendant, signal};
use crate::shared::Shared;
use crate::world::{RECORD, World, ZONE};

/// Duration of faults that no condition ends: longer than checks and attempts take to notice.
const SHORT: Duration = Duration::from_millis(700);
const LONG: Duration = Duration::from_millis(2_500);

/// Right responses within a fault that does not stop all of them.
const RIGHT: u64 = 20;

/// Added delay of each response of an upstream server.
const DELAY: Duration = Duration::from_millis(200);

/// Index of the gateway with key files and few descriptors.
const WITH_KEYS: usize = 1;

/// Does the fault of a step. Returns when its cause is over.
pub(crate) fn strike(world: &mut World, shared: &Shared, step: Step, variation: usize) {
    let Step { fault, target, variant } = step;
    match fault {
        Fault::Reloads => reloads(world, shared, target, variation),
        Fault::Certificates => certificates(world, variant),
        Fault::DamagedCertificate => damaged_certificate(world, shared, variant),
        Fault::InvalidConfiguration => invalid_configuration(world, shared, target, variant),
        Fault::Upgrades => upgrades(world, shared, target, variant),
        Fault::FailedUpgrades => failed_upgrades(world, target, variant),
        Fault::GatewayKilled => end_gateway(world, target, Signal::KILL),
        Fault::GatewayTerminated => end_gateway(world, target, Signal::TERM),
        Fault::KeyProcessKilled => key_process_killed(world, shared),
        Fault::KeyServerKilled | Fault::KeyServersKilled | Fault::KeyServerStopped => {
            key_servers(world, shared, fault, target);
        }
        Fault::RedisKilled | Fault::RedisStopped => redis(world, shared, fault),
        Fault::UpstreamKilled | Fault::UpstreamStopped => upstream(world, shared, fault, target),
        Fault::Partition => {
            world.relay.set_blocked(true);
            hold(shared, LONG);
            world.relay.set_blocked(false);
        }
        Fault::Delay => {
            world.relay.set_delay(DELAY);
            hold(shared, LONG);
            world.relay.set_delay(Duration::ZERO);
        }
        Fault::DnsStopped => {
            world.knot.process().pause();
            hold(shared, LONG);
            world.knot.process().signal(Signal::CONT);
        }
        Fault::NoSuchName => {
            world.knot.set(ZONE, "other A 127.0.0.1");
            hold(shared, SHORT);
            world.knot.set(ZONE, RECORD);
        }
        Fault::FullDisk => full_disk(world, shared, target),
        Fault::Descriptors | Fault::SlowReaders | Fault::Aborts | Fault::Overload | Fault::Handshakes => {
            flood(world, shared, fault, target);
        }
    }
}

/// Lets the fault last, while some requests succeed.
fn hold(shared: &Shared, time: Duration) {
    let before = shared.rights();
    sleep(time);
    wait_until("right responses within a fault", || (shared.rights() >= before + RIGHT).then_some(()));
}

fn reloads(world: &World, shared: &Shared, target: usize, variation: usize) {
    for number in 0..5 {
        let gateway = &world.gateways[target].brisk;
        gateway.write("brisk.toml", world.config(target, variation + number));
        let line = gateway.reload();
        assert!(line.contains("reloaded: "), "{line}");
        shared.await_rights(RIGHT / 4);
    }
}

/// Puts new certificates into place, and waits until each is shown.
fn certificates(world: &mut World, variant: usize) {
    for _ in 0..=variant {
        let leaf = world.ca.server(&[NAME]).issue();
        let gateway = &world.gateways[WITH_KEYS].brisk;
        gateway.write("site.key", &leaf.key_pem);
        gateway.write("site.pem", &leaf.chain_pem);
        let own = CertificateDer::from_pem_slice(leaf.certificate_pem.as_bytes()).expect("a certificate");
        wait_until("the new certificate", || {
            let client = TlsClient::new(&world.ca.root_file(), NAME);
            let stream = client.connect(gateway.https()).ok()?;
            (stream.tls().peer_certificates()?.first()? == &own).then_some(())
        });
        world.leaf = leaf;
    }
}

fn damaged_certificate(world: &World, shared: &Shared, variant: usize) {
    let gateway = &world.gateways[WITH_KEYS].brisk;
    let chain = &world.leaf.chain_pem;
    match variant {
        0 => gateway.write("site.pem", &chain[..chain.len() / 2]),
        1 => gateway.write("site.pem", ""),
        _ => fs::remove_file(gateway.folder().join("site.pem")).expect("a certificate"),
    }
    // Longer than the files have to be quiet before they are read.
    hold(shared, 2 * SHORT);
    gateway.write("site.pem", chain);
}

fn invalid_configuration(world: &World, shared: &Shared, target: usize, variant: usize) {
    let gateway = &world.gateways[target].brisk;
    gateway.write("brisk.toml", ["server.htps = []\n", "", "[server\n"][variant]);
    let line = gateway.reload();
    assert!(line.contains("not reloaded"), "{line}");
    shared.await_rights(RIGHT);
    gateway.write("brisk.toml", world.config(target, 0));
    let line = gateway.reload();
    assert!(line.contains("reloaded: "), "{line}");
}

fn upgrades(world: &World, shared: &Shared, target: usize, variant: usize) {
    for _ in 0..variant + 2 {
        world.gateways[target].upgrade().success();
        shared.await_rights(RIGHT / 4);
    }
}

fn failed_upgrades(world: &World, target: usize, variant: usize) {
    let gateway = &world.gateways[target];
    let (script, mode) = [("exit 3", 0o755), ("kill -SEGV $$", 0o755), ("exit 0", 0o644)][variant];
    gateway.replace_program(script, mode);
    let refused = gateway.upgrade();
    gateway.restore_program();
    assert_eq!(refused.status.code(), Some(1), "{}", refused.text());
}

fn end_gateway(world: &World, target: usize, how: Signal) {
    let gateway = &world.gateways[target];
    let count = gateway.brisk.generations().len();
    signal(gateway.serving(), how);
    gateway.brisk.generation_after(count);
}

fn key_process_killed(world: &World, shared: &Shared) {
    let supervisor = world.gateways[WITH_KEYS].supervisor();
    let find = || descendant(supervisor, "--holds-keys");
    let before = wait_until("a key process", find);
    signal(before, Signal::KILL);
    wait_until("another key process", || find().filter(|now| *now != before));
    shared.await_rights(RIGHT);
}

fn key_servers(world: &mut World, shared: &Shared, fault: Fault, target: usize) {
    if fault == Fault::KeyServerStopped {
        let server = world.key_servers.servers[target].as_ref().expect("a running key server");
        server.process().pause();
        hold(shared, LONG);
        server.process().signal(Signal::CONT);
        return;
    }
    let killed = if fault == Fault::KeyServersKilled { vec![0, 1] } else { vec![target] };
    for index in &killed {
        // Killed with SIGKILL: it closes nothing itself.
        drop(world.key_servers.servers[*index].take());
    }
    hold(shared, LONG);
    for index in killed {
        world.key_servers.restart(index);
    }
}

fn redis(world: &mut World, shared: &Shared, fault: Fault) {
    if fault == Fault::RedisStopped {
        world.redis.pause();
        hold(shared, LONG);
        world.redis.resume();
    } else {
        world.redis.kill();
        hold(shared, LONG);
        world.redis.restart();
    }
}

fn upstream(world: &mut World, shared: &Shared, fault: Fault, target: usize) {
    let server = &mut world.upstreams[target];
    if fault == Fault::UpstreamStopped {
        server.process.pause();
        hold(shared, LONG);
        server.process.signal(Signal::CONT);
    } else {
        server.process.signal(Signal::KILL);
        server.process.wait();
        hold(shared, LONG);
        server.restart();
    }
}

/// Reopens the access log at a device on which nothing has room.
fn full_disk(world: &World, shared: &Shared, target: usize) {
    let gateway = &world.gateways[target].brisk;
    let log = gateway.folder().join("access.log");
    let link = log.with_extension("full");
    symlink("/dev/full", &link).expect("a link");
    fs::rename(&link, &log).expect("a link");
    gateway.process().signal(Signal::USR1);
    hold(shared, SHORT);
    fs::remove_file(&log).expect("a link");
    gateway.process().signal(Signal::USR1);
}

fn flood(world: &World, shared: &Shared, fault: Fault, target: usize) {
    // Only this gateway has few descriptors.
    let index = if fault == Fault::Descriptors { WITH_KEYS } else { target };
    let root = world.ca.root_file();
    let target = Target { index, address: world.addresses()[index], root: &root };
    match fault {
        Fault::Descriptors => floods::silent(target, LONG),
        Fault::SlowReaders => floods::slow_readers(shared, target, LONG),
        Fault::Aborts => floods::aborts(shared, target),
        Fault::Handshakes => floods::handshakes(target, LONG),
        _ => floods::overload(shared, target),
    }
}

//! Knot, a DNS server that accepts signed updates, with one zone in a temporary folder.

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Process, command, serve_on_free_port, wait_until};

/// The key of updates: its name, and its secret in base64.
pub const UPDATE_KEY: (&str, &str) = ("update-key", "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTAwMDA=");

/// A running Knot. Dropping it kills it.
#[derive(Debug)]
pub struct Knot {
    process: Process,
    address: SocketAddr,
    serial: AtomicU32,
    folder: TempDir,
}

impl Knot {
    /// Starts the primary server of `zone`, in which all names resolve to 127.0.0.1.
    pub fn primary(zone: &str) -> Self {
        Self::serving(zone, "@ A 127.0.0.1\n* A 127.0.0.1\n")
    }

    /// Starts the primary server of `zone` with these records, one per line, whose TTL is 60 s unless they state one.
    pub fn serving(zone: &str, records: &str) -> Self {
        let folder = TempDir::with_prefix("brisk-test-knot-").expect("a temporary folder");
        let path = folder.path().display().to_string();
        fs::write(folder.path().join("zone"), contents(zone, 1, records)).expect("a temporary file");
        fs::create_dir(folder.path().join("db")).expect("a temporary folder");
        let (key, secret) = UPDATE_KEY;
        let config = folder.path().join("knot.conf");
        let (process, address) = serve_on_free_port(|port| {
            let text = format!(
                "server:\n    rundir: {path}\n    listen: 127.0.0.1@{port}\n\
                 log:\n  - target: stderr\n    any: info\n\
                 database:\n    storage: {path}/db\n\
                 key:\n  - id: {key}\n    algorithm: hmac-sha256\n    secret: {secret}\n\
                 acl:\n  - id: updates\n    key: {key}\n    action: update\n\
                 zone:\n  - domain: {zone}\n    storage: {path}\n    file: zone\n    acl: updates\n"
            );
            fs::write(&config, text).expect("a temporary file");
            let mut knot = command("knotd");
            knot.arg("--config").arg(&config);
            knot
        });
        Self { process, address, serial: AtomicU32::new(2), folder }
    }

    /// Replaces the records of `zone`. Returns when they are served.
    pub fn set(&self, zone: &str, records: &str) {
        // The serial number must grow with each change, and its line in the log shows that the zone is
        // served.
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        fs::write(self.folder.path().join("zone"), contents(zone, serial, records))
            .expect("a temporary file");
        self.process.signal(Signal::HUP);
        let line = format!("serial {} -> {serial}", serial - 1);
        wait_until("the new zone", || self.log().contains(&line).then_some(()));
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Its address, for UDP and TCP.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The log so far; each update is a line.
    pub fn log(&self) -> String {
        self.process.stdout() + &self.process.stderr()
    }
}

fn contents(zone: &str, serial: u32, records: &str) -> String {
    format!(
        "$ORIGIN {zone}.\n$TTL 60\n@ SOA ns admin {serial} 60 60 60 60\n@ NS ns\nns A 127.0.0.1\n{records}\n"
    )
}

//! What a reload leaves as it was: connections to upstreams, and what is known of their health.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brisk_testkit::brisk::{Brisk, base, host};
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::client::TlsClient;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::wait_until;

use crate::site::{NAME, NAMES, Site, proxy_to, setup};

/// A brisk with one worker, whose configuration can be written anew.
struct Reloaded {
    ca: TestCa,
    leaf: Leaf,
    brisk: Brisk,
}

impl Reloaded {
    fn new(tables: &str) -> Self {
        let ca = TestCa::new();
        let leaf = ca.server(&NAMES).issue();
        Self { brisk: setup().config(&config(&leaf, tables)).start(), ca, leaf }
    }

    fn get(&self) -> String {
        let client = TlsClient::new(&self.ca.root_file(), NAME);
        client.connect(self.brisk.https()).expect("a handshake").get(NAME, "/").text()
    }

    fn rewrite(&self, tables: &str) {
        let before = self.brisk.reload_lines().len();
        self.brisk.write("brisk.toml", config(&self.leaf, tables));
        wait_until("a reload for the changed file", || self.brisk.reload_lines().into_iter().nth(before));
    }
}

fn config(leaf: &Leaf, tables: &str) -> String {
    format!("{}{}{tables}", base("server.workers = 1\n"), host(&NAMES, &[leaf]))
}

#[test]
fn connections_to_an_upstream_that_stays_survive_a_reload() {
    let origin = Origin::fixed("here");
    let tables = proxy_to(&[&origin.url()]);
    let site = Reloaded::new(&tables);
    assert_eq!((site.get().as_str(), origin.connections()), ("here", 1));

    assert!(site.brisk.reload().contains("SIGHUP"));
    assert_eq!((site.get().as_str(), origin.connections()), ("here", 1), "an unchanged file");

    let before = site.brisk.reload_lines().len();
    let renewed = site.ca.server(&NAMES).issue();
    std::fs::copy(&renewed.key, &site.leaf.key).expect("a key file");
    std::fs::copy(&renewed.chain, &site.leaf.chain).expect("a chain file");
    wait_until("a reload for the certificate", || site.brisk.reload_lines().into_iter().nth(before));
    assert_eq!((site.get().as_str(), origin.connections()), ("here", 1), "a renewed certificate");

    let route = "\n[[host.route]]\npath = \"/more\"\nrespond = { body = \"more\" }\n";
    site.rewrite(&format!("{route}{tables}"));
    assert_eq!((site.get().as_str(), origin.connections()), ("here", 1), "a changed route");

    site.rewrite(&format!("{tables}timeouts = {{ head = \"7s\" }}\n"));
    assert_eq!((site.get().as_str(), origin.connections()), ("here", 2), "a changed upstream");
}

/// How many of 20 requests right after a reload reach `origin`.
fn reached_after_reload(site: &Site, origin: &Origin) -> usize {
    assert!(site.brisk.reload().contains("SIGHUP"));
    let asked = || origin.requests().iter().filter(|request| request.head.line.starts_with("GET / ")).count();
    let before = asked();
    let mut connection = site.connect();
    for _ in 0..20 {
        connection.get(NAME, "/");
    }
    asked() - before
}

#[test]
fn what_active_checks_found_survives_a_reload() {
    let (well, sick) = (Origin::fixed("well"), Arc::new(AtomicBool::new(true)));
    let is_sick = Arc::clone(&sick);
    let other = Origin::answering(move |_, stream| {
        let status = if is_sick.load(Ordering::SeqCst) { 500 } else { 200 };
        write!(stream, "HTTP/1.1 {status} Checked\r\nContent-Length: 0\r\n\r\n")
    });
    let health =
        "health = { path = \"/health\", interval = \"1s\", unhealthy_after = 1, healthy_after = 1 }\n";
    let site = Site::with(&(proxy_to(&[&well.url(), &other.url()]) + health));
    let healthy = |wanted: f64| {
        wait_until("the verdict of the checks", || {
            let found = site.brisk.metrics().sum("brisk_upstream_healthy", &[]);
            ((found - wanted).abs() < 0.5).then_some(())
        });
    };
    healthy(1.0);
    assert_eq!(reached_after_reload(&site, &other), 0);
    // The checks go on, and bring it back.
    sick.store(false, Ordering::SeqCst);
    healthy(2.0);
}

#[test]
fn a_server_left_out_for_its_failures_stays_out_after_a_reload() {
    let well = Origin::fixed("well");
    let failing = Origin::answering(|_, _| Err(io::ErrorKind::ConnectionAborted.into()));
    let health = "health = { max_failures = 1, failure_pause = \"60s\" }\n";
    let tables = proxy_to(&[&failing.url(), &well.url()]) + health;
    let site = Site::custom("server.workers = 1\n", &tables, |setup| setup);
    let mut connection = site.connect();
    for _ in 0..4 {
        assert_eq!(connection.get(NAME, "/").text(), "well");
    }
    assert_eq!(failing.requests().len(), 1);
    assert_eq!(reached_after_reload(&site, &failing), 0);
}

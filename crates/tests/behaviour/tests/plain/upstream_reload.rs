//! State kept by a reload: connections to upstreams, and their health.

use std::fs;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use brisk_behaviour::site::{NAME, NAMES, Site, proxy_to, setup};
use brisk_testkit::brisk::{Brisk, base, host};
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::client::{TlsClient, TlsStream};
use brisk_testkit::http1::{Head, Message};
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::wait_until;

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
        let setup = setup().config(&config(&leaf, tables)).file("ticket.key", [7; 80]);
        Self { brisk: setup.start(), ca, leaf }
    }

    fn connect(&self) -> TlsStream {
        TlsClient::new(&self.ca.root_file(), NAME).connect(self.brisk.https()).expect("a handshake")
    }

    fn get(&self) -> String {
        self.connect().get(NAME, "/").text()
    }

    /// Makes a change, and waits for its reload. A pause of the machine amid a change of several files may cause a refused reload
    /// before it.
    fn change(&self, change: impl FnOnce()) {
        let before = self.brisk.reload_lines().len();
        change();
        wait_until("a reload for a changed file", || {
            let lines = self.brisk.reload_lines();
            lines[before..].iter().any(|line| line.contains("reloaded: ")).then_some(())
        });
    }

    fn rewrite(&self, tables: &str) {
        self.change(|| self.brisk.write("brisk.toml", config(&self.leaf, tables)));
    }

    fn renew_certificate(&self) {
        let renewed = self.ca.server(&NAMES).issue();
        self.change(|| {
            fs::copy(&renewed.key, &self.leaf.key).expect("a key file");
            fs::copy(&renewed.chain, &self.leaf.chain).expect("a chain file");
        });
    }
}

fn config(leaf: &Leaf, tables: &str) -> String {
    let keys = "server.workers = 1\nsessions.ticket_keys = [\"ticket.key\"]\n";
    format!("{}{}{tables}", base(keys), host(&NAMES, &[leaf]))
}

/// One more route for the host of the tests.
const ROUTE: &str = "\n[[host.route]]\npath = \"/more\"\nrespond = { body = \"more\" }\n";

#[test]
fn connections_and_health_of_an_upstream_survive_what_is_not_its_own() {
    let well = Origin::fixed("well");
    let failing = Origin::answering(|_, _| Err(io::ErrorKind::ConnectionAborted.into()));
    let health = "health = { max_failures = 1, failure_pause = \"1h\" }\n";
    let tables = proxy_to(&[&failing.url(), &well.url()]) + health;
    let site = Reloaded::new(&tables);
    // The first failure takes the one server out, and the other one needs one connection.
    let as_before = |what: &str| {
        for _ in 0..10 {
            assert_eq!(site.get(), "well", "{what}");
        }
        assert_eq!((failing.requests().len(), well.connections()), (1, 1), "{what}");
    };
    as_before("the start");
    assert!(site.brisk.reload().contains("SIGHUP"));
    as_before("an unchanged file");
    site.renew_certificate();
    as_before("a renewed certificate");
    site.change(|| site.brisk.write("ticket.key", [8; 80]));
    as_before("a new ticket key");
    site.rewrite(&format!("{ROUTE}{tables}"));
    as_before("a changed route");
    let other = "\n[upstream.other]\nservers = [\"http://127.0.0.1:1\"]\n";
    site.rewrite(&format!("{ROUTE}{tables}{other}"));
    as_before("another upstream");
    site.rewrite(&format!("{ROUTE}{tables}{other}timeouts = {{ head = \"7m\" }}\n"));
    as_before("a change of another upstream");
    site.rewrite(&format!("{tables}timeouts = {{ head = \"7m\" }}\n"));
    // A changed upstream begins anew.
    wait_until("a request to the server that was down", || {
        assert_eq!(site.get(), "well");
        (failing.requests().len() > 1).then_some(())
    });
    assert_eq!(well.connections(), 2);
}

#[test]
fn a_server_removed_from_its_group_gets_no_request() {
    let (stays, goes) = (Origin::fixed("stays"), Origin::fixed("goes"));
    let site = Reloaded::new(&proxy_to(&[&stays.url(), &goes.url()]));
    let mut connection = site.connect();
    let mut answers = |count| (0..count).map(|_| connection.get(NAME, "/").text()).collect::<Vec<_>>();
    assert!(answers(2).contains(&"goes".to_owned()));
    site.rewrite(&proxy_to(&[&stays.url()]));
    assert_eq!(answers(10), ["stays"; 10]);
    assert_eq!(goes.requests().len(), 1);
}

/// An origin that answers `/download` with half of a body, and with the rest on request of the test.
fn origin_with_download() -> (Origin, Sender<()>, Arc<AtomicUsize>) {
    let (release, held) = channel();
    let (held, ended) = (Mutex::new(held), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&ended);
    let origin = Origin::raw(move |mut stream| {
        while let Some(request) = Message::read_request(&mut stream)? {
            if request.head.line.starts_with("GET /download ") {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")?;
                // The test's end releases it too.
                let _ = held.lock().expect("one download").recv();
                stream.write_all(b"rest")?;
            } else {
                write_response(&mut stream, b"here")?;
            }
        }
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    (origin, release, ended)
}

#[test]
fn what_a_former_upstream_kept_is_closed_while_its_download_goes_on() {
    let (origin, release, ended) = origin_with_download();
    let tables = proxy_to(&[&origin.url()]) + "pool = { idle_timeout = \"1h\" }\ntimeouts.body = \"10m\"\n";
    let site = Reloaded::new(&tables);
    let mut download = site.connect();
    write!(download, "GET /download HTTP/1.1\r\nHost: {NAME}\r\n\r\n").expect("a server that reads");
    let head = Head::read(&mut download).expect("an answer").expect("an answer");
    assert_eq!(head.length(), Some(8));
    let mut half = [0; 4];
    download.read_exact(&mut half).expect("the first half");
    assert_eq!((site.get().as_str(), origin.connections()), ("here", 2));
    let closed = |count| {
        wait_until("closed connections", || (ended.load(Ordering::SeqCst) == count).then_some(()));
    };

    site.rewrite(&format!("{tables}timeouts.head = \"7m\"\n"));
    closed(1);
    release.send(()).expect("a download in progress");
    download.read_exact(&mut half).expect("the second half");
    assert_eq!(&half, b"rest");
    // The connection of the download is not kept either.
    closed(2);
    assert_eq!((site.get().as_str(), origin.connections()), ("here", 3));
}

#[test]
fn a_reload_begins_no_checks_anew() {
    let (one, other) = (Origin::fixed("one"), Origin::fixed("other"));
    let checked = |name: &str, origin: &Origin, host: usize| {
        let health = format!(
            "health = {{ path = \"/\", host = \"round-{host}\", interval = \"1h\", timeout = \"10m\" }}"
        );
        format!("\n[upstream.{name}]\nservers = [{:?}]\n{health}\n", origin.url())
    };
    let tables = |round| format!("{}{}", checked("one", &one, 0), checked("other", &other, round));
    let site = Reloaded::new(&tables(0));
    let checks_of = |origin: &Origin, host: usize| {
        let host = format!("round-{host}");
        origin.requests().iter().filter(|request| request.header("host") == Some(host.as_str())).count()
    };
    let checked_once = |origin: &Origin, round| {
        wait_until("a check", || (checks_of(origin, round) == 1).then_some(()));
    };
    checked_once(&one, 0);
    checked_once(&other, 0);
    // Each change is of the other one, whose first check shows that checks of the new configuration have begun.
    for round in 1..=4 {
        site.rewrite(&tables(round));
        checked_once(&other, round);
    }
    assert_eq!(checks_of(&one, 0), 1);
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
    // Three failures in a row, so that no pause of the machine excludes the other server.
    let health = "health = { path = \"/health\", interval = \"1s\", timeout = \"1s\", healthy_after = 1 }\n";
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
    let health = "health = { max_failures = 1, failure_pause = \"1h\" }\n";
    let tables = proxy_to(&[&failing.url(), &well.url()]) + health;
    let site = Site::custom("server.workers = 1\n", &tables, |setup| setup);
    let mut connection = site.connect();
    for _ in 0..4 {
        assert_eq!(connection.get(NAME, "/").text(), "well");
    }
    assert_eq!(failing.requests().len(), 1);
    assert_eq!(reached_after_reload(&site, &failing), 0);
}

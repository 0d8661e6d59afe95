//! Overload: requests of low priority are refused first, and overloaded upstream servers get fewer requests.

use std::fs;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use brisk_behaviour::site::{NAME, Site, upstream};
use brisk_testkit::client::TlsStream;
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::wait_until;
use serde_json::Value;

/// Routes of each priority, and `/held`, whose requests wait for their origin.
const ROUTES: &str = "
[[host.route]]
path = \"/\"
respond = { body = \"normal\" }
[[host.route]]
path = \"/low\"
priority = \"low\"
respond = { body = \"low\" }
[[host.route]]
path = \"/held\"
upstream = \"app\"
timeouts = { head = \"10m\" }
";

/// An origin that answers when a message is sent, or with the end of the test.
fn holding() -> (Origin, Sender<()>) {
    let (release, held) = channel::<()>();
    let held = Mutex::new(held);
    let origin = Origin::answering(move |_, stream| {
        let _ = held.lock().expect("no panic").recv();
        write_response(stream, b"done")
    });
    (origin, release)
}

fn metric(site: &Site, name: &str, label: &str) -> f64 {
    site.brisk.metrics().sum(name, &[label])
}

/// Occupies 18 of the 20 connections that the site may have.
fn occupy(site: &Site) -> Vec<TlsStream> {
    let mut occupied: Vec<_> = (0..18).map(|_| site.connect()).collect();
    for connection in &mut occupied {
        write!(connection, "GET /held HTTP/1.1\r\nHost: {NAME}\r\n\r\n").expect("a server");
    }
    wait_until("a source of overload", || {
        (metric(site, "brisk_pressure_source", "source=\"descriptors\"") >= 0.9).then_some(())
    });
    occupied
}

#[test]
fn requests_of_low_priority_are_refused_first_and_served_again() {
    let (origin, release) = holding();
    let keys = "server.max_connections = 20\n";
    let site = Site::custom(keys, &format!("{ROUTES}{}", upstream(&[&origin.url()])), |setup| setup);
    let mut client = site.connect();
    assert_eq!(client.get(NAME, "/low/before").text(), "low");
    let occupied = occupy(&site);
    wait_until("all requests of low priority to be refused", || {
        (metric(&site, "brisk_pressure_refused_share", "work=\"low\"") > 0.99).then_some(())
    });
    assert!(metric(&site, "brisk_pressure_level", "") > 1.5);
    let refused = client.get(NAME, "/low/refused");
    assert_eq!((refused.status(), refused.header("retry-after")), (503, Some("2")));
    let line: Value = serde_json::from_str(&site.brisk.logged("/low/refused")).expect("a line of JSON");
    assert_eq!(line["error"], "overload-priority");
    assert_eq!(client.get(NAME, "/").text(), "normal");
    assert!(metric(&site, "brisk_pressure_refusals_total", "work=\"low\"") > 0.5);
    let log = site.brisk.log_with("overload: the level has risen");
    assert!(log.contains("descriptors"), "{log}");
    drop((release, occupied));
    wait_until("the end of the overload", || (client.get(NAME, "/low").status() == 200).then_some(()));
    site.brisk.log_with("the overload has ended");
}

#[test]
fn nothing_is_refused_where_the_configuration_says_so() {
    let (origin, release) = holding();
    let keys = "server.max_connections = 20\nserver.overload = \"off\"\n";
    let site = Site::custom(keys, &format!("{ROUTES}{}", upstream(&[&origin.url()])), |setup| setup);
    let mut client = site.connect();
    let occupied = occupy(&site);
    let answers: Vec<_> = (0..20).map(|_| client.get(NAME, "/low").status()).collect();
    assert_eq!(answers, [200; 20]);
    assert!(metric(&site, "brisk_pressure_level", "") < 0.5);
    drop((release, occupied));
}

/// Clients that send one request after the other to `/slow` until they are stopped.
struct Load {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    clients: Vec<thread::JoinHandle<()>>,
}

impl Load {
    fn new() -> Self {
        Self { stop: Arc::default(), served: Arc::default(), refused: Arc::default(), clients: Vec::new() }
    }

    fn add(&mut self, site: &Site, number: usize) {
        for mut connection in (0..number).map(|_| site.connect()).collect::<Vec<_>>() {
            let (stop, served, refused) =
                (Arc::clone(&self.stop), Arc::clone(&self.served), Arc::clone(&self.refused));
            self.clients.push(thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    let response = connection.get(NAME, "/slow");
                    if response.status() == 200 {
                        served.fetch_add(1, Ordering::SeqCst);
                        continue;
                    }
                    assert_eq!((response.status(), response.header("retry-after")), (503, Some("2")));
                    refused.fetch_add(1, Ordering::SeqCst);
                    // A pause, so that other threads get the processor.
                    thread::sleep(Duration::from_millis(10));
                }
            }));
        }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.clients.into_iter().for_each(|client| client.join().expect("a client"));
    }
}

#[test]
fn an_overloaded_server_gets_fewer_requests_and_other_routes_are_served() {
    // One request at a time, over any number of connections.
    let turn = Mutex::new(());
    let slow = Origin::answering(move |_, stream| {
        let turn = turn.lock().expect("no panic");
        thread::sleep(Duration::from_millis(20));
        drop(turn);
        write_response(stream, b"done")
    });
    let fast = Origin::fixed("fast");
    let route =
        |path: &str, name: &str| format!("\n[[host.route]]\npath = \"/{path}\"\nupstream = \"{name}\"\n");
    let tables = format!(
        "{}{}{}[upstream.other]\nservers = [{:?}]\n",
        route("slow", "app"),
        route("fast", "other"),
        upstream(&[&slow.url()]),
        fast.url()
    );
    let site = Site::custom("server.overload = \"on\"\n", &tables, |setup| setup);
    let limit =
        |group: &str| metric(&site, "brisk_upstream_concurrency_limit", &format!("group=\"{group}\""));
    let mut load = Load::new();
    // Enough for the server to be busy all the time.
    load.add(&site, 4);
    wait_until("responses without an overload", || (load.served.load(Ordering::SeqCst) >= 100).then_some(()));
    load.add(&site, 60);
    wait_until("a limit", || (limit("app") > 0.5).then_some(()));
    site.brisk.log_with("upstream server overloaded");
    wait_until("a refused request", || (load.refused.load(Ordering::SeqCst) > 0).then_some(()));
    assert!(site.brisk.logged("\"server-limit\"").contains("/slow"));
    assert!(metric(&site, "brisk_upstream_limit_refusals_total", "group=\"app\"") > 0.5);
    // The other server has no limit.
    let answers: Vec<_> = (0..20).map(|_| site.get("/fast").status()).collect();
    assert_eq!((answers, limit("other") < 0.5), (vec![200; 20], true));
    let served = load.served.load(Ordering::SeqCst);
    wait_until("further responses", || (load.served.load(Ordering::SeqCst) > served + 20).then_some(()));
    // Without the key, the limit ends at once.
    let file = site.brisk.folder().join("brisk.toml");
    let config = fs::read_to_string(file).expect("the configuration");
    site.brisk.write("brisk.toml", config.replace("overload = \"on\"", "overload = \"off\""));
    let reloaded = site.brisk.reload();
    assert!(reloaded.contains("in force"), "{reloaded}");
    wait_until("the end of the limit", || (limit("app") < 0.5).then_some(()));
    load.stop();
    assert_eq!(site.get("/slow").text(), "done");
}

//! Clients that leave during a request: neither their slot nor the upstream's work is kept.

use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

use brisk_behaviour::h2_client::silent;
use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::client::TlsStream;
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::wait_until;
use rustix::net::sockopt::set_socket_linger;

const CLIENTS: usize = 10;

fn ask(site: &Site) -> TlsStream {
    let mut client = site.connect();
    let request = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
    client.write_all(request.as_bytes()).expect("a server that reads");
    client
}

fn all_forgotten(site: &Site) {
    wait_until("the end of all connections", || {
        let metrics = site.brisk.metrics();
        let open = metrics.sum("brisk_connections_open", &[]);
        let upstream = metrics.sum("brisk_upstream_connections_open", &[]);
        (open + upstream < 0.5).then_some(())
    });
}

/// Asks from many clients and waits until the upstream has all their requests.
fn ask_many(site: &Site, origin: &Origin) -> Vec<TlsStream> {
    let clients: Vec<_> = (0..CLIENTS).map(|_| ask(site)).collect();
    wait_until("all requests at the upstream", || (origin.connections() == CLIENTS).then_some(()));
    clients
}

#[test]
fn clients_that_reset_their_connection_leave_neither_slot_nor_upstream_work() {
    let origin = silent();
    let keys = format!("server.max_connections = {CLIENTS}\n");
    let site = Site::custom(&keys, &proxy_to(&[&origin.url()]), |setup| setup);
    for client in ask_many(&site, &origin) {
        set_socket_linger(client.tcp(), Some(Duration::ZERO)).expect("a socket");
    }
    all_forgotten(&site);
    // All slots are free again.
    drop((0..CLIENTS).map(|_| site.connect()).collect::<Vec<_>>());
}

#[test]
fn a_reset_is_noticed_behind_data_that_nobody_reads() {
    let origin = silent();
    let site = Site::proxying(&[&origin.url()]);
    for mut client in ask_many(&site, &origin) {
        client.write_all(&[b'x'; 1000]).expect("a connection");
        set_socket_linger(client.tcp(), Some(Duration::ZERO)).expect("a socket");
    }
    all_forgotten(&site);
}

#[test]
fn clients_that_close_their_side_are_gone_where_the_configuration_says_so() {
    let origin = silent();
    let keys = "server.abort_on_close = true\n";
    let site = Site::custom(keys, &proxy_to(&[&origin.url()]), |setup| setup);
    drop(ask_many(&site, &origin));
    all_forgotten(&site);
}

#[test]
fn a_client_that_only_closes_its_side_gets_its_answer_otherwise() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let origin = Origin::answering(move |_, stream| {
        let _ = held.lock().expect("one request").recv();
        write_response(stream, b"late")
    });
    let site = Site::proxying(&[&origin.url()]);
    let mut client = ask(&site);
    client.close_write();
    client.tcp().shutdown(Shutdown::Write).expect("a connection");
    origin.last_request();
    // Longer than it takes to look for the client.
    std::thread::sleep(Duration::from_millis(1200));
    release.send(()).expect("an origin");
    assert_eq!(client.response().text(), "late");
}

//! Connections that occupy the admin listener and the dashboard: they keep no operator and no balancer out.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use brisk_behaviour::dashboard::ON;
use brisk_behaviour::site::{Site, connect_from};
use brisk_testkit::process::{TIMEOUT, wait_until};

/// The status of the first response on `stream`, which stays open.
fn status(stream: &mut TcpStream, path: &str) -> Option<String> {
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).ok()?;
    let mut status = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut status).ok()?;
    std::str::from_utf8(&status).ok()?.split(' ').nth(1).map(str::to_owned)
}

/// The status of a request while more silent connections are open than the listener admits.
fn status_beside_silent_connections(address: SocketAddr, path: &str) -> String {
    let connect = || TcpStream::connect(address).expect("a listener");
    let _silent: Vec<_> = (0..70).map(|_| connect()).collect();
    let mut incomplete = connect();
    incomplete.write_all(b"GET / HTTP/1.1\r\nHost: local").expect("a part of a head");
    let mut stream = connect();
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut response = String::new();
    let _ = stream.read_to_string(&mut response);
    response.split(' ').nth(1).unwrap_or("closed").to_owned()
}

/// Waits for a response beside silent connections: a pause of the machine may be longer than a listener waits for the request.
fn is_served(address: SocketAddr, path: &str) {
    wait_until(&format!("a response to {path} beside silent connections"), || {
        let status = status_beside_silent_connections(address, path);
        assert!(status == "200" || status == "closed", "{path}: {status}");
        (status == "200").then_some(())
    });
}

#[test]
fn silent_connections_give_way_on_the_admin_listener_and_the_dashboard() {
    let site = Site::custom(ON, "", |setup| setup);
    for path in ["/readyz", "/healthz"] {
        is_served(site.brisk.admin(), path);
    }
    is_served(site.brisk.dashboard(), "/");
}

#[test]
fn open_connections_of_one_client_leave_the_admin_listener_to_another() {
    let site = Site::custom("", "", |setup| setup);
    let admin = site.brisk.admin();
    // A connection without a request ends after a few seconds, which a pause of the machine may exceed.
    let _connections = wait_until("responses on half of the connections", || {
        let mut connections: Vec<_> = (0..64).map(|_| connect_from(Ipv4Addr::LOCALHOST, admin)).collect();
        let served = connections.iter_mut().filter_map(|stream| status(stream, "/healthz")).count();
        (served >= 32).then_some(connections)
    });
    let mut balancer = connect_from(Ipv4Addr::new(127, 0, 0, 2), admin);
    assert_eq!(status(&mut balancer, "/readyz").as_deref(), Some("200"));
}

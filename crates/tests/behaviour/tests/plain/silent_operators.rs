//! Connections that occupy the admin listener and the dashboard: they keep no operator and no balancer out.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use brisk_behaviour::dashboard::ON;
use brisk_behaviour::site::{Site, connect_from};
use brisk_testkit::process::TIMEOUT;

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

#[test]
fn silent_connections_give_way_on_the_admin_listener_and_the_dashboard() {
    let site = Site::custom(ON, "", |setup| setup);
    for path in ["/readyz", "/healthz"] {
        assert_eq!(status_beside_silent_connections(site.brisk.admin(), path), "200", "{path}");
    }
    assert_eq!(status_beside_silent_connections(site.brisk.dashboard(), "/"), "200");
}

#[test]
fn open_connections_of_one_client_leave_the_admin_listener_to_another() {
    let site = Site::custom("", "", |setup| setup);
    let admin = site.brisk.admin();
    let mut connections: Vec<_> = (0..64).map(|_| connect_from(Ipv4Addr::LOCALHOST, admin)).collect();
    let served = connections.iter_mut().filter_map(|stream| status(stream, "/healthz")).count();
    assert!(served >= 32, "{served} of the connections got a response");
    let mut balancer = connect_from(Ipv4Addr::new(127, 0, 0, 2), admin);
    assert_eq!(status(&mut balancer, "/readyz").as_deref(), Some("200"));
}

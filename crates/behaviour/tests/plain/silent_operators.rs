//! Silent connections to the admin listener and the dashboard: they keep no operator and no balancer out.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use brisk_behaviour::dashboard::ON;
use brisk_behaviour::site::Site;
use brisk_testkit::process::TIMEOUT;

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

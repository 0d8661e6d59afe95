//! PROXY protocol v1 and v2 in front of the handshake.

use std::io::{Read, Write};
use std::net::TcpStream;

use brisk_behaviour::site::{NAME, Site, facts};
use brisk_testkit::client::TlsStream;
use brisk_testkit::process::TIMEOUT;

const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn connect(site: &Site, header: &[u8]) -> TcpStream {
    let mut tcp = TcpStream::connect(site.brisk.https()).expect("a listener");
    tcp.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    tcp.write_all(header).expect("a connection");
    tcp
}

fn client_of(mut stream: TlsStream) -> String {
    let facts = facts(&stream.get(NAME, "/connection.json").text());
    facts["client"].as_str().unwrap_or_default().to_owned()
}

fn v2(command: u8, addresses: &[u8]) -> Vec<u8> {
    let family = if addresses.is_empty() { 0x00 } else { 0x11 };
    let length = (addresses.len() as u16).to_be_bytes();
    [V2_SIGNATURE, &[0x20 | command, family], &length, addresses].concat()
}

fn everyone() -> Site {
    Site::custom("server.proxy_protocol = true\n", "", |setup| setup)
}

#[test]
fn both_versions_tell_the_client() {
    let site = everyone();
    let v2 = v2(1, &[203, 0, 113, 7, 192, 0, 2, 1, 0x30, 0x39, 0x01, 0xbb]);
    for header in [&b"PROXY TCP4 203.0.113.7 192.0.2.1 12345 443\r\n"[..], &v2] {
        let stream = site.client().over(connect(&site, header)).expect("a handshake");
        assert_eq!(client_of(stream), "203.0.113.7:12345");
    }
    let v6 = b"PROXY TCP6 2001:db8::7 2001:db8::1 12345 443\r\n";
    assert_eq!(
        client_of(site.client().over(connect(&site, v6)).expect("a handshake")),
        "[2001:db8::7]:12345"
    );
    assert!(site.brisk.logged("203.0.113.7").contains("\"client_port\":12345"));
}

#[test]
fn a_health_check_of_the_balancer_is_itself() {
    let site = everyone();
    for header in [&b"PROXY UNKNOWN\r\n"[..], &v2(0, &[])] {
        let stream = site.client().over(connect(&site, header)).expect("a handshake");
        assert!(client_of(stream).starts_with("127.0.0.1:"));
    }
}

#[test]
fn a_missing_or_wrong_header_ends_the_connection() {
    let site = everyone();
    let hello = site.client().hello();
    for header in [&hello[..], b"PROXY TCP4 nonsense\r\n", b"PROXY ", &[0; 600], &[b'P'; 600]] {
        let mut tcp = connect(&site, header);
        let mut answer = Vec::new();
        // A reset is an end too, and it may come before this end is done.
        let _ = tcp.shutdown(std::net::Shutdown::Write).and_then(|()| tcp.read_to_end(&mut answer));
        assert!(answer.is_empty(), "{header:?}: {answer:?}");
    }
    assert!(site.brisk.logged("proxy-protocol").contains("handshake"));
}

#[test]
fn only_trusted_networks_are_asked_for_it() {
    let strangers = Site::custom("server.proxy_protocol = [\"203.0.113.0/24\"]\n", "", |setup| setup);
    assert_eq!(strangers.get("/").status(), 200);
    let trusted = Site::custom("server.proxy_protocol = [\"127.0.0.0/8\"]\n", "", |setup| setup);
    let header = b"PROXY TCP4 203.0.113.7 192.0.2.1 12345 443\r\n";
    let stream = trusted.client().over(connect(&trusted, header)).expect("a handshake");
    assert_eq!(client_of(stream), "203.0.113.7:12345");
}

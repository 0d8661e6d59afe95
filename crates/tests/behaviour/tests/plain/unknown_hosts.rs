//! Requests for names that belong to no host.

use std::io::{Read, Write};
use std::net::TcpStream;

use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::origin::Origin;
use brisk_testkit::process::wait_until;

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: evil.test\r\nX-Forwarded-Host: evil.test\r\n\r\n";

#[test]
fn a_name_that_no_host_has_is_not_passed_on_as_one_of_ours() {
    let origin = Origin::fixed("reached");
    let site = Site::proxying(&[&origin.url()]);
    assert_eq!(site.connect().request(REQUEST).status(), 200);
    let request = origin.last_request();
    assert_eq!(request.header("host"), Some("evil.test"));
    assert_eq!(request.header("x-forwarded-host"), None);
    assert_eq!(request.header("forwarded"), Some("for=127.0.0.1;proto=https"));
    assert_eq!(site.get("/").status(), 200);
    assert_eq!(origin.last_request().header("x-forwarded-host"), Some(NAME));
}

#[test]
fn unknown_names_can_be_refused() {
    let origin = Origin::fixed("reached");
    let keys = "server.unknown_host = \"refuse\"\n";
    let site = Site::custom(keys, &proxy_to(&[&origin.url()]), |setup| setup);
    assert_eq!(site.connect().request(REQUEST).status(), 421);
    assert_eq!(origin.requests().len(), 0);
    assert_eq!(site.get("/").status(), 200);
    // Plain HTTP does not lead to a foreign host either.
    let plain = |host: &str| {
        let mut stream = TcpStream::connect(site.brisk.http()).expect("a connection");
        write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").expect("a request");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        response.split(' ').nth(1).expect("a status").to_owned()
    };
    assert_eq!((plain("evil.test"), plain(NAME)), ("421".to_owned(), "308".to_owned()));
}

#[test]
fn the_log_says_what_unknown_names_come_to_unless_the_operator_said_it() {
    let origin = Origin::fixed("reached");
    let said = |keys: &str| {
        let site = Site::custom(keys, &proxy_to(&[&origin.url()]), |setup| setup);
        // Warnings come before this line.
        wait_until("a line of the log", || site.brisk.process().stderr().contains("INFO").then_some(()));
        site.brisk.process().stderr().contains("server.unknown_host is not written")
    };
    assert!(said(""));
    assert!(!said("server.unknown_host = \"default\"\n"));
    assert!(!said("server.unknown_host = \"refuse\"\n"));
}

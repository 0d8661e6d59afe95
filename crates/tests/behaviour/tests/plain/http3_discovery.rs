//! Discovery of HTTP/3: `Alt-Svc` per host and client, its withdrawal, and the notes of `brisk check`.

use brisk_behaviour::h3_client::{self, head_for};
use brisk_behaviour::site::{NAME, setup};
use brisk_testkit::brisk::{Brisk, Setup, base, host};
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::client::TlsClient;
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::wait_until;
use brisk_testkit::quic::QuicClient;

use super::http3::{Site, config, request};

const OTHER: &str = "other.test";
const RESPOND: &str = "\n[[host.route]]\npath = \"/\"\nrespond = { body = \"here\" }\n";

/// The announcement of the gateway's own port.
fn own(brisk: &Brisk, age: u64) -> String {
    format!("h3=\":{}\"; ma={age}", brisk.https().port())
}

fn alt_svc(message: &Message) -> Option<String> {
    message.header("alt-svc").map(str::to_owned)
}

/// `Alt-Svc` of a response over HTTP/1.1.
fn over_tcp(ca: &TestCa, brisk: &Brisk, name: &str) -> Option<String> {
    alt_svc(
        &TlsClient::new(&ca.root_file(), name).connect(brisk.https()).expect("a handshake").get(name, "/"),
    )
}

/// Two hosts with one certificate, the second with `keys`.
fn two_hosts(leaf: &Leaf, server: &str, keys: &str) -> String {
    base(server) + &host(&[NAME], &[leaf]) + RESPOND + &host(&[OTHER], &[leaf]) + keys + RESPOND
}

fn with_two_hosts(server: &str, keys: &str) -> (TestCa, Leaf, Brisk) {
    let ca = TestCa::new();
    let leaf = ca.server(&[NAME, OTHER]).issue();
    let brisk = setup().config(&two_hosts(&leaf, server, keys)).start();
    (ca, leaf, brisk)
}

#[test]
fn responses_announce_http3_over_tcp_and_once_for_each_connection_of_http3() {
    let site = Site::new("here", "");
    assert_eq!(over_tcp(&site.ca, &site.brisk, NAME), Some(own(&site.brisk, 86_400)));
    let mut connection = site.connect();
    let mut announced = || {
        let stream = request(&mut connection, "/");
        h3_client::response(&mut connection, stream).expect("a response").field("alt-svc").map(str::to_owned)
    };
    assert_eq!(announced(), Some(own(&site.brisk, 86_400)));
    assert_eq!(announced(), None);
}

#[test]
fn the_announced_port_and_age_can_be_others() {
    let site = Site::new("here", "server.alt_svc = { port = 443, max_age = \"1h\" }\n");
    assert_eq!(over_tcp(&site.ca, &site.brisk, NAME).as_deref(), Some("h3=\":443\"; ma=3600"));
    let site = Site::new("here", "server.alt_svc.max_age = \"0s\"\n");
    assert_eq!(over_tcp(&site.ca, &site.brisk, NAME), None);
}

#[test]
fn nothing_is_said_of_http3_unless_the_configuration_mentions_it() {
    let (ca, _, brisk) = with_two_hosts("", "");
    assert_eq!(over_tcp(&ca, &brisk, NAME), None);
}

#[test]
fn a_host_without_http3_withdraws_it_and_refuses_it() {
    let (ca, _, brisk) = with_two_hosts("server.http3 = true\n", "http3 = false\n");
    assert_eq!(over_tcp(&ca, &brisk, NAME), Some(own(&brisk, 86_400)));
    assert_eq!(over_tcp(&ca, &brisk, OTHER).as_deref(), Some("clear"));
    let client = |name| QuicClient::new(&ca.root_file(), name, "h3");
    client(OTHER).connect(brisk.https()).handshake().expect_err("no HTTP/3 for the host");
    // A connection for the other host, whose certificate has both names.
    let mut connection = client(NAME).connect(brisk.https());
    connection.handshake().expect("a handshake");
    connection.send_uni(&[0, 4, 0]);
    let stream = connection.request(&head_for(OTHER, "GET", "/", &[]));
    let received = h3_client::response(&mut connection, stream).expect("a response");
    assert_eq!((received.status(), received.field("alt-svc")), ("421", Some("clear")));
}

#[test]
fn a_reload_withdraws_http3_and_a_later_one_announces_it_again() {
    let site = Site::new("here", "");
    let mut connection = site.connect();
    let on = config(&site.leaf, "here", "");
    site.brisk.write("brisk.toml", on.replace("http3 = true", "http3 = false"));
    assert!(site.brisk.reload().contains("reloaded:"));
    let after = |expected: Option<String>| {
        wait_until("the new header", || (over_tcp(&site.ca, &site.brisk, NAME) == expected).then_some(()));
    };
    after(Some("clear".to_owned()));
    let stream = request(&mut connection, "/");
    let received = h3_client::response(&mut connection, stream).expect("a response");
    assert_eq!((received.status(), received.field("alt-svc")), ("421", Some("clear")));
    site.brisk.write("brisk.toml", on);
    assert!(site.brisk.reload().contains("reloaded:"));
    after(Some(own(&site.brisk, 86_400)));
}

#[test]
fn a_gateway_that_started_without_http3_announces_it_only_after_a_restart() {
    let (ca, leaf, brisk) = with_two_hosts("", "");
    brisk.write("brisk.toml", two_hosts(&leaf, "server.http3 = true\n", "http3 = false\n"));
    assert!(brisk.reload().contains("reloaded:"));
    wait_until("the new configuration", || {
        (over_tcp(&ca, &brisk, OTHER).as_deref() == Some("clear")).then_some(())
    });
    assert_eq!(over_tcp(&ca, &brisk, NAME), None);
}

#[test]
fn clients_of_proxies_and_balancers_are_told_nothing() {
    let trusted = "server.http3 = true\nserver.trusted_proxies = [\"127.0.0.0/8\"]\n";
    let (ca, _, brisk) = with_two_hosts(trusted, "http3 = false\n");
    assert_eq!((over_tcp(&ca, &brisk, NAME), over_tcp(&ca, &brisk, OTHER)), (None, None));

    let balanced = "server.http3 = true\nserver.proxy_protocol = [\"127.0.0.0/8\"]\n";
    let (ca, _, brisk) = with_two_hosts(balanced, "");
    let mut tcp = std::net::TcpStream::connect(brisk.https()).expect("a connection");
    std::io::Write::write_all(&mut tcp, b"PROXY TCP4 192.0.2.1 192.0.2.2 1000 443\r\n").expect("sent");
    let mut stream = TlsClient::new(&ca.root_file(), NAME).over(tcp).expect("a handshake");
    assert_eq!(alt_svc(&stream.get(NAME, "/")), None);
}

#[test]
fn the_header_of_an_upstream_passes_only_if_the_gateway_has_no_statement_of_its_own() {
    let origin = Origin::answering(|_, stream| {
        let response = "HTTP/1.1 200 OK\r\nAlt-Svc: h3=\":9\"\r\nContent-Length: 0\r\n\r\n";
        std::io::Write::write_all(stream, response.as_bytes())
    });
    let route = format!(
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n[upstream.app]\nservers = [{:?}]\n",
        origin.url()
    );
    let ca = TestCa::new();
    let leaf = ca.server(&[NAME]).issue();
    let start = |server: &str| setup().config(&(base(server) + &host(&[NAME], &[&leaf]) + &route)).start();
    let brisk = start("");
    assert_eq!(over_tcp(&ca, &brisk, NAME).as_deref(), Some("h3=\":9\""));
    let brisk = start("server.http3 = true\n");
    assert_eq!(over_tcp(&ca, &brisk, NAME), Some(own(&brisk, 86_400)));
    let brisk = start("server.http3 = true\nserver.trusted_proxies = [\"127.0.0.0/8\"]\n");
    assert_eq!(over_tcp(&ca, &brisk, NAME), None);
}

fn checked(setup: &Setup) -> String {
    setup.check("brisk.toml").success()
}

#[test]
fn a_check_prints_dns_records_and_listeners_whose_clients_cannot_use_http3() {
    let ca = TestCa::new();
    let leaf = ca.server(&[NAME, OTHER]).issue();
    let at = "server.https = [\"127.0.0.1:8443\"]\nserver.http3 = true\nserver.alt_svc.port = 443\n\
              server.proxy_protocol = [\"192.0.2.0/24\"]\n";
    let said = checked(&setup().config(&two_hosts(&leaf, at, "http3 = false\n")));
    assert!(said.contains("DNS: site.test. 3600 IN HTTPS 1 . alpn=\"h3,h2\""), "{said}");
    assert!(!said.contains("DNS: other.test"), "{said}");
    assert!(said.contains("https 127.0.0.1:8443: no HTTP/3 for clients behind 192.0.2.0/24"), "{said}");
    assert!(!checked(&setup().config(&two_hosts(&leaf, "", ""))).contains("DNS"));
}

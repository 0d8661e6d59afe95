//! `[[tcp]]` with TLS: passed on by server name and ALPN, on a listener of its own and beside hosts, or terminated.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;

use brisk_behaviour::site::{Site, setup};
use brisk_behaviour::tcp::{ALONE, certificate, numbered};
use brisk_testkit::brisk::{Brisk, base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::client::{TlsClient, TlsStream};
use brisk_testkit::origin::Origin;

/// A `[[tcp]]` with these keys.
fn tcp(upstream: &str, keys: &str) -> String {
    format!("\n[[tcp]]\nupstream = {upstream:?}\n{keys}\n")
}

const OWN: &str = "listen = [\"127.0.0.1:0\"]\n";

fn url(address: SocketAddr) -> String {
    format!("tcp://{address}")
}

/// A server that answers with `name` over TLS, and its CA.
fn origin(name: &'static str, names: &[&str]) -> (TestCa, Brisk) {
    let ca = TestCa::new();
    let leaf = ca.server(names).issue();
    let respond = format!("[[host.route]]\npath = \"/\"\nrespond = {{ body = {name:?} }}\n");
    let config = format!("{}{}{respond}", base(""), host(names, &[&leaf]));
    (ca, setup().config(&config).start())
}

/// A client of `name` that trusts only `ca`.
fn client(ca: &TestCa, name: &str) -> TlsClient {
    TlsClient::new(&ca.root_file(), name)
}

fn body(mut stream: TlsStream, name: &str) -> String {
    stream.get(name, "/").text()
}

/// Serves a plain echo that answers `name` first.
fn greeter(name: &'static str) -> Origin {
    Origin::raw(move |mut stream| {
        stream.write_all(name.as_bytes())?;
        let mut copy = stream.try_clone()?;
        std::io::copy(&mut stream, &mut copy).map(drop)
    })
}

fn greeting(stream: &mut TlsStream, length: usize) -> String {
    let mut text = vec![0; length];
    stream.read_exact(&mut text).expect("a greeting");
    String::from_utf8(text).expect("text")
}

#[test]
fn the_server_name_chooses_the_server_whose_certificate_the_client_sees() {
    let (first_ca, first) = origin("first", &["a.test", "x.wild.test"]);
    let (second_ca, second) = origin("second", &["b.test", "c.test"]);
    // Both on one address: the port of the first listener is chosen before.
    let port = brisk_testkit::process::free_port();
    let own = format!("listen = [\"127.0.0.1:{port}\"]\n");
    let tables = [
        tcp(&url(first.https()), &format!("{own}names = [\"a.test\", \"*.wild.test\"]")),
        tcp(&url(second.https()), &format!("{own}names = [\"b.test\"]")),
    ]
    .concat();
    let brisk = setup().config(&format!("{}{tables}", base(ALONE))).start();
    let address = brisk.tcp(0);
    for (ca, name, expected) in [
        (&first_ca, "a.test", "first"),
        (&first_ca, "x.wild.test", "first"),
        (&second_ca, "b.test", "second"),
    ] {
        let stream = client(ca, name).alpn(&["http/1.1"]).connect(address).expect("a handshake");
        assert_eq!(body(stream, name), expected, "{name}");
        let line = brisk.logged(&format!("\"server_name\":{name:?}"));
        assert!(line.contains("\"event\":\"tcp\""), "{line}");
    }
    // The other server's certificate is not trusted, so the choice above is by name.
    assert!(client(&second_ca, "a.test").connect(address).is_err());
    let refused = client(&second_ca, "c.test").connect(address).expect_err("no such name");
    assert!(refused.to_string().contains("UnrecognisedName"), "{refused}");
    brisk.logged("\"outcome\":\"unknown-name\"");
}

#[test]
fn other_names_go_to_the_default() {
    let (first_ca, first) = origin("first", &["a.test"]);
    let (second_ca, second) = origin("second", &["b.test"]);
    let port = brisk_testkit::process::free_port();
    let own = format!("listen = [\"127.0.0.1:{port}\"]\ntls = \"passthrough\"\n");
    let tables = [
        tcp(&url(first.https()), &format!("{own}names = [\"a.test\"]")),
        tcp(&url(second.https()), &format!("{own}names = [\"*\"]")),
    ]
    .concat();
    let brisk = setup().config(&format!("{}{tables}", base(ALONE))).start();
    for (ca, name, expected) in [(&first_ca, "a.test", "first"), (&second_ca, "b.test", "second")] {
        let stream = client(ca, name).connect(brisk.tcp(0)).expect("a handshake");
        assert_eq!(body(stream, name), expected);
    }
}

#[test]
fn alpn_distinguishes_servers_of_one_name() {
    let (ca, http) = origin("http", &["a.test"]);
    let other = TestCa::new();
    let leaf = other.server(&["a.test"]).issue();
    let plain = greeter("hello");
    let terminated =
        tcp(&url(plain.address()), &format!("{OWN}{}alpn = [\"xmpp-client\"]", certificate(&leaf)));
    let xmpp = setup().config(&format!("{}{terminated}", base(ALONE))).start();
    let port = brisk_testkit::process::free_port();
    let own = format!("listen = [\"127.0.0.1:{port}\"]\nnames = [\"a.test\"]\n");
    let tables =
        [tcp(&url(xmpp.tcp(0)), &format!("{own}alpn = [\"xmpp-client\"]")), tcp(&url(http.https()), &own)]
            .concat();
    let brisk = setup().config(&format!("{}{tables}", base(ALONE))).start();
    let stream = client(&ca, "a.test").alpn(&["http/1.1"]).connect(brisk.tcp(0)).expect("a handshake");
    assert_eq!(body(stream, "a.test"), "http");
    let xmpp = client(&other, "a.test").alpn(&["xmpp-client"]);
    let mut stream = xmpp.connect(brisk.tcp(0)).expect("a handshake");
    assert_eq!(stream.tls().alpn_protocol(), Some(&b"xmpp-client"[..]));
    assert_eq!(greeting(&mut stream, 5), "hello");
}

#[test]
fn names_of_tcp_and_of_hosts_share_a_listener() {
    let (first_ca, first) = origin("first", &["a.test", "x.wild.test", "unknown.test"]);
    let own = TestCa::new();
    let (db, plain) = (own.server(&["db.test"]).issue(), greeter("hello"));
    let tables = [
        "[[host.route]]\npath = \"/\"\nrespond = { body = \"host\" }\n".to_owned(),
        tcp(
            &url(first.https()),
            "name = \"pass\"\nnames = [\"a.test\", \"*.wild.test\", \"*\"]\ntls = \"passthrough\"",
        ),
        tcp(&url(plain.address()), &format!("name = \"db\"\nnames = [\"db.test\"]\n{}", certificate(&db))),
        // A host may have a name below a wildcard of [[tcp]].
        "[[host]]\nnames = [\"own.wild.test\"]\n".to_owned()
            + &certificate(&own.server(&["own.wild.test"]).issue()),
        "[[host.route]]\npath = \"/\"\nrespond = { body = \"other host\" }\n".to_owned(),
    ]
    .concat();
    let site = Site::custom("", &tables, |setup| setup);
    assert_eq!(site.get("/").text(), "host");
    let address = site.brisk.https();
    for name in ["a.test", "x.wild.test", "unknown.test"] {
        let stream = client(&first_ca, name).connect(address).expect("a handshake");
        assert_eq!(body(stream, name), "first", "{name}");
    }
    let stream = client(&own, "own.wild.test").connect(address).expect("a handshake");
    assert_eq!(body(stream, "own.wild.test"), "other host");
    let mut stream = client(&own, "db.test").connect(address).expect("a handshake");
    assert_eq!(greeting(&mut stream, 5), "hello");
    drop(stream);
    let line = site.brisk.logged("\"tcp\":\"db\"");
    assert!(line.contains("\"tls\":\"TLS 1.3\"") && line.contains("\"server_name\":\"db.test\""), "{line}");
    assert_eq!(site.get("/").text(), "host");
    // A handshake of a client without a trusted certificate belongs to the default, not to a host.
    assert!(client(&site.ca, "nobody.test").connect(address).is_err());
}

#[test]
fn terminated_connections_resume_and_end_properly() {
    let ca = TestCa::new();
    let (leaf, plain) = (
        ca.server(&["db.test"]).issue(),
        Origin::raw(|mut stream| {
            let mut all = Vec::new();
            stream.read_to_end(&mut all)?;
            stream.write_all(&all)
        }),
    );
    let table = tcp(&url(plain.address()), &format!("{OWN}{}", certificate(&leaf)));
    let brisk = setup().config(&format!("{}{table}", base(ALONE))).start();
    let client = client(&ca, "db.test");
    // Made once: rustls resumes sessions of one configuration only.
    let old_client = client.clone().tls12();
    let sent = numbered(1_000_000);
    for (resumption, tls12) in [("full", false), ("psk", false), ("full", true), ("ticket", true)] {
        let client = if tls12 { &old_client } else { &client };
        let mut stream = client.connect(brisk.tcp(0)).expect("a handshake");
        stream.write_all(&sent).expect("a server that reads");
        stream.close_write();
        let mut received = Vec::new();
        // An end without `close_notify` would be an error.
        stream.read_to_end(&mut received).expect("a proper end");
        assert!(received == sent);
        let line = brisk.logged(&format!("\"resumption\":{resumption:?}"));
        assert!(line.contains("\"outcome\":\"client-closed\""), "{line}");
    }
    assert!(brisk.metrics().sum("brisk_handshakes_total", &[]) > 3.0);
}

#[test]
fn upstreams_may_speak_tls() {
    let (ca, server) = origin("secret", &["a.test"]);
    let group = format!(
        "\n[upstream.db]\nservers = [\"tls://{}\"]\ntls = {{ ca = \"{}\", server_name = \"a.test\" }}\n",
        server.https(),
        ca.root_file().display()
    );
    let table = tcp("db", OWN);
    let brisk = setup().config(&format!("{}{table}{group}", base(ALONE))).start();
    let mut stream = std::net::TcpStream::connect(brisk.tcp(0)).expect("a listener");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n").expect("a listener");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response");
    assert!(text.ends_with("secret"), "{text}");
}

#[test]
fn the_check_explains_a_connection_by_its_name() {
    let ca = TestCa::new();
    let table = tcp("tcp://127.0.0.1:1", "name = \"pass\"\nnames = [\"*.a.test\"]");
    let config = format!("{}{}{table}", base(""), host(&["b.a.test"], &[&ca.server(&["b.a.test"]).issue()]));
    let setup = setup().config(&config);
    let explained = |url: &str| setup.run("check", &["brisk.toml", "--explain", url]).success();
    let text = explained("GET https://C.a.test/");
    assert!(text.contains("tcp: tcp[0], pass: TLS is passed on"), "{text}");
    assert!(text.contains("bytes are forwarded to upstream \"tcp://127.0.0.1:1\""), "{text}");
    assert!(explained("GET https://b.a.test/").contains("host: host[0], b.a.test"));
}

//! PROXY protocol towards upstreams, as nginx and HAProxy read and write it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use brisk_behaviour::site::{LIMIT, NAME, NAMES, Site, connect_from, proxy_to};
use brisk_testkit::ca::TestCa;
use brisk_testkit::client::{TlsClient, TlsStream};
use brisk_testkit::haproxy::Haproxy;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::{command, run, wait_until};
use ppp::v2;

fn group(servers: &[&str], more: &str) -> String {
    format!("{}{more}", proxy_to(servers))
}

/// The response to `/client`: address and port of the client, port of the listener, number of the server's connection.
fn client_of(connection: &mut TlsStream) -> [String; 4] {
    let text = connection.get(NAME, "/client").text();
    let words: Vec<_> = text.trim_end().split(' ').map(str::to_owned).collect();
    words.try_into().unwrap_or_else(|_| panic!("{text}"))
}

fn port(connection: &TlsStream) -> String {
    connection.tcp().local_addr().expect("an address").port().to_string()
}

#[test]
fn nginx_reads_the_client_of_each_connection() {
    let ca = TestCa::new();
    let leaf = ca.server(&["app.test"]).issue();
    let certificate =
        format!("ssl_certificate {};\nssl_certificate_key {};", leaf.chain.display(), leaf.key.display());
    let tls = "tls = { ca = \"ca.pem\", server_name = \"app.test\" }\ntimeouts = { connect = \"1m\" }\n";
    let h2 = "tls = { ca = \"ca.pem\", server_name = \"app.test\", protocol = \"h2\" }\ntimeouts = { connect = \"1m\" }\n";
    for (scheme, directives, more) in
        [("http", "", ""), ("h2c", "", ""), ("https", &*certificate, tls), ("https", &*certificate, h2)]
    {
        for version in ["v1", "v2"] {
            let nginx = Nginx::proxied(scheme, directives);
            let tables = group(&[&nginx.url()], &format!("proxy_protocol = {version:?}\n{more}"));
            let site =
                Site::custom("server.workers = 1\n", &tables, |setup| setup.file("ca.pem", ca.root_pem()));
            let (mut first, mut second) = (site.connect(), site.connect());
            let mut connections = [BTreeSet::new(), BTreeSet::new()];
            for _ in 0..4 {
                for (client, connections) in [&mut first, &mut second].into_iter().zip(&mut connections) {
                    let [address, port_of_client, port_of_listener, number] = client_of(client);
                    assert_eq!(
                        (&*address, port_of_client),
                        ("127.0.0.1", port(client)),
                        "{scheme} {version}"
                    );
                    assert_eq!(port_of_listener, site.brisk.https().port().to_string());
                    connections.insert(number);
                }
            }
            // Each client has a connection of its own, which it keeps.
            assert_eq!(connections.each_ref().map(BTreeSet::len), [1, 1], "{scheme} {version}");
            assert!(connections[0].is_disjoint(&connections[1]));
        }
    }
}

#[test]
fn streams_of_one_client_share_its_connections() {
    for scheme in ["http", "h2c"] {
        let nginx = Nginx::proxied(scheme, "");
        let site = Site::with(&group(&[&nginx.url()], "proxy_protocol = \"v2\"\n"));
        let paths = [1, 2, 3, 4].map(|number| site.url(&format!("/client?{number}")));
        let more = paths.each_ref().map(String::as_str);
        let options = [&["--http2", "--parallel"][..], &more[1..]].concat();
        let output = site.curl_url(&options, &paths[0]).success();
        let ports: Vec<_> = output.lines().map(|line| line.split(' ').nth(1)).collect();
        assert!(ports.len() == 4 && ports[0].is_some(), "{scheme}: {output}");
        assert!(ports.iter().all(|port| *port == ports[0]), "{scheme}: {output}");
    }
}

#[test]
fn limited_connections_carry_one_request_each() {
    for scheme in ["http", "h2c"] {
        let nginx = Nginx::proxied(scheme, "");
        let limit = "proxy_protocol = \"v1\"\npool = { max_connections = 1 }\n";
        let site = Site::with(&group(&[&nginx.url()], limit));
        let mut clients = [site.connect(), site.connect()];
        let mut numbers = BTreeSet::new();
        for _ in 0..3 {
            for client in &mut clients {
                let [_, port_of_client, _, number] = client_of(client);
                assert_eq!(port_of_client, port(client), "{scheme}");
                numbers.insert(number);
            }
        }
        assert_eq!(numbers.len(), 6, "{scheme}");
    }
}

/// Waits until this number of connections to upstreams is open.
fn open(site: &Site, wanted: usize) {
    let mut found = 0.0;
    wait_until("connections to the servers", || {
        found = site.brisk.metrics().sum("brisk_upstream_connections_open", &[]);
        ((found - wanted as f64).abs() < 0.5).then_some(())
    });
}

#[test]
fn kept_connections_close_after_the_idle_timeout() {
    for scheme in ["http", "h2c"] {
        let nginx = Nginx::proxied(scheme, "");
        let more = "proxy_protocol = \"v2\"\npool = { idle_timeout = \"1s\" }\n";
        let site = Site::with(&group(&[&nginx.url()], more));
        let mut client = site.connect();
        let first = client_of(&mut client);
        open(&site, 0);
        // The client's connection remains, and gets another one to the server.
        let second = client_of(&mut client);
        assert_eq!(first[..3], second[..3], "{scheme}");
        assert_ne!(first[3], second[3], "{scheme}");
    }
}

#[test]
fn kept_connections_of_a_busy_client_remain_until_the_idle_timeout() {
    for scheme in ["http", "h2c"] {
        let nginx = Nginx::proxied(scheme, "");
        let more = "proxy_protocol = \"v2\"\npool = { idle_timeout = \"10m\" }\n";
        let site = Site::with(&group(&[&nginx.url()], more));
        let mut client = site.connect();
        let first = client_of(&mut client);
        for _ in 0..100 {
            assert_eq!(client_of(&mut client), first, "{scheme}");
        }
        // Idle connections are examined once a second.
        thread::sleep(Duration::from_secs(3));
        assert_eq!(client_of(&mut client), first, "{scheme}");
    }
}

#[test]
fn clients_share_the_number_of_kept_connections() {
    for scheme in ["http", "h2c"] {
        let nginx = Nginx::proxied(scheme, "");
        let more = "proxy_protocol = \"v2\"\npool = { idle_connections = 4 }\n";
        let tables = group(&[&nginx.url()], more);
        let site = Site::custom("server.workers = 1", &tables, |setup| setup);
        let mut clients: Vec<_> = (0..5).map(|_| site.connect()).collect();
        for client in &mut clients {
            client_of(client);
        }
        open(&site, 2);
        let stream = connect_from(Ipv4Addr::new(127, 0, 0, 2), site.brisk.https());
        let mut other = site.client().over(stream).expect("a handshake");
        let [address, _, _, number] = client_of(&mut other);
        assert_eq!(address, "127.0.0.2", "{scheme}");
        open(&site, 3);
        assert_eq!(client_of(&mut other)[3], number, "{scheme}: another client keeps its connection");
        // Clients without a kept connection are served all the same.
        for client in &mut clients {
            client_of(client);
        }
        drop((clients, other));
        open(&site, 0);
    }
}

#[test]
fn kept_connections_to_a_removed_server_close() {
    for scheme in ["http", "h2c"] {
        let (removed, other) = (Nginx::proxied(scheme, ""), Nginx::proxied(scheme, ""));
        let site = Site::with(&group(&[&removed.url()], "proxy_protocol = \"v2\"\n"));
        let mut client = site.connect();
        client_of(&mut client);
        let connections = || {
            let mut ss = command("ss");
            ss.args(["--no-header", "--tcp", "--numeric", "state", "established", "dport", "="]);
            let address = format!(":{}", removed.address().port());
            run(ss.arg(address), b"", LIMIT).success().lines().count()
        };
        assert_eq!(connections(), 1, "{scheme}");
        let text = fs::read_to_string(site.brisk.folder().join("brisk.toml")).expect("the configuration");
        site.brisk.write("brisk.toml", text.replace(&removed.url(), &other.url()));
        site.brisk.reload();
        wait_until("the end of the connection", || (connections() == 0).then_some(()));
        assert_eq!(client_of(&mut client)[1], port(&client), "{scheme}: the client's connection remains");
    }
}

#[test]
fn health_checks_send_a_header_too() {
    for version in ["v1", "v2"] {
        let nginx = Nginx::proxied("http", "access_log FOLDER/access.log early;");
        let more = format!(
            "proxy_protocol = {version:?}\nhealth = {{ path = \"/health\", interval = \"1s\", timeout = \"1s\" }}\n"
        );
        let site = Site::with(&group(&[&nginx.url()], &more));
        wait_until("checks", || {
            let checks = nginx.requests().iter().filter(|line| line.starts_with("GET /health ")).count();
            (checks >= 4).then_some(())
        });
        wait_until("a healthy server", || {
            (site.brisk.metrics().sum("brisk_upstream_healthy", &[]) > 0.5).then_some(())
        });
    }
}

/// Names of the client's connection as HAProxy reads them from the header.
const READER: &str = r#"
global
  log stdout format raw local0
defaults
  mode http
  timeout client 1m
  timeout connect 1m
  timeout server 1m
frontend all
  bind 127.0.0.1:PORT accept-proxy
  http-request return status 200 content-type text/plain lf-string "%[src] %[src_port] %[dst_port] %[fc_pp_authority]"
"#;

#[test]
fn haproxy_reads_the_client_and_its_server_name() {
    let haproxy = Haproxy::start(READER);
    let url = format!("http://{}", haproxy.address());
    let site = Site::with(&group(&[&url], "proxy_protocol = \"v2\"\n"));
    let mut client = site.connect();
    let expected = format!("127.0.0.1 {} {} {NAME}", port(&client), site.brisk.https().port());
    assert_eq!(client.get(NAME, "/").text(), expected);
}

/// A HAProxy that sends the header with all facts that it knows.
const WRITER: &str = r"
global
  ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256
  ssl-default-bind-ciphers ECDHE-ECDSA-AES128-GCM-SHA256
defaults
  mode http
  timeout client 1m
  timeout connect 1m
  timeout server 1m
frontend all
  bind 127.0.0.1:PORT ssl crt FOLDER/pair.pem alpn http/1.1 ca-file FOLDER/clients.pem verify optional
  default_backend all
backend all
  server one 127.0.0.1:ORIGIN send-proxy-v2-ssl-cn proxy-v2-options ssl,cert-cn,ssl-cipher,authority
";

/// The extensions of each header that a server received, those about TLS below their own numbers.
type Headers = Arc<Mutex<Vec<BTreeMap<u16, Vec<u8>>>>>;

/// A server that records the header of each connection.
fn recorder() -> (Origin, Headers) {
    let headers = Headers::default();
    let own = Arc::clone(&headers);
    let origin = Origin::raw(move |stream| {
        let mut stream = BufReader::new(stream);
        let mut header = vec![0; 16];
        stream.read_exact(&mut header)?;
        header.resize(16 + usize::from(u16::from_be_bytes([header[14], header[15]])), 0);
        stream.read_exact(&mut header[16..])?;
        own.lock().expect("no panic").push(extensions(&header));
        answer(stream)
    });
    (origin, headers)
}

/// Responds to one request without a body.
fn answer(mut stream: BufReader<TcpStream>) -> std::io::Result<()> {
    let mut line = String::new();
    while stream.read_line(&mut line)? > 2 {
        line.clear();
    }
    write_response(stream.get_mut(), b"seen")?;
    stream.get_mut().flush()
}

fn extensions(header: &[u8]) -> BTreeMap<u16, Vec<u8>> {
    const SSL: u8 = v2::Type::SSL as u8;
    let header = v2::Header::try_from(header).expect("a header");
    let mut found = BTreeMap::new();
    for extension in header.tlvs() {
        let extension = extension.expect("an extension");
        if extension.kind != SSL {
            found.insert(extension.kind.into(), extension.value.to_vec());
            continue;
        }
        let (fixed, mut rest) = extension.value.split_at(5);
        found.insert(SSL.into(), fixed.to_vec());
        while let [kind, high, low, more @ ..] = rest {
            let (value, further) = more.split_at(usize::from(u16::from_be_bytes([*high, *low])));
            found.insert(u16::from(*kind) << 8, value.to_vec());
            rest = further;
        }
    }
    found
}

#[test]
fn the_extensions_are_those_of_haproxy() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let (origin, headers) = recorder();
    let text = WRITER.replace("ORIGIN", &origin.address().port().to_string());
    let haproxy = Haproxy::with_clients(&leaf, &ca.root_pem(), &text);
    let tables = "client_certificates = { mode = \"optional\", ca = \"clients.pem\" }\n".to_owned()
        + &group(&[&origin.url()], "proxy_protocol = \"v2\"\n");
    let site = Site::custom("", &tables, |setup| setup.file("clients.pem", ca.root_pem()));
    let alice = ca.client("alice").issue();
    for is_tls12 in [false, true] {
        let received = |root: &TestCa, address, with_certificate: bool| {
            headers.lock().expect("no panic").clear();
            let client = TlsClient::new(&root.root_file(), NAME);
            let client = if with_certificate { client.identity(&alice) } else { client };
            let client = if is_tls12 { client.tls12() } else { client }.alpn(&["http/1.1"]);
            assert_eq!(client.connect(address).expect("a handshake").get(NAME, "/").text(), "seen");
            headers.lock().expect("no panic").pop().expect("a header")
        };
        let [mut own, mut other] = [(&site.ca, site.brisk.https()), (&ca, haproxy.address())]
            .map(|(root, address)| received(root, address, true));
        assert_eq!(own, other, "TLS 1.2: {is_tls12}");
        let version: &[u8] = if is_tls12 { b"TLSv1.2" } else { b"TLSv1.3" };
        assert_eq!((&*own[&0x2100], &*own[&0x2200], &*own[&1]), (version, &b"alice"[..], &b"http/1.1"[..]));
        [own, other] = [(&site.ca, site.brisk.https()), (&ca, haproxy.address())]
            .map(|(root, address)| received(root, address, false));
        // HAProxy writes 0 without a certificate too; the specification demands another number.
        assert_eq!(own.insert(0x20, other[&0x20].clone()), Some(vec![1, 0, 0, 0, 1]));
        assert_eq!(own, other, "TLS 1.2: {is_tls12}");
    }
}

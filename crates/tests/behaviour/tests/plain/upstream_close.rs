//! TLS upstreams that close connections without `close_notify`.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::ca::TestCa;
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// HTTPS server that sends `response` and closes the connection without `close_notify`.
fn origin(ca: &TestCa, response: &'static str) -> Origin {
    let leaf = ca.server(&["localhost"]).issue();
    let chain = CertificateDer::pem_file_iter(&leaf.chain).expect("a file");
    let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_slice(leaf.key_pem.as_bytes()).expect("a key");
    let tls = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
    let tls = Arc::new(tls.expect("a key"));
    Origin::raw(move |stream: TcpStream| {
        let tls = ServerConnection::new(Arc::clone(&tls)).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(tls, stream);
        Message::read_request(&mut stream)?;
        stream.write_all(response.as_bytes())
    })
}

/// Status and body as far as they arrive over HTTP/1.1, and whether the response is complete.
fn fetch(response: &'static str, setting: &str) -> (String, bool) {
    let ca = TestCa::new();
    let origin = origin(&ca, response);
    let url = format!("https://localhost:{}", origin.address().port());
    let tls = format!("tls = {{ ca = \"{}\"{setting} }}\n", ca.root_file().display());
    let site = Site::with(&format!("{}{tls}", proxy_to(&[&url])));
    let mut connection = site.connect();
    let request = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).expect("a server that reads");
    let mut received = Vec::new();
    let is_whole = connection.read_to_end(&mut received).is_ok();
    let text = String::from_utf8(received).expect("text");
    (text, is_whole)
}

const ALLOWED: &str = ", allow_missing_close_notify = true";

#[test]
fn a_body_until_the_close_needs_close_notify_or_the_setting() {
    let response = "HTTP/1.1 200 OK\r\n\r\nuntil the close";
    let (text, is_whole) = fetch(response, "");
    assert!(!is_whole && !text.ends_with("0\r\n\r\n"), "{text}");
    let (text, is_whole) = fetch(response, ALLOWED);
    assert!(is_whole && text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(text.contains("until the close") && text.ends_with("0\r\n\r\n"), "{text}");
}

#[test]
fn a_body_with_a_length_stays_incomplete_with_the_setting() {
    for framing in ["Content-Length: 100\r\n\r\nshort", "Transfer-Encoding: chunked\r\n\r\n64\r\nshort"] {
        let response: &str = format!("HTTP/1.1 200 OK\r\n{framing}").leak();
        let (text, is_whole) = fetch(response, ALLOWED);
        assert!(!is_whole && text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(text.contains("short") && !text.ends_with("0\r\n\r\n"), "{text}");
    }
}

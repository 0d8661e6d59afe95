//! `brisk probe` names faults in words: dates, names, other protocols, unfinished phases; its lines fit the terminal.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::thread;

use brisk_behaviour::site::{LIMIT, NAME, NAMES, Site};
use brisk_testkit::ca::TestCa;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{command, run, wait_until};
use serde_json::Value;

use crate::probe::{probe, report};

/// A self-signed certificate for `name` with these options of openssl, as an nginx that sends it.
fn self_signed(ca: &TestCa, name: &str, options: &[&str]) -> Nginx {
    let (certificate, key) = (ca.unique_file("own.pem"), ca.unique_file("own-key.pem"));
    let mut openssl = command("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj"]);
    openssl.arg(format!("/CN={name}")).arg("-addext").arg(format!("subjectAltName=DNS:{name}"));
    openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate).args(options);
    run(&mut openssl, b"", LIMIT).success();
    let mut leaf = ca.server(&NAMES).issue();
    (leaf.chain, leaf.key) = (certificate, key);
    Nginx::https_with(&leaf, "")
}

fn distrust(ca: &TestCa, port: u16) -> String {
    let finished = run(probe(ca, port, "/1k", "").arg("--json"), b"", LIMIT);
    assert_eq!(finished.status.code(), Some(9), "{}", finished.text());
    let report: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    report["tls"]["distrust"].as_str().expect("a reason").to_owned()
}

#[test]
fn a_certificate_is_refused_with_its_dates_and_names() {
    let ca = TestCa::new();
    let own = self_signed(&ca, NAME, &["-days", "5"]);
    assert!(distrust(&ca, own.address().port()).starts_with("the certificate is signed by itself"));
    let other = Nginx::https_with(&ca.server(&["other.test", "third.test"]).issue(), "");
    assert_eq!(
        distrust(&ca, other.address().port()),
        format!("the certificate is for other.test, third.test, not for {NAME}")
    );
    let unknown = Nginx::https_with(&TestCa::new().server(&NAMES).issue(), "");
    let reason = distrust(&ca, unknown.address().port());
    assert!(reason.starts_with("the authority \"") && reason.contains("is not trusted here"), "{reason}");
    let expired = Nginx::https_with(&ca.server(&NAMES).expired().issue(), "");
    let reason = distrust(&ca, expired.address().port());
    assert!(reason.starts_with("the certificate expired on 20") && reason.ends_with(" ago"), "{reason}");
}

#[test]
fn a_port_without_tls_is_named_by_its_protocol() {
    let ca = TestCa::new();
    // A server that closes the connection after bytes that are no request, and a server that responds to them.
    let closing = Origin::raw(|mut stream| {
        let mut first = [0; 4096];
        let length = stream.read(&mut first)?;
        if first[..length].starts_with(b"GET ") {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")
        } else {
            Ok(())
        }
    });
    let responding = Origin::raw(|mut stream| {
        let _ = stream.read(&mut [0; 4096])?;
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    });
    for origin in [closing, responding] {
        let port = origin.address().port();
        let finished = run(&mut probe(&ca, port, "/", ""), b"", LIMIT);
        assert_eq!(finished.status.code(), Some(5), "{}", finished.text());
        let message = format!("port {port} serves plain HTTP, not TLS: ");
        assert!(finished.stderr.contains(&message), "{}", finished.text());
    }
}

#[test]
fn a_phase_without_an_end_is_shown_with_its_duration() {
    let ca = TestCa::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("an address").port();
    // The connections stay open, and nothing is read.
    thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    // On a slow machine, an earlier phase may last for a second.
    wait_until("a timeout in the TLS handshake", || {
        let finished = run(&mut probe(&ca, port, "/", "--timeout 1"), b"", LIMIT);
        assert_eq!(finished.status.code(), Some(7), "{}", finished.text());
        finished.stdout.contains("tls was not completed: the connection failed after ").then_some(())
    });
    let phases = wait_until("a timeout in the TLS handshake", || {
        let json = run(probe(&ca, port, "/", "--timeout 1").arg("--json"), b"", LIMIT);
        let report: Value = serde_json::from_str(&json.stdout).expect("JSON");
        (report["phases"]["unfinished"] == "tls").then(|| report["phases"].clone())
    });
    assert!(phases["tls_ms"].as_f64().is_some_and(|time| time > 0.0), "{phases}");
}

#[test]
fn lines_fit_into_80_and_120_columns() {
    // A body of many records, with long fields in its head.
    let body = "0123456789abcdef".repeat(40_000);
    let policy = "script-src 'self' https://a.example ".repeat(8);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Security-Policy: {policy}\r\n");
    let length = body.len();
    let origin = Origin::answering(move |_, stream| {
        write!(stream, "{head}Content-Length: {length}\r\n\r\n")?;
        stream.write_all(body.as_bytes())
    });
    let route = brisk_behaviour::site::proxy_to(&[&origin.url()]);
    let site = Site::with(&route);
    for columns in [80, 120] {
        for options in ["", "--http1", "--frames", "--timing -n 1", "--compare --http1 -n 1", "--browser"] {
            let mut command = probe(&site.ca, site.brisk.https().port(), "/", options);
            let text = run(command.env("COLUMNS", columns.to_string()), b"", LIMIT).success();
            for line in text.lines() {
                assert!(line.chars().count() <= columns, "{options} {columns}: {line}");
            }
            let is_report = options.is_empty() || options == "--http1";
            assert!(!is_report || text.contains("application_data ("), "{text}");
        }
    }
}

#[test]
fn compression_and_caching_are_judged() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let folder = tempfile::tempdir().expect("a folder");
    let mut style = String::new();
    for number in 0..400 {
        let _ = writeln!(style, ".class-{number} {{ color: black; margin: {number}px }}");
    }
    fs::write(folder.path().join("page.css"), style).expect("a file");
    let ids = |directives: &str| {
        let location = format!("location = /page.css {{ root {}; {directives} }}", path(folder.path()));
        let served = format!("ssl_protocols TLSv1.3; {location}");
        let nginx = Nginx::https_with(&leaf, &served);
        let report = report(&mut probe(&ca, nginx.address().port(), "/page.css", ""));
        let findings = report["findings"].as_array().expect("findings").clone();
        let of = findings.iter().map(|finding| finding["id"].as_str().expect("an id").to_owned());
        of.filter(|id| ["not-compressed", "not-cached"].contains(&id.as_str())).collect::<Vec<_>>()
    };
    let mime = "types { text/css css; }";
    assert_eq!(ids(mime), ["not-cached", "not-compressed"]);
    let right = format!("{mime} gzip on; gzip_types text/css; expires 30d;");
    assert_eq!(ids(&right), Vec::<String>::new());
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

//! Certificates from step-ca: another implementation of ACME than pebble, with short lifetimes, and without profiles and
//! renewal information.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use brisk_behaviour::site::{LIMIT, setup};
use brisk_testkit::brisk::Brisk;
use brisk_testkit::client::TlsClient;
use brisk_testkit::pebble::PebbleOptions;
use brisk_testkit::process::{command, run, wait_until};
use brisk_testkit::step_ca::StepCa;
use serde_json::{Value, json};

use crate::acme::{HOST, host, record, state};

fn config(authority: &StepCa, state: &Path, more: &str) -> String {
    format!(
        "{more}server.https = [\"127.0.0.1:{}\"]\nserver.http = [\"127.0.0.1:{}\"]\nserver.workers = 2\n\
         server.timeouts.hello = \"1m\"\nserver.timeouts.head = \"1m\"\n\
         server.state_dir = {:?}\nadmin.listen = \"127.0.0.1:0\"\naccess_log.format = \"off\"\n\
         acme.directory = {:?}\nacme.ca = {:?}\n{}",
        authority.https(),
        authority.http(),
        state.display().to_string(),
        authority.directory(),
        authority.root().display().to_string(),
        host(&[HOST], "")
    )
}

fn connect(authority: &StepCa, brisk: &Brisk) {
    let root = authority.root();
    wait_until(&format!("a certificate of step-ca: {}", authority.log()), || {
        TlsClient::new(&root, HOST).connect(brisk.https()).ok()
    });
}

#[test]
fn step_ca_verifies_by_each_challenge_of_the_listeners_and_both_kinds_of_keys() {
    let authority = StepCa::start();
    for challenge in ["tls-alpn-01", "http-01"] {
        let state = state();
        let more = format!("acme.challenges = [\"{challenge}\"]\nacme.keys = [\"ecdsa\", \"rsa\"]\n");
        let config = config(&authority, state.path(), &more);
        let brisk = setup().config(&config).option("--log").option("info,brisk_acme=debug").start();
        connect(&authority, &brisk);
        brisk.log_with(&format!("challenge=\"{challenge}\""));
        for kind in ["ecdsa", "rsa"] {
            wait_until(kind, || record(state.path(), "certificates", HOST, kind));
        }
        drop(brisk);
        // Renewal information is missing, so the lifetime of a day decides, and a restart orders nothing.
        let before = record(state.path(), "certificates", HOST, "ecdsa");
        let again = setup().config(&config).start();
        connect(&authority, &again);
        assert_eq!(record(state.path(), "certificates", HOST, "ecdsa"), before);
    }
}

#[test]
fn step_ca_verifies_a_record_of_a_hook() {
    let (authority, state) = (StepCa::start(), state());
    let url = authority.dns_management();
    let hook = format!(
        "#!/bin/sh\ncase $1 in\npresent) curl --silent --fail --data \"{{\\\"host\\\":\\\"$2\\\",\\\"value\\\":\\\"$3\\\"}}\" {url}/set-txt;;\n\
         cleanup) curl --silent --fail --data \"{{\\\"host\\\":\\\"$2\\\"}}\" {url}/clear-txt;;\nesac\n"
    );
    let setup = setup().file("hook", hook);
    fs::set_permissions(setup.folder().join("hook"), fs::Permissions::from_mode(0o700)).expect("a file");
    let brisk = setup.config(&config(&authority, state.path(), "acme.dns = { hook = \"hook\" }\n")).start();
    connect(&authority, &brisk);
    brisk.log_with("a certificate was obtained");
}

/// An acme-dns server for one registration: checks each update and passes the record to the DNS server of `authority`, at
/// which `_acme-challenge` of the host is an alias of the registration's name. Returns its address.
fn acme_dns(authority: &StepCa) -> SocketAddr {
    let url = authority.dns_management();
    let post = move |path: &str, body: String| {
        run(command("curl").args(["-sSf", "--data", &body, &format!("{url}/{path}")]), b"", LIMIT).success();
    };
    let alias = format!("{{\"host\":\"_acme-challenge.{HOST}.\",\"target\":\"sub.auth.test.\"}}");
    post("set-cname", alias);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let Some((head, body)) = request(&mut client) else { continue };
            let head = head.to_ascii_lowercase();
            let is_known = head.starts_with("post /update http/1.1\r\n")
                && head.contains("\r\nx-api-user: user\r\n")
                && head.contains("\r\nx-api-key: secret\r\n");
            let update: Value = serde_json::from_str(&body).unwrap_or_default();
            let status = if is_known && update["subdomain"] == "sub" { "200 OK" } else { "401 Unauthorized" };
            if status == "200 OK" {
                post("set-txt", json!({ "host": "sub.auth.test.", "value": update["txt"] }).to_string());
            }
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}");
            // The test fails by the missing certificate if the gateway gets no response.
            let _ = client.write_all(answer.as_bytes());
        }
    });
    address
}

/// Head and body of a request.
fn request(client: &mut TcpStream) -> Option<(String, String)> {
    let mut reader = BufReader::new(client);
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let before = head.len();
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
        if let Some(value) = head[before..].to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((head, String::from_utf8(body).ok()?))
}

#[test]
fn step_ca_verifies_a_record_of_acme_dns_behind_an_alias() {
    let (authority, state) = (StepCa::start(), state());
    let server = acme_dns(&authority);
    let registration = |password: &str| {
        format!(
            "server = \"http://{server}\"\nusername = \"user\"\npassword = \"{password}\"\nsubdomain = \"sub\"\n"
        )
    };
    let config = config(&authority, state.path(), "acme.dns = { acme_dns = \"registration.toml\" }\n");
    let brisk = setup().config(&config).file("registration.toml", registration("wrong")).start();
    brisk.log_with("the server responded with 401");
    drop(brisk);
    let state = self::state();
    let config = self::config(&authority, state.path(), "acme.dns = { acme_dns = \"registration.toml\" }\n");
    let brisk = setup().config(&config).file("registration.toml", registration("secret")).start();
    connect(&authority, &brisk);
    brisk.log_with("a certificate was obtained");
}

#[test]
fn step_ca_is_the_fallback_of_an_authority_that_refuses_a_name_and_ignores_profiles() {
    let (authority, pebble, state) = (StepCa::start(), PebbleOptions::default().start(), state());
    let fallback = format!(
        "[[acme.fallback]]\ndirectory = {:?}\nca = {:?}\nprofile = \"shortlived\"\n",
        authority.directory(),
        authority.root().display().to_string()
    );
    let own = |directory: &str, ca: &Path| format!("acme.directory = {directory:?}\nacme.ca = {ca:?}\n");
    let config = config(&authority, state.path(), "")
        .replace(
            &own(&authority.directory(), &authority.root()),
            &own(&pebble.directory(), &pebble.ca_file()),
        )
        .replace(HOST, "blocked.test");
    let start = || setup().config(&format!("{config}{fallback}")).start();
    let first = start();
    let log = first.log_with("no certificate was obtained");
    assert!(log.contains("policy"), "the reason is that of the authority: {log}");
    drop(first);
    // As after two more failures, and their pauses.
    let mut status = record(state.path(), "status", "blocked.test", "ecdsa").expect("a status");
    status["failures"] = 3.into();
    status["retry"] = 0.into();
    let file = state.path().join("certificates/status/blocked.test/ecdsa");
    fs::write(file, status.to_string()).expect("a record");
    let second = start();
    let root = authority.root();
    wait_until("a certificate of the fallback", || {
        TlsClient::new(&root, "blocked.test").connect(second.https()).ok()
    });
}

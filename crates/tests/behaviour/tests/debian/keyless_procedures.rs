//! The procedures of docs/keyless.md, with the same commands: a second key server, and a key that is replaced.

use std::fs;
use std::path::Path;

use brisk_behaviour::openssl::ask;
use brisk_behaviour::site::{LIMIT, NAME, NAMES, setup};
use brisk_testkit::brisk::{Brisk, base};
use brisk_testkit::process::{command, free_port, run, wait_until};

use crate::keyless::{Fleet, LENIENT, quoted, wait_until_ready};

/// Starts the key server of `folder` on a free port, which is returned.
fn start(folder: &Path) -> (Brisk, u16) {
    let (file, port) = (folder.join("keyserver.toml"), free_port());
    let config = fs::read_to_string(&file).expect("a configuration");
    let config = config.replace("0.0.0.0:8444", &format!("127.0.0.1:{port}"));
    fs::write(&file, config.replace("127.0.0.1:9444", "127.0.0.1:0")).expect("a configuration");
    (setup().keyserver().option("--config").option(&file.display().to_string()).start(), port)
}

/// A gateway with a certificate of `folder` and the chain `example.com.pem`.
fn gateway(folder: &Path, chain: &str, ports: &[u16]) -> Brisk {
    let servers: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let config = format!(
        "{}\n[[host]]\nnames = {NAMES:?}\ncertificates = [{{ chain = \"example.com.pem\", key = \"keyserver:main\" }}]\n\
         [keyserver.main]\nservers = {servers:?}\nca = {}\n\
         certificate = {{ chain = {}, key = {} }}\n{LENIENT}",
        base(""),
        quoted(&folder.join("ca.pem")),
        quoted(&folder.join("gateways/gateway-1.pem")),
        quoted(&folder.join("gateways/gateway-1.key")),
    );
    let gateway = setup().file("example.com.pem", chain).config(&config).start();
    wait_until_ready(&gateway);
    gateway
}

fn copy(from: &Path, to: &Path) {
    run(command("cp").arg("-p").arg(from).arg(to), b"", LIMIT).success();
}

#[test]
fn a_second_key_server_serves_alone_when_the_first_stops() {
    let (fleet, tools) = (Fleet::new(), setup());
    tools.run("keyserver", &["init", "first"]).success();
    let first = tools.folder().join("first");
    fs::write(first.join("keys/example.com.key"), &fleet.ecdsa.key_pem).expect("a key");

    let joined = tools.run("keyserver", &["init", "second", "--ca", "first"]).success();
    assert!(joined.contains("add \"localhost:8444\" to `servers`"), "{joined}");
    let second = tools.folder().join("second");
    assert!(!second.join("ca.key").exists() && !second.join("gateways").exists());
    let again = tools.run("keyserver", &["init", "second", "--ca", "first"]);
    assert!(again.status.code() == Some(1) && again.stderr.contains("is there already"), "{}", again.text());
    copy(&first.join("keys/example.com.key"), &second.join("keys"));
    let checked = tools.run("keyserver", &["check", "second/keyserver.toml"]).success();
    assert!(checked.contains("ok, 1 private key\n"), "{checked}");

    let ((mut one, one_port), (_two, two_port)) = (start(&first), start(&second));
    let gateway = gateway(&first, &fleet.ecdsa.chain_pem, &[one_port, two_port]);
    wait_until("connections to both", || {
        (gateway.metrics().sum("brisk_keyserver_connections", &[]) > 1.5).then_some(())
    });
    one.terminate();
    assert!(one.wait().success());
    for _ in 0..5 {
        fleet.full(&gateway).expect("a handshake with the second key server");
    }
}

#[test]
fn a_ca_without_its_key_is_named() {
    let tools = setup().file("other/ca.pem", Fleet::new().ca.root_pem());
    let refused = tools.run("keyserver", &["init", "second", "--ca", "other"]);
    assert!(refused.status.code() == Some(1) && refused.stderr.contains("ca.key"), "{}", refused.text());
    assert!(!tools.folder().join("second").exists());
}

#[test]
fn a_key_is_replaced_without_a_failed_handshake() {
    let (fleet, tools) = (Fleet::new(), setup());
    tools.run("keyserver", &["init", "keys"]).success();
    let folder = tools.folder().join("keys");
    fs::write(folder.join("keys/example.com.key"), &fleet.ecdsa.key_pem).expect("a key");
    let (server, port) = start(&folder);
    let gateway = gateway(&folder, &fleet.ecdsa.chain_pem, &[port]);
    fleet.full(&gateway).expect("a handshake with the old key");

    let new = fleet.ca.server(&NAMES).issue();
    fs::write(folder.join("keys/example.com-2.key"), &new.key_pem).expect("a key");
    server.log_with("reloaded: ");
    fs::write(gateway.folder().join("new.pem"), &new.chain_pem).expect("a chain");
    let chain = gateway.folder().join("example.com.pem");
    run(command("mv").arg(gateway.folder().join("new.pem")).arg(&chain), b"", LIMIT).success();
    // A line of base64 with a part of the public key, which s_client prints too.
    let line = new.certificate_pem.lines().nth(4).expect("a certificate");
    wait_until("the new certificate", || {
        fleet.full(&gateway).expect("a handshake with either key");
        let output = ask(&fleet.ca, &gateway, &["-servername", NAME]);
        output.stdout.contains(line).then_some(())
    });
    fs::remove_file(folder.join("keys/example.com.key")).expect("the old key");
    wait_until("a second reload", || {
        (server.process().stderr().matches("reloaded: ").count() > 1).then_some(())
    });
    fleet.full(&gateway).expect("a handshake with the new key alone");
}

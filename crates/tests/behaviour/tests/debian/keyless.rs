//! Gateway with private keys on key servers: all kinds of handshakes, changes by reloads, and absence of the keys from the
//! gateway.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use brisk_behaviour::memory::Secrets;
use brisk_behaviour::openssl::ask;
use brisk_behaviour::site::{LIMIT, NAME, NAMES, setup};
use brisk_testkit::brisk::{Brisk, base};
use brisk_testkit::ca::{Leaf, LeafKey, TestCa};
use brisk_testkit::client::TlsClient;
use brisk_testkit::process::{command, free_port, run, wait_until};

use super::isolated::status;

/// A CA for hosts, key servers and gateways alike, with an ECDSA and an RSA certificate for a host.
pub(crate) struct Fleet {
    pub(crate) ca: TestCa,
    pub(crate) ecdsa: Leaf,
    pub(crate) rsa: Leaf,
    pub(crate) server: Leaf,
    pub(crate) client: Leaf,
}

/// The longest deadline of key operations. On a busy machine, a key server may be later than the default.
pub(crate) const LENIENT: &str = "deadline = \"4s\"\n";

pub(crate) fn quoted(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}

/// `{ chain = ..., key = ... }`
pub(crate) fn files(leaf: &Leaf) -> String {
    format!("{{ chain = {}, key = {} }}", quoted(&leaf.chain), quoted(&leaf.key))
}

impl Fleet {
    pub(crate) fn new() -> Self {
        let ca = TestCa::new();
        let ecdsa = ca.server(&NAMES).issue();
        let rsa = ca.server(&NAMES).key(LeafKey::Rsa2048).issue();
        let server = ca.server(&["localhost", "127.0.0.1"]).issue();
        let client = ca.client("gateway").issue();
        Self { ca, ecdsa, rsa, server, client }
    }

    /// A key server with both keys on this port, with these tables; `[client.gateway]` may do everything unless they say else.
    pub(crate) fn server_on(&self, port: u16, keys: &str, tables: &str) -> Brisk {
        let client = if tables.contains("[client.") { "" } else { "[client.gateway]\n" };
        let config = format!(
            "server.listen = [\"127.0.0.1:{port}\"]\nserver.workers = 1\nserver.key_folder = \"keys\"\n\
             server.certificate = {}\nserver.client_ca = {}\nadmin.listen = \"127.0.0.1:0\"\n{keys}\n{client}{tables}",
            files(&self.server),
            quoted(&self.ca.root_file()),
        );
        let setup = setup().keyserver().config(&config);
        setup.file("keys/ecdsa.key", &self.ecdsa.key_pem).file("keys/rsa.pem", &self.rsa.key_pem).start()
    }

    pub(crate) fn server(&self) -> Brisk {
        self.server_on(0, "", "")
    }

    /// The configuration of a gateway that has chains alone, and asks these servers for keys.
    pub(crate) fn config(&self, keys: &str, servers: &[SocketAddr], more: &str) -> String {
        let servers: Vec<_> = servers.iter().map(ToString::to_string).collect();
        let deadline = if more.contains("deadline") { "" } else { LENIENT };
        let remote = |leaf: &Leaf| format!("{{ chain = {}, key = \"keyserver:main\" }}", quoted(&leaf.chain));
        format!(
            "{}\n[[host]]\nnames = {NAMES:?}\ncertificates = [{}, {}]\n\n[keyserver.main]\nservers = {servers:?}\n\
             ca = {}\ncertificate = {}\n{deadline}{more}",
            base(keys),
            remote(&self.ecdsa),
            remote(&self.rsa),
            quoted(&self.ca.root_file()),
            files(&self.client),
        )
    }

    pub(crate) fn gateway(&self, servers: &[SocketAddr], more: &str) -> Brisk {
        setup().config(&self.config("", servers, more)).start()
    }

    pub(crate) fn tls(&self) -> TlsClient {
        TlsClient::new(&self.ca.root_file(), NAME)
    }

    /// A full handshake with a new client, and a request.
    pub(crate) fn full(&self, gateway: &Brisk) -> io::Result<()> {
        let mut connection = self.tls().connect(gateway.https())?;
        assert_eq!(connection.get(NAME, "/").status(), 200);
        Ok(())
    }
}

pub(crate) fn is_ready(gateway: &Brisk) -> bool {
    gateway.ask_admin("/readyz").status() == 200
}

pub(crate) fn wait_until_ready(gateway: &Brisk) {
    wait_until("a gateway that is ready", || is_ready(gateway).then_some(()));
}

#[test]
fn clients_of_both_versions_and_keys_are_served_with_keys_that_the_gateway_does_not_have() {
    let fleet = Fleet::new();
    let (one, two) = (fleet.server(), fleet.server());
    let gateway = fleet.gateway(&[one.keys(), two.keys()], "");
    wait_until_ready(&gateway);
    // It reads data of gateways with the rights of its sandbox.
    assert_eq!(status(one.process().id(), "Seccomp"), "2");
    let limited = one.metrics().sum("brisk_sandbox_limits", &["limit=\"system_calls\""]);
    assert_eq!(limited as u64, 1);
    for (version, algorithms, scheme) in [
        ("-tls1_3", "ECDSA+SHA256", "ecdsa_secp256r1_sha256"),
        ("-tls1_3", "RSA-PSS+SHA256", "rsa_pss_rsae_sha256"),
        ("-tls1_2", "ECDSA+SHA256", "ecdsa_secp256r1_sha256"),
        ("-tls1_2", "RSA+SHA256", "rsa_pkcs1_sha256"),
    ] {
        let output = ask(&fleet.ca, &gateway, &["-servername", NAME, version, "-sigalgs", algorithms]);
        assert!(output.stdout.contains("200"), "{version} {algorithms}: {}", output.text());
        let version = if version == "-tls1_2" { "version=\"TLS 1.2\"" } else { "version=\"TLS 1.3\"" };
        let labels = [version, &*format!("scheme=\"{scheme}\"")];
        let count = gateway.metrics().sum("brisk_handshakes_total", &labels);
        assert!((count - 1.0).abs() < 0.5, "{version} {algorithms}: {count}");
    }
    let url = format!("https://{NAME}:{}/", gateway.https().port());
    let mut curl = command("curl");
    curl.args(["-sS", "--max-time", "170", "--cacert"]).arg(fleet.ca.root_file());
    run(curl.args(["--connect-to", "::127.0.0.1:", &url]), b"", LIMIT).success();
    let metrics = gateway.metrics();
    assert!(
        (metrics.sum("brisk_key_operations_total", &["engine=\"keyserver\"", "outcome=\"ok\""]) - 5.0).abs()
            < 0.5
    );
    // And one at each server for each certificate, after the connection to it.
    wait_until("nine operations of the key servers", || {
        let done = gateway.metrics().sum("brisk_keyserver_operations_total", &["outcome=\"ok\""]);
        ((done - 9.0).abs() < 0.5).then_some(())
    });
    // Servers that have nothing to do take turns.
    for server in [&one, &two] {
        assert!(server.metrics().sum("brisk_keyserver_requests_total", &[]) > 0.5);
        assert!(server.metrics().sum("brisk_key_operations_total", &["outcome=\"ok\""]) > 0.5);
        assert!(server.metrics().sum("brisk_keyserver_refusals_total", &[]) < 0.5);
        assert_eq!(server.ask_admin("/healthz").status(), 200);
    }
}

#[test]
fn a_folder_that_init_made_serves_and_enrols() {
    let fleet = Fleet::new();
    let tools = setup();
    let made = tools.run("keyserver", &["init", "fleet"]).success();
    assert!(made.contains("[keyserver.main]") && made.contains("ca.key"), "{made}");
    let folder = tools.folder().join("fleet");
    let again = tools.run("keyserver", &["init", "fleet"]);
    assert!(again.status.code() == Some(1) && again.stderr.contains("is there already"), "{}", again.text());
    fs::write(folder.join("keys/site.key"), &fleet.ecdsa.key_pem).expect("a key");
    fs::set_permissions(folder.join("keys/site.key"), fs::Permissions::from_mode(0o644)).expect("a mode");
    let checked = tools.run("keyserver", &["check", "fleet/keyserver.toml"]);
    assert!(checked.stdout.contains("ok, 1 private key\n"), "{}", checked.text());
    assert!(checked.stderr.contains("everyone on this machine may read it"), "{}", checked.text());
    let enrolled = tools.run("keyserver", &["enrol", "second", "--folder", "fleet"]).success();
    assert!(enrolled.contains("[client.second]"), "{enrolled}");

    let config = fs::read_to_string(folder.join("keyserver.toml")).expect("a configuration");
    let port = free_port();
    let config = config.replace("0.0.0.0:8444", &format!("127.0.0.1:{port}"));
    let config = config.replace("127.0.0.1:9444", "127.0.0.1:0") + "\n[client.second]\nkeys = []\n";
    fs::write(folder.join("keyserver.toml"), config).expect("a configuration");
    let file = folder.join("keyserver.toml").display().to_string();
    let server = setup().keyserver().option("--config").option(&file).start();
    let gateway = |name: &str| {
        let files = folder.join("gateways").join(name).display().to_string();
        let config = format!(
            "{}\n[[host]]\nnames = {NAMES:?}\ncertificates = [{{ chain = {}, key = \"keyserver:main\" }}]\n\
             [keyserver.main]\nservers = [\"127.0.0.1:{port}\"]\nca = {}\n\
             certificate = {{ chain = \"{files}.pem\", key = \"{files}.key\" }}\n{LENIENT}",
            base(""),
            quoted(&fleet.ecdsa.chain),
            quoted(&folder.join("ca.pem")),
        );
        setup().config(&config).start()
    };
    let first = gateway("gateway-1");
    wait_until_ready(&first);
    fleet.full(&first).expect("a handshake");
    let second = gateway("second");
    fleet.full(&second).expect_err("it may use no key");
    wait_until("a page with the reason", || {
        let page = second.ask_admin("/readyz");
        (page.status() == 503 && page.text().contains("does not permit this gateway")).then_some(())
    });
    server.log_with("key-not-allowed");
}

#[test]
fn a_key_that_comes_into_the_folder_is_served_and_one_that_goes_is_not() {
    let fleet = Fleet::new();
    let server = fleet.server();
    let gateway = fleet.gateway(&[server.keys()], "");
    wait_until_ready(&gateway);
    fleet.full(&gateway).expect("a handshake");
    fs::remove_file(server.folder().join("keys/ecdsa.key")).expect("a key");
    server.log_with("reloaded: ");
    fleet.full(&gateway).expect_err("the key is gone");
    server.log_with("unknown-key");
    fs::write(server.folder().join("keys/again.pem"), &fleet.ecdsa.key_pem).expect("a key");
    wait_until("a handshake with the key", || fleet.full(&gateway).ok());
    // A wrong file is refused, and the old keys stay.
    fs::write(server.folder().join("keys/wrong.pem"), "no key").expect("a file");
    let log = server.log_with("not reloaded");
    assert!(log.contains("wrong.pem: no private key"), "{log}");
    fleet.full(&gateway).expect("a handshake");
}

#[test]
fn a_local_key_steps_in_for_key_servers_that_are_gone() {
    let fleet = Fleet::new();
    let config = fleet.config("", &[SocketAddr::from(([127, 0, 0, 1], free_port()))], "");
    let with_fallback = |leaf: &Leaf| format!("\"keyserver:main\", fallback_key = {} }}", quoted(&leaf.key));
    let config = config.replacen("\"keyserver:main\" }", &with_fallback(&fleet.ecdsa), 1);
    let gateway = setup().config(&config).start();
    fleet.full(&gateway).expect("a handshake with the local key");
    let page = gateway.ask_admin("/readyz");
    assert_eq!(page.status(), 503);
    assert!(page.text().contains("no key server of \"main\" answers"), "{}", page.text());
}

#[test]
fn the_primes_are_in_the_memory_of_the_key_server_and_not_in_that_of_the_gateway() {
    let fleet = Fleet::new();
    let server = fleet.server();
    let gateway = fleet.gateway(&[server.keys()], "");
    wait_until_ready(&gateway);
    let options = ["-servername", NAME, "-tls1_3", "-sigalgs", "RSA-PSS+SHA256"];
    assert!(ask(&fleet.ca, &gateway, &options).stdout.contains("200"));
    let secrets = Secrets::default().key("RSA", &fleet.rsa).key("P-256", &fleet.ecdsa);
    let Some(in_gateway) = secrets.found_in(gateway.process().id()) else {
        return eprintln!("not looked at: the memory of the gateway");
    };
    assert!(in_gateway.is_empty(), "keys in the gateway:\n{in_gateway}");
    match secrets.found_in(server.process().id()) {
        Some(found) => assert!(found.has("RSA") && found.has("P-256"), "the search misses keys: {found}"),
        None => {
            eprintln!("not looked at: the memory of the key server, which is private to others than root");
        }
    }
}

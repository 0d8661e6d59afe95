//! Keys and other secrets that a reload removes: absent from the memory of every process of brisk.

use std::fs::{self, File};
use std::io::Read;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use brisk_behaviour::memory::Secrets;
use brisk_behaviour::openssl::ask;
use brisk_behaviour::site::{NAME, NAMES, setup};
use brisk_testkit::brisk::{Brisk, base, host};
use brisk_testkit::ca::{LeafKey, TestCa};
use brisk_testkit::client::TlsClient;
use brisk_testkit::process::wait_until;
use brisk_testkit::token::{PIN, TokenKind, Tokens, VARIABLE};

use crate::isolated::{ISOLATE, full, holder, keeper};
use crate::keyless::{Fleet, files, wait_until_ready};

/// Random bytes.
fn random<const LENGTH: usize>() -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).expect("random bytes");
    bytes
}

/// A full handshake with each kind of key in each version of TLS.
fn use_keys(ca: &TestCa, gateway: &Brisk) {
    for (version, algorithms) in [
        ("-tls1_3", "ECDSA+SHA256"),
        ("-tls1_3", "RSA-PSS+SHA256"),
        ("-tls1_2", "ECDSA+SHA256"),
        ("-tls1_2", "RSA+SHA256"),
    ] {
        let output = ask(ca, gateway, &["-servername", NAME, version, "-sigalgs", algorithms]);
        assert!(output.stdout.contains("200"), "{version} {algorithms}: {}", output.text());
    }
}

/// Checks that `process` contains each of `names`, so that the search can find them, and no text from their files.
/// `None`, with a message, where memory cannot be read.
#[track_caller]
fn contains(secrets: &Secrets, process: u32, names: &[&str]) -> Option<()> {
    let Some(found) = secrets.found_in(process) else {
        eprintln!("not searched: the memory of process {process}, which only root may read");
        return None;
    };
    for name in names {
        assert!(found.has(name), "the search misses {name}; it finds:\n{found}");
    }
    assert!(!found.has("in base64"), "text remains of files that have been read:\n{found}");
    Some(())
}

#[test]
fn removed_keys_are_absent_from_the_gateway_and_its_key_process() {
    let ca = TestCa::new();
    let (ecdsa, rsa) = (ca.server(&NAMES).issue(), ca.server(&NAMES).key(LeafKey::Rsa2048).issue());
    let gateway = setup().config(&(base(ISOLATE) + &host(&NAMES, &[&ecdsa, &rsa]))).start();
    wait_until_ready(&gateway);
    use_keys(&ca, &gateway);
    let id = gateway.process().id();
    let holder = holder(id).expect("a key process");
    let secrets = Secrets::default().key("RSA", &rsa).key("P-256", &ecdsa);
    let Some(()) = contains(&secrets, holder, &["p of RSA", "P-256"]) else { return };

    let next = ca.server(&NAMES).issue();
    gateway.write("brisk.toml", base(ISOLATE) + &host(&NAMES, &[&next]));
    assert!(gateway.reload().contains(" reloaded"));
    full(&ca, &gateway).expect("a handshake with the new key");
    wait_until("the end of the old keys", || {
        let keys = gateway.metrics().sum("brisk_key_process_keys", &[]) as u64;
        (keys == 1).then_some(())
    });
    for process in [holder, keeper(id).expect("a keeper"), id] {
        secrets.wait_until_absent(process);
    }
}

#[test]
fn removed_keys_are_absent_from_a_gateway_that_had_them() {
    let ca = TestCa::new();
    let (ecdsa, rsa) = (ca.server(&NAMES).issue(), ca.server(&NAMES).key(LeafKey::Rsa2048).issue());
    let gateway = setup().config(&(base("") + &host(&NAMES, &[&ecdsa, &rsa]))).start();
    use_keys(&ca, &gateway);
    let id = gateway.process().id();
    let secrets = Secrets::default().key("RSA", &rsa).key("P-256", &ecdsa);
    let Some(()) = contains(&secrets, id, &["p of RSA", "P-256"]) else { return };

    let next = ca.server(&NAMES).issue();
    gateway.write("brisk.toml", base("") + &host(&NAMES, &[&next]));
    assert!(gateway.reload().contains(" reloaded"));
    full(&ca, &gateway).expect("a handshake with the new key");
    secrets.wait_until_absent(id);
}

#[test]
fn removed_keys_are_absent_from_their_key_server_and_were_never_in_the_gateway() {
    let fleet = Fleet::new();
    let server = fleet.server();
    let gateway = fleet.gateway(&[server.keys()], "");
    wait_until_ready(&gateway);
    use_keys(&fleet.ca, &gateway);
    let secrets = Secrets::default().key("RSA", &fleet.rsa).key("P-256", &fleet.ecdsa);
    let Some(()) = contains(&secrets, server.process().id(), &["p of RSA", "P-256"]) else { return };
    let in_gateway = secrets.found_in(gateway.process().id()).expect("memory");
    assert!(in_gateway.is_empty(), "keys in the gateway:\n{in_gateway}");

    let folder = server.folder().join("keys");
    let next = fleet.ca.server(&NAMES).issue();
    fs::write(folder.join("next.key"), &next.key_pem).expect("a key");
    for file in ["ecdsa.key", "rsa.pem"] {
        fs::remove_file(folder.join(file)).expect("a key");
    }
    // The first reload may have been between these changes.
    wait_until("the end of the keys", || fleet.full(&gateway).err());
    secrets.wait_until_absent(server.process().id());
    secrets.wait_until_absent(gateway.process().id());
}

#[test]
fn secrets_of_ticket_keys_acme_upstreams_and_tokens_are_absent_after_their_removal() {
    let ca = TestCa::new();
    let (leaf, client) = (ca.server(&NAMES).issue(), ca.client("gateway").issue());
    let tokens = Tokens::new();
    tokens.add("web");
    tokens.generate("web", "p256", "00", TokenKind::P256, &[]);
    let in_token = ca.server(&["token.test"]).issue_for(&tokens.public_key("web", "p256"));
    let (ticket_key, tsig, account) = (random::<80>(), random::<32>(), random::<32>());
    let keys = "sessions.ticket_keys = [\"a.key\"]\n\
                acme.directory = \"https://127.0.0.1:1/directory\"\n\
                acme.external_account = { key_id = \"id\", key_file = \"account.key\" }\n\
                acme.dns = { server = \"127.0.0.1:1\", zone = \"acme.test\", key_name = \"key\", key_file = \"tsig.key\" }\n";
    let tables = format!(
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n\
         [[host]]\nnames = [\"www.acme.test\"]\nacme = true\n\
         [[host]]\nnames = [\"token.test\"]\ncertificates = [{{ chain = {:?}, key = {:?} }}]\n\
         [upstream.app]\nservers = [\"https://127.0.0.1:1\"]\n[upstream.app.tls]\nca = {:?}\ncertificate = {}\n",
        in_token.chain,
        tokens.uri("web", "p256"),
        ca.root_file(),
        files(&client),
    );
    let config = |keys: &str, tables: &str| base(keys) + &host(&NAMES, &[&leaf]) + tables;
    let gateway = setup()
        .config(&config(keys, &tables))
        .file("a.key", ticket_key)
        .file("b.key", random::<80>())
        .file("tsig.key", STANDARD.encode(tsig))
        .file("account.key", URL_SAFE_NO_PAD.encode(account))
        .environment(VARIABLE, &tokens.settings())
        .start();
    gateway.log_with("keys in a token are used");
    let request = || {
        let mut connection =
            TlsClient::new(&ca.root_file(), NAME).connect(gateway.https()).expect("a handshake");
        connection.get(NAME, "/").status()
    };
    assert_eq!(request(), 502);
    let derived = derived(b"brisk ticket key file, first edition", &ticket_key, &[b"ticket key"]);
    let secrets = Secrets::default()
        .bytes("PIN", PIN.as_bytes())
        .bytes("ticket key", &derived[NAME_LENGTH..])
        .binary("key file for tickets", &ticket_key)
        .binary("TSIG", &tsig)
        .binary("account", &account)
        .key("client", &client);
    let id = gateway.process().id();
    let Some(()) = contains(&secrets, id, &["ticket key", "TSIG", "account", "client"]) else { return };
    let in_use = secrets.found_in(id).expect("memory");
    assert!(!in_use.has("PIN"), "the token has the PIN, and the gateway has it still:\n{in_use}");

    gateway.write("brisk.toml", config("sessions.ticket_keys = [\"b.key\"]\n", ""));
    assert!(gateway.reload().contains(" reloaded"));
    assert_eq!(request(), 200);
    secrets.wait_until_absent(id);
}

#[test]
fn a_replaced_fleet_secret_and_rotated_ticket_keys_are_absent() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let [secret, next] = [(); 2].map(|()| STANDARD.encode(random::<48>()));
    let keys = "sessions.secret = \"fleet.secret\"\nsessions.ticket_keys = \"secret\"\n\
                tls.session_lifetime = \"3s\"\ntls.ticket_rotation = \"3s\"\n";
    let config = |dns: &str| base(&format!("{keys}{dns}")) + &host(&NAMES, &[&leaf]);
    let password = STANDARD.encode(random::<30>());
    let registration = format!(
        "server = \"https://127.0.0.1:1\"\nusername = \"name\"\npassword = {password:?}\nsubdomain = \"www\"\n"
    );
    let dns = "acme.directory = \"https://127.0.0.1:1/directory\"\nacme.dns = { acme_dns = \"dns.toml\" }\n";
    let gateway = setup()
        .config(&(config(dns) + "[[host]]\nnames = [\"www.acme.test\"]\nacme = true\n"))
        .file("fleet.secret", &secret)
        .file("dns.toml", registration)
        .start();
    full(&ca, &gateway).expect("a handshake");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    // Of the interval that has begun, of the one before, and of those of a minute, which the search may take on a busy machine.
    let mut secrets =
        Secrets::default().bytes("fleet secret", secret.as_bytes()).bytes("password", password.as_bytes());
    for slot in (0..21).map(|number| now / 3 * 3 - 3 + 3 * number) {
        let info = [&b"ticket key"[..], &3u64.to_be_bytes(), &slot.to_be_bytes()];
        let derived = derived(b"brisk fleet secret, first edition", secret.as_bytes(), &info);
        secrets = secrets.bytes("ticket key", &derived[NAME_LENGTH..]);
    }
    let id = gateway.process().id();
    let Some(()) = contains(&secrets, id, &["fleet secret", "ticket key", "password"]) else { return };

    gateway.write("fleet.secret", next);
    gateway.write("brisk.toml", config(""));
    assert!(gateway.reload().contains(" reloaded"));
    // The old keys open tickets until the last has expired. Then the next handshake removes them, or the main thread.
    wait_until("the end of the old ticket keys", || {
        full(&ca, &gateway).expect("a handshake");
        secrets.found_in(id)?.is_empty().then_some(())
    });
}

/// Length of the name that precedes a ticket key.
const NAME_LENGTH: usize = 16;

/// Name and key of a ticket key, derived from a secret as brisk derives them (HKDF, RFC 5869).
fn derived(salt: &[u8], secret: &[u8], info: &[&[u8]]) -> [u8; 48] {
    struct Length;
    impl KeyType for Length {
        fn len(&self) -> usize {
            48
        }
    }
    let mut derived = [0; 48];
    let prk = Salt::new(HKDF_SHA256, salt).extract(secret);
    prk.expand(info, Length).and_then(|output| output.fill(&mut derived)).expect("a length");
    derived
}

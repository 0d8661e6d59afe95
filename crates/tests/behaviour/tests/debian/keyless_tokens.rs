//! Key server with keys in a SoftHSM token: use by local and remote gateways, and recovery of a lost token.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use brisk_behaviour::openssl::ask;
use brisk_behaviour::site::{NAME, NAMES, setup};
use brisk_testkit::brisk::Brisk;
use brisk_testkit::ca::Leaf;
use brisk_testkit::process::{TIMEOUT, wait_until};
use brisk_testkit::token::{TokenKind, Tokens, VARIABLE};

use crate::keyless::{Fleet, files, quoted, wait_until_ready};

/// Ends the load when it is dropped, by a test that fails too.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A fleet whose certificates have their keys in the token `web`.
struct InTokens {
    tokens: Tokens,
    fleet: Fleet,
    leafs: [(Leaf, String); 2],
}

impl InTokens {
    fn new() -> Self {
        let (tokens, mut fleet) = (Tokens::new(), Fleet::new());
        tokens.add("web");
        let leafs = [("p256", "01", TokenKind::P256), ("rsa", "02", TokenKind::Rsa2048)];
        let leafs = leafs.map(|(label, id, kind)| {
            tokens.generate("web", label, id, kind, &[]);
            let leaf = fleet.ca.server(&NAMES).issue_for(&tokens.public_key("web", label));
            (leaf, tokens.uri("web", label))
        });
        [fleet.ecdsa, fleet.rsa] = leafs.each_ref().map(|(leaf, _)| leaf.clone());
        Self { tokens, fleet, leafs }
    }

    fn certificates(&self) -> String {
        let one =
            |(leaf, uri): &(Leaf, String)| format!("{{ chain = {}, key = \"{uri}\" }}", quoted(&leaf.chain));
        self.leafs.each_ref().map(one).join(", ")
    }

    fn server(&self, more: &str) -> Brisk {
        let config = format!(
            "server.listen = [\"127.0.0.1:0\"]\nserver.workers = 1\nserver.certificates = [{}]\nserver.certificate = {}\n\
             server.client_ca = {}\nadmin.listen = \"127.0.0.1:0\"\n[client.gateway]\n{more}",
            self.certificates(),
            files(&self.fleet.server),
            quoted(&self.fleet.ca.root_file()),
        );
        setup().keyserver().config(&config).environment(VARIABLE, &self.tokens.settings()).start()
    }

    /// One handshake for each version and kind of key.
    fn serves(&self, gateway: &Brisk) {
        for (version, algorithms) in [
            ("-tls1_3", "ECDSA+SHA256"),
            ("-tls1_3", "RSA-PSS+SHA256"),
            ("-tls1_2", "ECDSA+SHA256"),
            ("-tls1_2", "RSA+SHA256"),
        ] {
            let output =
                ask(&self.fleet.ca, gateway, &["-servername", NAME, version, "-sigalgs", algorithms]);
            assert!(output.stdout.contains("200"), "{version} {algorithms}: {}", output.text());
        }
    }
}

#[test]
fn keys_in_a_token_are_served_by_a_gateway_and_through_a_key_server() {
    let own = InTokens::new();
    let config = format!(
        "{}\n[[host]]\nnames = {NAMES:?}\ncertificates = [{}]\n",
        brisk_testkit::brisk::base(""),
        own.certificates()
    );
    let local = setup().config(&config).environment(VARIABLE, &own.tokens.settings()).start();
    own.serves(&local);
    let server = own.server("");
    assert!(server.process().stdout().contains("hold   2 private keys"), "{}", server.process().stdout());
    let gateway = own.fleet.gateway(&[server.keys()], "");
    wait_until_ready(&gateway);
    own.serves(&gateway);
    let done = |brisk: &Brisk, engine: &str| {
        let label = format!("engine=\"{engine}\"");
        brisk.metrics().sum("brisk_key_operations_total", &[&label, "outcome=\"ok\""]) as u64
    };
    // The key server has signed for each certificate at the start of the gateway too.
    assert_eq!([done(&local, "pkcs11"), done(&server, "pkcs11"), done(&gateway, "keyserver")], [4, 6, 4]);
    assert_eq!(server.metrics().sum("brisk_key_token_up", &["token=\"web\""]) as u64, 1);
    // Keys in tokens are named as their chains are.
    let name = own.leafs[0].0.chain.file_name().expect("a name").to_string_lossy().into_owned();
    let server = own.server(&format!("keys = [{name:?}]\n"));
    let gateway = own.fleet.gateway(&[server.keys()], "");
    wait_until_ready(&gateway);
    let asked = |algorithms: &str| {
        ask(&own.fleet.ca, &gateway, &["-servername", NAME, "-tls1_3", "-sigalgs", algorithms]).stdout
    };
    assert!(asked("ECDSA+SHA256").contains("200"));
    assert!(!asked("RSA-PSS+SHA256").contains("200"));
    server.log_with("key-not-allowed");
}

#[test]
fn a_token_of_a_key_server_that_goes_under_load_is_used_again_when_it_is_back() {
    let own = InTokens::new();
    let server = own.server("");
    let gateway = own.fleet.gateway(&[server.keys()], "");
    wait_until_ready(&gateway);
    let (done, failed, stop) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let grows = |what: &str, count: &AtomicUsize| {
        let before = count.load(Ordering::Relaxed);
        wait_until(what, || (count.load(Ordering::Relaxed) > before + 10).then_some(()));
    };
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let started = Instant::now();
                    let count = if own.fleet.full(&gateway).is_ok() { &done } else { &failed };
                    count.fetch_add(1, Ordering::Relaxed);
                    assert!(started.elapsed() < TIMEOUT, "a handshake hung");
                }
            });
        }
        let client = own.fleet.tls();
        client.connect(gateway.https()).expect("a handshake").get(NAME, "/");
        for round in 1..=2 {
            grows("handshakes", &done);
            own.tokens.take_away();
            grows("handshakes that fail", &failed);
            // A session needs no key.
            client.connect(gateway.https()).expect("a resumed handshake").get(NAME, "/");
            own.tokens.put_back();
            wait_until("a token that is back", || {
                let back = server.metrics().sum("brisk_key_token_reconnections_total", &[]) as usize;
                (back >= round).then_some(())
            });
            grows("handshakes again", &done);
        }
    });
    assert_eq!(server.ask_admin("/healthz").status(), 200);
}

//! Invalid certificates: a mismatched key prevents the start, an expired certificate is served with a warning.

use brisk_behaviour::openssl::s_client;
use brisk_behaviour::site::{LIMIT, NAME, setup};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::{Leaf, LeafKey, TestCa};
use brisk_testkit::client::TlsClient;
use brisk_testkit::process::run;

fn config(leaf: &Leaf) -> String {
    base("") + &host(&[NAME], &[leaf])
}

#[test]
fn a_key_that_does_not_fit_its_certificate_stops_the_start() {
    let ca = TestCa::new();
    let (one, other) = (ca.server(&[NAME]).issue(), ca.server(&[NAME]).issue());
    let mut mixed = one.clone();
    mixed.key.clone_from(&other.key);
    let setup = setup().config(&config(&mixed));
    for output in [setup.fail(), setup.check("brisk.toml")] {
        assert_eq!(output.status.code(), Some(2), "{}", output.text());
        for file in [&one.chain, &other.key] {
            assert!(output.stderr.contains(&file.display().to_string()), "{}", output.stderr);
        }
        assert!(output.stderr.contains("host[0].certificates[0]"), "{}", output.stderr);
        assert!(!output.stdout.contains("serves"), "{}", output.stdout);
    }
}

#[test]
fn a_missing_or_broken_file_stops_the_start() {
    let ca = TestCa::new();
    let leaf = ca.server(&[NAME]).issue();
    let [mut missing, mut broken] = [leaf.clone(), leaf.clone()];
    missing.chain = ca.folder().join("none.pem");
    broken.key.clone_from(&leaf.chain);
    for (leaf, file) in [(&missing, "none.pem"), (&broken, ".pem")] {
        let output = setup().config(&config(leaf)).fail();
        assert_eq!(output.status.code(), Some(2), "{}", output.text());
        assert!(output.stderr.contains(file) && output.stderr.contains("brisk.toml:"), "{}", output.stderr);
    }
}

#[test]
fn an_expired_certificate_is_served_with_a_warning() {
    let ca = TestCa::new();
    let leaf = ca.server(&[NAME]).expired().issue();
    let setup = setup().config(&config(&leaf));
    let checked = setup.check("brisk.toml");
    assert!(checked.status.success() && checked.stderr.contains("expired"), "{}", checked.text());
    let brisk = setup.start();
    brisk.log_with("expired");
    // A client that verifies refuses it; one that does not is served.
    let refused = run(&mut s_client(&ca, &brisk, &["-servername", NAME, "-no_ign_eof"]), b"", LIMIT);
    assert!(refused.text().contains("certificate has expired"), "{}", refused.text());
    let curl = ["--silent", "--insecure", "--output", "/dev/null", "--write-out", "%{response_code}"];
    let url = format!("https://{}/", brisk.https());
    let served = run(brisk_testkit::process::command("curl").args(curl).arg(url), b"", LIMIT).success();
    assert_eq!(served, "200");
}

#[test]
fn every_kind_of_key_serves() {
    let ca = TestCa::new();
    for key in [LeafKey::EcdsaP256, LeafKey::EcdsaP384, LeafKey::Rsa2048, LeafKey::Ed25519] {
        let leaf = ca.server(&[NAME]).key(key).issue();
        let brisk = setup().config(&config(&leaf)).start();
        let options = ["-servername", NAME, "-no_ign_eof", "-tls1_3"];
        let output = run(&mut s_client(&ca, &brisk, &options), b"", LIMIT);
        assert!(output.stdout.contains("Verify return code: 0 (ok)"), "{key:?}: {}", output.text());
    }
}

#[test]
fn ml_dsa_is_for_clients_that_list_it_and_can_verify_nothing_else_here() {
    let ca = TestCa::new();
    let (ml_dsa, ecdsa) = (ca.server(&[NAME]).key(LeafKey::MlDsa44).issue(), ca.server(&[NAME]).issue());
    let lists_it = TlsClient::new(&ca.root_file(), NAME);
    let does_not =
        ["-servername", NAME, "-no_ign_eof", "-sigalgs", "ecdsa_secp256r1_sha256:rsa_pss_rsae_sha256"];

    let alone = setup().config(&config(&ml_dsa)).start();
    let stream = lists_it.connect(alone.https()).expect("a handshake");
    let shown = stream.tls().peer_certificates().expect("a certificate")[0].len();
    assert!(shown > 1312, "the public key has as many bytes: {shown}");
    let refused = run(&mut s_client(&ca, &alone, &does_not), b"", LIMIT);
    assert!(refused.text().contains("handshake failure"), "{}", refused.text());
    assert!(lists_it.tls12().connect(alone.https()).is_err(), "there are no such signatures in TLS 1.2");

    let both = setup().config(&(base("") + &host(&[NAME], &[&ml_dsa, &ecdsa]))).start();
    let served = run(&mut s_client(&ca, &both, &does_not), b"", LIMIT);
    assert!(served.stdout.contains("Verify return code: 0 (ok)"), "{}", served.text());
    let stream = TlsClient::new(&ca.root_file(), NAME).connect(both.https()).expect("a handshake");
    assert!(stream.tls().peer_certificates().expect("a certificate")[0].len() < 1312);
}

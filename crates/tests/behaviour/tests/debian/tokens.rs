//! Keys in a SoftHSM token: handshakes, recovery of a lost token, and error messages.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use brisk_behaviour::openssl::{ask, facts_of};
use brisk_behaviour::site::{NAME, NAMES, Site, setup};
use brisk_testkit::brisk::base;
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::process::{TIMEOUT, wait_until};
use brisk_testkit::token::{TokenKind, Tokens, VARIABLE, module};

/// `internal_error`, RFC 8446 section 6.2.
const INTERNAL_ERROR: &str = "InternalError";

/// A host whose certificates have their keys where these URIs say.
fn host(certificates: &[(&Leaf, &str)]) -> String {
    let certificate =
        |(leaf, key): &(&Leaf, &str)| format!("{{ chain = \"{}\", key = \"{key}\" }}", leaf.chain.display());
    let certificates: Vec<_> = certificates.iter().map(certificate).collect();
    format!("\n[[host]]\nnames = {NAMES:?}\ncertificates = [{}]\n", certificates.join(", "))
}

/// A token `web` with a key of each kind, and a site that has its certificates for two of them.
fn site(tokens: &Tokens, keys: &[(&str, TokenKind)]) -> Site {
    let ca = TestCa::new();
    tokens.add("web");
    let mut certificates = Vec::new();
    for (number, (label, kind)) in keys.iter().enumerate() {
        tokens.generate("web", label, &format!("0{number}"), *kind, &[]);
        certificates
            .push((ca.server(&NAMES).issue_for(&tokens.public_key("web", label)), tokens.uri("web", label)));
    }
    let certificates: Vec<_> = certificates.iter().map(|(leaf, uri)| (leaf, uri.as_str())).collect();
    let config = base("") + &host(&certificates);
    Site { brisk: setup().config(&config).environment(VARIABLE, &tokens.settings()).start(), ca }
}

#[test]
fn keys_of_every_kind_in_a_token_serve_both_versions() {
    let tokens = Tokens::new();
    let site = site(
        &tokens,
        &[
            ("p256", TokenKind::P256),
            ("p384", TokenKind::P384),
            ("rsa2048", TokenKind::Rsa2048),
            ("rsa3072", TokenKind::Rsa3072),
        ],
    );
    for (option, version, schemes) in [
        (
            "-tls1_2",
            "TLS 1.2",
            &["ecdsa_secp256r1_sha256", "ecdsa_secp384r1_sha384", "rsa_pkcs1_sha256", "rsa_pss_rsae_sha384"]
                [..],
        ),
        (
            "-tls1_3",
            "TLS 1.3",
            &[
                "ecdsa_secp256r1_sha256",
                "ecdsa_secp384r1_sha384",
                "rsa_pss_rsae_sha256",
                "rsa_pss_rsae_sha512",
            ],
        ),
    ] {
        for scheme in schemes {
            let output = ask(&site.ca, &site.brisk, &["-servername", NAME, option, "-sigalgs", scheme]);
            let facts = facts_of(&output);
            let stated = [&facts["tls"]["version"], &facts["tls"]["scheme"]];
            assert_eq!(stated.map(|fact| fact.as_str().unwrap_or_default()), [version, scheme]);
            assert!(output.stdout.contains("Verify return code: 0 (ok)"), "{}", output.text());
        }
    }
    site.curl(&["--tlsv1.3"], "/").success();
    let metrics = site.brisk.metrics();
    let done = metrics.sum("brisk_key_operations_total", &["engine=\"pkcs11\"", "outcome=\"ok\""]) as u64;
    assert_eq!(done, 9, "{}", metrics.0);
    assert_eq!(metrics.sum("brisk_key_operations_total", &[]) as u64, 9);
    assert_eq!(metrics.sum("brisk_key_token_up", &["token=\"web\""]) as u64, 1);
    site.brisk.log_with("keys in a token are used");
}

#[test]
fn a_token_that_goes_under_load_fails_handshakes_at_once_and_is_used_again_when_it_is_back() {
    let tokens = Tokens::new();
    let site = site(&tokens, &[("p256", TokenKind::P256)]);
    let (done, failed, stop) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for version in [0, 1] {
            let (site, done, failed, stop) = (&site, &done, &failed, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let client = if version == 0 { site.client() } else { site.client().tls12() };
                    let started = Instant::now();
                    match client.connect(site.brisk.https()) {
                        Ok(_) => done.fetch_add(1, Ordering::Relaxed),
                        Err(error) => {
                            assert!(error.to_string().contains(INTERNAL_ERROR), "{error}");
                            failed.fetch_add(1, Ordering::Relaxed)
                        }
                    };
                    assert!(started.elapsed() < TIMEOUT, "a handshake hung");
                }
            });
        }
        let client = site.client();
        client.connect(site.brisk.https()).expect("a handshake").get(NAME, "/");
        for round in 1..=2 {
            grows("handshakes", &done);
            tokens.take_away();
            grows("handshakes that fail", &failed);
            let up = |up: f64| {
                move |site: &Site| {
                    let shown = site.brisk.metrics().sum("brisk_key_token_up", &["token=\"web\""]);
                    ((shown - up).abs() < 0.5).then_some(())
                }
            };
            wait_until("a token that is missed", || up(0.0)(&site));
            let page = site.brisk.ask_admin("/readyz").text();
            assert!(page.contains("handshakes with keys of the token \"web\" fail"), "{page}");
            // A session needs no key.
            client.connect(site.brisk.https()).expect("a resumed handshake").get(NAME, "/");
            // A reload does not need the token for a key that is in use.
            let line = site.brisk.reload();
            assert!(!line.contains("ERROR"), "{line}");
            tokens.put_back();
            wait_until("a token that is back", || up(1.0)(&site));
            assert_eq!(site.brisk.ask_admin("/readyz").status(), 200);
            grows("handshakes again", &done);
            let back = site.brisk.metrics().sum("brisk_key_token_reconnections_total", &[]) as usize;
            assert!(back >= round, "{back} in round {round}");
        }
        stop.store(true, Ordering::Relaxed);
    });
    // A moment after what they report.
    wait_until("a line for each time that the token went, and for each time that it came back", || {
        let log = site.brisk.process().stderr();
        let lines = |text: &str| log.lines().filter(|line| line.contains(text)).count();
        let both = (lines("handshakes with its keys fail"), lines("the token is back"));
        // Not one for each handshake. The token may be late on a busy machine too, which counts as another time.
        assert!(both.0 < 10 && both.1 < 10, "{log}");
        (both.0 >= 2 && both.1 >= 2).then_some(())
    });
    site.assert_alive();
}

/// Waits until a count has grown by some.
fn grows(what: &str, count: &AtomicUsize) {
    let before = count.load(Ordering::Relaxed);
    wait_until(what, || (count.load(Ordering::Relaxed) > before + 10).then_some(()));
}

#[test]
fn a_reload_brings_a_key_and_takes_one_away() {
    let tokens = Tokens::new();
    let site = site(&tokens, &[("first", TokenKind::P256)]);
    let operations = || site.brisk.metrics().sum("brisk_key_operations_total", &["engine=\"pkcs11\""]) as u64;
    site.connect();
    assert_eq!(operations(), 1);
    tokens.generate("web", "second", "55", TokenKind::P384, &[]);
    let second = site.ca.server(&NAMES).issue_for(&tokens.public_key("web", "second"));
    let uri = "pkcs11:token=web;object=second;id=%55?pin-source=file:pin";
    let keys = format!("keys.pkcs11_module = \"{}\"\n", module().display());
    fs::copy(tokens.pin_file(), site.brisk.folder().join("pin")).expect("a copy");
    site.brisk.write("brisk.toml", base(&keys) + &host(&[(&second, uri)]));
    let line = site.brisk.reload();
    assert!(!line.contains("ERROR"), "{line}");
    let facts = facts_of(&ask(&site.ca, &site.brisk, &["-servername", NAME]));
    assert_eq!(facts["tls"]["scheme"], "ecdsa_secp384r1_sha384");
    assert_eq!(operations(), 2);
    // Back to a key in a file.
    let file = site.ca.server(&NAMES).issue();
    site.brisk.write("brisk.toml", base("") + &brisk_testkit::brisk::host(&NAMES, &[&file]));
    let line = site.brisk.reload();
    assert!(!line.contains("ERROR"), "{line}");
    site.connect();
    assert_eq!(operations(), 2);
}

#[test]
fn check_and_start_name_mistakes_alike() {
    let (tokens, ca) = (Tokens::new(), TestCa::new());
    tokens.add("web");
    for (label, id) in [("site", "01"), ("twin", "02"), ("twin", "03")] {
        tokens.generate("web", label, id, TokenKind::P256, &[]);
    }
    let leaf = ca.server(&NAMES).issue_for(&tokens.public_key("web", "site"));
    let other = ca.server(&NAMES).issue();
    let right = tokens.uri("web", "site");
    let stated = |certificate: &Leaf, uri: &str, parts: &[&str]| {
        let config = base("") + &host(&[(certificate, uri)]);
        let setup = setup().config(&config).environment(VARIABLE, &tokens.settings());
        for output in [setup.check("brisk.toml"), setup.fail()] {
            assert_eq!(output.status.code(), Some(2), "{}", output.text());
            let message = output.stderr.trim();
            assert_eq!(message.lines().count(), 1, "{message}");
            let start = format!("brisk.toml:{}:", config.lines().count());
            for part in [&start[..], "host[0].certificates[0].key: "].iter().chain(parts) {
                assert!(message.contains(part), "{part} is missing: {message}");
            }
        }
    };
    let output = setup()
        .config(&(base("") + &host(&[(&leaf, &right)])))
        .environment(VARIABLE, &tokens.settings())
        .check("brisk.toml");
    let said = output.success();
    assert!(said.ends_with("\nbrisk.toml: ok\n"), "{said}");
    stated(
        &leaf,
        &tokens.uri("web", "sight"),
        &["no private key for `pkcs11:token=web;object=sight`", "object=site;id=%01"],
    );
    stated(
        &leaf,
        &tokens.uri("web", "twin"),
        &["2 private keys", "object=twin;id=%02", "by both `object` and `id`"],
    );
    stated(
        &leaf,
        &tokens.uri("wab", "site"),
        &["no token fits `pkcs11:token=wab;object=site`", "\"web\" (serial "],
    );
    stated(&other, &right, &["does not belong to the certificate, which is for \"CN=site.test\"", "trial"]);
    stated(&leaf, "pkcs11:object=site", &["which PKCS #11 module?", "pkcs11_module = \"/PATH.so\""]);
    stated(
        &leaf,
        "pkcs11:object=site?module-path=/no/such.so",
        &["cannot load the PKCS #11 module /no/such.so: No such file or directory"],
    );
    stated(&leaf, "pkcs11:objekt=site", &["`objekt` is not known here; known: `token`"]);
    stated(
        &leaf,
        "pkcs11:object=site?pin-value=1234",
        &["a PIN has no place in a configuration", "pin-source=file:/PATH"],
    );
    let without_pin = format!("pkcs11:object=site?module-path={}", module().display());
    stated(&leaf, &without_pin, &["the token \"web\" wants a PIN: append ?pin-source=file:/PATH"]);
    fs::write(tokens.pin_file(), "135790\n").expect("a file of ours");
    stated(&leaf, &right, &["the token \"web\" refuses the PIN in ", "CKR_PIN_INCORRECT"]);
}

#[test]
fn a_pin_that_everyone_may_read_is_a_warning_and_an_upstream_gets_no_key_of_a_token() {
    use std::os::unix::fs::PermissionsExt;
    let (tokens, ca) = (Tokens::new(), TestCa::new());
    tokens.add("web");
    tokens.generate("web", "site", "01", TokenKind::P256, &[]);
    let leaf = ca.server(&NAMES).issue_for(&tokens.public_key("web", "site"));
    let uri = tokens.uri("web", "site");
    fs::set_permissions(tokens.pin_file(), fs::Permissions::from_mode(0o644)).expect("a file of ours");
    let check =
        |config: &str| setup().config(config).environment(VARIABLE, &tokens.settings()).check("brisk.toml");
    let output = check(&(base("") + &host(&[(&leaf, &uri)])));
    let warning = format!("warning: {}: everyone on this machine may read it", tokens.pin_file().display());
    assert!(output.stderr.contains(&warning), "{}", output.text());
    let upstream = format!(
        "\n[upstream.app]\nservers = [\"https://127.0.0.1:1\"]\ntls.certificate = {{ chain = \"{}\", key = \"{uri}\" }}\n",
        leaf.chain.display()
    );
    let output = check(&(base("") + "\n[[host]]\nnames = [\"localhost\"]\n" + &upstream));
    assert!(
        output
            .stderr
            .contains("upstream.app.tls.certificate.key: a key in a token can be that of a host alone"),
        "{}",
        output.text()
    );
}

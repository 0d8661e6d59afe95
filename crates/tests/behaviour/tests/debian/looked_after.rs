//! Maintenance of certificates: staples from a real responder before the first handshake, completed chains, detected
//! revocation; and a CA whose servers fail in every way while no handshake waits.

use std::fmt::Write;
use std::fs;

use brisk_behaviour::openssl::s_client;
use brisk_behaviour::site::{LIMIT, NAME, setup};
use brisk_testkit::brisk::{Brisk, base as base_without_private, host};
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::ca_site::{Answer, CaSite, responder, response};
use brisk_testkit::process::{Finished, run, wait_until};
use brisk_testkit::redis::Redis;
use serde_json::Value;

/// A handshake that asks for a staple, for this name.
fn handshake(ca: &TestCa, brisk: &Brisk, name: &str, options: &[&str]) -> Finished {
    let options = [&["-servername", name, "-status", "-no_ign_eof"], options].concat();
    let output = run(&mut s_client(ca, brisk, &options), b"", LIMIT);
    assert!(output.stdout.contains("Verify return code: 0 (ok)"), "{name}: {}", output.text());
    output
}

fn is_stapled(output: &Finished) -> bool {
    let good = output.stdout.contains("Cert Status: good");
    assert!(good || output.stdout.contains("OCSP response: no response sent"), "{}", output.text());
    good
}

/// The base of a gateway that may fetch from the authority's servers of these tests.
fn base(keys: &str) -> String {
    base_without_private(keys) + "certificates.allow_private = [\"127.0.0.1\"]\n"
}

fn state(folder: &tempfile::TempDir) -> String {
    base(&format!("server.state_dir = {:?}\n", folder.path().display().to_string()))
}

fn certificates(brisk: &Brisk) -> Vec<Value> {
    let page: Value = serde_json::from_str(&brisk.ask_admin("/certificates").text()).expect("JSON");
    page["certificates"].as_array().expect("a list").clone()
}

/// Fails the test unless `path` was requested once, or brisk has logged `failure`: a pause of the machine may outlast the limit of a
/// request. Returns the number of requests.
#[track_caller]
fn asked_once(site: &CaSite, path: &str, brisk: &Brisk, failure: &str) -> usize {
    let (asked, log) = (site.asked(path), brisk.process().stderr());
    assert!(asked == 1 || (asked > 1 && log.contains(failure)), "{asked} requests for {path}:\n{log}");
    asked
}

#[test]
fn the_very_first_connection_has_the_staple_and_a_restart_has_it_without_the_responder() {
    let (ca, site) = (TestCa::new(), CaSite::new());
    let leaf = ca.server(&[NAME]).ocsp_at(&site.url("/ocsp")).must_staple().issue();
    let signer = ca.ocsp_signer().issue();
    let (_openssl, address) = responder(&ca, &[&leaf], &[], Some(&signer));
    site.set("/ocsp", Answer::Of(address));
    let folder = tempfile::tempdir().expect("a folder");
    let config = state(&folder) + "certificates.staple_wait = \"60s\"\n" + &host(&[NAME], &[&leaf]);
    let brisk = setup().config(&config).start();
    assert!(is_stapled(&handshake(&ca, &brisk, NAME, &["-tls1_3"])));
    assert!(is_stapled(&handshake(&ca, &brisk, NAME, &["-tls1_2"])));
    let asked = asked_once(&site, "/ocsp", &brisk, "no staple from");
    let shown = certificates(&brisk);
    assert_eq!((&shown[0]["names"][0], &shown[0]["trouble"]), (&Value::from(NAME), &Value::Null));
    assert!(shown[0]["staple"]["shown_until"].is_u64(), "{shown:?}");
    let metrics = brisk.metrics();
    assert!(
        metrics.0.contains("brisk_certificate_staple_age_seconds{certificate=\"site.test\""),
        "{}",
        metrics.0
    );
    assert!(metrics.sum("brisk_certificate_days_left", &[]) > 80.0);
    drop(brisk);

    site.set("/ocsp", Answer::Silence);
    let brisk = setup().config(&config).start();
    assert!(is_stapled(&handshake(&ca, &brisk, NAME, &[])));
    assert_eq!(site.asked("/ocsp"), asked, "half of its life is not over");
}

/// Ways of a responder to be of no use.
const FAULTS: [&str; 7] = ["silent", "wrong", "revoked", "garbage", "dead", "other", "stale"];

#[test]
fn no_handshake_waits_for_a_bad_responder_or_gets_what_it_says() {
    let (ca, site) = (TestCa::new(), CaSite::new());
    let leaves = FAULTS
        .map(|fault| ca.server(&[&format!("{fault}.test")]).ocsp_at(&site.url(&format!("/{fault}"))).issue());
    let all: Vec<&Leaf> = leaves.iter().collect();
    let [_, _, revoked_leaf, .., stale_leaf] = &leaves;
    let (_wrong, wrong) = responder(&ca, &all, &[], Some(&ca.client("a client").issue()));
    let (_revoked, revoked) = responder(&ca, &[], &[revoked_leaf], None);
    let (_good, good) = responder(&ca, &all, &[], None);
    site.set("/wrong", Answer::Of(wrong));
    site.set("/revoked", Answer::Of(revoked));
    site.set("/garbage", Answer::Bytes(b"<html>Please log in</html>".to_vec()));
    site.set("/silent", Answer::Silence);
    // A good response, about another certificate.
    let question = brisk_certs_question(&ca, &leaves[0]);
    site.set("/other", Answer::Bytes(response(&ca, &all, &[], None, &question)));
    let question = brisk_certs_question(&ca, stale_leaf);
    let stale = ca.ocsp_response(&question, "20200101000000Z", Some("20200108000000Z"));
    site.set("/stale", Answer::Bytes(stale));
    let mut config = base("certificates.staple_wait = \"300ms\"\n");
    for (fault, leaf) in FAULTS.iter().zip(&leaves) {
        write!(config, "{}", host(&[&format!("{fault}.test")], &[leaf])).expect("a string");
    }
    let brisk = without_waiting(&ca, &config);
    for fault in FAULTS {
        let output = handshake(&ca, &brisk, &format!("{fault}.test"), &[]);
        assert!(!is_stapled(&output), "{fault}: {}", output.text());
    }
    for reason in [
        "signed neither by the issuer",
        "REVOKED, as",
        "it is no OCSP response",
        "/dead",
        "not about this certificate",
        "it expired on 2020-01-08",
    ] {
        brisk.log_with(reason);
    }
    assert!(brisk.metrics().sum("brisk_certificate_revoked", &["certificate=\"revoked.test\""]) > 0.5);
    wait_until("seven certificates without staples", || {
        let troubled = brisk.metrics().sum("brisk_certificates_in_trouble", &["reason=\"staple\""]);
        (troubled > 6.5).then_some(())
    });

    // The responder comes back: handshakes have the staple without a reload.
    site.set("/dead", Answer::Of(good));
    wait_until("a staple", || is_stapled(&handshake(&ca, &brisk, "dead.test", &[])).then_some(()));
}

/// A brisk whose handshake with the certificate of the silent responder ended before the ten seconds that a fetch is given:
/// nothing else limits how long the responder is silent. Tried again where the machine was that slow.
fn without_waiting(ca: &TestCa, config: &str) -> Brisk {
    for _ in 0..5 {
        let brisk = setup().config(config).start();
        handshake(ca, &brisk, "silent.test", &[]);
        let certificates = certificates(&brisk);
        let silent = certificates.iter().find(|one| one["names"][0] == "silent.test");
        if silent.is_some_and(|one| one["failures"]["staple"] == 0) {
            return brisk;
        }
    }
    panic!("a handshake waits as long as the responder is silent");
}

/// A request about `leaf`, as `openssl` writes it.
fn brisk_certs_question(ca: &TestCa, leaf: &Leaf) -> Vec<u8> {
    let file = ca.unique_file("request");
    let output = brisk_testkit::process::command("openssl")
        .args(["ocsp", "-no_nonce", "-issuer"])
        .arg(ca.intermediate_files().0)
        .arg("-cert")
        .arg(&leaf.chain)
        .arg("-reqout")
        .arg(&file)
        .output()
        .expect("openssl");
    fs::read(&file).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn a_staple_file_is_shown_and_one_of_another_certificate_is_refused() {
    let ca = TestCa::new();
    let (leaf, other) = (ca.server(&[NAME]).must_staple().issue(), ca.server(&[NAME]).issue());
    let staple = |leaf: &Leaf| {
        let file = ca.unique_file("staple");
        fs::write(&file, response(&ca, &[leaf], &[], None, &brisk_certs_question(&ca, leaf)))
            .expect("a file");
        format!("staple = {:?} }}", file.display().to_string())
    };
    let with = |staple: &str| base("") + &host(&[NAME], &[&leaf]).replace(" }", &format!(", {staple}"));
    let brisk = setup().config(&with(&staple(&leaf))).start();
    assert!(is_stapled(&handshake(&ca, &brisk, NAME, &[])));

    let wrong = setup().config(&with(&staple(&other))).check("brisk.toml");
    assert_eq!(wrong.status.code(), Some(2), "{}", wrong.text());
    assert!(
        wrong.stderr.contains("certificates[0].staple: ") && wrong.stderr.contains("not about this"),
        "{}",
        wrong.text()
    );

    let none = setup().config(&(base("") + &host(&[NAME], &[&leaf]))).check("brisk.toml");
    assert!(
        none.stderr.contains("must-staple") && none.stderr.contains("without must-staple"),
        "{}",
        none.text()
    );
}

#[test]
fn a_missing_intermediate_is_fetched_once_and_sent_from_then_on() {
    let (ca, site) = (TestCa::new(), CaSite::new());
    site.set("/issuer", Answer::Bytes(ca.intermediate_der()));
    let leaf = ca.server(&[NAME]).issuer_at(&site.url("/issuer")).issue();
    fs::write(&leaf.chain, &leaf.certificate_pem).expect("a file");
    let folder = tempfile::tempdir().expect("a folder");
    let setup_one = setup().config(&(state(&folder) + &host(&[NAME], &[&leaf])));
    let checked = setup_one.check("brisk.toml");
    assert!(
        checked.stderr.contains("the intermediate \"CN=brisk test intermediate\" is missing"),
        "{}",
        checked.text()
    );
    assert_eq!(site.asked("/issuer"), 0, "a check fetches nothing");
    let brisk = setup_one.start();
    brisk.log_with("its intermediate was fetched and is sent from now on");
    let asked = asked_once(&site, "/issuer", &brisk, "its intermediate is still missing");
    handshake(&ca, &brisk, NAME, &[]);
    let shown = certificates(&brisk);
    assert_eq!((&shown[0]["sent"], &shown[0]["complete"]), (&Value::from(2), &Value::from(true)));
    drop(brisk);

    site.set("/issuer", Answer::Silence);
    let brisk = setup().config(&(state(&folder) + &host(&[NAME], &[&leaf]))).start();
    handshake(&ca, &brisk, NAME, &[]);
    assert_eq!(site.asked("/issuer"), asked);
}

#[test]
fn an_issuer_that_is_not_the_right_one_is_not_sent() {
    let (ca, site) = (TestCa::new(), CaSite::new());
    site.set("/issuer", Answer::Bytes(TestCa::new().intermediate_der()));
    let leaf = ca.server(&[NAME]).issuer_at(&site.url("/issuer")).issue();
    fs::write(&leaf.chain, &leaf.certificate_pem).expect("a file");
    let brisk = setup().config(&(base("") + &host(&[NAME], &[&leaf]))).start();
    brisk.log_with("its intermediate is still missing");
    assert_eq!(certificates(&brisk)[0]["sent"], 1);
    // The CA puts it right.
    site.set("/issuer", Answer::Bytes(ca.intermediate_pem().into_bytes()));
    brisk.log_with("its intermediate was fetched");
    handshake(&ca, &brisk, NAME, &[]);
}

#[test]
fn a_chain_in_any_order_with_its_root_is_sent_in_order_without() {
    let ca = TestCa::new();
    let leaf = ca.server(&[NAME]).issue();
    fs::write(&leaf.chain, ca.root_pem() + &ca.intermediate_pem() + &leaf.certificate_pem).expect("a file");
    let brisk = setup().config(&(base("") + &host(&[NAME], &[&leaf]))).start();
    let output = handshake(&ca, &brisk, NAME, &["-showcerts"]);
    let sent: Vec<_> = output.stdout.lines().filter(|line| line.trim_start().starts_with("i:")).collect();
    assert!(
        sent.len() == 2 && sent[0].contains("intermediate") && sent[1].contains("root"),
        "{}",
        output.text()
    );
}

#[test]
fn a_certificate_on_the_list_of_its_issuer_raises_an_alarm() {
    let (ca, site) = (TestCa::new(), CaSite::new());
    let leaf = |name: &str| ca.server(&[name]).list_at(&site.url("/list")).issue();
    let (good, bad) = (leaf("good.test"), leaf("bad.test"));
    site.set("/list", Answer::Bytes(ca.crls(&[&bad], std::time::Duration::from_hours(1)).intermediate_der));
    let config = base("") + &host(&["good.test"], &[&good]) + &host(&["bad.test"], &[&bad]);
    let brisk = setup().config(&config).start();
    let log = brisk.log_with("REVOKED, as");
    assert!(log.contains("bad.test") && !log.contains("certificate=\"good.test\""), "{log}");
    wait_until("both to be looked up", || {
        certificates(&brisk).iter().all(|one| one["list_read"].is_u64()).then_some(())
    });
    let revoked: Vec<_> = certificates(&brisk).iter().map(|one| one["revoked"].is_u64()).collect();
    assert_eq!(revoked.iter().filter(|revoked| **revoked).count(), 1);
    assert!(brisk.metrics().sum("brisk_certificates_in_trouble", &["reason=\"revoked\""]) > 0.5);
    // Certificates of one issuer share its list.
    asked_once(&site, "/list", &brisk, "its revocation list");
    // It goes on being shown: there is no other.
    handshake(&ca, &brisk, "bad.test", &[]);
}

#[test]
fn names_of_a_folder_are_served_changed_and_removed_without_a_reload() {
    let ca = TestCa::new();
    let folder = tempfile::tempdir().expect("a folder");
    let put = |name: &str, leaf: &Leaf| {
        let new = folder.path().join("new");
        fs::write(&new, leaf.chain_pem.clone() + &leaf.key_pem).expect("a file");
        fs::rename(new, folder.path().join(format!("{name}.pem"))).expect("a file");
    };
    let names: Vec<_> = (0..300).map(|number| format!("{number}.names.test")).collect();
    let one = ca.server(&["*.names.test"]).issue();
    for name in &names {
        put(name, &one);
    }
    let own = ca.server(&[NAME]).issue();
    let host =
        host(&[NAME], &[&own]) + &format!("certificate_folder = {:?}\n", folder.path().display().to_string());
    let brisk = setup().config(&(base("server.unknown_host = \"refuse\"\n") + &host)).start();
    handshake(&ca, &brisk, NAME, &[]);
    let client = |name: &str| brisk_testkit::client::TlsClient::new(&ca.root_file(), name);
    // An open connection outlives every change.
    let mut kept = client("7.names.test").alpn(&["http/1.1"]).connect(brisk.https()).expect("a handshake");
    assert_eq!(kept.get("7.names.test", "/connection.json").status(), 200);
    for name in &names {
        client(name).connect(brisk.https()).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert!(brisk.metrics().sum("brisk_certificate_folder_loaded", &[]) > 299.5);
    wait_until("the expiry of all names", || {
        (brisk.metrics().sum("brisk_certificate_folder_days_left", &[]) > 1.0).then_some(())
    });
    let page: Value = serde_json::from_str(&brisk.ask_admin("/certificates").text()).expect("JSON");
    assert_eq!(page["folders"][0]["first_to_expire"].as_array().map(Vec::len), Some(100), "{page}");

    let new = ca.server(&["*.names.test", "new.example"]).issue();
    for name in &names {
        put(name, &new);
    }
    let serial = |name: &str| {
        let stream = client(name).connect(brisk.https()).expect("a handshake");
        stream.tls().peer_certificates().expect("a certificate")[0].to_vec()
    };
    let before = serial(NAME);
    for name in &names {
        wait_until("the new certificate", || {
            let shown = serial(name);
            assert_ne!(shown, before);
            shown.windows(11).any(|window| window == b"new.example").then_some(())
        });
    }
    assert_eq!(kept.get("7.names.test", "/connection.json").status(), 200);
    put("late.names.test", &new);
    wait_until("a new name", || client("late.names.test").connect(brisk.https()).ok());
    fs::remove_file(folder.path().join("late.names.test.pem")).expect("a file");
    wait_until("the name to go", || client("late.names.test").connect(brisk.https()).is_err().then_some(()));
    assert_eq!(brisk.reload_lines(), Vec::<String>::new());
}

#[test]
fn names_of_a_folder_have_staples_when_they_are_asked_for() {
    let (ca, site) = (TestCa::new(), CaSite::new());
    let folder = tempfile::tempdir().expect("a folder");
    let put = |name: &str, leaf: &Leaf| {
        let file = folder.path().join(format!("{name}.pem"));
        fs::write(file, leaf.chain_pem.clone() + &leaf.key_pem).expect("a file");
    };
    let strict = ca.server(&["strict.test"]).ocsp_at(&site.url("/ocsp")).must_staple().issue();
    let plain = ca.server(&["plain.test"]).ocsp_at(&site.url("/ocsp")).issue();
    put("strict.test", &strict);
    put("plain.test", &plain);
    put("none.test", &ca.server(&["none.test"]).must_staple().issue());
    for number in 0..50 {
        put(&format!("{number}.test"), &ca.server(&["idle.test"]).ocsp_at(&site.url("/ocsp")).issue());
    }
    let (_openssl, address) = responder(&ca, &[&strict, &plain], &[], None);
    site.set("/ocsp", Answer::Of(address));
    let own = host(&[NAME], &[&ca.server(&[NAME]).issue()]);
    let (state_folder, names) = (tempfile::tempdir().expect("a folder"), folder.path().display().to_string());
    let config = state(&state_folder)
        + "certificates.staple_wait = \"60s\"\n"
        + &own
        + &format!("certificate_folder = {names:?}\n");
    let brisk = setup().config(&config).start();
    // Clients refuse it without: its very first handshake waits for the responder.
    assert!(is_stapled(&handshake(&ca, &brisk, "strict.test", &[])));
    wait_until("a staple", || is_stapled(&handshake(&ca, &brisk, "plain.test", &[])).then_some(()));
    let refused = run(&mut s_client(&ca, &brisk, &["-servername", "none.test"]), b"", LIMIT);
    assert!(refused.text().contains("handshake failure"), "{}", refused.text());
    brisk.log_with("have one issued without must-staple");
    let asked = site.asked("/ocsp");
    assert!((2..50).contains(&asked), "{asked}: nothing is fetched for names that no client asks for");
    assert!(certificates(&brisk).iter().any(|one| one["names"][0] == "plain.test"));
    drop(brisk);

    site.set("/ocsp", Answer::Silence);
    let brisk = setup().config(&config).start();
    for name in ["plain.test", "strict.test"] {
        assert!(is_stapled(&handshake(&ca, &brisk, name, &[])), "{name}: it is in the state folder");
    }
    assert_eq!(site.asked("/ocsp"), asked);
}

#[test]
fn a_gateway_with_a_must_staple_certificate_and_no_staple_is_not_ready() {
    let (ca, site) = (TestCa::new(), CaSite::new());
    let leaf = ca.server(&[NAME]).must_staple().ocsp_at(&site.url("/ocsp")).issue();
    site.set("/ocsp", Answer::Bytes(b"down".to_vec()));
    let brisk = setup().config(&(base("") + &host(&[NAME], &[&leaf]))).start();
    brisk.log_with("clients refuse this certificate without a staple (must-staple)");
    let readiness = brisk.ask_admin("/readyz");
    assert_eq!(readiness.status(), 503, "{}", readiness.text());
    assert!(
        readiness.text().contains("must-staple certificates without a valid staple: "),
        "{}",
        readiness.text()
    );
    assert!(readiness.text().contains(NAME), "{}", readiness.text());
    let lacking = || brisk.metrics().sum("brisk_certificates_in_trouble", &["reason=\"must_staple\""]);
    assert!(lacking() > 0.5);
    let (_openssl, address) = responder(&ca, &[&leaf], &[], None);
    site.set("/ocsp", Answer::Of(address));
    wait_until("readiness", || (brisk.ask_admin("/readyz").status() == 200).then_some(()));
    assert!(lacking() < 0.5);
}

#[test]
fn gateways_of_a_fleet_ask_the_responder_once() {
    // Redis and the responder may be later than their limits on a busy machine.
    assert!((0..8).any(|_| fleet_asks_once()), "staples are not shared");
}

/// `false` if Redis or the responder was late.
fn fleet_asks_once() -> bool {
    let (ca, site, redis) = (TestCa::new(), CaSite::new(), Redis::start());
    let leaf = ca.server(&[NAME]).ocsp_at(&site.url("/ocsp")).issue();
    let (_openssl, address) = responder(&ca, &[&leaf], &[], None);
    site.set("/ocsp", Answer::Of(address));
    let shared = format!(
        "acme.store = \"redis\"\nsessions.secret = \"secret\"\n\
         sessions.redis = {{ servers = [\"redis://127.0.0.1:{}\"] }}\ncertificates.staple_wait = \"60s\"\n",
        redis.port()
    );
    let start = || {
        let folder = tempfile::tempdir().expect("a folder");
        let config = state(&folder) + &shared + &host(&[NAME], &[&leaf]);
        (setup().file("secret", [b's'; 48]).config(&config).start(), folder)
    };
    let fleet: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..3).map(|_| scope.spawn(start)).collect();
        all.into_iter().map(|one| one.join().expect("a gateway")).collect()
    });
    for (brisk, _) in &fleet {
        assert!(is_stapled(&handshake(&ca, brisk, NAME, &[])));
    }
    let was_late = |brisk: &Brisk| {
        let log = brisk.process().stderr();
        ["not shared with the fleet", "no staple from"].iter().any(|part| log.contains(part))
    };
    if fleet.iter().any(|(brisk, _)| was_late(brisk)) {
        return false;
    }
    assert_eq!(site.asked("/ocsp"), 1);
    // Without the store each asks for itself.
    drop(redis);
    let (brisk, _folder) = start();
    assert!(is_stapled(&handshake(&ca, &brisk, NAME, &[])));
    let log = brisk.log_with("staples are not shared with the fleet for now");
    assert!(site.asked("/ocsp") == 2 || log.contains("no staple from"), "{log}");
    true
}

#[test]
fn a_url_in_a_certificate_leads_to_no_private_address_unless_the_operator_allows_it() {
    let (ca, site) = (TestCa::new(), CaSite::new());
    site.set("/issuer", Answer::Bytes(ca.intermediate_der()));
    let leaf = ca.server(&[NAME]).issuer_at(&site.url("/issuer")).issue();
    fs::write(&leaf.chain, &leaf.certificate_pem).expect("a file");
    let tables = host(&[NAME], &[&leaf]);
    let brisk = setup().config(&(base_without_private("") + &tables)).start();
    let log = brisk.log_with("certificates.allow_private");
    let parts = ["its intermediate is still missing", "/issuer", "127.0.0.1 is not a public address"];
    assert!(parts.iter().all(|part| log.contains(part)), "{log}");
    assert_eq!(site.asked("/issuer"), 0, "the URL was requested");
    // A reload that allows the address ends the pause before the next attempt.
    brisk.write("brisk.toml", base("") + &tables);
    brisk.reload();
    brisk.log_with("its intermediate was fetched");
    assert!(site.asked("/issuer") > 0);
}

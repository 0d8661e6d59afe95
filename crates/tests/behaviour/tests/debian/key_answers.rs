//! A certificate is used once its key has answered. Until then the one before stays in use, and the log, `/readyz`, a metric
//! and `brisk check --online` have the reason: key servers, tokens, the key process, certificate folders, changed files.

use std::net::SocketAddr;

use brisk_behaviour::openssl::ask;
use brisk_behaviour::site::{NAME, NAMES, setup};
use brisk_testkit::brisk::{Brisk, Setup, base};
use brisk_testkit::ca::{Leaf, LeafKey, TestCa};
use brisk_testkit::process::{Finished, free_port, wait_until};
use brisk_testkit::token::{TokenKind, Tokens, VARIABLE, module};

use crate::isolated::ISOLATE;
use crate::keyless::{Fleet, LENIENT, files, is_ready, quoted, wait_until_ready};

const UNUSED: &str = "is not used, because its key does not answer";

/// The configuration of a gateway with the chain `site.pem`, whose key is at these key servers.
fn with_servers(fleet: &Fleet, servers: &[SocketAddr]) -> String {
    let servers: Vec<_> = servers.iter().map(ToString::to_string).collect();
    format!(
        "{}\n[[host]]\nnames = {NAMES:?}\ncertificates = [{{ chain = \"site.pem\", key = \"keyserver:main\" }}]\n\
         [keyserver.main]\nservers = {servers:?}\nca = {}\ncertificate = {}\n{LENIENT}",
        base(""),
        quoted(&fleet.ca.root_file()),
        files(&fleet.client),
    )
}

fn ready_page(gateway: &Brisk) -> (u16, String) {
    let page = gateway.ask_admin("/readyz");
    (page.status(), page.text())
}

/// `/readyz` with `part`, and its status.
fn ready_page_with(gateway: &Brisk, part: &str) -> (u16, String) {
    wait_until(&format!("a page with {part}"), || {
        Some(ready_page(gateway)).filter(|(_, text)| text.contains(part))
    })
}

fn shows(ca: &TestCa, gateway: &Brisk, leaf: &Leaf) -> bool {
    // A line of base64 with a part of the public key, which s_client prints too.
    let line = leaf.certificate_pem.lines().nth(4).expect("a certificate");
    shown(ca, gateway, &["-servername", NAME]).contains(line)
}

/// Output of openssl with the certificate that it received with these options.
fn shown(ca: &TestCa, gateway: &Brisk, options: &[&str]) -> String {
    wait_until("a handshake", || {
        Some(ask(ca, gateway, options).stdout).filter(|output| output.contains("BEGIN CERTIFICATE"))
    })
}

fn without_key(gateway: &Brisk) -> u64 {
    gateway.metrics().sum("brisk_certificates_without_key", &[]) as u64
}

/// Values of `brisk_key_answers` of `holder`: the number of series, and their sum.
fn answers(gateway: &Brisk, holder: &str) -> (usize, u64) {
    let metrics = gateway.metrics();
    let label = format!("holder=\"{holder}\"");
    let series =
        metrics.0.lines().filter(|line| line.starts_with("brisk_key_answers{") && line.contains(&label));
    (series.count(), metrics.sum("brisk_key_answers", &[&label]) as u64)
}

/// Waits until the values of [`answers`] for these key servers are `expected`.
fn wait_for_answers(gateway: &Brisk, servers: &[&str], expected: &[u64]) {
    let expected: Vec<_> = expected.iter().map(|sum| (1, *sum)).collect();
    wait_until(&format!("answers {expected:?}"), || {
        let answers: Vec<_> = servers.iter().map(|server| answers(gateway, server)).collect();
        (answers == expected).then_some(())
    });
}

/// Repeated if a key server did not answer in time, which a pause of the machine may outlast.
fn check_online(setup: &Setup) -> Finished {
    let check = || setup.run("check", &["--online", "brisk.toml"]);
    let is_late = |checked: &Finished| {
        ["does not answer in time", "not connected yet"].iter().any(|part| checked.stderr.contains(part))
    };
    let mut checked = check();
    for _ in 0..10 {
        if !is_late(&checked) {
            break;
        }
        checked = check();
    }
    checked
}

#[test]
fn a_certificate_whose_key_no_key_server_has_is_used_as_soon_as_one_has_it() {
    let fleet = Fleet::new();
    let (one, two) = (fleet.server(), fleet.server());
    let servers = [one.keys(), two.keys()];
    let config = with_servers(&fleet, &servers);
    let gateway = setup().config(&config).file("site.pem", &fleet.ecdsa.chain_pem).start();
    wait_until_ready(&gateway);
    assert!(shows(&fleet.ca, &gateway, &fleet.ecdsa));
    let [first, second] = servers.map(|server| server.to_string());
    wait_for_answers(&gateway, &[&first, &second], &[1, 1]);

    let new = fleet.ca.server(&NAMES).issue();
    gateway.write("site.pem", &new.chain_pem);
    let log = gateway.log_with(UNUSED);
    let reasons = [&first, &second].map(|server| format!("{server}: the key server has no such key"));
    for text in [&log, &ready_page_with(&gateway, UNUSED).1] {
        for part in reasons.iter().map(String::as_str).chain(["site.pem"]) {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
    }
    assert!(is_ready(&gateway), "the certificate before serves");
    assert!(shows(&fleet.ca, &gateway, &fleet.ecdsa));
    assert_eq!(without_key(&gateway), 1);
    wait_for_answers(&gateway, &[&first, &second], &[0, 0]);
    let setup_with = |chain: &str| setup().config(&config).file("site.pem", chain);
    let checked = check_online(&setup_with(&new.chain_pem));
    assert_eq!(checked.status.code(), Some(1), "{}", checked.text());
    for part in
        reasons.iter().map(|reason| reason.replace(": the", " does not perform operations with the key: the"))
    {
        assert!(checked.stderr.contains(&part), "{part} is missing: {}", checked.text());
    }
    // A second reload changes nothing.
    gateway.reload();
    assert!(shows(&fleet.ca, &gateway, &fleet.ecdsa));

    // One server is enough; the other one is named until it has the key too.
    one.write("keys/new.pem", &new.key_pem);
    wait_until("the new certificate", || shows(&fleet.ca, &gateway, &new).then_some(()));
    fleet.full(&gateway).expect("a handshake");
    let (status, text) = wait_until("a page with the other key server", || {
        let is_complete =
            |text: &str| text.contains("not every key server has the key") && text.contains(&reasons[1]);
        Some(ready_page(&gateway)).filter(|(_, text)| is_complete(text))
    });
    assert!(status == 200 && !text.contains(&reasons[0]), "{text}");
    gateway.log_with("not every key server has the key");
    assert_eq!(without_key(&gateway), 0);
    wait_for_answers(&gateway, &[&first, &second], &[1, 0]);
    let checked = check_online(&setup_with(&new.chain_pem));
    assert!(checked.status.success(), "{}", checked.text());
    assert!(checked.stdout.contains(&format!("{first} has the key")), "{}", checked.text());
    assert!(checked.stderr.contains(&format!("{second} does not perform")), "{}", checked.text());
    two.write("keys/new.pem", &new.key_pem);
    wait_until("a page without a note", || (ready_page(&gateway).1 == "ready\n").then_some(()));
    wait_for_answers(&gateway, &[&second], &[1]);
}

#[test]
fn keys_that_moved_to_key_servers_without_them_stay_where_they_were() {
    let fleet = Fleet::new();
    let server = fleet.server_on(0, "", "[client.gateway]\nkeys = [\"rsa.pem\"]\n");
    let local = |more: &str| {
        format!("{}\n[[host]]\nnames = {NAMES:?}\ncertificates = [{}]\n{more}", base(""), files(&fleet.ecdsa))
    };
    let gateway = setup().config(&local("")).file("site.pem", &fleet.ecdsa.chain_pem).start();
    gateway.write("brisk.toml", with_servers(&fleet, &[server.keys()]));
    gateway.reload();
    let log = gateway.log_with(UNUSED);
    assert!(log.contains("the key server does not permit this gateway to use the key"), "{log}");
    fleet.full(&gateway).expect("a handshake with the key in the file");
    assert!(is_ready(&gateway));
    assert!(gateway.metrics().sum("brisk_key_operations_total", &["engine=\"keyserver\""]) < 0.5);
}

#[test]
fn each_certificate_of_a_host_is_judged_alone_also_under_another_name() {
    let fleet = Fleet::new();
    let server = fleet.server();
    let config = |names: &[&str]| {
        let both = ["ecdsa.pem", "rsa.pem"]
            .map(|chain| format!("{{ chain = \"{chain}\", key = \"keyserver:main\" }}"));
        let host = format!("names = {names:?}\ncertificates = [{}]", both.join(", "));
        let all = with_servers(&fleet, &[server.keys()]);
        let (before, rest) = all.split_once("[[host]]").expect("a host");
        let (_, servers) = rest.split_once("[keyserver").expect("key servers");
        format!("{before}[[host]]\n{host}\n[keyserver{servers}")
    };
    let setup = setup().config(&config(&NAMES)).file("ecdsa.pem", &fleet.ecdsa.chain_pem);
    let gateway = setup.file("rsa.pem", &fleet.rsa.chain_pem).start();
    wait_until_ready(&gateway);
    let shows = |algorithms: &str, leaf: &Leaf| {
        let line = leaf.certificate_pem.lines().nth(4).expect("a certificate");
        let options = ["-servername", NAME, "-tls1_3", "-sigalgs", algorithms];
        shown(&fleet.ca, &gateway, &options).contains(line)
    };
    let (ecdsa, rsa) = ("ECDSA+SHA256", "RSA-PSS+SHA256");
    let new_ecdsa = fleet.ca.server(&NAMES).issue();
    let new_rsa = fleet.ca.server(&NAMES).key(LeafKey::Rsa2048).issue();
    server.write("keys/new.pem", &new_rsa.key_pem);
    server.log_with("reloaded: ");
    gateway.write("ecdsa.pem", &new_ecdsa.chain_pem);
    gateway.write("rsa.pem", &new_rsa.chain_pem);
    wait_until("the new RSA certificate", || shows(rsa, &new_rsa).then_some(()));
    gateway.log_with(UNUSED);
    assert!(shows(ecdsa, &fleet.ecdsa) && is_ready(&gateway));
    // Another slot, whose host has the name too.
    gateway.write("brisk.toml", config(&[NAME, "more.test"]));
    gateway.reload();
    assert!(shows(ecdsa, &fleet.ecdsa) && shows(rsa, &new_rsa) && is_ready(&gateway));
    server.write("keys/new-ecdsa.pem", &new_ecdsa.key_pem);
    wait_until("the new ECDSA certificate", || shows(ecdsa, &new_ecdsa).then_some(()));
    assert!(shows(rsa, &new_rsa));
}

#[test]
fn without_a_certificate_before_the_new_one_is_shown_and_the_gateway_is_not_ready_until_its_key_answers() {
    let fleet = Fleet::new();
    let server = fleet.server();
    let new = fleet.ca.server(&NAMES).issue();
    let config = with_servers(&fleet, &[server.keys()]);
    let gateway = setup().config(&config).file("site.pem", &new.chain_pem).start();
    let (status, text) = ready_page_with(&gateway, "the key server has no such key");
    assert!(status == 503 && text.contains("there is no other certificate"), "{text}");
    gateway.log_with("it is used all the same, because the host has no other");
    assert_eq!(without_key(&gateway), 1);
    fleet.full(&gateway).expect_err("no key");
    server.write("keys/new.pem", &new.key_pem);
    wait_until_ready(&gateway);
    fleet.full(&gateway).expect("a handshake");
    gateway.log_with("the key of the certificate answers");
}

#[test]
fn a_gateway_that_starts_while_no_key_server_runs_serves_when_one_is_back() {
    let fleet = Fleet::new();
    let port = free_port();
    let servers = [SocketAddr::from(([127, 0, 0, 1], port))];
    let config = with_servers(&fleet, &servers);
    let gateway = setup().config(&config).file("site.pem", &fleet.ecdsa.chain_pem).start();
    let (status, text) = ready_page_with(&gateway, "no key server of \"main\" answers");
    assert_eq!(status, 503, "{text}");
    let checked = check_online(&setup().config(&config).file("site.pem", &fleet.ecdsa.chain_pem));
    assert_eq!(checked.status.code(), Some(1), "{}", checked.text());
    assert!(checked.stderr.contains("it does not answer: "), "{}", checked.text());
    let _server = fleet.server_on(port, "", "");
    wait_until_ready(&gateway);
    fleet.full(&gateway).expect("a handshake");
    assert_eq!(without_key(&gateway), 0);
}

#[test]
fn a_key_server_that_signs_for_tls_1_2_alone_has_the_key() {
    let fleet = Fleet::new();
    let server = fleet.server_on(0, "", "[client.gateway]\noperations = [\"tls1.2\"]\n");
    let gateway = fleet.gateway(&[server.keys()], "");
    wait_until_ready(&gateway);
    let output = ask(&fleet.ca, &gateway, &["-servername", NAME, "-tls1_2"]);
    assert!(output.stdout.contains("200"), "{}", output.text());
    assert_eq!(without_key(&gateway), 0);
}

#[test]
fn an_unchanged_certificate_costs_no_operation_at_a_reload() {
    let fleet = Fleet::new();
    let server = fleet.server();
    let gateway = fleet.gateway(&[server.keys()], "");
    wait_until_ready(&gateway);
    let asked = || server.metrics().sum("brisk_keyserver_requests_total", &[]) as u64;
    wait_until("one operation for each certificate", || (asked() >= 2).then_some(()));
    gateway.reload();
    gateway.reload();
    assert_eq!(asked(), 2);
}

/// Checks that the certificate before serves after a refused reload, and that every place has this reason.
fn keeps(ca: &TestCa, gateway: &Brisk, before: &Leaf, reason: &str) {
    let log = gateway.log_with(reason);
    assert!(log.contains("not reloaded"), "{log}");
    let (status, text) = ready_page_with(gateway, reason);
    assert!(status == 200 && text.contains("the certificates before stay in use"), "{text}");
    assert!(shows(ca, gateway, before));
    assert_eq!(without_key(gateway), 1);
    let (series, metrics) = (format!("brisk_key_answers{{host=\"{NAME}\",key=\"\""), gateway.metrics().0);
    assert!(metrics.lines().any(|line| line.starts_with(&series) && line.ends_with(" 0")), "{metrics}");
}

#[test]
fn a_certificate_without_its_key_in_the_token_is_not_used() {
    let (tokens, ca) = (Tokens::new(), TestCa::new());
    tokens.add("web");
    tokens.generate("web", "first", "01", TokenKind::P256, &[]);
    tokens.generate("web", "second", "02", TokenKind::P256, &[]);
    let leaf = |label: &str| ca.server(&NAMES).issue_for(&tokens.public_key("web", label));
    let (first, second) = (leaf("first"), leaf("second"));
    tokens.delete("web", "second");
    let uri = |object: &str| {
        format!("pkcs11:token=web;object={object}?pin-source=file:{}", tokens.pin_file().display())
    };
    let config = |object: &str| {
        base(&format!("keys.pkcs11_module = \"{}\"\n", module().display()))
            + &format!(
                "\n[[host]]\nnames = {NAMES:?}\ncertificates = [{{ chain = \"site.pem\", key = \"{}\" }}]\n",
                uri(object)
            )
    };
    let with = |object: &str, chain: &str| {
        setup().config(&config(object)).file("site.pem", chain).environment(VARIABLE, &tokens.settings())
    };
    let gateway = with("first", &first.chain_pem).start();
    wait_until_ready(&gateway);
    wait_for_answers(&gateway, &["token \\\"web\\\""], &[1]);
    // The key of another certificate: the renewal of a changed file.
    gateway.write("site.pem", &second.chain_pem);
    keeps(&ca, &gateway, &first, "does not belong to the certificate");
    gateway.write("site.pem", &first.chain_pem);
    wait_until("a page without a note", || (ready_page(&gateway).1 == "ready\n").then_some(()));
    assert_eq!(without_key(&gateway), 0);
    // An object that is absent: a reload.
    gateway.write("site.pem", &second.chain_pem);
    gateway.write("brisk.toml", config("second"));
    keeps(&ca, &gateway, &first, "no private key for `pkcs11:token=web;object=second`");
    let checked = check_online(&with("second", &second.chain_pem));
    assert_eq!(checked.status.code(), Some(2), "{}", checked.text());
    assert!(
        checked.stderr.contains("no private key for `pkcs11:token=web;object=second`"),
        "{}",
        checked.text()
    );
    // The token is absent.
    tokens.take_away();
    let checked = check_online(&with("first", &first.chain_pem));
    assert_eq!(checked.status.code(), Some(2), "{}", checked.text());
    assert!(
        checked.stderr.contains("host[0].certificates[0].key: the PKCS #11 module"),
        "{}",
        checked.text()
    );
    tokens.put_back();
    let checked = check_online(&with("first", &first.chain_pem)).success();
    assert!(checked.contains("token \"web\" has the key"), "{checked}");
}

#[test]
fn a_key_server_whose_token_is_absent_is_not_ready_and_its_key_is_not_used() {
    let (tokens, fleet) = (Tokens::new(), Fleet::new());
    tokens.add("web");
    tokens.generate("web", "site", "01", TokenKind::P256, &[]);
    let new = fleet.ca.server(&NAMES).issue_for(&tokens.public_key("web", "site"));
    let certificate = format!(
        "server.certificates = [{{ chain = {}, key = \"{}\" }}]\n",
        quoted(&new.chain),
        tokens.uri("web", "site")
    );
    let server = format!(
        "server.listen = [\"127.0.0.1:0\"]\nserver.key_folder = \"keys\"\n{certificate}server.certificate = {}\n\
         server.client_ca = {}\nadmin.listen = \"127.0.0.1:0\"\n[client.gateway]\n",
        files(&fleet.server),
        quoted(&fleet.ca.root_file()),
    );
    let server = setup().keyserver().config(&server).environment(VARIABLE, &tokens.settings());
    let server = server.file("keys/ecdsa.key", &fleet.ecdsa.key_pem).start();
    let gateway = setup()
        .config(&with_servers(&fleet, &[server.keys()]))
        .file("site.pem", &fleet.ecdsa.chain_pem)
        .start();
    wait_until_ready(&gateway);
    tokens.take_away();
    gateway.write("site.pem", &new.chain_pem);
    gateway.log_with(UNUSED);
    let (status, text) = ready_page_with(&gateway, UNUSED);
    assert!(status == 200 && text.contains("could not perform the operation"), "{text}");
    assert!(shows(&fleet.ca, &gateway, &fleet.ecdsa));
    let (status, text) = ready_page_with(&server, "handshakes with keys of the token \"web\" fail");
    assert_eq!(status, 503, "{text}");
    tokens.put_back();
    wait_until("the new certificate", || shows(&fleet.ca, &gateway, &new).then_some(()));
    assert!(is_ready(&server));
}

#[test]
fn a_certificate_without_its_key_in_the_key_process_is_not_used() {
    changed_files_without_the_key(ISOLATE);
}

#[test]
fn a_certificate_without_its_key_in_the_file_is_not_used() {
    changed_files_without_the_key("");
}

fn changed_files_without_the_key(keys: &str) {
    let ca = TestCa::new();
    let (first, second) = (ca.server(&NAMES).issue(), ca.server(&NAMES).issue());
    let config = base(keys)
        + &format!(
            "[[host]]\nnames = {NAMES:?}\ncertificates = [{{ chain = \"a.pem\", key = \"a.key\" }}]\n"
        );
    let with = |chain: &str| setup().config(&config).file("a.pem", chain).file("a.key", &first.key_pem);
    let gateway = with(&first.chain_pem).start();
    wait_until_ready(&gateway);
    gateway.write("a.pem", &second.chain_pem);
    keeps(&ca, &gateway, &first, "a.key does not fit the certificate in");
    let checked = check_online(&with(&second.chain_pem));
    assert_eq!(checked.status.code(), Some(2), "{}", checked.text());
    assert!(checked.stderr.contains("a.key does not fit the certificate in"), "{}", checked.text());
    gateway.write("a.key", &second.key_pem);
    wait_until("the new certificate", || shows(&ca, &gateway, &second).then_some(()));
    wait_until("a page without a note", || (ready_page(&gateway).1 == "ready\n").then_some(()));
    assert_eq!(without_key(&gateway), 0);
}

#[test]
fn a_certificate_without_its_key_in_the_folder_is_not_used() {
    let ca = TestCa::new();
    let (platform, first) = (ca.server(&["platform.test"]).issue(), ca.server(&NAMES).issue());
    let second = ca.server(&NAMES).issue();
    let config = base("")
        + &format!(
            "[[host]]\nnames = [\"platform.test\"]\ncertificates = [{}]\ncertificate_folder = \"folder\"\n",
            files(&platform)
        );
    let with = |chain: &str| {
        let setup = setup().config(&config).file(&format!("folder/{NAME}.pem"), chain);
        setup.file(&format!("folder/{NAME}.key"), &first.key_pem)
    };
    let gateway = with(&first.chain_pem).start();
    assert!(shows(&ca, &gateway, &first));
    gateway.write(&format!("folder/{NAME}.pem"), &second.chain_pem);
    let reason = "does not fit the certificate in";
    let log = gateway.log_with("the one before stays");
    assert!(log.contains(reason), "{log}");
    let (status, text) = ready_page_with(&gateway, reason);
    assert!(status == 200 && text.contains(NAME), "{text}");
    assert!(shows(&ca, &gateway, &first));
    assert_eq!(gateway.metrics().sum("brisk_certificate_folder_faulty", &[]) as u64, 1);
    assert!(gateway.ask_admin("/certificates").text().contains(reason));
    let checked = check_online(&with(&second.chain_pem));
    assert!(checked.stderr.contains(reason), "{}", checked.text());
    gateway.write(&format!("folder/{NAME}.key"), &second.key_pem);
    wait_until("the new certificate", || shows(&ca, &gateway, &second).then_some(()));
    wait_until("a page without a note", || (ready_page(&gateway).1 == "ready\n").then_some(()));
}

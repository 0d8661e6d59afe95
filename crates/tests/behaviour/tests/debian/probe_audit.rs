//! `brisk probe --audit`: servers with one fault each, found by its ID, and faultless servers without findings.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use brisk_behaviour::pauses::Pauses;
use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::Site;
use brisk_testkit::ca::{Leaf, LeafKey, TestCa};
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::{Finished, Process, command, run, serve_on_free_port};
use serde_json::Value;

/// As long as an audit may last beside builds.
const LIMIT: Duration = Duration::from_mins(10);

/// Attempts of an audit on a machine that pauses: some verdicts follow from the silence of a server for a second or two, which a
/// pause causes too.
const TRIES: usize = 5;

/// What makes a server right, beside its certificates.
const RIGHT: &str = "ssl_protocols TLSv1.2 TLSv1.3;\nssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20;\n\
                     add_header Strict-Transport-Security max-age=31536000 always;\n";

fn brisk() -> Command {
    let mut brisk = Command::new(brisk_program());
    brisk.args(["probe"]);
    brisk
}

fn audit(ca: &Path, address: SocketAddr, options: &[&str]) -> Finished {
    let mut brisk = brisk();
    brisk.arg(format!("https://localhost:{}/1k", address.port())).args(["--audit", "--connect", "127.0.0.1"]);
    brisk.args(["--http-port", "0", "--timeout", "500", "--ca"]).arg(ca).args(options);
    run(&mut brisk, b"", LIMIT)
}

/// The first audit that `is_right`, or during which the machine has not paused; otherwise the last one of [`TRIES`].
fn audited(
    ca: &Path,
    address: SocketAddr,
    options: &[&str],
    is_right: impl Fn(&Finished) -> bool,
) -> Finished {
    let mut left = TRIES;
    loop {
        let pauses = Pauses::watch();
        let finished = audit(ca, address, options);
        left -= 1;
        if is_right(&finished) || !pauses.has_paused() || left == 0 {
            return finished;
        }
    }
}

/// The JSON document of the audit that [`audited`] returns.
fn document(ca: &Path, address: SocketAddr, options: &[&str], is_right: impl Fn(&Value) -> bool) -> Value {
    let is_right = |finished: &Finished| {
        serde_json::from_str(&finished.stdout).is_ok_and(|found: Value| is_right(&found))
    };
    let text = audited(ca, address, &[options, &["--json"]].concat(), is_right).success();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// IDs of findings, those above `info` first.
fn ids(document: &Value) -> (Vec<String>, Vec<String>) {
    let all = document["findings"].as_array().expect("findings").iter();
    let (above, info): (Vec<_>, Vec<_>) = all.partition(|finding| finding["severity"] != "info");
    let id = |finding: &Value| finding["id"].as_str().expect("an ID").to_owned();
    (above.into_iter().map(id).collect(), info.into_iter().map(id).collect())
}

/// Fails the test unless `expected` are the findings above `info` of an nginx with these directives.
#[track_caller]
fn assert_findings(leaf: &Leaf, ca: &TestCa, directives: &str, expected: &[&str]) {
    let nginx = Nginx::https_with(leaf, directives);
    let found = document(&ca.root_file(), nginx.address(), &[], |found| ids(found).0 == expected);
    assert_eq!(ids(&found).0, expected, "{found:#}");
}

#[test]
fn nothing_is_found_of_a_right_server() {
    let site = Site::with_both_certificates("hsts = { max_age = \"365d\" }\n");
    let is_complete = |found: &Value| {
        let certificates = found["certificates"].as_array().map(Vec::len);
        ids(found).0.is_empty() && found["groups"]["post_quantum"] == true && certificates == Some(2)
    };
    let found = document(&site.ca.root_file(), site.brisk.https(), &[], is_complete);
    assert_eq!(ids(&found).0, Vec::<String>::new(), "{found:#}");
    assert_eq!(found["grade"]["letter"], "A+", "{:#}", found["grade"]);
    assert_eq!(found["groups"]["post_quantum"], true);
    assert_eq!(found["certificates"].as_array().map(Vec::len), Some(2));
    site.assert_alive();

    let ca = TestCa::new();
    assert_findings(&ca.server(&["localhost"]).issue(), &ca, RIGHT, &[]);
}

#[test]
fn each_fault_of_a_configuration_is_found_and_no_other() {
    let ca = TestCa::new();
    let leaf = ca.server(&["localhost"]).issue();
    let weak = "ssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:@SECLEVEL=0;";
    let tls10 =
        RIGHT.replace("TLSv1.2", "TLSv1 TLSv1.2").replace("ssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20;", weak);
    // With TLS 1.0 come block ciphers, SHA-1 and clients' order.
    let companions =
        ["protocol-tls10", "suite-cbc-tls10", "suite-client-order", "scheme-sha1", "fallback-accepted"];
    let is_right = |found: &Value| {
        let found = ids(found).0;
        found.iter().any(|id| id == "protocol-tls10")
            && found.iter().all(|id| companions.contains(&id.as_str()))
    };
    let nginx = Nginx::https_with(&leaf, &tls10);
    let found = document(&ca.root_file(), nginx.address(), &[], is_right);
    assert!(is_right(&found), "{found:#}");

    let no_hsts = RIGHT.lines().take(2).collect::<String>();
    assert_findings(&leaf, &ca, &no_hsts, &["hsts-missing"]);

    let rsa = ca.server(&["localhost"]).key(LeafKey::Rsa2048).issue();
    assert_findings(&rsa, &ca, RIGHT, &["certificate-no-ecdsa"]);

    let expired = ca.server(&["localhost"]).expired().issue();
    assert_findings(&expired, &ca, RIGHT, &["certificate-expired"]);

    let other = ca.server(&["other.test"]).issue();
    assert_findings(&other, &ca, RIGHT, &["certificate-name"]);
}

#[test]
fn chains_are_judged_as_they_are_sent() {
    let ca = TestCa::new();
    // It says where its issuer's certificate is: without that none can be missed.
    let leaf = ca.server(&["localhost"]).issuer_at("http://127.0.0.1:9/issuer").issue();
    let own = leaf.certificate_pem.clone();
    let chains = [
        ("chain-incomplete", own.clone()),
        ("chain-order", format!("{own}{}{}", ca.root_pem(), ca.intermediate_pem())),
        (
            "chain-stray",
            format!("{own}{}{}", ca.intermediate_pem(), ca.server(&["b"]).issue().certificate_pem),
        ),
    ];
    for (id, chain) in chains {
        fs::write(&leaf.chain, chain).expect("a file of the test");
        assert_findings(&leaf, &ca, RIGHT, &[id]);
    }
    let unsaid = ca.server(&["localhost"]).issue();
    fs::write(&unsaid.chain, &unsaid.certificate_pem).expect("a file of the test");
    assert_findings(&unsaid, &ca, RIGHT, &["certificate-untrusted"]);
}

#[test]
fn early_data_that_can_be_replayed_and_ticket_keys_that_stay_are_found() {
    let ca = TestCa::new();
    let leaf = ca.server(&["localhost"]).issue();
    let key = ca.unique_file("ticket.key");
    fs::write(&key, [7; 80]).expect("a file of the test");
    let fixed = format!("{RIGHT}ssl_early_data on;\nssl_session_ticket_key {};\n", key.display());
    let nginx = Nginx::https_with(&leaf, &fixed);
    let is_right = |found: &Value| {
        let (above, info) = ids(found);
        above == ["early-data-replayed"] && info.iter().any(|id| id == "ticket-keys-fixed")
    };
    let found = document(&ca.root_file(), nginx.address(), &["--watch", "2s"], is_right);
    let (above, info) = ids(&found);
    assert_eq!(above, ["early-data-replayed"], "{found:#}");
    assert!(info.contains(&"ticket-keys-fixed".to_owned()), "{info:?}");

    // brisk takes a session for early data once.
    let site = Site::with("early_data = \"safe\"\nhsts = { max_age = \"365d\" }\n");
    let is_right =
        |found: &Value| ids(found).0.is_empty() && found["sessions"]["early_data"].as_u64() > Some(0);
    let found = document(&site.ca.root_file(), site.brisk.https(), &[], is_right);
    assert_eq!(ids(&found).0, Vec::<String>::new(), "{found:#}");
    assert!(found["sessions"]["early_data"].as_u64() > Some(0), "{found:#}");
    assert_eq!(found["sessions"]["early_data_replayed"], false, "{found:#}");
}

fn openssl_server(certificate: &Path, key: &Path, options: &[&str]) -> (Process, SocketAddr) {
    serve_on_free_port(|port| {
        let mut server = command("openssl");
        server.args(["s_server", "-www", "-accept", &format!("127.0.0.1:{port}"), "-cert"]);
        server.arg(certificate).arg("-key").arg(key).args(options);
        server
    })
}

#[test]
fn nothing_is_found_of_the_padding_of_right_servers() {
    let ca = TestCa::new();
    let rsa = ca.server(&["localhost"]).key(LeafKey::Rsa2048).issue();
    // Suites of each hash of the MAC, and of each way to agree on keys.
    let all = "ECDHE-RSA-AES128-SHA:ECDHE-RSA-AES128-SHA256:ECDHE-RSA-AES256-SHA384";
    for suites in [all, "AES256-SHA:AES128-SHA256"] {
        let options = ["-tls1_2", "-cipher", suites];
        let (_process, address) = openssl_server(&rsa.chain, &rsa.key, &options);
        let nginx = format!("ssl_protocols TLSv1.2; ssl_ciphers {suites};");
        let nginx = Nginx::https_with(&rsa, &nginx);
        for address in [address, nginx.address()] {
            let is_right = |found: &Value| {
                ["padding_accepted", "padding_oracle"].iter().all(|kind| found["weaknesses"][kind] == false)
            };
            let found = document(&ca.root_file(), address, &[], is_right);
            assert!(is_right(&found), "{suites}: {found:#}");
        }
    }
}

#[test]
fn renegotiation_small_groups_and_sha1_are_found() {
    let ca = TestCa::new();
    let leaf = ca.server(&["localhost"]).issue();
    let (process, address) = openssl_server(&leaf.chain, &leaf.key, &["-client_renegotiation"]);
    let has = |found: &Value, id: &str| ids(found).0.iter().any(|own| own == id);
    let found = document(&ca.root_file(), address, &[], |found| has(found, "renegotiation-by-client"));
    assert!(has(&found, "renegotiation-by-client"), "{found:#}");
    drop(process);

    let rsa = ca.server(&["localhost"]).key(LeafKey::Rsa2048).issue();
    let group = ca.unique_file("dh.pem");
    let mut make = command("openssl");
    make.args(["dhparam", "-dsaparam", "-out"]).arg(&group).arg("1024");
    run(&mut make, b"", LIMIT).success();
    let small = RIGHT.replace("ECDHE+CHACHA20", "DHE+AESGCM:@SECLEVEL=0");
    let nginx = Nginx::https_with(&rsa, &format!("{small}ssl_dhparam {};\n", group.display()));
    let is_right = |found: &Value| has(found, "dh-small") && found["groups"]["dh_bits"] == 1024;
    let found = document(&ca.root_file(), nginx.address(), &[], is_right);
    assert!(is_right(&found), "{found:#}");
    drop(nginx);

    let (certificate, key) = (ca.unique_file("sha1.crt"), ca.unique_file("sha1.key"));
    let (issuer, issuer_key) = ca.intermediate_files();
    let mut request = command("openssl");
    request.args([
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-sha1",
        "-days",
        "30",
        "-subj",
        "/CN=localhost",
    ]);
    request
        .args(["-addext", "subjectAltName=DNS:localhost", "-out"])
        .arg(&certificate)
        .arg("-keyout")
        .arg(&key);
    run(request.arg("-CA").arg(issuer).arg("-CAkey").arg(issuer_key), b"", LIMIT).success();
    let options = ["-cipher", "ALL:@SECLEVEL=0"];
    let (_process, address) = openssl_server(&certificate, &key, &options);
    let found = document(&ca.root_file(), address, &[], |found| has(found, "certificate-sha1"));
    assert!(has(&found, "certificate-sha1"), "{found:#}");
}

#[test]
fn formats_and_exit_codes_are_for_ci() {
    let ca = TestCa::new();
    let nginx =
        Nginx::https_with(&ca.server(&["localhost"]).issue(), &RIGHT.lines().take(2).collect::<String>());
    let (root, address) = (ca.root_file(), nginx.address());
    let options = ["--fail-below", "A+", "--format", "junit"];
    let failed = audited(&root, address, &options, |failed| failed.stdout.contains("hsts-missing"));
    assert_eq!(failed.status.code(), Some(10), "{}", failed.text());
    assert!(
        failed.stdout.contains("name=\"hsts-missing\">") && failed.stdout.contains("<failure type=\"low\"")
    );
    let options = ["--fail-below", "A", "--format", "sarif"];
    let passed = audited(&root, address, &options, |passed| passed.status.success()).success();
    let sarif: Value = serde_json::from_str(&passed).expect("JSON");
    assert_eq!(sarif["runs"][0]["properties"]["grade"], "A");
    let place =
        &sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
    assert_eq!(place, &Value::from(format!("localhost/{}", address.port())));
    let text = audited(&root, address, &[], |found| found.stdout.contains("Grade A\n")).success();
    for part in ["Grade A\n", "hsts-missing", "add_header Strict-Transport-Security", "SSL Labs"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    drop(nginx);
    let closed = audit(&root, address, &[]);
    assert_eq!(closed.status.code(), Some(4), "{}", closed.text());
    assert_eq!(closed.stderr.lines().count(), 1, "{}", closed.stderr);
    let unread = audit(Path::new("/none/authorities.pem"), address, &[]);
    assert_eq!(unread.status.code(), Some(2), "{}", unread.text());
}

#[test]
fn a_configuration_is_judged_without_network() {
    let ca = TestCa::new();
    let leaf = ca.server(&["inside.test"]).key(LeafKey::Rsa2048).issue();
    let file = ca.unique_file("brisk.toml");
    let (chain, key) = (leaf.chain.display(), leaf.key.display());
    let host = format!(
        "[server]\nhttps = [\"127.0.0.1:0\"]\n\n[[host]]\nnames = [\"inside.test\"]\nearly_data = [\"/buy/*\"]\n\
         certificates = [{{ chain = \"{chain}\", key = \"{key}\" }}]\n"
    );
    fs::write(&file, format!("{host}[[host.route]]\npath = \"/\"\nrespond = {{ body = \"x\" }}\n"))
        .expect("a file");
    let mut chmod = command("sh");
    chmod.args(["-c", "chmod 644 \"$0\""]).arg(&leaf.key);
    run(&mut chmod, b"", LIMIT).success();
    let judged = run(brisk().arg("--config").arg(&file).arg("--json"), b"", LIMIT).success();
    let judged: Value = serde_json::from_str(&judged).expect("JSON");
    let found: Vec<_> =
        judged["advice"].as_array().expect("advice").iter().map(|one| one["id"].clone()).collect();
    for id in ["inside-no-ecdsa", "inside-early-data", "inside-no-hsts", "inside-key-readable"] {
        assert!(found.iter().any(|own| own == id), "no {id} in {found:?}");
    }
    let text = run(brisk().arg("--config").arg(&file), b"", LIMIT).success();
    assert!(text.contains("chmod 600") && text.contains("This machine"), "{text}");
    fs::write(&file, "[server]\nhttps = 7\n").expect("a file");
    let wrong = run(brisk().arg("--config").arg(&file), b"", LIMIT);
    assert_eq!(wrong.status.code(), Some(2), "{}", wrong.text());
}

#[test]
fn known_clients_and_differences_to_an_earlier_audit_are_shown() {
    let ca = TestCa::new();
    let leaf = ca.server(&["localhost"]).key(LeafKey::Rsa2048).issue();
    let root = ca.root_file();
    let weak = Nginx::https_with(&leaf, "ssl_protocols TLSv1.2;\nssl_ciphers AES128-SHA;\n");
    let client = |document: &Value, name: &str| {
        let all = document["clients"].as_array().expect("clients");
        assert_eq!(all.len(), 20);
        all.iter().find(|client| client["client"] == name).expect("a client").clone()
    };
    let version_of_chrome =
        |version: &'static str| move |found: &Value| client(found, "Chrome 131")["version"] == version;
    let before = document(&root, weak.address(), &[], version_of_chrome("TLS 1.2"));
    let chrome = client(&before, "Chrome 131");
    assert_eq!(
        (&chrome["version"], &chrome["forward_secrecy"]),
        (&"TLS 1.2".into(), &false.into()),
        "{chrome}"
    );
    assert_eq!(client(&before, "Go 1.24")["suite"], Value::Null, "no suite without forward secrecy");
    drop(weak);
    let right = Nginx::https_with(&leaf, RIGHT);
    let earlier = ca.unique_file("earlier.json");
    fs::write(&earlier, before.to_string()).expect("a file");
    let options = ["--baseline", earlier.to_str().expect("a path")];
    let after = document(&root, right.address(), &options, version_of_chrome("TLS 1.3"));
    let chrome = client(&after, "Chrome 131");
    assert_eq!(
        (&chrome["version"], &chrome["forward_secrecy"]),
        (&"TLS 1.3".into(), &true.into()),
        "{chrome}"
    );
    assert_eq!(client(&after, "Internet Explorer 8, Windows XP")["version"], Value::Null);
    let differences = &after["differences"];
    let gone = differences["gone_findings"].as_array().expect("findings");
    assert!(gone.contains(&"protocol-no-tls13".into()), "{differences:#}");
    let added = differences["added"].as_array().expect("features");
    assert!(
        added.iter().any(|one| one.as_str().is_some_and(|one| one.starts_with("TLS 1.3 with "))),
        "{differences:#}"
    );
    let text = audit(&root, right.address(), &options).success();
    for part in ["Differences since ", "gone finding", "Known clients", "Firefox 132"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let wrong = audit(&root, right.address(), &["--baseline", "/none.json"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", wrong.text());
}

#[test]
fn a_list_of_hosts_has_a_line_for_each() {
    let ca = TestCa::new();
    let nginx = Nginx::https_with(&ca.server(&["localhost"]).issue(), RIGHT);
    let list = ca.unique_file("hosts.txt");
    let port = nginx.address().port();
    fs::write(&list, format!("# two hosts\nhttps://localhost:{port}/1k\n\nno-such-host.invalid\n"))
        .expect("a file");
    let mut brisk = brisk();
    brisk.args(["--audit", "--http-port", "0", "--timeout", "500", "--hosts"]).arg(&list);
    let finished = run(brisk.arg("--ca").arg(ca.root_file()), b"", LIMIT);
    assert_eq!(finished.status.code(), Some(3), "{}", finished.text());
    let line =
        |host: &str| finished.stdout.lines().find(|line| line.contains(host)).expect("a line").to_owned();
    assert!(line(&format!("localhost:{port}")).contains('A'), "{}", finished.stdout);
    assert!(line("no-such-host.invalid").contains("none"), "{}", finished.stdout);
    fs::write(&list, "a b\n").expect("a file");
    let mut wrong = self::brisk();
    let wrong = run(wrong.args(["--audit", "--hosts"]).arg(&list), b"", LIMIT);
    assert_eq!(wrong.status.code(), Some(2), "{}", wrong.text());
}

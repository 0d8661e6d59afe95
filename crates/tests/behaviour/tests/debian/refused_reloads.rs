//! Atomic reloads: a reload refused by one part changes nothing in the other parts.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::symlink;

use brisk_behaviour::fleet::ids;
use brisk_behaviour::site::{NAME, NAMES, setup, upstream};
use brisk_testkit::brisk::{Brisk, base, host};
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::client::TlsClient;
use brisk_testkit::process::wait_until;
use serde_json::Value;

use crate::isolated::{ISOLATE, full};
use crate::keyless::wait_until_ready;

/// Families of metrics whose series a configuration determines.
const CONFIGURED: [&str; 7] = [
    "brisk_certificate",
    "brisk_experiment",
    "brisk_keyserver",
    "brisk_on_demand",
    "brisk_page",
    "brisk_upstream_healthy",
    "brisk_visits",
];

/// A configuration in which every part differs from that of another `number`.
struct Configuration<'c> {
    number: usize,
    leaf: &'c Leaf,
    /// A certificate whose key is on a key server, its address, and the gateway's certificate for it.
    remote: (&'c Leaf, SocketAddr, &'c Leaf),
    ca: &'c TestCa,
    folder: &'c str,
}

impl Configuration<'_> {
    /// The text, with dotted keys before everything else and tables behind.
    fn text(&self, keys: &str, tables: &str) -> String {
        let Self { number, leaf, remote: (remote, address, client), ca, folder } = self;
        let keys = format!(
            "sessions.ticket_keys = [\"ticket-{number}.key\"]\ncertificates.staple = {}\nvisits.enabled = true\n{}{keys}",
            number % 2 == 0,
            if keys.contains("access_log.file") {
                String::new()
            } else {
                format!("access_log.file = \"access-{number}.log\"\n")
            }
        );
        let remote = format!(
            "\n[[host]]\nnames = [\"remote.test\"]\ncertificates = [{{ chain = \"{}\", key = \"keyserver:number{number}\" }}]\n\
             \n[keyserver.number{number}]\nservers = [\"{address}\"]\nca = \"{}\"\ncertificate = {{ chain = \"{}\", key = \"{}\" }}\n",
            remote.chain.display(),
            ca.root_file().display(),
            client.chain.display(),
            client.key.display(),
        );
        format!(
            "{}{}certificate_folder = {folder:?}\nvisits = true\nhsts = {{ max_age = \"{}d\" }}\n\
             \n[[host.route]]\npath = \"/up\"\nupstream = \"app\"\n\
             \n[[host.route]]\npath = \"/\"\nrespond = {{ body = \"number {number}\" }}\n{}{remote}\
             \n[experiment.number{number}]\nsetting = \"tls.tickets_per_handshake\"\nvalues = [{}]\n{tables}",
            base(&keys),
            host(&[NAME], &[leaf]),
            number + 1,
            upstream(&[&format!("http://127.0.0.1:{}", 1 + number)]),
            number + 2,
        )
    }
}

/// Everything that a client or an operator can observe of a configuration.
#[derive(Debug, PartialEq)]
struct Observed {
    body: String,
    hsts: Option<String>,
    certificate: Vec<u8>,
    ticket_keys: Vec<String>,
    certificates: BTreeSet<String>,
    series: BTreeSet<String>,
    expiry: BTreeSet<String>,
    logged_in: Vec<String>,
}

fn observed(brisk: &Brisk, ca: &TestCa) -> Observed {
    let mut connection = TlsClient::new(&ca.root_file(), NAME).connect(brisk.https()).expect("a handshake");
    let certificate = connection.tls().peer_certificates().expect("certificates")[0].to_vec();
    let path = format!("/{}", fs::read_dir(brisk.folder()).expect("a folder").count());
    let response = connection.get(NAME, &path);
    let logs = || (0..2).map(|number| format!("access-{number}.log"));
    let has_line = |log: &String| {
        let text = fs::read_to_string(brisk.folder().join(log)).unwrap_or_default();
        text.lines().last().is_some_and(|line| line.contains(&format!("\"{path}\"")))
    };
    let logged_in = wait_until("a line of an access log", || {
        Some(logs().filter(has_line).collect::<Vec<_>>()).filter(|logs| !logs.is_empty())
    });
    for log in logs() {
        // It may not be there.
        let _ = fs::OpenOptions::new().write(true).truncate(true).open(brisk.folder().join(log));
    }
    let page: Value = serde_json::from_str(&brisk.ask_admin("/certificates").text()).expect("JSON");
    let shown = page["certificates"].as_array().expect("a list").iter();
    let metrics = brisk.metrics().0;
    let series = |family: &str| {
        let lines = metrics.lines().filter(|line| line.starts_with(family));
        lines.map(|line| line.rsplit_once(' ').map_or(line, |(name, _)| name).to_owned()).collect::<Vec<_>>()
    };
    let expiry = metrics.lines().filter(|line| line.starts_with("brisk_certificate_expiry"));
    Observed {
        body: response.text(),
        hsts: response.header("strict-transport-security").map(str::to_owned),
        certificate,
        ticket_keys: ids(brisk),
        certificates: shown.map(|one| one["sha256"].to_string()).collect(),
        series: CONFIGURED.into_iter().flat_map(series).collect(),
        expiry: expiry.map(str::to_owned).collect(),
        logged_in,
    }
}

#[test]
fn a_part_that_refuses_a_configuration_leaves_all_others_as_they_were() {
    let ca = TestCa::new();
    let leafs = [ca.server(&NAMES).issue(), ca.server(&NAMES).issue()];
    let (remote, client) = (ca.server(&["remote.test"]).issue(), ca.client("gateway").issue());
    // It answers nothing: connections to it are opened, and closed.
    let key_server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a key server");
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("an address");
    let taken = taken.local_addr().expect("an address");
    // In one folder: another one would be outside of the sandbox.
    let root = tempfile::tempdir().expect("a folder");
    let folders = ["0", "1"].map(|name| root.path().join(name));
    for folder in &folders {
        fs::create_dir(folder).expect("a folder of certificates");
    }
    let configuration = |number: usize| Configuration {
        number,
        leaf: &leafs[number],
        remote: (&remote, key_server.local_addr().expect("an address"), &client),
        ca: &ca,
        folder: folders[number].to_str().expect("a path"),
    };
    let brisk = setup()
        .config(&configuration(0).text("", ""))
        .file("ticket-0.key", [1; 48])
        .file("ticket-1.key", [2; 48])
        .start();
    symlink("loop.log", brisk.folder().join("loop.log")).expect("a link");
    wait_until("the experiment", || brisk.metrics().0.contains("brisk_experiment_decision").then_some(()));
    let before = observed(&brisk, &ca);
    assert_eq!(before.logged_in, ["access-0.log"]);
    let other = configuration(1);
    for (part, text, reason) in [
        ("the configuration", other.text("", "[servr]\n"), "servr"),
        ("the dashboard", other.text(&format!("dashboard.listen = \"{taken}\"\n"), ""), "dashboard"),
        ("the access log", other.text("access_log.file = \"loop.log\"\n", ""), "loop.log"),
    ] {
        brisk.write("brisk.toml", text);
        let line = brisk.reload();
        assert!(line.contains("not reloaded") && line.contains(reason), "{part}: {line}");
        assert_eq!(observed(&brisk, &ca), before, "after {part} refused another configuration");
    }
    brisk.write("brisk.toml", other.text("", ""));
    assert!(brisk.reload().contains("reloaded: the new configuration"), "{}", brisk.process().stderr());
    let after = observed(&brisk, &ca);
    assert_ne!(after.body, before.body);
    assert_ne!(after.hsts, before.hsts);
    assert_ne!(after.certificate, before.certificate);
    assert_ne!(after.ticket_keys, before.ticket_keys);
    assert_ne!(after.certificates, before.certificates);
    assert_ne!(after.series, before.series);
    assert_eq!(after.logged_in, ["access-1.log"]);
    for name in ["brisk_keyserver_hedges_total", "brisk_certificate_folder_names", "brisk_experiment"] {
        assert!(before.series.iter().any(|series| series.starts_with(name)), "{name}: {:#?}", before.series);
    }
}

#[test]
fn a_key_process_gives_up_the_keys_of_a_configuration_that_another_part_refuses() {
    let ca = TestCa::new();
    let (own, other) = (ca.server(&NAMES).issue(), ca.server(&NAMES).issue());
    let brisk = setup().config(&(base(ISOLATE) + &host(&NAMES, &[&own]))).start();
    wait_until_ready(&brisk);
    let keys = || brisk.metrics().sum("brisk_key_process_keys", &[]) as u64;
    wait_until("a key", || (keys() == 1).then_some(()));
    symlink("loop.log", brisk.folder().join("loop.log")).expect("a link");
    let refused = format!("access_log.file = \"loop.log\"\n{ISOLATE}");
    brisk.write("brisk.toml", base(&refused) + &host(&NAMES, &[&other]));
    let line = brisk.reload();
    assert!(line.contains("not reloaded") && line.contains("loop.log"), "{line}");
    wait_until("one key again", || (keys() == 1).then_some(()));
    full(&ca, &brisk).expect("a handshake with the key in force");
}

#[test]
fn a_changed_certificate_is_published_by_the_configuration_in_force() {
    let ca = TestCa::new();
    let (old, new, second) =
        (ca.server(&[NAME]).issue(), ca.server(&[NAME]).issue(), ca.server(&["b.test"]).issue());
    let mut files = old.clone();
    (files.chain, files.key) = ("site.pem".into(), "site.key".into());
    let config = |body: &str| {
        let route = format!("\n[[host.route]]\npath = \"/\"\nrespond = {{ body = {body:?} }}\n");
        base("") + &host(&[NAME], &[&files]) + &route + &host(&["b.test"], &[&second])
    };
    let setup = setup().config(&config("first")).file("site.pem", &old.chain_pem);
    let brisk = setup.file("site.key", &old.key_pem).start();
    let serial = || {
        let connection = TlsClient::new(&ca.root_file(), NAME).connect(brisk.https()).expect("a handshake");
        connection.tls().peer_certificates().expect("certificates")[0].to_vec()
    };
    let (before, expiries) = (serial(), brisk.metrics().sum("brisk_certificate_expiry", &[]));
    // The key alone does not fit, which is reported as by a reload.
    brisk.write("site.key", &new.key_pem);
    let log = brisk.log_with("not reloaded");
    assert!(log.contains("host[0].certificates[0].key"), "{log}");
    assert_eq!(serial(), before);
    brisk.write("site.pem", &new.chain_pem);
    wait_until("the new certificate", || (serial() != before).then_some(()));
    let log = brisk.log_with("reloaded: the changed certificates are in use");
    assert!(log.contains("host=\"site.test\" file=site.pem"), "{log}");
    assert!(!log.contains("reloaded: the new configuration"), "the configuration was read: {log}");
    assert!(!log.contains("host=\"b.test\""), "another host was published: {log}");
    let metrics = brisk.metrics();
    assert_eq!(metrics.sum("brisk_reloads_total", &["outcome=\"refused\""]) as u64, 1);
    assert_eq!(metrics.sum("brisk_reloads_total", &["outcome=\"applied\""]) as u64, 1);
    assert!(metrics.sum("brisk_certificate_expiry", &[]) >= expiries);
    // A changed configuration is read, with certificates that change at the same time.
    brisk.write("brisk.toml", config("second"));
    brisk.write("site.key", &old.key_pem);
    brisk.write("site.pem", &old.chain_pem);
    brisk.log_with("reloaded: the new configuration");
    assert_eq!(serial(), before);
    let mut connection = TlsClient::new(&ca.root_file(), NAME).connect(brisk.https()).expect("a handshake");
    assert_eq!(connection.get(NAME, "/").text(), "second");
}

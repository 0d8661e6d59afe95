//! Resumption by session ID, ticket and pre-shared key; groups and compression that openssl lacks.

use brisk_behaviour::openssl::{REQUEST, facts_of, s_client};
use brisk_behaviour::site::{LIMIT, NAME, Site, facts};
use brisk_testkit::client::TlsClient;
use brisk_testkit::process::run;
use rustls::{HandshakeKind, NamedGroup};
use serde_json::Value;

/// Connects twice with openssl, the second time with the session of the first; returns what brisk says of both.
fn twice(site: &Site, options: &[&str]) -> [String; 2] {
    let file = site.brisk.folder().join("session").display().to_string();
    let kind = |session: &str| {
        let options = [&["-servername", NAME, session, &file], options].concat();
        let output = run(&mut s_client(&site.ca, &site.brisk, &options), REQUEST, LIMIT);
        let reused = output.stdout.contains("\nReused, ");
        assert_eq!(reused, session == "-sess_in", "{}", output.text());
        facts_of(&output)["tls"]["resumption"].as_str().unwrap_or_default().to_owned()
    };
    [kind("-sess_out"), kind("-sess_in")]
}

#[test]
fn tls_1_3_resumes_by_pre_shared_key() {
    assert_eq!(twice(&Site::new(), &["-tls1_3"]), ["full", "psk"]);
}

#[test]
fn tls_1_2_resumes_by_ticket() {
    assert_eq!(twice(&Site::new(), &["-tls1_2"]), ["full", "ticket"]);
}

#[test]
fn tls_1_2_resumes_by_session_id_without_tickets() {
    let site = Site::new();
    assert_eq!(twice(&site, &["-tls1_2", "-no_ticket"]), ["full", "session-id"]);
    let metrics = site.brisk.metrics();
    assert!(metrics.sum("brisk_session_lookups_total", &["outcome=\"found\""]) >= 1.0, "{}", metrics.0);
}

#[test]
fn tickets_can_be_switched_off() {
    let site = Site::custom("tls.tickets = false\n", "", |setup| setup);
    // The session store remains: by ID, and in TLS 1.3 by tickets that are nothing but IDs.
    assert_eq!(twice(&site, &["-tls1_2"]), ["full", "session-id"]);
    assert_eq!(twice(&site, &["-tls1_3"]), ["full", "psk"]);
    let neither = Site::custom("tls.tickets = false\ntls.session_cache.entries = 0\n", "", |setup| setup);
    for _ in 0..2 {
        let output = run(&mut s_client(&neither.ca, &neither.brisk, &["-tls1_3"]), REQUEST, LIMIT);
        assert_eq!(facts_of(&output)["tls"]["resumption"], "full");
        assert!(!output.stdout.contains("New Session Ticket arrived"), "{}", output.text());
    }
}

#[test]
fn openssl_reconnects_five_times_with_one_session() {
    let site = Site::new();
    for ticket in [&["-no_ticket"][..], &[]] {
        let options = [&["-tls1_2", "-reconnect", "-no_ign_eof"], ticket].concat();
        let output = run(&mut s_client(&site.ca, &site.brisk, &options), b"", LIMIT).success();
        assert_eq!(output.matches("Reused, TLSv1.2").count(), 5, "{output}");
    }
}

#[test]
fn a_resumed_session_costs_no_key_operation() {
    let site = Site::new();
    let client = site.client();
    let mut resumed = 0;
    for _ in 0..4 {
        let mut connection = client.connect(site.brisk.https()).expect("a handshake");
        connection.get(NAME, "/");
        resumed += u32::from(connection.tls().handshake_kind() == Some(HandshakeKind::Resumed));
    }
    assert_eq!(resumed, 3);
    let metrics = site.brisk.metrics();
    assert!((metrics.sum("brisk_key_operations_total", &[]) - 1.0).abs() < 0.5, "{}", metrics.0);
    assert!(
        (metrics.sum("brisk_handshakes_total", &["resumption=\"psk\""]) - 3.0).abs() < 0.5,
        "{}",
        metrics.0
    );
}

#[test]
fn the_page_tells_of_early_data() {
    let site = Site::with("early_data = \"safe\"\n");
    let [session, request] =
        ["session", "request"].map(|name| site.brisk.folder().join(name).display().to_string());
    std::fs::write(&request, REQUEST).expect("a temporary file");
    let ask = |options: &[&str], input: &[u8]| {
        let options = [&["-tls1_3", "-servername", NAME], options].concat();
        facts_of(&run(&mut s_client(&site.ca, &site.brisk, &options), input, LIMIT))
    };
    assert!(ask(&["-sess_out", &session], REQUEST)["tls"]["early_data"].is_null());
    let early = ask(&["-sess_in", &session, "-early_data", &request], b"");
    assert_eq!(
        (&early["tls"]["early_data"], &early["tls"]["resumption"]),
        (&"accepted".into(), &"0-rtt".into())
    );
    let replayed = ask(&["-sess_in", &session], REQUEST);
    assert_eq!(replayed["tls"]["resumption_failure"], "used", "{replayed}");
}

#[test]
fn the_groups_are_preferred_in_order_and_hybrid_ones_come_first() {
    let site = Site::new();
    let first = facts(&site.get("/connection.json").text());
    assert_eq!(first["tls"]["group"], "X25519MLKEM768", "{first}");
    for (group, name) in [
        (NamedGroup::X25519MLKEM768, "X25519MLKEM768"),
        (NamedGroup::X25519, "x25519"),
        (NamedGroup::secp256r1, "secp256r1"),
        (NamedGroup::secp384r1, "secp384r1"),
    ] {
        let client = TlsClient::with_groups(&site.ca.root_file(), NAME, &[group]);
        let mut connection = client.connect(site.brisk.https()).expect("a handshake");
        let facts = facts(&connection.get(NAME, "/connection.json").text());
        assert_eq!(facts["tls"]["group"], name, "{facts}");
    }
}

#[test]
fn certificates_are_compressed_for_clients_that_offer_it() {
    let site = Site::new();
    for algorithm in ["zlib", "brotli"] {
        let client = site.client().certificate_compression(algorithm);
        client.connect(site.brisk.https()).expect("a handshake").get(NAME, "/");
        assert_eq!(client.decompressed(), 1, "{algorithm}");
    }
    let off = Site::custom("tls.certificate_compression = false\n", "", |setup| setup);
    let client = off.client().certificate_compression("zlib");
    client.connect(off.brisk.https()).expect("a handshake");
    assert_eq!(client.decompressed(), 0);
}

#[test]
fn a_session_does_not_resume_under_another_name() {
    let site = Site::new();
    let file = site.brisk.folder().join("session").display().to_string();
    let ask = |options: &[&str]| {
        let options = [&["-tls1_3"], options].concat();
        run(&mut s_client(&site.ca, &site.brisk, &options), REQUEST, LIMIT)
    };
    ask(&["-servername", NAME, "-sess_out", &file]).success();
    let other = ask(&["-servername", "localhost", "-sess_in", &file]);
    assert_eq!(facts_of(&other)["tls"]["resumption"], "full");
}

/// Visits of TLS 1.2 by openssl, with its sessions in a file.
struct Visits<'a> {
    site: &'a Site,
    file: String,
}

impl Visits<'_> {
    /// How brisk calls the visit, why not otherwise, and whether a ticket came with it.
    fn make(&self, name: &str, options: &[&str]) -> (String, Value, bool) {
        let options = [&["-tls1_2", "-msg", "-servername", name], options].concat();
        let output = run(&mut s_client(&self.site.ca, &self.site.brisk, &options), REQUEST, LIMIT);
        let facts = facts_of(&output);
        let kind = facts["tls"]["resumption"].as_str().unwrap_or_default().to_owned();
        let failure = facts["tls"]["resumption_failure"].clone();
        (kind, failure, output.stdout.contains("NewSessionTicket"))
    }

    fn resume(&self) -> (String, bool) {
        let (kind, failure, ticket) = self.make(NAME, &["-sess_in", &self.file, "-sess_out", &self.file]);
        assert!(failure.is_null(), "{failure}");
        (kind, ticket)
    }
}

#[test]
fn a_ticket_of_tls_1_2_is_kept_until_its_key_seals_no_more() {
    let site = Site::new();
    let visits = Visits { site: &site, file: site.brisk.folder().join("session").display().to_string() };
    let first = visits.make(NAME, &["-sess_out", &visits.file]);
    assert_eq!((first.0.as_str(), first.2), ("full", true));
    for _ in 0..3 {
        assert_eq!(visits.resume(), ("ticket".to_owned(), false));
    }
    assert_eq!(facts(&site.brisk.ask_admin("/tickets").text())["sealed"], 1);
    assert_eq!(site.brisk.post_admin("/tickets/rotate").status(), 200);
    assert_eq!(visits.resume(), ("ticket".to_owned(), true), "the key was replaced");
    // A ticket that opens but does not resume is of no use to its client: another one comes.
    let other = visits.make("localhost", &["-sess_in", &visits.file]);
    assert_eq!(other, ("full".to_owned(), "unsuitable".into(), true));
}

#[test]
fn the_ticket_that_replaces_one_of_tls_1_2_is_kept_too() {
    let site = Site::new();
    let client = site.client().tls12();
    let sealed_after_visit = || {
        let mut connection = client.connect(site.brisk.https()).expect("a handshake");
        connection.get(NAME, "/");
        let sealed = facts(&site.brisk.ask_admin("/tickets").text())["sealed"].clone();
        (connection.tls().handshake_kind(), sealed)
    };
    assert_eq!(sealed_after_visit(), (Some(HandshakeKind::Full), 1.into()));
    assert_eq!(sealed_after_visit(), (Some(HandshakeKind::Resumed), 1.into()));
    assert_eq!(site.brisk.post_admin("/tickets/rotate").status(), 200);
    for _ in 0..3 {
        assert_eq!(sealed_after_visit(), (Some(HandshakeKind::Resumed), 2.into()));
    }
}

#[test]
fn a_session_id_that_was_not_made_here_counts_as_none() {
    let [site, stranger] = [(); 2].map(|()| Site::new());
    let file = site.brisk.folder().join("session").display().to_string();
    let options = ["-no_ticket", "-sess_out", &file];
    Visits { site: &stranger, file: String::new() }.make(NAME, &options);
    let visits = Visits { site: &site, file };
    let kind = |name: &str| {
        let (kind, failure, _) = visits.make(name, &["-no_ticket", "-sess_in", &visits.file]);
        (kind, failure)
    };
    assert_eq!(kind(NAME), ("full".to_owned(), Value::Null));
    let metrics = site.brisk.metrics();
    for counter in ["brisk_session_lookups_total", "brisk_resumption_failures_total"] {
        assert!(metrics.sum(counter, &[]) < 0.5, "{}", metrics.0);
    }
    // One that was made here and does not resume is a failure, as before.
    visits.make(NAME, &["-no_ticket", "-sess_out", &visits.file]);
    assert_eq!(kind(NAME), ("session-id".to_owned(), Value::Null));
    assert_eq!(kind("localhost"), ("full".to_owned(), "unsuitable".into()));
}

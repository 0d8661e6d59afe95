//! `[acme]` and hosts whose certificates are obtained.

use std::sync::Arc;

use brisk_acme::{ChallengeKind, KeyKind};

use super::*;

const OBTAINED: &str = "[[host]]\nnames = [\"a.example\"]\nacme = true\n";

/// Some message of a file that is refused.
#[track_caller]
fn refusal(text: &str) -> String {
    checked(folder().path(), text).expect_err(text)
}

#[test]
fn four_lines_listen_on_the_usual_ports_and_refuse_unknown_names() {
    let resolved = accepted(&format!("{OBTAINED}upstream = \"http://127.0.0.1:8080\"\n"));
    let settings = &resolved.settings;
    let ports: Vec<_> =
        settings.https.iter().chain(&settings.http).map(|listener| listener.address.port()).collect();
    assert_eq!(ports, [443, 443, 80, 80]);
    assert_eq!(settings.tls.unknown_host, UnknownName::Refuse);
    assert_eq!(settings.upstreams.len(), 1);
    assert!(settings.service.hosts[0].tls.obtained);
    let acme = &resolved.acme;
    assert_eq!(acme.wanted[0].keys, [KeyKind::Ecdsa]);
    assert_eq!(acme.settings.challenges, [ChallengeKind::TlsAlpn01, ChallengeKind::Http01]);
    assert!(acme.settings.authorities[0].directory.contains("letsencrypt.org"));
    assert!(acme.settings.authorities[0].trial.is_some());
}

#[test]
fn a_host_without_acme_changes_nothing() {
    let resolved = accepted(&format!("{LISTENER}{HOST}"));
    assert!(resolved.acme.wanted.is_empty());
    assert!(!resolved.settings.service.hosts[0].tls.obtained);
}

#[test]
fn what_cannot_work_is_refused_with_what_would() {
    for (text, expected) in [
        ("[acme]\ndirectory = \"ca.example\"\n", "write its address, as \"https://"),
        ("[acme]\ndirectory = \"http://ca.example/dir\"\n", "write its address, as \"https://"),
        ("[acme]\ncontact = [\"admin\"]\n", "write one as \"admin@example.com\""),
        ("[acme]\nkeys = []\n", "write [\"ecdsa\"]"),
        ("[acme]\nchallenges = []\n", "write at least one"),
        ("[acme]\nchallenges = [\"dns-01\"]\n", "needs [acme.dns]"),
        (
            "[server]\nhttp = [\"127.0.0.1:80\"]\n[acme]\nchallenges = [\"tls-alpn-01\"]\n",
            "needs `server.https`",
        ),
        ("[acme]\nstore = \"redis\"\n", "needs [sessions.redis]"),
        ("[acme.dns]\nwait = \"1s\"\n", "write one of `server`"),
        ("[acme.dns]\nserver = \"192.0.2.1\"\n", "needs `key_name` and `key_file`"),
        ("[acme.dns]\nhook = \"none\"\n", "is no file"),
        (
            "[[acme.fallback]]\ndirectory = \"https://acme-v02.api.letsencrypt.org/directory\"\n",
            "is asked already",
        ),
    ] {
        let message = refusal(&format!("{text}{OBTAINED}"));
        assert!(message.contains(expected), "{text}: {message}");
    }
    let message = refusal(&format!("{OBTAINED}certificates = [{{ chain = \"a\", key = \"b\" }}]\n"));
    assert!(message.contains("keep one of the two"), "{message}");
    let message = refusal("[[host]]\nnames = [\"*.a.example\"]\nacme = true\n");
    assert!(message.contains("dns-01"), "{message}");
    let folder = folder();
    let registration =
        "server = \"https://acme-dns.example\"\nusername = \"u\"\npassword = \"p\"\nsubdomain = \"s\"\n";
    fs::write(folder.path().join("acme-dns.toml"), registration).expect("a file");
    let host = |names: &str| {
        format!("[acme.dns]\nacme_dns = \"acme-dns.toml\"\n[[host]]\nnames = [{names}]\nacme = true\n")
    };
    let two = checked(folder.path(), &host("\"*.a.example\", \"*.b.example\"")).expect("two names");
    assert_eq!(two.acme.settings.challenges, [ChallengeKind::Dns01], "no port is needed");
    let address = checked(folder.path(), &host("\"192.0.2.1\"")).expect_err("it has no zone");
    assert!(address.contains("192.0.2.1 cannot be proven by DNS"), "{address}");
    let message = checked(folder.path(), &host("\"*.a.example\", \"*.b.example\", \"*.c.example\""))
        .expect_err("three");
    assert!(message.contains("acme-dns keeps two records: write hosts of at most two"), "{message}");
}

#[test]
fn ports_to_which_authorities_connect_are_compared_with_the_listeners() {
    let warnings = |listeners: &str, challenges: &str| {
        let text = format!("[server]\n{listeners}\n[acme]\n{challenges}\n{OBTAINED}");
        let warnings = checked(folder().path(), &text).expect("a configuration").warnings;
        warnings
            .into_iter()
            .filter(|warning| warning.contains("authorities connect to port"))
            .collect::<Vec<_>>()
    };
    let (high, both) = ("https = [\"0.0.0.0:8443\"]", "https = [\"0.0.0.0:8443\"]\nhttp = [\"0.0.0.0:80\"]");
    let warned = warnings(high, "");
    assert!(warned.len() == 1 && warned[0].starts_with("tls-alpn-01"), "{warned:?}");
    assert_eq!(warnings(both, "").len(), 0, "http-01 is left");
    assert_eq!(warnings(both, "challenges = [\"tls-alpn-01\", \"http-01\"]").len(), 1);
    assert_eq!(warnings("https = [\"127.0.0.1:8443\"]", "").len(), 0, "another server is in front");
}

#[test]
fn names_on_demand_need_someone_who_decides_and_patterns() {
    let host = |keys: &str| {
        format!("{LISTENER}[[host]]\nnames = [\"platform.example\"]\non_demand = {{ {keys} }}\n")
    };
    let ask = "ask = \"http://127.0.0.1:1/ask\"";
    let resolved =
        accepted(&host(&format!("{ask}, names = [\"*.example.org\"], wait = \"2s\", orders = \"60/h\"")));
    let (tls, demanded) = (&resolved.settings.service.hosts[0].tls, &resolved.acme.demanded[0]);
    assert!(Arc::ptr_eq(tls.on_demand.as_ref().expect("names on demand"), &demanded.names));
    assert_eq!(demanded.names.settings().wait, Duration::from_secs(2));
    assert_eq!((demanded.settings.orders.interval, demanded.settings.most), (Duration::from_mins(1), 10_000));
    assert_eq!(resolved.settings.tls.unknown_host, UnknownName::Refuse);
    // The host's own names are none of those.
    let warning = "host[0].certificates: there is no certificate for platform.example: ";
    assert!(resolved.warnings.iter().any(|own| own.starts_with(warning)), "{:?}", resolved.warnings);
    for (keys, expected) in [
        ("names = [\"*\"]", "host[0].on_demand: needs `ask`, the address of a server that answers 200"),
        (
            ask,
            "host[0].on_demand.names: no name that may be asked for: write [\"*.example.com\"], or [\"*\"]",
        ),
        (
            "ask = \"127.0.0.1\", names = [\"*\"]",
            "host[0].on_demand.ask: \"127.0.0.1\" is no address that can be asked",
        ),
        (
            "ask = \"http://a/\", names = [\"a*.test\"]",
            "host[0].on_demand.names[0]: \"a*.test\" is no pattern",
        ),
        (
            "ask = \"http://a/\", names = [\"*\"], wait = \"2m\"",
            "host[0].on_demand.wait: 2m is out of range: write 0ms to 1m",
        ),
        ("ask = \"http://a/\", names = [\"*\"], most = 0", "host[0].on_demand.most: 0 is out of range"),
        ("ask = \"http://a/\", names = [\"*\"], allow = 1", "allow"),
    ] {
        let message = refusal(&host(keys));
        assert!(message.contains(expected), "{keys}: {message}");
    }
}

#[test]
fn byte_order_marks_in_secrets_are_named_however_short_the_file_is() {
    let tsig = "[acme.dns]\nserver = \"192.0.2.1\"\nkey_name = \"key\"\nkey_file = \"secret\"\n";
    let external = "[acme]\nexternal_account = { key_id = \"id\", key_file = \"secret\" }\n";
    for table in [tsig, external] {
        for secret in ["c2Vj", "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0"] {
            let folder = folder();
            let file = folder.path().join("secret");
            let text = format!("{table}{OBTAINED}");
            fs::write(&file, format!("\u{feff}{secret}")).expect("a file");
            let message = checked(folder.path(), &text).expect_err("a byte order mark");
            let expected = "key_file: secret: line 1 begins with a byte order mark";
            assert!(message.contains(expected), "{table}{secret}: {message}");
            fs::write(&file, secret).expect("a file");
            checked(folder.path(), &text).expect("right");
        }
    }
}

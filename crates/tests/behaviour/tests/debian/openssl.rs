//! Handshakes by `openssl s_client`: versions, groups, certificates, names, application protocols, client certificates.

use brisk_behaviour::openssl::{ask, facts_of, s_client};
use brisk_behaviour::site::{LIMIT, NAME, Site, setup};
use brisk_testkit::brisk::{Brisk, base, host};
use brisk_testkit::ca::{Leaf, LeafKey, TestCa};
use brisk_testkit::process::{Finished, run, wait_until};

fn ask_site(site: &Site, options: &[&str]) -> Finished {
    ask(&site.ca, &site.brisk, &[&["-servername", NAME], options].concat())
}

#[test]
fn every_version_with_every_group_and_both_certificates() {
    let site = Site::with_both_certificates("");
    let groups = [("X25519", "x25519"), ("P-256", "secp256r1"), ("P-384", "secp384r1")];
    for (option, version) in [("-tls1_2", "TLS 1.2"), ("-tls1_3", "TLS 1.3")] {
        for (group, group_name) in groups {
            for scheme in ["ecdsa_secp256r1_sha256", "rsa_pss_rsae_sha256"] {
                // RFC 8422 section 5.1: in TLS 1.2 the groups are also those that the client takes in certificates.
                let ecdsa_1_2 = version == "TLS 1.2" && scheme.starts_with("ecdsa");
                let groups =
                    if ecdsa_1_2 && group != "P-256" { format!("{group}:P-256") } else { group.to_owned() };
                let output = ask_site(&site, &[option, "-groups", &groups, "-sigalgs", scheme]);
                let facts = facts_of(&output);
                let tls = &facts["tls"];
                let told = [&tls["version"], &tls["group"], &tls["scheme"], &tls["resumption"]];
                assert_eq!(
                    told.map(|fact| fact.as_str().unwrap_or_default()),
                    [version, group_name, scheme, "full"]
                );
                assert!(output.stdout.contains("Verify return code: 0 (ok)"), "{}", output.text());
            }
        }
    }
}

#[test]
fn ecdsa_is_shown_to_whoever_can_verify_it() {
    let site = Site::with_both_certificates("");
    for version in ["-tls1_2", "-tls1_3"] {
        let tls = facts_of(&ask_site(&site, &[version]))["tls"].clone();
        assert!(tls["scheme"].as_str().unwrap_or_default().starts_with("ecdsa"), "{tls}");
    }
    // In TLS 1.2 the suites say it too.
    let rsa_suite = ask_site(&site, &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"]);
    let tls = facts_of(&rsa_suite)["tls"].clone();
    assert_eq!(tls["suite"], "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256");
}

#[test]
fn the_clients_order_decides_between_aes_and_chacha20() {
    let site = Site::new();
    for first in ["TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"] {
        let second =
            if first.contains("AES") { "TLS_CHACHA20_POLY1305_SHA256" } else { "TLS_AES_128_GCM_SHA256" };
        let output = ask_site(&site, &["-tls1_3", "-ciphersuites", &format!("{first}:{second}")]);
        assert_eq!(facts_of(&output)["tls"]["suite"], first);
    }
    for (first, second, name) in [
        (
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        ),
        (
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        ),
    ] {
        let output = ask_site(&site, &["-tls1_2", "-cipher", &format!("{first}:{second}")]);
        assert_eq!(facts_of(&output)["tls"]["suite"], name);
    }
}

#[test]
fn suites_without_forward_secrecy_or_aead_and_old_versions_are_refused() {
    let site = Site::with_both_certificates("");
    for options in [
        ["-tls1_2", "-cipher", "AES128-GCM-SHA256:@SECLEVEL=0"],
        ["-tls1_2", "-cipher", "ECDHE-RSA-AES128-SHA:@SECLEVEL=0"],
        ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-SHA384:@SECLEVEL=0"],
        ["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
        ["-tls1", "-cipher", "ALL:@SECLEVEL=0"],
    ] {
        let output = ask_site(&site, &options);
        assert!(!output.status.success(), "{options:?}: {}", output.text());
        assert!(output.stderr.contains("alert"), "{options:?}: {}", output.stderr);
    }
    site.assert_alive();
}

#[test]
fn a_lowest_version_of_1_3_refuses_1_2() {
    let site = Site::custom("tls.min_version = \"1.3\"\n", "", |setup| setup);
    assert!(!ask_site(&site, &["-tls1_2"]).status.success());
    assert_eq!(facts_of(&ask_site(&site, &["-tls1_3"]))["tls"]["version"], "TLS 1.3");
}

#[test]
fn alpn_is_agreed_on_or_refused() {
    let site = Site::new();
    // The server's preference is h2; a client with neither of the two is told so (RFC 7301 section 3.2).
    for (offer, agreed) in [("h2,http/1.1", "h2"), ("http/1.1,h2", "h2"), ("http/1.1", "http/1.1")] {
        let output = run(&mut s_client(&site.ca, &site.brisk, &["-alpn", offer, "-no_ign_eof"]), b"", LIMIT);
        assert!(output.stdout.contains(&format!("ALPN protocol: {agreed}")), "{offer}: {}", output.text());
    }
    let neither = ask_site(&site, &["-alpn", "spdy/3"]);
    assert!(neither.stderr.contains("no application protocol"), "{}", neither.text());
}

/// Three hosts whose answer is their name.
fn three_hosts(ca: &TestCa, keys: &str) -> Brisk {
    let leaf = |name: &str| ca.server(&[name]).issue();
    let (exact, wildcard, other) = (leaf("www.wild.test"), leaf("*.wild.test"), leaf("other.test"));
    let table = |name: &str, leaf: &Leaf| {
        let route = format!("[[host.route]]\npath = \"/\"\nrespond = {{ body = \"host {name}\" }}\n");
        host(&[name], &[leaf]) + &route
    };
    let hosts =
        [table("*.wild.test", &wildcard), table("www.wild.test", &exact), table("other.test", &other)]
            .concat();
    let hosts = hosts.replace("names = [\"other.test\"]", "names = [\"other.test\"]\ndefault = true");
    setup().config(&(base(keys) + &hosts)).start()
}

fn shown_to(ca: &TestCa, brisk: &Brisk, name: Option<&str>) -> Finished {
    let server_name = name.map_or(vec!["-noservername"], |name| vec!["-servername", name]);
    run(&mut s_client(ca, brisk, &[&server_name[..], &["-no_ign_eof"]].concat()), b"", LIMIT)
}

#[test]
fn the_certificate_follows_the_name() {
    let ca = TestCa::new();
    let brisk = three_hosts(&ca, "");
    for (name, certificate) in [
        (Some("www.wild.test"), "www.wild.test"),
        (Some("WWW.Wild.test"), "www.wild.test"),
        (Some("api.wild.test"), "*.wild.test"),
        (Some("a.b.wild.test"), "other.test"),
        (Some("unknown.test"), "other.test"),
        (None, "other.test"),
    ] {
        let output = shown_to(&ca, &brisk, name).success();
        assert!(output.contains(&format!("subject=CN = {certificate}\n")), "{name:?}: {output}");
    }
}

#[test]
fn an_unknown_name_is_refused_where_that_is_configured() {
    let ca = TestCa::new();
    let brisk = three_hosts(&ca, "server.unknown_host = \"refuse\"\n");
    let refused = shown_to(&ca, &brisk, Some("unknown.test"));
    assert!(refused.stderr.contains("unrecognized name"), "{}", refused.text());
    shown_to(&ca, &brisk, Some("api.wild.test")).success();
    // A client that sends no name is no stranger.
    shown_to(&ca, &brisk, None).success();
}

fn client_certificates(mode: &str) -> (Site, Leaf, Leaf) {
    let clients = TestCa::new();
    let tables = format!("client_certificates = {{ mode = {mode:?}, ca = \"clients.pem\" }}\n");
    let site = Site::custom("", &tables, |setup| setup.file("clients.pem", clients.root_pem()));
    let known = clients.client("alice").issue();
    let unknown = TestCa::new().client("mallory").key(LeafKey::EcdsaP256).issue();
    (site, known, unknown)
}

fn ask_as(site: &Site, version: &str, leaf: &Leaf) -> Finished {
    let file = |path: &std::path::Path| path.display().to_string();
    let (chain, key) = (file(&leaf.chain), file(&leaf.key));
    ask_site(site, &[version, "-cert", &chain, "-cert_chain", &chain, "-key", &key])
}

#[test]
fn a_required_client_certificate_is_verified() {
    let (site, known, unknown) = client_certificates("required");
    for version in ["-tls1_2", "-tls1_3"] {
        let facts = facts_of(&ask_as(&site, version, &known));
        assert!(facts["tls"]["client_subject"].as_str().unwrap_or_default().contains("alice"), "{facts}");
        for refused in [ask_site(&site, &[version]), ask_as(&site, version, &unknown)] {
            assert!(refused.stderr.contains("alert"), "{version}: {}", refused.text());
            assert!(!refused.stdout.contains("HTTP/1.1 200"), "{version}: {}", refused.text());
        }
    }
}

#[test]
fn an_optional_client_certificate_may_be_missing_but_not_wrong() {
    let (site, known, unknown) = client_certificates("optional");
    for version in ["-tls1_2", "-tls1_3"] {
        let facts = facts_of(&ask_as(&site, version, &known));
        assert!(facts["tls"]["client_subject"].as_str().unwrap_or_default().contains("alice"), "{facts}");
        assert!(facts_of(&ask_site(&site, &[version]))["tls"]["client_subject"].is_null());
        let refused = ask_as(&site, version, &unknown);
        assert!(refused.stderr.contains("alert"), "{version}: {}", refused.text());
    }
}

#[test]
fn a_renegotiation_is_refused() {
    let site = Site::new();
    let mut openssl = s_client(&site.ca, &site.brisk, &["-tls1_2", "-no_ign_eof"]);
    let output = run(&mut openssl, b"R\n", LIMIT);
    assert!(
        output.stderr.contains("no renegotiation") || output.stderr.contains("alert"),
        "{}",
        output.text()
    );
    site.assert_alive();
}

#[test]
fn a_client_with_rsa_key_exchange_only_is_counted_as_such() {
    let site = Site::with_both_certificates("");
    // The second client offers a suite with ephemeral keys too, which brisk does not have.
    for suites in ["AES128-GCM-SHA256:AES256-SHA", "AES128-GCM-SHA256:ECDHE-RSA-AES128-SHA"] {
        let output = ask(&site.ca, &site.brisk, &["-servername", NAME, "-tls1_2", "-cipher", suites]);
        assert!(!output.status.success(), "{}", output.text());
    }
    site.brisk.logged("\"outcome\":\"rsa-key-exchange\"");
    let failed = |outcome: &str| {
        site.brisk.metrics().sum("brisk_handshakes_failed_total", &[&*format!("outcome=\"{outcome}\"")])
    };
    wait_until("both failures", || {
        let other = failed("nothing-in-common") + failed("no-certificate");
        (failed("rsa-key-exchange") > 0.5 && failed("rsa-key-exchange") < 1.5 && other > 0.5).then_some(())
    });
}

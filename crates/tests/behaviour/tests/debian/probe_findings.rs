//! Findings of `brisk probe` on servers with one fault each.

use std::fs;

use brisk_behaviour::site::{LIMIT, NAMES};
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::run;
use serde_json::Value;

use crate::probe::probe;

/// The ids of the findings about an nginx with this chain and these directives, and the exit code.
fn found(
    ca: &TestCa,
    leaf: &Leaf,
    chain: &str,
    directives: &str,
    options: &str,
) -> (Vec<String>, Option<i32>) {
    let file = ca.unique_file("chain.pem");
    fs::write(&file, chain).expect("a chain file");
    let mut leaf = leaf.clone();
    leaf.chain = file;
    // Before 1.23.4 TLS 1.3 is not on by default.
    let versions = if directives.contains("ssl_protocols") { "" } else { "ssl_protocols TLSv1.2 TLSv1.3;" };
    let nginx = Nginx::https_with(&leaf, &format!("{versions} {directives}"));
    let finished = run(probe(ca, nginx.address().port(), "/1k", options).arg("--json"), b"", LIMIT);
    let report: Value =
        serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {finished:?}"));
    let id = |finding: &Value| finding["id"].as_str().expect("an id").to_owned();
    let ids = report["findings"].as_array().expect("findings").iter().map(id);
    // nginx has no compression of certificates, and its OpenSSL may have no ML-KEM.
    let own = ["uncompressed-chain", "not-post-quantum"];
    (ids.filter(|id| !own.contains(&id.as_str())).collect(), finished.status.code())
}

#[test]
fn each_fault_of_a_server_is_found_by_its_id_and_none_on_a_right_one() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let (right, alone, root) = (leaf.chain_pem.clone(), leaf.certificate_pem.as_str(), ca.root_pem());
    let with_root = format!("{right}{root}");
    let disordered = format!("{alone}{root}{}", ca.intermediate_pem());
    for (chain, directives, options, ids, code) in [
        (right.as_str(), "", "", &[][..], 0),
        (alone, "", "", &["not-trusted"], 9),
        (&with_root, "", "", &["useless-root"], 0),
        (&disordered, "", "", &["useless-root", "chain-order"], 0),
        (&right, "ssl_protocols TLSv1.2;", "", &["old-version"], 0),
        (&right, "ssl_protocols TLSv1.2;", "--tls 1.2", &[], 0),
        (&right, "ssl_session_tickets off; ssl_session_cache off;", "--tls 1.2", &["no-session"], 0),
        (&right, "ssl_session_tickets off; ssl_session_cache shared:s:1m;", "--tls 1.2", &[], 0),
        (&right, "return 301 https://elsewhere.test/;", "", &["redirect"], 0),
        (&right, "ssl_ecdh_curve secp521r1:secp384r1;", "", &["hello-retry"], 0),
    ] {
        let found = found(&ca, &leaf, chain, directives, options);
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        assert_eq!(found, (ids, Some(code)), "{directives} {options}");
    }
    // The certificate says that there is one between it and an authority.
    let leaf = ca.server(&NAMES).issuer_at("http://192.0.2.1/issuer").issue();
    let found = found(&ca, &leaf, &leaf.certificate_pem, "", "");
    assert_eq!(found, (vec!["missing-intermediate".to_owned()], Some(9)));
}

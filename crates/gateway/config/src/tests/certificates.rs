//! What is done for certificates: ranges, staple files, must-staple, folders.

use super::*;

/// A folder with `a.pem`, `a.key`, and a host of theirs with more keys for the certificate.
fn with(prepare: impl FnOnce(&TestCa, &Path) -> brisk_testkit::ca::Leaf, keys: &str) -> (TempDir, String) {
    let (folder, ca) = (folder(), TestCa::new());
    let leaf = prepare(&ca, folder.path());
    fs::copy(&leaf.chain, folder.path().join("a.pem")).expect("a copy");
    fs::copy(&leaf.key, folder.path().join("a.key")).expect("a copy");
    let text = format!("{LISTENER}{HOST}certificates = [{{ chain = \"a.pem\", key = \"a.key\"{keys} }}]\n");
    (folder, text)
}

#[test]
fn the_wait_for_staples_has_a_range() {
    refused(
        &format!("{LISTENER}[certificates]\nstaple_wait = \"2m\"\n{HOST}"),
        "brisk.toml:4:15: certificates.staple_wait: 2m is out of range: write 0ms to 1m",
    );
    let maintenance = accepted(&format!("{LISTENER}[certificates]\nstaple = false\n{HOST}"))
        .settings
        .certificates
        .maintenance;
    assert_eq!((maintenance.staples, maintenance.watches, maintenance.completes), (false, true, true));
}

#[test]
fn private_hosts_are_addresses_networks_and_names() {
    let with = |hosts: &str| format!("{LISTENER}[certificates]\nallow_private = [{hosts}]\n{HOST}");
    let resolved = accepted(&with("\"127.0.0.1\", \"10.0.0.0/8\", \"ocsp.internal\""));
    assert_eq!(resolved.settings.certificates.allow_private.len(), 3);
    refused(
        &with("\"http://ca.internal\""),
        "brisk.toml:4:18: certificates.allow_private[0]: \"http://ca.internal\" is neither an address, a network nor a host \
         name: write \"127.0.0.1\", \"10.0.0.0/8\" or \"ocsp.internal\"",
    );
}

#[test]
fn must_staple_needs_a_responder_or_a_file() {
    let (folder, text) = with(|ca, _| ca.server(&["localhost"]).must_staple().issue(), "");
    let message = checked(folder.path(), &text).expect_err("it has neither");
    assert_eq!(
        message,
        "brisk.toml:5:27: host[0].certificates[0].chain: a.pem: clients refuse the certificate of \"localhost\" without a \
         staple (must-staple, RFC 7633), but it names no OCSP responder, and there is no `staple` file: have one issued \
         without must-staple"
    );
    let named =
        |ca: &TestCa, _: &Path| ca.server(&["localhost"]).must_staple().ocsp_at("http://a.test").issue();
    let (folder, text) = with(named, "");
    assert!(checked(folder.path(), &text).is_ok());
    let (folder, text) = with(named, "");
    let off = text.replace("[[host]]", "[certificates]\nstaple = false\n[[host]]");
    let message = checked(folder.path(), &off).expect_err("it is off");
    assert!(message.contains("certificates.staple is false and there is no `staple` file"), "{message}");
}

#[test]
fn a_staple_file_that_is_none_is_named() {
    let garbage = |ca: &TestCa, folder: &Path| {
        fs::write(folder.join("a.ocsp"), "nothing").expect("written");
        ca.server(&["localhost"]).issue()
    };
    let (folder, text) = with(garbage, ", staple = \"a.ocsp\"");
    let message = checked(folder.path(), &text).expect_err("it is garbage");
    assert!(
        message.contains(
            "host[0].certificates[0].staple: a.ocsp: no staple for the certificate in a.pem: it is no OCSP response: "
        ),
        "{message}"
    );
}

#[test]
fn a_folder_of_certificates_has_to_be_there_and_an_empty_one_is_a_warning() {
    let text = format!("{LISTENER}[[host]]\nnames = [\"a.test\"]\ncertificate_folder = \"names\"\n");
    let folder = folder();
    let message = checked(folder.path(), &text).expect_err("there is none");
    assert_eq!(
        message,
        "brisk.toml:5:22: host[0].certificate_folder: cannot read names: No such file or directory (os error 2)"
    );
    fs::create_dir(folder.path().join("names")).expect("a folder");
    let warnings = checked(folder.path(), &text).expect("it is there").warnings;
    assert!(warnings.iter().any(|warning| warning.contains("has no NAME.pem yet")), "{warnings:?}");
}

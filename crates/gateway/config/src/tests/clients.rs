//! `client_certificates` of a host, and the certificate shown to an upstream.

use std::os::unix::fs::PermissionsExt;

use brisk_answer::settings::ClientCert;
use brisk_testkit::ca::Leaf;
use brisk_tls::settings::UnknownRevocation;

use super::*;

const HOUR: Duration = Duration::from_hours(1);

fn host(clients: &str) -> String {
    format!(
        "{LISTENER}{HOST}client_certificates = {{ mode = \"required\", ca = \"clients.pem\"{clients} }}\n"
    )
}

/// A folder with the files of `ca` that the tests name.
fn folder_of(ca: &TestCa) -> TempDir {
    let folder = folder();
    fs::write(folder.path().join("clients.pem"), ca.root_pem()).expect("written");
    fs::write(folder.path().join("clients.crl"), ca.crls(&[], HOUR).pem()).expect("written");
    folder
}

#[test]
fn revocation_lists_are_read_and_watched() {
    let ca = TestCa::new();
    let folder = folder_of(&ca);
    for (mode, unknown) in [
        ("", UnknownRevocation::Refuse),
        (", crl_mode = \"strict\"", UnknownRevocation::Refuse),
        (", crl_mode = \"lenient\"", UnknownRevocation::Accept),
    ] {
        let text = host(&format!(", crl = [\"clients.crl\"]{mode}"));
        let resolved = checked(folder.path(), &text).expect("lists that can be read");
        assert_eq!(resolved.warnings, [""; 0]);
        let clients = resolved.settings.service.hosts[0].tls.demands.clients().expect("demands");
        let revocation = clients.revocation.as_ref().expect("lists");
        assert_eq!((revocation.lists.len(), revocation.unknown), (2, unknown));
        assert!(resolved.settings.server.files.contains(&folder.path().join("clients.crl")));
    }
}

#[test]
fn revocation_lists_that_are_none_are_refused() {
    let ca = TestCa::new();
    let folder = folder_of(&ca);
    for (keys, expected) in [
        (
            "crl = []",
            "brisk.toml:5:70: host[0].client_certificates.crl: no file: write at least one, or leave `crl` out",
        ),
        (
            "crl_mode = \"lenient\"",
            "brisk.toml:5:75: host[0].client_certificates.crl_mode: has no effect without `crl`",
        ),
        (
            "crl = [\"no.crl\"]",
            "brisk.toml:5:71: host[0].client_certificates.crl[0]: cannot read no.crl: No such file or directory (os \
             error 2)",
        ),
        (
            "crl = [\"clients.pem\"]",
            "brisk.toml:5:71: host[0].client_certificates.crl[0]: clients.pem: no revocation list to use: there is none, \
             neither in DER nor between -----BEGIN X509 CRL----- lines",
        ),
        (
            "crl = [\"clients.crl\"], crl_mode = \"off\"",
            "brisk.toml:5:98: host[0].client_certificates.crl_mode: \"off\" is not known here; known here: `strict`, \
             `lenient`",
        ),
    ] {
        let message = checked(folder.path(), &host(&format!(", {keys}"))).expect_err(keys);
        assert_eq!(message, expected);
    }
}

#[test]
fn revocation_lists_that_keep_clients_out_are_a_warning() {
    let ca = TestCa::new();
    let folder = folder_of(&ca);
    let warnings = |mode: &str| {
        let text = host(&format!(", crl = [\"clients.crl\"], crl_mode = {mode:?}"));
        let warnings = checked(folder.path(), &text).expect("lists that can be read").warnings;
        warnings.join("\n").replace(&format!("{}/", folder.path().display()), "")
    };
    let write = |lists: &str| fs::write(folder.path().join("clients.crl"), lists).expect("written");
    write(&ca.crls(&[], HOUR).intermediate_pem);
    assert_eq!(warnings("lenient"), "");
    assert_eq!(
        warnings("strict"),
        "clients.pem: no list in `crl` is of \"CN=brisk test root\": all certificates below it are refused, unless \
         crl_mode = \"lenient\""
    );
    write(&ca.expired_crls(&[]).pem());
    let expired = warnings("lenient");
    let right = "clients.crl: the revocation list of \"CN=brisk test intermediate\" expired on ";
    assert!(expired.starts_with(right) && expired.ends_with("UTC; fetch the current one"), "{expired}");
}

#[test]
fn certificates_of_clients_go_on_where_the_operator_says_so() {
    let folder = folder_of(&TestCa::new());
    for (forward, keep, expected) in [
        ("", false, ClientCert::None),
        (", forward = \"no\"", false, ClientCert::None),
        (", forward = \"certificate\"", true, ClientCert::Certificate),
        (", forward = \"chain\"", true, ClientCert::Chain),
    ] {
        let settings = checked(folder.path(), &host(forward)).expect("a right file").settings;
        let host = &settings.service.hosts[0];
        assert_eq!((host.client_certificates, host.tls.demands.keeps_certificates()), (expected, keep));
    }
    assert_eq!(
        checked(folder.path(), &host(", forward = \"all\"")).expect_err("an unknown word"),
        "brisk.toml:5:74: host[0].client_certificates.forward: \"all\" is not known here; known here: `no`, \
         `certificate`, `chain`"
    );
}

fn upstream(leaf: &Leaf, key: &Path) -> String {
    format!(
        "{LISTENER}unknown_host = \"refuse\"\n{HOST}[[host.route]]\npath = \"/\"\nupstream = \"app\"\n[upstream.app]\n\
         servers = [\"https://127.0.0.1:1\"]\ntls.certificate = {{ chain = {:?}, key = {key:?} }}\n",
        leaf.chain
    )
}

#[test]
fn a_certificate_for_upstreams_fits_its_key_and_is_watched() {
    let ca = TestCa::new();
    let (leaf, other) = (ca.client("brisk").issue(), ca.client("other").issue());
    let resolved = accepted(&upstream(&leaf, &leaf.key));
    assert_eq!(resolved.warnings, [""; 0]);
    assert!([&leaf.chain, &leaf.key].iter().all(|file| resolved.settings.server.files.contains(file)));
    let message = checked(folder().path(), &upstream(&leaf, Path::new("no.key"))).expect_err("no key");
    assert_eq!(
        message.split_once(": ").map(|(_, what)| what),
        Some("upstream.app.tls.certificate.key: cannot read no.key: No such file or directory (os error 2)")
    );
    let message = checked(folder().path(), &upstream(&leaf, &other.key)).expect_err("a stranger's key");
    assert!(message.contains(": upstream.app.tls.certificate.key: the key in "), "{message}");
    fs::set_permissions(&leaf.key, fs::Permissions::from_mode(0o644)).expect("a file of ours");
    let (warnings, key) = (accepted(&upstream(&leaf, &leaf.key)).warnings, leaf.key.display());
    assert_eq!(
        warnings,
        [format!("{key}: everyone on this machine may read it; `chmod o= {key}` ends that")]
    );
}

//! Links with a signature and an expiry.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use brisk_behaviour::site::{NAME, Site};
use tempfile::TempDir;

const NEW: &str = "a secret of more than sixteen bytes";
const FORMER: &str = "another secret of this length";

/// A link whose text is signed with `secret`, in hexadecimal.
fn link(secret: &str, path: &str, text: &str, expires: u64) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = hmac::sign(&key, text.as_bytes());
    let digits: Vec<_> = signature.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{path}?expires={expires}&signature={}", digits.concat())
}

#[test]
fn a_link_opens_its_path_until_its_expiry() {
    let folder = TempDir::with_prefix("brisk-test-links-").expect("a temporary folder");
    let secret = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, format!("{text}\n")).expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("permissions");
        file
    };
    let keys = [secret("new", NEW), secret("former", FORMER)];
    let site = Site::with(&format!(
        "\n[[host.route]]\npath = \"/files/\"\nrespond = {{ body = \"open\" }}\nsigned_links = {{ keys = {keys:?} }}\n\
         \n[[host.route]]\npath = \"/mine/\"\nrespond = {{ body = \"open\" }}\n\
         signed_links = {{ keys = {keys:?}, text = \"{{expires}}{{decoded_path}}{{client.address}}\" }}\n"
    ));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    let (later, before) = (now + 3600, now - 1);
    let open = |secret| link(secret, "/files/a%20b", &format!("{later}/files/a b"), later);
    let mut connection = site.connect();
    let mut status = |target: &str| connection.get(NAME, target).status();
    for (target, expected) in [
        (open(NEW), 200),
        (open(FORMER), 200),
        (open(NEW).replace("%20", " ").replace(' ', "%2520"), 403),
        (open(NEW).replace("/files/", "/files/%2e/"), 200),
        (open(NEW).replace("a%20b", "a%20b%2e"), 403),
        (open("a third secret of this length"), 403),
        (open(NEW).replace(&later.to_string(), &(later + 1).to_string()), 403),
        (link(NEW, "/files/a", &format!("{before}/files/a"), before), 410),
        (link(NEW, "/files/a", "/files/a", 0).replace("expires=0&", ""), 403),
        ("/files/a".to_owned(), 403),
        (link(NEW, "/mine/a", &format!("{later}/mine/a127.0.0.1"), later), 200),
        (link(NEW, "/mine/a", &format!("{later}/mine/a127.0.0.2"), later), 403),
    ] {
        assert_eq!(status(&target), expected, "{target}");
    }
    site.brisk.logged("link-signature");
    site.brisk.logged("link-expired");
}

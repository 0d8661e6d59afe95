//! Any text as a configuration: it is read or refused with a message for each error, and never more than that.

use brisk_testkit::fuzz::drive;

use super::{checked, folder};

const WORDS: &[&[u8]] = &[
    b"[server]\n",
    b"[[host]]\n",
    b"[[host.route]]\n",
    b"[upstream.app]\n",
    b"[tls]\n",
    b"https = [\"127.0.0.1:443\"]\n",
    b"names = [\"a.example\"]\n",
    b"path = \"/\"\n",
    b"upstream = \"app\"\n",
    b"servers = [\"http://127.0.0.1:1\"]\n",
    b"early_data = \"safe\"\n",
    b"respond = { status = 200 }\n",
    b"redirect = \"https://{host}{path}\"\n",
    b"unknown_host = \"refuse\"\n",
    b"\"10s\"",
    b"\"1KiB\"",
    b" = ",
    b"{ }",
    b"[]",
    b"-1",
    b"1e9",
    b"'''",
];

#[test]
fn fuzz_configuration() {
    let folder = folder();
    drive("configuration", WORDS, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        // Nothing of the machine is read that a seed does not name.
        if text.contains("/dev/") || text.contains("/proc/") {
            return;
        }
        if let Err(message) = checked(folder.path(), &text) {
            assert!(!message.trim().is_empty());
            assert!(message.lines().all(|line| line.len() < 2000 + text.len()), "{message}");
        }
    });
}

//! Subversion by Apache's `mod_dav_svn`.

use std::fs;
use std::path::Path;

use brisk_behaviour::site::{LIMIT, Site};
use brisk_testkit::apache::Apache;
use brisk_testkit::process::{command, run};
use tempfile::TempDir;

use super::{in_front_of, snippet};

/// A client with a folder of its own for settings and working copies.
struct Client<'s> {
    site: &'s Site,
    folder: TempDir,
}

impl Client<'_> {
    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}/svn{path}", self.site.brisk.https().port())
    }

    fn svn(&self, folder: &str, words: &[&str]) -> String {
        let authorities =
            format!("servers:global:ssl-authority-files={}", self.site.ca.root_file().display());
        let mut svn = command("svn");
        svn.args(["--non-interactive", "--config-option", &authorities, "--config-dir"]);
        svn.arg(self.folder.path().join("settings")).args(words);
        svn.current_dir(self.folder.path().join(folder)).env("LC_ALL", "C.UTF-8");
        run(&mut svn, b"", LIMIT).success()
    }
}

fn repository(folder: &Path) {
    let create = "umask 0 && exec svnadmin create repository";
    run(command("sh").args(["-c", create]).current_dir(folder), b"", LIMIT).success();
}

#[test]
fn subversion_checks_out_commits_and_moves_behind_apache() {
    let title = "Subversion behind Apache";
    let apache = Apache::start(&["dav", "dav_svn"], snippet(title, "apache"), repository);
    let site = in_front_of(&apache, title);
    let client = Client { site: &site, folder: TempDir::new().expect("a temporary folder") };
    client.svn(".", &["mkdir", &client.url("/trunk"), "--message", "begin"]);
    client.svn(".", &["checkout", &client.url("/trunk"), "copy"]);
    let copy = client.folder.path().join("copy");
    fs::create_dir(copy.join("a folder")).expect("a folder");
    fs::write(copy.join("a folder/one.txt"), "one\n").expect("a file");
    fs::write(copy.join("large"), vec![b'x'; 5 << 20]).expect("a file");
    client.svn("copy", &["add", "a folder", "large"]);
    client.svn("copy", &["commit", "--message", "files"]);
    // Within the working copy, and at the server.
    client.svn("copy", &["update"]);
    client.svn("copy", &["mv", "a folder/one.txt", "zwei.txt"]);
    client.svn("copy", &["mv", "a folder", "b"]);
    client.svn("copy", &["commit", "--message", "moves"]);
    client.svn(".", &["mv", &client.url("/trunk/large"), &client.url("/trunk/b/large"), "--message", "move"]);
    client.svn(".", &["copy", &client.url("/trunk"), &client.url("/v1"), "--message", "tag"]);
    client.svn("copy", &["update"]);
    assert_eq!(fs::read(copy.join("b/large")).expect("a file").len(), 5 << 20);
    assert_eq!(fs::read_to_string(copy.join("zwei.txt")).expect("a file"), "one\n");
    let mut names: Vec<_> =
        client.svn(".", &["list", "--recursive", &client.url("/v1")]).lines().map(str::to_owned).collect();
    names.sort();
    assert_eq!(names, ["b/", "b/large", "zwei.txt"]);
    let log = client.svn("copy", &["log", "--verbose", "zwei.txt"]);
    assert!(log.contains("A /trunk/zwei.txt (from /trunk/a folder/one.txt:2)"), "{log}");
}

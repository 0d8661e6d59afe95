//! The hook that checks commit messages, `tools/commit-msg`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use brisk_testkit::process::{Finished, TIMEOUT, command, run};
use tempfile::TempDir;

/// A repository without commits, and `lines` lines about to be committed.
fn repository(lines: usize) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let git = |arguments: &[&str]| {
        run(command("git").args(arguments).current_dir(folder.path()), b"", TIMEOUT).success();
    };
    git(&["init", "--quiet"]);
    fs::write(folder.path().join("file"), "line\n".repeat(lines)).expect("a file");
    git(&["add", "file"]);
    folder
}

/// The result of the hook for `message` in `repository`.
fn check(repository: &TempDir, message: &str) -> Finished {
    let file = repository.path().join("message");
    fs::write(&file, message).expect("a message");
    let hook = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tools/commit-msg");
    let mut hook = Command::new(hook);
    run(hook.arg(file).current_dir(repository.path()).stdin(Stdio::null()), b"", TIMEOUT)
}

#[test]
fn a_subject_names_a_crate_and_begins_with_a_verb() {
    let repository = repository(1);
    for good in [
        "session: reject tickets from the future",
        "cli, server: pass descriptors on",
        "keys-pkcs11: process slots in order\n\nThe reason.\n",
        "tls: suppress a second alert",
        "Revert \"session: reject tickets\"",
    ] {
        let finished = check(&repository, good);
        assert!(finished.status.success(), "{good}: {}", finished.text());
    }
    for (wrong, reason) in [
        ("reject tickets", "must have the form"),
        ("session: Reject tickets", "must have the form"),
        ("session: rejects tickets", "no imperative"),
        ("session: rejecting tickets", "no imperative"),
        ("session: the tickets are rejected", "no verb"),
        (&format!("session: reject {}", "tickets ".repeat(9)), "at most 72"),
    ] {
        let finished = check(&repository, wrong);
        assert!(
            !finished.status.success() && finished.text().contains(reason),
            "{wrong}: {}",
            finished.text()
        );
    }
}

#[test]
fn more_than_fifty_lines_need_a_body() {
    let subject = "session: reject tickets\n";
    let with_body = "session: reject tickets\n\nClocks differ.\n# a comment\n";
    assert!(check(&repository(50), subject).status.success());
    let large = repository(51);
    let refused = check(&large, "session: reject tickets\n\n# a comment of git\n");
    assert!(!refused.status.success() && refused.text().contains("a body"), "{}", refused.text());
    assert!(check(&large, with_body).status.success());
    // The diff of `git commit --verbose` is no body.
    let scissors = format!(
        "{subject}# ------------------------ >8 ------------------------\ndiff --git a/file b/file\n"
    );
    assert!(!check(&large, &scissors).status.success());
}

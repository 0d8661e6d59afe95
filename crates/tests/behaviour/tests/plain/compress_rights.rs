//! `brisk compress` in a folder that another user can change at any time: the copies give nobody more rights than the
//! files, and no file outside of the folder is read or written.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::LIMIT;
use brisk_testkit::process::{Finished, run};
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Runs of `brisk compress` while files are exchanged.
const RUNS: usize = 150;

fn compress(folder: &Path) -> Finished {
    let mut brisk = Command::new(brisk_program());
    run(brisk.args(["compress", "--coding", "gzip"]).arg(folder), b"", LIMIT)
}

/// Compresses `folder` repeatedly while another thread exchanges the two names, until `is_clean` is false after a run.
fn compress_while_exchanging(folder: &Path, one: &Path, other: &Path, is_clean: impl Fn() -> bool) {
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).expect("exchanged");
            }
        });
        let stays_clean = (0..RUNS).all(|_| {
            // It may refuse a name that changes; the files that it wrote count.
            compress(folder);
            is_clean()
        });
        ends.store(true, Ordering::Relaxed);
        assert!(stays_clean, "another folder was read or written");
    });
}

/// Whether the copy `path`, which is removed, is not one of the secret, which is far longer than the public file.
fn is_no_secret(path: &Path) -> bool {
    let length = fs::metadata(path).map_or(0, |copy| copy.len());
    let _ = fs::remove_file(path);
    length < 200
}

fn secret() -> String {
    let line = |number: i32| format!("secret {number}\n");
    (0..10_000).map(line).collect::<Vec<_>>().concat()
}

#[test]
fn copies_have_the_owner_and_the_rights_of_their_files_and_never_setuid() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, mode) in [("a.js", 0o6777), ("b.js", 0o1640), ("c.js", 0o600)] {
        let file = folder.path().join(name);
        fs::write(&file, "text ".repeat(1000)).expect("written");
        if rustix::process::geteuid().is_root() {
            chown(&file, Some(12345), Some(12346)).expect("given away");
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("a mode");
    }
    compress(folder.path()).success();
    for (name, mode) in [("a.js", 0o666), ("b.js", 0o640), ("c.js", 0o600)] {
        let (file, copy) = (folder.path().join(name), folder.path().join(format!("{name}.gz")));
        let (file, copy) = (fs::metadata(file).expect("a file"), fs::metadata(copy).expect("a copy"));
        assert_eq!(copy.mode() & 0o7777, mode, "{name}");
        assert_eq!((copy.uid(), copy.gid()), (file.uid(), file.gid()), "{name}");
    }
    // A copy with more rights, as earlier versions made them, is made again.
    let copy = folder.path().join("a.js.gz");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o6777)).expect("a mode");
    let again = compress(folder.path()).success();
    assert!(again.starts_with("1 copies made"), "{again}");
    assert_eq!(fs::metadata(copy).expect("a copy").mode() & 0o7777, 0o666);
}

#[test]
fn a_file_that_is_exchanged_with_a_link_discloses_no_other_file() {
    let (folder, outside) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (file, link) = (folder.path().join("a.js"), folder.path().join(".link"));
    fs::write(outside.path().join("secret.js"), secret()).expect("written");
    fs::write(&file, "text ".repeat(200)).expect("written");
    symlink(outside.path().join("secret.js"), &link).expect("a link");
    compress_while_exchanging(folder.path(), &file, &link, || is_no_secret(&folder.path().join("a.js.gz")));
}

#[test]
fn a_folder_that_is_exchanged_with_a_link_leads_to_no_other_folder() {
    let (folder, outside) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (inner, link) = (folder.path().join("inner"), folder.path().join(".link"));
    fs::create_dir(&inner).expect("a folder");
    for name in ["a.js", "b.js", "c.js"] {
        fs::write(outside.path().join(name), secret()).expect("written");
        fs::write(inner.join(name), "text ".repeat(200)).expect("written");
    }
    symlink(outside.path(), &link).expect("a link");
    compress_while_exchanging(folder.path(), &inner, &link, || {
        fs::read_dir(outside.path()).expect("a folder").count() == 3
            && [&inner, &link].iter().all(|folder| is_no_secret(&folder.join("a.js.gz")))
    });
}

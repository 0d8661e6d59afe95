//! `brisk compress`: writes compressed copies beside the files of a folder, for routes with `precompressed`.

mod folder;

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Result, bail};
use brisk_coding::{Coding, Encoder};
use rustix::fs::FileType;
use rustix::process::geteuid;

use self::folder::Folder;
use crate::args::CompressArgs;

/// Extensions of compressible files: text, and formats that compress as well as text.
const ENDINGS: [&str; 34] = [
    "atom",
    "bmp",
    "cjs",
    "css",
    "csv",
    "eot",
    "geojson",
    "htm",
    "html",
    "ico",
    "ics",
    "js",
    "json",
    "jsonld",
    "map",
    "md",
    "mjs",
    "otf",
    "rss",
    "rtf",
    "svg",
    "toml",
    "topojson",
    "ttf",
    "tsv",
    "txt",
    "vcf",
    "vtt",
    "wasm",
    "webmanifest",
    "xhtml",
    "xml",
    "yaml",
    "yml",
];

/// Minimum size of a compressed file, in bytes; the gain for shorter files is too small.
const LEAST: u64 = 512;

/// Maximum size of a compressed file, in bytes: files are read into memory as a whole.
const MOST: u64 = 256 << 20;

/// Counts of each [`Outcome`] for the summary.
#[derive(Debug, Default)]
struct Totals {
    made: usize,
    current: usize,
    removed: usize,
    useless: usize,
    bytes_in: u64,
    bytes_out: u64,
}

/// Result for one copy.
enum Outcome {
    Made {
        from: u64,
        to: u64,
    },
    Current,
    /// The copy would be no shorter than the file.
    Useless,
}

/// Maximum depth of folders. Each level has an open descriptor.
const DEEPEST: usize = 100;

/// Maximum number of [`Job`]s that wait for a thread, which limits the open descriptors.
const WAITING: usize = 64;

/// A copy to write.
struct Job {
    folder: Arc<Folder>,
    file: OsString,
    coding: Coding,
}

/// [`Totals`] and failures of all threads.
#[derive(Default)]
struct Results(Mutex<(Totals, Vec<String>)>);

impl Results {
    fn update(&self, change: impl FnOnce(&mut Totals)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).0);
    }

    fn fail(&self, path: &Path, error: &io::Error) {
        let failure = format!("{}: {error}", path.display());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.push(failure);
    }
}

/// Writes missing and outdated copies, with one thread per core. Continues after a failure, and lists all failures at the
/// end.
pub(crate) fn run(args: &CompressArgs) -> Result<()> {
    let folder = &args.folder;
    if !folder.is_dir() {
        let what = if folder.exists() { "is not a folder" } else { "does not exist" };
        bail!("{} {what}: name the folder that a route has as `static`", folder.display());
    }
    let results = Results::default();
    let (jobs, waiting) = sync_channel(WAITING);
    // A receiver of `std` has one owner: the threads take it in turns.
    let waiting = Mutex::new(waiting);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| copy_all(&waiting, &results));
        }
        // Dropped at the end of this closure, which ends the threads: they receive until there is no sender.
        let walk = Walk { codings: args.codings(), jobs, results: &results };
        match Folder::open(folder) {
            Ok(open) => walk.folder(&Arc::new(open), 0),
            Err(error) => results.fail(folder, &error),
        }
    });
    let (totals, failed) = results.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{}", totals.summary());
    if failed.is_empty() { Ok(()) } else { bail!("not compressed:\n  {}", failed.join("\n  ")) }
}

fn copy_all(waiting: &Mutex<Receiver<Job>>, results: &Results) {
    loop {
        let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { folder, file, coding }) = job else { return };
        match copy(&folder, &file, coding) {
            Ok(outcome) => results.update(|totals| totals.count(&outcome)),
            // One file must not keep the others from their copies: all failures are listed at the end.
            Err(error) => results.fail(&folder.path.join(file), &error),
        }
    }
}

/// The search for files to compress.
struct Walk<'a> {
    codings: Vec<Coding>,
    jobs: SyncSender<Job>,
    results: &'a Results,
}

impl Walk<'_> {
    /// Sends the files of `folder` and its subfolders as [`Job`]s to the threads and removes orphaned copies. Skips symbolic
    /// links, and hidden files, which are not served. A folder deeper than [`DEEPEST`] is
    /// a failure.
    fn folder(&self, folder: &Arc<Folder>, depth: usize) {
        let entries = match folder.entries() {
            Ok(entries) => entries,
            Err(error) => return self.results.fail(&folder.path, &error),
        };
        for entry in entries {
            let is_hidden = brisk_answer::is_hidden_name(entry.name.as_encoded_bytes());
            let handled = match entry.kind {
                _ if is_hidden => Ok(()),
                FileType::Directory if depth == DEEPEST => {
                    Err(io::Error::other(format!("deeper than {DEEPEST} folders: compress it by itself")))
                }
                FileType::Directory => {
                    folder.subfolder(&entry.name).map(|inner| self.folder(&Arc::new(inner), depth + 1))
                }
                FileType::RegularFile => self.file(folder, &entry.name),
                _ => Ok(()),
            };
            if let Err(error) = handled {
                self.results.fail(&folder.path.join(entry.name), &error);
            }
        }
    }

    fn file(&self, folder: &Arc<Folder>, name: &OsStr) -> io::Result<()> {
        if is_text(Path::new(name)) {
            if (LEAST..=MOST).contains(&folder.metadata(name)?.len()) {
                for coding in &self.codings {
                    let job = Job { folder: Arc::clone(folder), file: name.to_owned(), coding: *coding };
                    // The threads receive until the sender is dropped.
                    let _ = self.jobs.send(job);
                }
            }
        } else if is_orphan(folder, Path::new(name)) {
            folder.remove(name)?;
            self.results.update(|totals| totals.removed += 1);
        }
        Ok(())
    }
}

fn is_text(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ENDINGS.iter().any(|known| known.eq_ignore_ascii_case(ending)))
}

/// Whether a file is a copy whose original is gone: `page.html.br` without `page.html`.
fn is_orphan(folder: &Folder, name: &Path) -> bool {
    let ending = name.extension().and_then(|ending| ending.to_str());
    let is_copy = ending.is_some_and(|ending| Coding::ALL.iter().any(|coding| coding.extension() == ending));
    let original = name.with_extension("");
    // Only if the original is missing: one that cannot be examined is no reason to remove its copy.
    let is_gone =
        || folder.metadata(original.as_os_str()).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    is_copy && is_text(&original) && is_gone()
}

fn copy(folder: &Folder, name: &OsStr, coding: Coding) -> io::Result<Outcome> {
    let (file, before) = folder.file(name)?;
    let mut target = name.to_owned();
    target.push(".");
    target.push(coding.extension());
    if folder.metadata(&target).is_ok_and(|copy| is_current(&before, &copy)) {
        return Ok(Outcome::Current);
    }
    let mut text = Vec::new();
    // One byte more, so that a file that grows meanwhile differs from its length and is refused below.
    file.take(MOST + 1).read_to_end(&mut text)?;
    let mut output = Vec::new();
    let level = if coding == Coding::Zstd { 19 } else { *coding.levels().end() };
    Encoder::for_files(coding, level).write_whole(&text, &mut output).map_err(io::Error::other)?;
    if output.len() >= text.len() {
        // An old copy would otherwise be served if the clock was set back: it would seem to be newer than the file.
        return match folder.remove(&target) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(Outcome::Useless),
        };
    }
    // The inode too: a deployment may replace a file by one of the same length and time.
    let is_unchanged = |now: &Metadata| {
        let version = |file: &Metadata| (file.ino(), file.len(), file.mtime(), file.mtime_nsec());
        version(now) == version(&before) && text.len() as u64 == before.len()
    };
    folder.replace(&target, &output, &before, || match folder.metadata(name) {
        Ok(now) if is_unchanged(&now) => Ok(()),
        _ => Err(io::Error::other("changed while it was compressed: run brisk compress again")),
    })?;
    Ok(Outcome::Made { from: text.len() as u64, to: output.len() as u64 })
}

/// Whether a copy is current: the copy has the modification time of its file. Equality instead of "newer", because a
/// deployment may replace a file with an older one. Copies with bits for execution or, for root, of another owner are of
/// an earlier version and are made again.
fn is_current(file: &Metadata, copy: &Metadata) -> bool {
    let has_rights = copy.mode() & 0o7111 == 0 && (copy.uid() == file.uid() || !geteuid().is_root());
    let has_time = file.modified().is_ok_and(|time| copy.modified().is_ok_and(|other| time == other));
    copy.is_file() && has_rights && has_time
}

impl Totals {
    fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Made { from, to } => {
                self.made += 1;
                self.bytes_in += from;
                self.bytes_out += to;
            }
            Outcome::Current => self.current += 1,
            Outcome::Useless => self.useless += 1,
        }
    }

    fn summary(&self) -> String {
        let share = (100 * self.bytes_out).checked_div(self.bytes_in).unwrap_or(0);
        let mut parts = vec![
            format!("{} copies made ({} to {} bytes, {share} %)", self.made, self.bytes_in, self.bytes_out),
            format!("{} were current", self.current),
        ];
        if self.useless > 0 {
            parts.push(format!("{} would be no shorter than their files", self.useless));
        }
        if self.removed > 0 {
            parts.push(format!("{} of files that are gone removed", self.removed));
        }
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_or_folder_that_became_a_link_since_the_search_is_not_read() {
        let outside = tempfile::tempdir().expect("a folder");
        let secret = outside.path().join("secret.js");
        fs::write(&secret, "secret ".repeat(1000)).expect("written");
        let inside = tempfile::tempdir().expect("a folder");
        symlink(&secret, inside.path().join("a.js")).expect("a link");
        symlink(outside.path(), inside.path().join("sub")).expect("a link");
        let folder = Folder::open(inside.path()).expect("a folder");
        assert!(copy(&folder, OsStr::new("a.js"), Coding::Gzip).is_err());
        assert!(folder.subfolder(OsStr::new("sub")).is_err());
        assert_eq!(fs::read_dir(inside.path()).expect("a folder").count(), 2, "nothing was written");
    }

    #[test]
    fn a_link_in_place_of_a_copy_is_replaced_and_its_target_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let other = folder.path().join("other");
        fs::write(&other, "other").expect("written");
        fs::write(folder.path().join("a.js"), "text ".repeat(1000)).expect("written");
        symlink(&other, folder.path().join("a.js.gz")).expect("a link");
        let open = Folder::open(folder.path()).expect("a folder");
        assert!(matches!(copy(&open, OsStr::new("a.js"), Coding::Gzip), Ok(Outcome::Made { .. })));
        assert!(fs::symlink_metadata(folder.path().join("a.js.gz")).expect("a copy").is_file());
        assert_eq!(fs::read_to_string(other).expect("a file"), "other");
    }
}

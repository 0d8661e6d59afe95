//! `brisk compress`: writes compressed copies beside the files of a folder, for routes with `precompressed`.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Result, anyhow, bail};
use brisk_coding::{Coding, Encoder};

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

/// Counts for the summary.
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

/// Writes missing and outdated copies, with one thread per core. Continues after a failure, and lists all failures at the
/// end.
pub(crate) fn run(args: &CompressArgs) -> Result<()> {
    let folder = &args.folder;
    if !folder.is_dir() {
        let what = if folder.exists() { "is not a folder" } else { "does not exist" };
        bail!("{} {what}: name the folder that a route has as `static`", folder.display());
    }
    let mut files = Vec::new();
    let mut totals = Totals::default();
    walk(folder, &args.codings(), &mut files, &mut totals)?;
    let totals = Mutex::new(totals);
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from).min(files.len().max(1));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((file, coding)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match copy(file, *coding) {
                        Ok(outcome) => totals.lock().unwrap_or_else(PoisonError::into_inner).count(&outcome),
                        Err(error) => failed
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(format!("{}: {error}", file.display())),
                    }
                }
            });
        }
    });
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{}", totals.summary());
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failed.is_empty() { Ok(()) } else { bail!("not compressed:\n  {}", failed.join("\n  ")) }
}

/// Collects the files to compress and removes orphaned copies. Skips symbolic links, and hidden files, which are not served.
fn walk(
    folder: &Path,
    codings: &[Coding],
    files: &mut Vec<(PathBuf, Coding)>,
    totals: &mut Totals,
) -> Result<()> {
    let unread = |error| anyhow!("cannot read {}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(unread)? {
        let entry = entry.map_err(unread)?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(unread)?);
        let name = entry.file_name();
        let is_hidden = name.as_encoded_bytes().starts_with(b".") && name != ".well-known";
        if is_hidden {
            continue;
        }
        if kind.is_dir() {
            walk(&path, codings, files, totals)?;
        } else if kind.is_file() && is_text(&path) {
            let length = entry.metadata().map_err(unread)?.len();
            if (LEAST..=MOST).contains(&length) {
                files.extend(codings.iter().map(|coding| (path.clone(), *coding)));
            }
        } else if kind.is_file() && is_orphan(&path) {
            fs::remove_file(&path).map_err(|error| anyhow!("cannot remove {}: {error}", path.display()))?;
            totals.removed += 1;
        }
    }
    Ok(())
}

fn is_text(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ENDINGS.iter().any(|known| known.eq_ignore_ascii_case(ending)))
}

/// Whether a file is a copy whose original is gone: `page.html.br` without `page.html`.
fn is_orphan(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    let is_copy = ending.is_some_and(|ending| Coding::ALL.iter().any(|coding| coding.extension() == ending));
    let original = path.with_extension("");
    is_copy && is_text(&original) && !original.exists()
}

fn copy(file: &Path, coding: Coding) -> io::Result<Outcome> {
    let before = fs::metadata(file)?;
    let target = beside(file, coding);
    if fs::symlink_metadata(&target).is_ok_and(|copy| is_current(&before, &copy)) {
        return Ok(Outcome::Current);
    }
    let mut text = Vec::with_capacity(before.len() as usize);
    File::open(file)?.take(MOST + 1).read_to_end(&mut text)?;
    let mut output = Vec::new();
    let level = if coding == Coding::Zstd { 19 } else { *coding.levels().end() };
    Encoder::for_files(coding, level).write_whole(&text, &mut output).map_err(io::Error::other)?;
    if output.len() >= text.len() {
        // An old copy would otherwise be served if the clock was set back: it would seem to be newer than the file.
        return match fs::remove_file(&target) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(Outcome::Useless),
        };
    }
    write(&target, &output, &before, file)?;
    Ok(Outcome::Made { from: text.len() as u64, to: output.len() as u64 })
}

fn beside(file: &Path, coding: Coding) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(coding.extension());
    name.into()
}

/// Whether a copy is current: the copy has the modification time of its file. Equality instead of "newer", because a
/// deployment may replace a file with an older one.
fn is_current(file: &Metadata, copy: &Metadata) -> bool {
    copy.is_file() && file.modified().is_ok_and(|time| copy.modified().is_ok_and(|other| time == other))
}

/// Writes the copy to a temporary file and renames it, so that no server reads a part of it. Fails if the file changed since
/// `before`.
fn write(target: &Path, output: &[u8], before: &Metadata, file: &Path) -> io::Result<()> {
    let folder = target.parent().unwrap_or(Path::new("."));
    let mut copy = tempfile::Builder::new().prefix(".brisk-").tempfile_in(folder)?;
    copy.write_all(output)?;
    copy.as_file().set_permissions(before.permissions())?;
    copy.as_file().set_modified(before.modified()?)?;
    let now = fs::metadata(file)?;
    if now.modified()? != before.modified()? || now.len() != before.len() {
        return Err(io::Error::other("changed while it was compressed: run brisk compress again"));
    }
    copy.persist(target).map_err(|error| error.error)?;
    Ok(())
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

//! The file system for `ServeDir`: nothing outside of one folder, and no blocking on a worker.
//!
//! Opening and reading are first tried in the kernel's caches (`RESOLVE_CACHED`, `RWF_NOWAIT`) with one system call
//! each. Only operations that need a disk run on tokio's blocking threads.

mod known;
mod listing;

use std::future::Future;
use std::io::{self, IoSliceMut, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use brisk_coding::Coding;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use tokio::io::{AsyncRead, AsyncSeek, ReadBuf};
use tokio::task::{JoinHandle, spawn_blocking};
use tower_http::services::fs::{Backend, File, Metadata};

pub use listing::{Entry, Listing};

/// First second of the year 10000 since 1970.
const YEAR_10_000: u64 = 253_402_300_800;

/// One folder, as a [`Backend`] of `ServeDir`.
#[derive(Clone, Debug)]
pub struct Beneath {
    root: Arc<Path>,
    /// Whether paths with the extension of a compressed copy are copies.
    has_copies: bool,
    /// Whether files are opened without a previous `stat`. Folders are not found then.
    is_at_once: bool,
}

impl Beneath {
    /// The files below `root`.
    pub fn new(root: &Path) -> Self {
        Self { root: root.into(), has_copies: false, is_at_once: false }
    }

    /// The variant for requests that do not name a copy: a copy that is older than its file, or has no file, does not
    /// exist.
    pub fn with_copies(root: &Path) -> Self {
        Self { has_copies: true, ..Self::new(root) }
    }

    /// The variant for GET of files: treats every path as a file until it is opened.
    #[must_use]
    pub fn at_once(self) -> Self {
        Self { is_at_once: true, ..self }
    }

    /// The original file of the copy `path`.
    fn original(&self, path: &Path) -> Option<PathBuf> {
        let ending = path.extension().filter(|_| self.has_copies)?;
        Coding::ALL.iter().any(|coding| ending == coding.extension()).then(|| path.with_extension(""))
    }
}

/// Fails if the copy is older than the original file, or the original does not exist.
async fn check_copy(root: Arc<Path>, original: PathBuf, copy: Facts) -> io::Result<()> {
    let (_, facts) = find(root, original, OFlags::PATH).await?;
    let is_current = facts.modified.zip(copy.modified).is_some_and(|(file, copy)| copy >= file);
    if facts.is_dir || copy.is_dir || !is_current {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(())
}

type Pending<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

impl Backend for Beneath {
    type File = OpenFile;
    type Metadata = Facts;
    type OpenFuture = Pending<OpenFile>;
    type MetadataFuture = Pending<Facts>;

    fn open(&self, path: PathBuf) -> Pending<OpenFile> {
        let root = Arc::clone(&self.root);
        let original = self.original(&path);
        Box::pin(async move {
            let (file, facts) =
                // `NONBLOCK`: opening a named pipe would otherwise wait for a writer, before its type is
                // known. `NOCTTY`: a terminal must not become the controlling one of the process.
                find(Arc::clone(&root), path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY).await?;
            if facts.is_dir {
                return Err(io::ErrorKind::NotFound.into());
            }
            if let Some(original) = original {
                check_copy(root, original, facts).await?;
            }
            Ok(OpenFile { file: Arc::new(file.into()), facts, position: 0, reading: None })
        })
    }

    fn metadata(&self, path: PathBuf) -> Pending<Facts> {
        if self.is_at_once {
            // A folder passes here too; `open` refuses it.
            return Box::pin(std::future::ready(Ok(Facts::UNKNOWN)));
        }
        let root = Arc::clone(&self.root);
        let original = self.original(&path);
        Box::pin(async move {
            let (_, facts) = find(Arc::clone(&root), path, OFlags::PATH).await?;
            if let Some(original) = original {
                check_copy(root, original, facts).await?;
            }
            Ok(facts)
        })
    }
}

/// Opens a file or folder beneath `root`. Uses a blocking thread only if the kernel would have to read a disk.
async fn find(root: Arc<Path>, path: PathBuf, flags: OFlags) -> io::Result<(OwnedFd, Facts)> {
    match open_beneath(&root, &path, flags, ResolveFlags::CACHED) {
        // `EAGAIN`: the path is not in the cache. `EINVAL`: a kernel before 5.12 does
        // not know `RESOLVE_CACHED`.
        Err(Errno::AGAIN | Errno::INVAL | Errno::NOSYS | Errno::PERM) => {}
        found => return Facts::with(found.map_err(not_found)?),
    }
    let found = spawn_blocking(move || match open_beneath(&root, &path, flags, ResolveFlags::empty()) {
        // `openat2` is unavailable: a kernel before 5.6, or a sandbox that forbids it.
        Err(Errno::NOSYS | Errno::PERM) => open_checked(&root, &path),
        found => found.map_err(not_found),
    });
    Facts::with(found.await.map_err(io::Error::other)??)
}

fn open_beneath(root: &Path, path: &Path, flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    let folder = open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    // openat2(2): `RESOLVE_BENEATH` excludes magic links too, but a later kernel may change that.
    let resolve = resolve | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    openat2(folder, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

fn open_checked(root: &Path, path: &Path) -> io::Result<OwnedFd> {
    // Weaker than `openat2`: a folder replaced by a link between the check and the open would be followed.
    let root = root.canonicalize()?;
    let path = root.join(path).canonicalize()?;
    if !path.starts_with(&root) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut options = std::fs::OpenOptions::new();
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    options.read(true).custom_flags(flags.bits().cast_signed()).open(path).map(OwnedFd::from)
}

/// Maps errors of paths that must not be served to 404, so that a client learns nothing about other files.
fn not_found(error: Errno) -> io::Error {
    match error {
        // A link that leaves the folder; too many links; a name that is too long; a socket.
        Errno::XDEV | Errno::LOOP | Errno::NAMETOOLONG | Errno::NXIO => io::ErrorKind::NotFound.into(),
        other => other.into(),
    }
}

/// The metadata of a file.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    is_dir: bool,
    length: u64,
    modified: Option<SystemTime>,
}

impl Facts {
    /// Facts of a file without `stat`.
    const UNKNOWN: Self = Self { is_dir: false, length: 0, modified: None };

    fn with(file: OwnedFd) -> io::Result<(OwnedFd, Self)> {
        let stat = fstat(&file)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        // A device or a pipe may have no end, and a read from it may never return its blocking thread.
        if !matches!(kind, FileType::RegularFile | FileType::Directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let facts = Self {
            is_dir: kind == FileType::Directory,
            length: u64::try_from(stat.st_size).unwrap_or_default(),
            modified: modified(&stat),
        };
        Ok((file, facts))
    }
}

/// Time of the last change; `None` outside of the years 1970 to 9999, which no date of HTTP can state.
fn modified(stat: &Stat) -> Option<SystemTime> {
    let seconds = u64::try_from(stat.st_mtime).ok().filter(|seconds| *seconds < YEAR_10_000)?;
    let nanos = u32::try_from(stat.st_mtime_nsec).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

impl Metadata for Facts {
    fn is_dir(&self) -> bool {
        self.is_dir
    }

    fn modified(&self) -> io::Result<SystemTime> {
        self.modified.ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    fn len(&self) -> u64 {
        self.length
    }
}

/// A file that is being sent, opened by [`Beneath`].
#[derive(Debug)]
pub struct OpenFile {
    file: Arc<std::fs::File>,
    facts: Facts,
    position: u64,
    /// The pending read on a blocking thread, if the bytes were not in the kernel's cache.
    reading: Option<JoinHandle<io::Result<Vec<u8>>>>,
}

impl File for OpenFile {
    type Metadata = Facts;
    type MetadataFuture<'a> = std::future::Ready<io::Result<Facts>>;

    fn metadata(&self) -> Self::MetadataFuture<'_> {
        std::future::ready(Ok(self.facts))
    }
}

impl AsyncRead for OpenFile {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.reading.is_none() {
            // The length is already sent in the head; bytes appended since are not sent.
            if self.position >= self.facts.length {
                return Poll::Ready(Ok(()));
            }
            if let Some(read) = self.read_cached(buffer) {
                return Poll::Ready(read);
            }
            let (file, position, length) = (Arc::clone(&self.file), self.position, buffer.remaining());
            self.reading = Some(spawn_blocking(move || read_at(&file, position, length)));
        }
        let Some(reading) = &mut self.reading else { return Poll::Pending };
        let read = ready!(Pin::new(reading).poll(cx));
        self.reading = None;
        let bytes = read.map_err(io::Error::other)??;
        // The caller's buffer may be smaller than before; the remainder is read again.
        let taken = bytes.len().min(buffer.remaining());
        buffer.put_slice(&bytes[..taken]);
        self.position += taken as u64;
        Poll::Ready(Ok(()))
    }
}

impl OpenFile {
    /// Reads from the kernel's cache; `None` if nothing is cached or the file system does not support it.
    fn read_cached(&mut self, buffer: &mut ReadBuf<'_>) -> Option<io::Result<()>> {
        let target = buffer.initialize_unfilled();
        let slices = &mut [IoSliceMut::new(target)];
        match preadv2(self.file.as_fd(), slices, self.position, ReadWriteFlags::NOWAIT) {
            Ok(read) => {
                buffer.advance(read);
                self.position += read as u64;
                Some(Ok(()))
            }
            Err(
                Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM | Errno::INTR,
            ) => None,
            Err(error) => Some(Err(error.into())),
        }
    }
}

fn read_at(file: &std::fs::File, position: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let read = file.read_at(&mut bytes, position)?;
    bytes.truncate(read);
    Ok(bytes)
}

impl AsyncSeek for OpenFile {
    fn start_seek(mut self: Pin<&mut Self>, position: SeekFrom) -> io::Result<()> {
        let moved = match position {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(offset) => self.facts.length.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = moved.ok_or(io::ErrorKind::InvalidInput)?;
        // A pending read is for the old position: its bytes must not be returned at the new one.
        self.reading = None;
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Poll::Ready(Ok(self.position))
    }
}

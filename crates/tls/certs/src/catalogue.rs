//! Certificates of hundreds of thousands of names in one folder, loaded when a client requests a name.
//!
//! `NAME.pem` contains the chain and `NAME.key` the key of `NAME`; `NAME.rsa.pem` and `NAME.rsa.key` contain a second
//! certificate. The files of a wildcard are named `*.example.com` or `_.example.com`. The file name alone determines
//! the served name; the names in the certificate are ignored. Changed files take effect one by one, without a reload
//! and without failing handshakes.

mod changes;
mod expiry;
mod faulty;
mod index;
mod loader;
mod watch;

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use arc_swap::ArcSwap;
use brisk_keys::{Keystore, PrivateKeyEngine};
use tokio::sync::oneshot;

use crate::error::CertError;
use crate::maintenance::Maintenance;
use crate::resolver::Names;
use crate::slot::Served;
use changes::Follower;
pub use expiry::FolderExpiry;
use expiry::Surveyor;
use faulty::FaultyNames;
use index::Index;
use loader::Loader;

/// Maximum number of names whose certificates are in memory; beyond it, the least recently used are evicted.
pub const LOADED: usize = 20_000;

/// Creates the engine for the key of one certificate.
pub type MakeEngine = Arc<dyn Fn(Arc<Keystore>) -> Arc<dyn PrivateKeyEngine> + Send + Sync>;

/// A folder with certificates by name. A name that is not loaded costs its own length and some hundred bytes.
pub struct Catalogue {
    folder: PathBuf,
    index: Index,
    engines: OnceLock<MakeEngine>,
    maintenance: OnceLock<Arc<Maintenance>>,
    loader: OnceLock<(Loader, Follower)>,
    surveyor: Arc<Surveyor>,
    expiry: ArcSwap<FolderExpiry>,
    faulty: FaultyNames,
    /// Held during an eviction, so that one thread at a time evicts.
    evicting: Mutex<()>,
    statistics: Statistics,
}

#[derive(Debug, Default)]
struct Statistics {
    loads: AtomicU64,
    failures: AtomicU64,
    evictions: AtomicU64,
    changes: AtomicU64,
}

/// Counters of a [`Catalogue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogueStatistics {
    /// Names in the folder.
    pub names: usize,
    /// Names whose certificates are in memory.
    pub loaded: usize,
    /// Loads since the start.
    pub loads: u64,
    /// Failed loads since the start.
    pub failures: u64,
    /// Names evicted from memory since the start.
    pub evictions: u64,
    /// Replacements of certificates in memory since the start.
    pub changes: u64,
}

/// Result of [`Catalogue::find`].
pub enum CatalogueLookup {
    /// The certificates are in memory.
    Ready(Arc<Vec<Served>>),
    /// The certificates are being loaded. The channel is closed without a value if that fails.
    Loading(oneshot::Receiver<Arc<Vec<Served>>>),
    /// Loading failed within the last ten seconds.
    Failed,
    /// The folder contains no such name.
    Missing,
}

/// The open catalogues of a process, by folder. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Catalogues {
    open: Arc<Mutex<HashMap<PathBuf, Weak<Catalogue>>>>,
    surveyor: Arc<Surveyor>,
}

impl Catalogues {
    /// Returns the open catalogue of `folder`, or opens one, which reads all file names but no certificate.
    pub fn open(&self, folder: &Path) -> Result<Arc<Catalogue>, CertError> {
        let unreadable = |source| CertError::Read { path: folder.to_owned(), source };
        // By canonical path: two spellings of one folder share one index, one cache and one set of threads.
        let real = fs::canonicalize(folder).map_err(unreadable)?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(catalogue) = open.get(&real).and_then(Weak::upgrade) {
            return Ok(catalogue);
        }
        let catalogue = Arc::new(Catalogue::new(&real, &self.surveyor).map_err(unreadable)?);
        open.retain(|_, catalogue| catalogue.strong_count() > 0);
        open.insert(real, Arc::downgrade(&catalogue));
        Ok(catalogue)
    }

    /// The open catalogues, ordered by folder.
    pub fn all(&self) -> Vec<Arc<Catalogue>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = open.values().filter_map(Weak::upgrade).collect();
        all.sort_by(|one, other| one.folder.cmp(&other.folder));
        all
    }
}

impl Catalogue {
    fn new(folder: &Path, surveyor: &Arc<Surveyor>) -> io::Result<Self> {
        Ok(Self {
            folder: folder.to_owned(),
            index: Index::read(folder)?,
            engines: OnceLock::new(),
            maintenance: OnceLock::new(),
            loader: OnceLock::new(),
            surveyor: Arc::clone(surveyor),
            expiry: ArcSwap::default(),
            faulty: FaultyNames::default(),
            evicting: Mutex::default(),
            statistics: Statistics::default(),
        })
    }

    /// Starts the threads that load certificates, follow changes and note the expiry of all certificates. Keys are in engines made by `engines`; `maintenance`
    /// maintains staples. Further calls have no effect.
    pub fn start(
        self: &Arc<Self>,
        engines: MakeEngine,
        maintenance: Option<&Arc<Maintenance>>,
    ) -> Result<(), CertError> {
        // `set` succeeds once, so concurrent calls start the threads once.
        if self.engines.set(engines).is_err() {
            return Ok(());
        }
        if let Some(maintenance) = maintenance {
            // Cannot fail: only the caller that has set `engines` gets here.
            let _ = self.maintenance.set(Arc::clone(maintenance));
        }
        let loader = Loader::start(self).map_err(CertError::Watch)?;
        let follower = Follower::start(self).map_err(CertError::Watch)?;
        self.surveyor.follow(self).map_err(CertError::Watch)?;
        self.loader.set((loader, follower)).map_err(|_| ()).expect("it was not started");
        Ok(())
    }

    /// Looks up `name`, which must be in lower case. Takes no lock if its certificates are in memory.
    pub fn find(&self, name: &str) -> CatalogueLookup {
        let Some((name, entry)) = self.index.find(name) else { return CatalogueLookup::Missing };
        if let Some(loaded) = entry.loaded() {
            return CatalogueLookup::Ready(loaded);
        }
        // A client that repeats the name of a faulty file must not keep the loading threads busy: ten
        // seconds pass before the next attempt.
        let Some((loader, ..)) = self.loader.get().filter(|_| !entry.failed_lately()) else {
            return CatalogueLookup::Failed;
        };
        let (waiter, loading) = oneshot::channel();
        if entry.wait(waiter) && !loader.load(&name) {
            // The queue is full: the waiting handshakes fail now instead of after their timeout.
            entry.give_up();
        }
        CatalogueLookup::Loading(loading)
    }

    /// The canonical path of the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Number of names whose files could not be loaded at the last attempt, and the first `most` of them in the order of the
    /// alphabet, with the reason. A certificate that was loaded before stays in use. At most 1,000 are counted.
    pub fn faulty(&self, most: usize) -> (usize, Vec<(String, String)>) {
        self.faulty.first(most)
    }

    /// Current counters.
    pub fn statistics(&self) -> CatalogueStatistics {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Statistics { loads, failures, evictions, changes } = &self.statistics;
        CatalogueStatistics {
            names: self.index.len(),
            loaded: self.index.loaded(),
            loads: count(loads),
            failures: count(failures),
            evictions: count(evictions),
            changes: count(changes),
        }
    }
}

impl Names for Catalogue {
    fn has(&self, name: &str) -> bool {
        self.index.find(name).is_some()
    }
}

impl fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalogue").field("folder", &self.folder).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

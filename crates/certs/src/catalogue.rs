//! Certificates by the hundred thousand: a folder with files for each name, of which only those are loaded that clients
//! ask for.
//!
//! `NAME.pem` has the chain and `NAME.key` the key of `NAME`; `NAME.rsa.pem` and `NAME.rsa.key` those of a second
//! certificate. A wildcard is `*.example.com` or `_.example.com` there. The name of the files decides which name is
//! served, whatever others are in the certificate. Changes are noticed and shown one by one: no reload, and no
//! handshake that fails meanwhile.

mod changes;
mod index;
mod loader;
mod watch;

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};

use brisk_keys::{Keystore, PrivateKeyEngine};
use tokio::sync::oneshot;

use crate::care::Care;
use crate::error::CertError;
use crate::resolver::Names;
use crate::slot::Served;
use changes::Follower;
use index::Index;
use loader::Loader;

/// Certificates that are kept in memory at most; of those beyond, the ones that were asked for longest ago are dropped.
pub const LOADED: usize = 20_000;

/// Makes the engine of the key of one certificate.
pub type MakeEngine = Arc<dyn Fn(Arc<Keystore>) -> Arc<dyn PrivateKeyEngine> + Send + Sync>;

/// A folder with certificates by name. Cheap to keep: an idle name costs its own length and some hundred bytes.
pub struct Catalogue {
    folder: PathBuf,
    index: Index,
    engines: OnceLock<MakeEngine>,
    care: OnceLock<Arc<Care>>,
    loader: OnceLock<(Loader, Follower)>,
    /// Held by the thread that drops something.
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

/// How a catalogue is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogueStatistics {
    /// Names in the folder.
    pub names: usize,
    /// Names whose certificates are in memory.
    pub loaded: usize,
    /// Names that were loaded since the start.
    pub loads: u64,
    /// Attempts to load that failed.
    pub failures: u64,
    /// Names that were dropped from memory for others.
    pub evictions: u64,
    /// Changes of certificates in memory that were shown.
    pub changes: u64,
}

/// The result of a look-up.
pub enum Found {
    /// The certificates are here.
    Ready(Arc<Vec<Served>>),
    /// They are being loaded. Closed without a value if they cannot be.
    Loading(oneshot::Receiver<Arc<Vec<Served>>>),
    /// They could not be loaded a moment ago.
    Failed,
    /// There is no such name.
    Missing,
}

/// The catalogues in use, by folder.
static OPEN: LazyLock<Mutex<HashMap<PathBuf, Weak<Catalogue>>>> = LazyLock::new(Mutex::default);

impl Catalogue {
    /// The catalogue of `folder`: the one in use, or a new one, whose names are read now. Certificates are not.
    pub fn open(folder: &Path) -> Result<Arc<Self>, CertError> {
        let unreadable = |source| CertError::Read { path: folder.to_owned(), source };
        let real = fs::canonicalize(folder).map_err(unreadable)?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(catalogue) = open.get(&real).and_then(Weak::upgrade) {
            return Ok(catalogue);
        }
        let index = Index::read(&real).map_err(unreadable)?;
        let catalogue = Arc::new(Self {
            folder: real.clone(),
            index,
            engines: OnceLock::new(),
            care: OnceLock::new(),
            loader: OnceLock::new(),
            evicting: Mutex::default(),
            statistics: Statistics::default(),
        });
        open.retain(|_, catalogue| catalogue.strong_count() > 0);
        open.insert(real, Arc::downgrade(&catalogue));
        Ok(catalogue)
    }

    /// Begins to load what is asked for, with keys in engines that `engines` makes and staples that `care` keeps, and to
    /// follow changes. Does nothing if it has begun already.
    pub fn start(self: &Arc<Self>, engines: MakeEngine, care: Option<&Arc<Care>>) -> Result<(), CertError> {
        if self.engines.set(engines).is_err() {
            return Ok(());
        }
        if let Some(care) = care {
            // This is the one that begins.
            let _ = self.care.set(Arc::clone(care));
        }
        let loader = Loader::start(self).map_err(CertError::Watch)?;
        let follower = Follower::start(self).map_err(CertError::Watch)?;
        self.loader.set((loader, follower)).map_err(|_| ()).expect("it was not started");
        Ok(())
    }

    /// The catalogues in use, by folder.
    pub fn all() -> Vec<Arc<Self>> {
        let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = open.values().filter_map(Weak::upgrade).collect();
        all.sort_by(|one, other| one.folder.cmp(&other.folder));
        all
    }

    /// The certificates for `name`, in lower case. Takes no lock where they are in memory.
    pub fn find(&self, name: &str) -> Found {
        let Some((name, place)) = self.index.find(name) else { return Found::Missing };
        if let Some(loaded) = place.loaded() {
            return Found::Ready(loaded);
        }
        let Some((loader, _)) = self.loader.get().filter(|_| !place.failed_lately()) else {
            return Found::Failed;
        };
        let (waiter, loading) = oneshot::channel();
        if place.wait(waiter) && !loader.load(&name) {
            // More is asked for than can be loaded; those that wait hear of it.
            place.give_up();
        }
        Found::Loading(loading)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How it is used.
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

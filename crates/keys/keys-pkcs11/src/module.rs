//! PKCS #11 modules: loaded once per process, and reinitialized if a token does not recover otherwise.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, Weak,
    },
    thread,
    time::{Duration, Instant},
};

use cryptoki::{
    context::{CInitializeArgs, CInitializeFlags, Pkcs11},
    error::{Error, RvError},
};

use crate::error::{TokenError, call};

/// A token that is reached through a module.
pub(crate) trait User: fmt::Debug + Send + Sync + 'static {
    /// Whether the token can be reached now.
    fn is_up(&self) -> bool;
}

/// A loaded module. Its initialization is state of the process, so there is one value per module.
#[derive(Debug)]
pub(crate) struct Module {
    path: PathBuf,
    context: Pkcs11,
    /// Read-locked during calls, write-locked for reinitialization.
    state: RwLock<State>,
    /// The tokens that are reached through this module. Each lives as long as its threads.
    users: Mutex<Vec<Weak<dyn User>>>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    initialized: bool,
    /// Number of the initialization. Handles of sessions and objects are valid within one only.
    generation: u64,
}

/// Permission to call the [`Module`], which is not reinitialized before this is dropped.
#[derive(Debug)]
pub(crate) struct Entered<'m> {
    module: &'m Module,
    state: RwLockReadGuard<'m, State>,
}

impl Entered<'_> {
    pub(crate) const fn context(&self) -> &Pkcs11 {
        &self.module.context
    }

    pub(crate) fn generation(&self) -> u64 {
        self.state.generation
    }
}

/// Modules of this process. They are never unloaded, because few modules survive unloading. A static, because a shared
/// library and its initialization belong to the process.
static MODULES: Mutex<BTreeMap<PathBuf, LoadState>> = Mutex::new(BTreeMap::new());

/// Progress of loading a [`Module`].
#[derive(Debug)]
enum LoadState {
    /// A thread is loading it, which has no time limit.
    Begun,
    Done(Arc<Module>),
}

fn modules() -> MutexGuard<'static, BTreeMap<PathBuf, LoadState>> {
    MODULES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time to wait for calls in progress before reinitialization.
const RETURN: Duration = Duration::from_secs(2);

const LOOK: Duration = Duration::from_millis(10);

impl Module {
    /// Loads and initializes the [`Module`] of this file, or returns the loaded one. Blocks without a time limit.
    pub(crate) fn load(path: &Path) -> Result<Arc<Self>, TokenError> {
        let wrong = |reason: String| TokenError::Module { path: path.to_owned(), reason };
        // The lock is not held while loading: other modules can be loaded meanwhile.
        match modules().entry(path.to_owned()) {
            Entry::Occupied(known) => match known.get() {
                LoadState::Done(module) => return Ok(Arc::clone(module)),
                LoadState::Begun => return Err(wrong("it has been loading for a long time".to_owned())),
            },
            Entry::Vacant(free) => drop(free.insert(LoadState::Begun)),
        }
        let loaded = Self::load_new(path, wrong);
        let mut modules = modules();
        match &loaded {
            Ok((module, _)) => drop(modules.insert(path.to_owned(), LoadState::Done(Arc::clone(module)))),
            Err(_) => drop(modules.remove(path)),
        }
        drop(modules);
        let (module, initialized) = loaded?;
        initialized.map(|()| module)
    }

    /// Loads and initializes a module. If only the initialization fails, the [`Module`] stays loaded, and the next
    /// caller initializes it again.
    fn load_new(
        path: &Path,
        wrong: impl Fn(String) -> TokenError,
    ) -> Result<(Arc<Self>, Result<(), TokenError>), TokenError> {
        // Checked first, because the loader's message for a missing file describes its search path.
        path.metadata().map_err(|error| wrong(error.to_string()))?;
        let context = Pkcs11::new(path).map_err(|error| wrong(load_error(&error)))?;
        let initialized = initialize(&context)
            .map_err(|error| TokenError::NotStarted { path: path.to_owned(), reason: call(&error) });
        let state = RwLock::new(State { initialized: initialized.is_ok(), generation: 1 });
        Ok((Arc::new(Self { path: path.to_owned(), context, state, users: Mutex::default() }), initialized))
    }

    /// Notes a token that is reached through this module.
    pub(crate) fn add_user<U: User>(&self, user: &Arc<U>) {
        let user = Arc::downgrade(user);
        self.users().push(user);
    }

    /// Whether a token other than `own` can be reached through this module now.
    pub(crate) fn is_used_beside(&self, own: &impl User) -> bool {
        // Collected first: `is_up` takes the lock of a dispatcher, and must not be called with this lock
        // held.
        let users: Vec<_> = self.users().iter().filter_map(Weak::upgrade).collect();
        users.iter().any(|user| !std::ptr::addr_eq(Arc::as_ptr(user), own) && user.is_up())
    }

    fn users(&self) -> MutexGuard<'_, Vec<Weak<dyn User>>> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.retain(|user| user.strong_count() > 0);
        users
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Enters the [`Module`] for some calls; initializes it if necessary.
    pub(crate) fn enter(&self) -> Result<Entered<'_>, TokenError> {
        loop {
            let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
            if state.initialized {
                return Ok(Entered { module: self, state });
            }
            let generation = state.generation;
            drop(state);
            self.restart(generation)?;
        }
    }

    /// Finalizes and reinitializes the [`Module`], unless that has been done since `generation`. Waits up to two
    /// seconds for calls in progress: a call that never returns must not block the others, which may reach the token
    /// without this.
    pub(crate) fn restart(&self, generation: u64) -> Result<(), TokenError> {
        let mut state = self.alone()?;
        if state.generation != generation && state.initialized {
            return Ok(());
        }
        if state.initialized {
            // Before the calls: if one of them fails, the next caller of `enter` initializes the module
            // again.
            state.initialized = false;
            // Not fatal: the initialization below decides whether the module works.
            if let Err(error) = self.context.clone().finalize() {
                tracing::debug!(module = %self.path.display(), error = call(&error), "the module was not finalized");
            }
        }
        // Even if the initialization fails: the handles of the former one are invalid in any case.
        state.generation += 1;
        initialize(&self.context)
            .map_err(|error| TokenError::NotStarted { path: self.path.clone(), reason: call(&error) })?;
        state.initialized = true;
        Ok(())
    }
}

impl Module {
    /// Locks the [`Module`] when no call is in progress.
    fn alone(&self) -> Result<RwLockWriteGuard<'_, State>, TokenError> {
        // Polled, because `write` has no timeout, and a waiting writer blocks all new readers: one call
        // that never returns would stop every token of the module.
        let limit = Instant::now() + RETURN;
        loop {
            match self.state.try_write() {
                Ok(state) => return Ok(state),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() < limit => thread::sleep(LOOK),
                Err(TryLockError::WouldBlock) => {
                    return Err(TokenError::Call("a call of the module does not return".to_owned()));
                }
            }
        }
    }
}

fn initialize(context: &Pkcs11) -> Result<(), Error> {
    // The engine calls the module from several threads.
    match context.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)) {
        Err(Error::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => Ok(()),
        other => other,
    }
}

fn load_error(error: &Error) -> String {
    match error {
        Error::LibraryLoading(error) => format!("{error}; wanted the shared library of the token's maker"),
        Error::MissingSymbol(name) => format!("it has no {name}: a shared library, but no PKCS #11 module"),
        other => call(other),
    }
}

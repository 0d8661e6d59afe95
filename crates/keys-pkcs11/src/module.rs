//! PKCS #11 modules: loaded once in the life of the process, and initialized anew where a token does not come back otherwise.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard},
};

use cryptoki::{
    context::{CInitializeArgs, CInitializeFlags, Pkcs11},
    error::{Error, RvError},
};

use crate::error::{TokenError, call};

/// A module. What is initialized belongs to the process and not to a user of the module, hence one of each.
#[derive(Debug)]
pub(crate) struct Module {
    path: PathBuf,
    context: Pkcs11,
    /// Read while a call is under way, written to end all of them.
    state: RwLock<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    initialized: bool,
    /// Counts the initializations: handles of sessions and objects mean nothing in the next.
    generation: u64,
}

/// A module within which calls can be made; it is not initialized anew before this is dropped.
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

/// The modules of this process. They stay loaded: few survive being unloaded.
static MODULES: Mutex<BTreeMap<PathBuf, Arc<Module>>> = Mutex::new(BTreeMap::new());

impl Module {
    /// The module in this file, loaded and initialized. Takes as long as the module likes.
    pub(crate) fn load(path: &Path) -> Result<Arc<Self>, TokenError> {
        let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules.get(path) {
            return Ok(Arc::clone(module));
        }
        let wrong = |reason: String| TokenError::Module { path: path.to_owned(), reason };
        // The loader's own message about a missing file is about its search for libraries.
        path.metadata().map_err(|error| wrong(error.to_string()))?;
        let context = Pkcs11::new(path).map_err(|error| wrong(load_error(&error)))?;
        let initialized = initialize(&context)
            .map_err(|error| TokenError::NotStarted { path: path.to_owned(), reason: call(&error) });
        let state = RwLock::new(State { initialized: initialized.is_ok(), generation: 1 });
        let module = Arc::new(Self { path: path.to_owned(), context, state });
        // One that cannot be initialized now is loaded all the same, and tried again by the next who asks.
        modules.insert(path.to_owned(), Arc::clone(&module));
        initialized.map(|()| module)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The module for some calls. Initializes it if it is not.
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

    /// Ends everything in the module and initializes it anew, unless that was done since `generation`. Waits for calls that
    /// are under way.
    pub(crate) fn restart(&self, generation: u64) -> Result<(), TokenError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.generation != generation && state.initialized {
            return Ok(());
        }
        if state.initialized {
            state.initialized = false;
            if let Err(error) = self.context.clone().finalize() {
                tracing::debug!(module = %self.path.display(), error = call(&error), "the module was not finalized");
            }
        }
        state.generation += 1;
        initialize(&self.context)
            .map_err(|error| TokenError::NotStarted { path: self.path.clone(), reason: call(&error) })?;
        state.initialized = true;
        Ok(())
    }
}

fn initialize(context: &Pkcs11) -> Result<(), Error> {
    // The engine calls from several threads.
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

//! The engine of one token.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use brisk_keys::{KeyError, KeyId, KeyOperation, PendingOperation, PrivateKeyEngine};

use crate::{
    connection::Access, dispatcher::Dispatcher, key::TokenKey, module::Module, status::TokenStatus, task::Job,
};

/// Performs operations with the keys of one token, on threads of its own, each in a session.
///
/// Operations wait in a bounded queue. Each is answered by its deadline, or 100 ms later, even if the module never returns. An
/// operation that finds its session closed is begun once more in another. A token that cannot be reached any more is looked for
/// until it is back, and meanwhile its operations are refused at once. Every signature is verified before it is passed on.
pub struct TokenEngine {
    pub(crate) shared: Arc<Shared>,
}

/// What the engine and its threads have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) access: Access,
    pub(crate) sessions: usize,
    pub(crate) module: Arc<Module>,
    keys: RwLock<HashMap<KeyId, Arc<TokenKey>>>,
    /// Operations since the last that was performed of which the token says nothing but that it failed.
    failures: AtomicUsize,
}

/// After this number of failures in a row a token that shows its keys is reached anew all the same.
const HOPELESS: usize = 8;

impl Shared {
    pub(crate) fn new(module: Arc<Module>, access: Access, dispatcher: Dispatcher, sessions: usize) -> Self {
        Self { dispatcher, access, sessions, module, keys: RwLock::default(), failures: AtomicUsize::new(0) }
    }

    /// The token has performed an operation.
    pub(crate) fn performed(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    /// Counts an operation that failed without a reason; whether there were too many in a row.
    pub(crate) fn is_hopeless(&self) -> bool {
        let is_hopeless = self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= HOPELESS;
        if is_hopeless {
            self.performed();
        }
        is_hopeless
    }

    pub(crate) fn key(&self, id: KeyId) -> Option<Arc<TokenKey>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    pub(crate) fn keys(&self) -> Vec<Arc<TokenKey>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn add(&self, key: TokenKey) {
        self.keys.write().unwrap_or_else(PoisonError::into_inner).insert(key.id, Arc::new(key));
    }

    pub(crate) fn label(&self) -> String {
        self.dispatcher.label().unwrap_or_else(|| self.access.uri.clone())
    }
}

impl Shared {
    pub(crate) fn status(&self) -> TokenStatus {
        let dispatcher = &self.dispatcher;
        TokenStatus {
            token: self.label(),
            is_up: dispatcher.is_up(),
            sessions: dispatcher.sessions(),
            waiting: dispatcher.waiting(),
            reconnections: dispatcher.connections().saturating_sub(1),
            faults: self.keys().iter().map(|key| key.faults()).sum(),
        }
    }
}

impl TokenEngine {
    /// How the token is doing.
    pub fn status(&self) -> TokenStatus {
        self.shared.status()
    }

    fn start(&self, operation: KeyOperation) -> Result<PendingOperation, KeyError> {
        let KeyOperation { key, kind, deadline } = operation;
        let key = self.shared.key(key).ok_or(KeyError::UnknownKey(key))?;
        key.check(&kind)?;
        let (pending, completion) = PendingOperation::with_completion(deadline);
        self.shared.dispatcher.submit(Job { key, kind, completion, deadline, again: false })?;
        Ok(pending)
    }
}

impl PrivateKeyEngine for TokenEngine {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        self.start(operation).unwrap_or_else(PendingOperation::refused)
    }
}

impl fmt::Debug for TokenEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenEngine").field(&self.shared.access.name).finish()
    }
}

impl Drop for TokenEngine {
    fn drop(&mut self) {
        self.shared.dispatcher.stop();
    }
}

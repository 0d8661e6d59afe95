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
    connection::TokenAccess,
    dispatcher::Dispatcher,
    key::TokenKey,
    module::{Module, User},
    status::TokenStatus,
    task::Job,
};

/// An engine for the keys of one token, with one thread per session.
///
/// Operations wait in a bounded queue. Each ends at most 100 ms after its deadline, even if the `Module` never returns.
/// An operation whose session turns out to be closed is repeated once in another. A lost token is reconnected in the
/// background; meanwhile its operations fail at once. Every signature is verified before it is returned.
pub struct TokenEngine {
    pub(crate) shared: Arc<Shared>,
}

/// State that the [`TokenEngine`] shares with its threads.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) access: TokenAccess,
    pub(crate) sessions: usize,
    pub(crate) module: Arc<Module>,
    keys: RwLock<HashMap<KeyId, Arc<TokenKey>>>,
    /// Consecutive operations that failed without a reason from the token.
    failures: AtomicUsize,
}

/// Number of consecutive failures without a reason after which the token is reconnected, even though it still shows its
/// keys.
const HOPELESS: usize = 8;

impl User for Shared {
    fn is_up(&self) -> bool {
        self.dispatcher.is_up()
    }
}

impl Shared {
    pub(crate) fn new(
        module: Arc<Module>,
        access: TokenAccess,
        dispatcher: Dispatcher,
        sessions: usize,
    ) -> Self {
        Self { dispatcher, access, sessions, module, keys: RwLock::default(), failures: AtomicUsize::new(0) }
    }

    /// Records a successful operation.
    pub(crate) fn performed(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    /// Counts a failure without a reason. Returns whether there were [`HOPELESS`] in a row.
    pub(crate) fn is_hopeless(&self) -> bool {
        let is_hopeless = self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= HOPELESS;
        if is_hopeless {
            // From zero again: the next reconnection needs as many failures.
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
    /// State of the token, for metrics.
    pub fn status(&self) -> TokenStatus {
        self.shared.status()
    }

    fn start(&self, operation: KeyOperation) -> Result<PendingOperation, KeyError> {
        let KeyOperation { key, kind, deadline, .. } = operation;
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

    fn holders(&self) -> Vec<String> {
        vec![format!("token {:?}", self.shared.label())]
    }

    fn holder_trouble(&self, _: usize) -> Option<String> {
        (!self.shared.dispatcher.is_up()).then(|| "the token cannot be reached".to_owned())
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

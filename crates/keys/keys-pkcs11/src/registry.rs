//! The tokens in use by a process: each is opened once and kept across reloads.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc},
    thread,
    time::{Duration, Instant},
};

use brisk_keys::KeyId;

use crate::{
    attach::{CertificateKey, examine},
    connection::TokenAccess,
    dispatcher::Dispatcher,
    engine::{Shared, TokenEngine},
    error::TokenError,
    module::Module,
    status::TokenStatus,
    task::SessionQuery,
    uri::{KeyUri, PinSource, TokenName},
    worker,
};

/// Timeout for loading a [`Module`], for the login, and for finding and trying a key.
const LIMIT: Duration = Duration::from_secs(10);

/// Time that the end of the process waits for calls in progress.
const CLOSING: Duration = Duration::from_secs(2);

/// Settings of the `TokenEngine` of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenSettings {
    /// Sessions and threads per token: the maximum number of concurrent operations. Default: 8. Fewer if the token
    /// supports fewer.
    pub sessions: NonZeroUsize,
    /// Operations that may wait for a session of a token; further ones fail as overloaded. Default: 1024.
    pub queue: NonZeroUsize,
}

impl Default for TokenSettings {
    fn default() -> Self {
        let number = |number| NonZeroUsize::new(number).unwrap_or(NonZeroUsize::MIN);
        Self { sessions: number(8), queue: number(1024) }
    }
}

/// Identity of a [`TokenEngine`]: keys with equal values share one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EngineIdentity {
    module: PathBuf,
    name: TokenName,
    pin: Option<PinSource>,
}

/// The tokens in use by a process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Tokens(Arc<Registry>);

#[derive(Debug, Default)]
struct Registry {
    /// Each token lives as long as its engine is in use.
    engines: Mutex<Vec<(EngineIdentity, Weak<TokenEngine>)>>,
    /// Engines whose threads have not ended yet.
    started: Mutex<Vec<Weak<Shared>>>,
    /// Held while a token is opened, so that it is opened once.
    opening: Mutex<()>,
}

impl Tokens {
    /// Returns the engine for the key of `uri`, after a trial signature has shown that the key belongs to `certified`.
    /// A key in use is not tried again, so its token may be unreachable at a reload. A new token is opened with
    /// `settings`; a token in use keeps its own.
    ///
    /// `module` and `pin` are those of the `KeyUri` or its defaults. Blocks for some milliseconds, at most 20 seconds.
    ///
    /// # Errors
    ///
    /// [`TokenError`] with the correction.
    pub fn attach(
        &self,
        settings: TokenSettings,
        uri: &KeyUri,
        module: &Path,
        pin: Option<&PinSource>,
        certified: &CertificateKey,
    ) -> Result<Arc<TokenEngine>, TokenError> {
        let _opening = self.0.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let identity =
            EngineIdentity { module: module.to_owned(), name: uri.token.clone(), pin: pin.cloned() };
        let engine = match self.0.in_use(&identity) {
            Some(engine) => engine,
            None => self.0.open(settings, identity, uri)?,
        };
        let id = KeyId::of_spki(&certified.public_key);
        if engine.shared.key(id).is_none_or(|key| key.uri != *uri) {
            attach(&engine.shared, uri, certified)?;
        }
        Ok(engine)
    }

    /// State of the tokens in use, by label. Several engines with one label are combined.
    pub fn statuses(&self) -> Vec<TokenStatus> {
        let mut tokens: BTreeMap<String, TokenStatus> = BTreeMap::new();
        let engines = self.0.engines();
        let in_use = engines.iter().filter_map(|(_, engine)| engine.upgrade());
        for status in in_use.map(|engine| engine.status()) {
            match tokens.entry(status.token.clone()) {
                Entry::Occupied(mut known) => known.get_mut().add(&status),
                Entry::Vacant(free) => {
                    free.insert(status);
                }
            }
        }
        tokens.into_values().collect()
    }

    /// Stops all threads that call modules, and waits up to two seconds for them. Must be called before the process
    /// exits: exit handlers of modules free their state, and a concurrent call would crash.
    pub fn close(&self) {
        let all: Vec<_> = self.0.started().iter().filter_map(Weak::upgrade).collect();
        let limit = Instant::now() + CLOSING;
        for shared in &all {
            shared.dispatcher.stop();
        }
        for shared in &all {
            shared.dispatcher.wait_for_end(limit);
        }
    }
}

impl Registry {
    fn open(
        &self,
        settings: TokenSettings,
        identity: EngineIdentity,
        uri: &KeyUri,
    ) -> Result<Arc<TokenEngine>, TokenError> {
        let path = identity.module.clone();
        let silent = || TokenError::Silent { path: path.clone(), limit: LIMIT };
        // On a thread of its own, because a module may never return from its initialization.
        let (sender, loaded) = mpsc::sync_channel(1);
        let load = {
            let path = path.clone();
            move || drop(sender.send(Module::load(&path)))
        };
        thread::Builder::new().name("token-load".to_owned()).spawn(load).map_err(TokenError::Threads)?;
        let module = loaded.recv_timeout(LIMIT).map_err(|_| silent())??;
        let access =
            TokenAccess { name: identity.name.clone(), pin: identity.pin.clone(), uri: uri.to_string() };
        let sessions = settings.sessions.get();
        let dispatcher = Dispatcher::new(sessions, settings.queue.get());
        let shared = Arc::new(Shared::new(module, access, dispatcher, sessions));
        let engine = Arc::new(TokenEngine { shared: Arc::clone(&shared) });
        shared.module.add_user(&shared);
        // Before the threads start: `close` has to find them even if the token is never reached.
        self.started().push(Arc::downgrade(&shared));
        worker::start(&shared).map_err(TokenError::Threads)?;
        // On an error the engine is dropped, which ends its threads.
        shared.dispatcher.first_connection(LIMIT).ok_or_else(silent)??;
        self.engines().push((identity, Arc::downgrade(&engine)));
        Ok(engine)
    }

    fn in_use(&self, identity: &EngineIdentity) -> Option<Arc<TokenEngine>> {
        self.engines().iter().find(|(known, _)| known == identity).and_then(|(_, engine)| engine.upgrade())
    }

    fn engines(&self) -> MutexGuard<'_, Vec<(EngineIdentity, Weak<TokenEngine>)>> {
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        engines.retain(|(_, engine)| engine.strong_count() > 0);
        engines
    }

    fn started(&self) -> MutexGuard<'_, Vec<Weak<Shared>>> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.retain(|shared| shared.strong_count() > 0);
        started
    }
}

fn attach(shared: &Arc<Shared>, uri: &KeyUri, certified: &CertificateKey) -> Result<(), TokenError> {
    let (sender, answer) = mpsc::sync_channel(1);
    let (within, asked, wanted) = (Arc::clone(shared), uri.clone(), certified.clone());
    shared.dispatcher.ask(SessionQuery::new(move |session, facts| {
        let examined = within.module.enter().and_then(|entered| {
            let lost = || TokenError::Call("the module was reinitialized".to_owned());
            let open = session.within(&entered).ok_or_else(lost)?;
            examine(open, session.epoch, facts, &asked, &wanted)
        });
        drop(sender.send(examined));
    }));
    match answer.recv_timeout(LIMIT) {
        Ok(examined) => {
            shared.add(examined?);
            Ok(())
        }
        Err(mpsc::RecvTimeoutError::Timeout) => {
            Err(TokenError::Silent { path: shared.module.path().to_owned(), limit: LIMIT })
        }
        // The dispatcher has dropped the query, because the token is unreachable.
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            let gone = io::Error::from(io::ErrorKind::NotConnected);
            Err(TokenError::Call(format!("the token \"{}\" cannot be reached now: {gone}", shared.label())))
        }
    }
}

//! Registry of the tokens in use. Global, because initialization and login of PKCS #11 are state of the process.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak, mpsc},
    thread,
    time::{Duration, Instant},
};

use brisk_keys::KeyId;

use crate::{
    attach::{Certified, examine},
    connection::Access,
    dispatcher::Dispatcher,
    engine::{Shared, TokenEngine},
    error::TokenError,
    module::Module,
    status::TokenStatus,
    task::Question,
    uri::{KeyUri, PinSource, TokenName},
    worker,
};

/// Timeout for loading a module, for the login, and for finding and trying a key.
const LIMIT: Duration = Duration::from_secs(10);

/// Time that the end of the process waits for calls in progress.
const CLOSING: Duration = Duration::from_secs(2);

/// Settings of the engine of a token.
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

/// Identity of an engine: keys with equal values share one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    module: PathBuf,
    name: TokenName,
    pin: Option<PinSource>,
}

/// Tokens in use. An entry ends with its engine.
static TOKENS: Mutex<Vec<(Place, Weak<TokenEngine>)>> = Mutex::new(Vec::new());

/// Engines whose threads have not ended yet.
static STARTED: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Held while a token is being opened, so that it is opened once.
static OPENING: Mutex<()> = Mutex::new(());

/// Attaches keys in tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenKeys {
    settings: TokenSettings,
}

impl TokenKeys {
    /// New tokens are opened with these settings. Tokens in use keep theirs.
    pub const fn new(settings: TokenSettings) -> Self {
        Self { settings }
    }

    /// Returns the engine for the key of `uri`, after a trial signature has shown that the key belongs to `certified`.
    /// A key in use is not tried again, so its token may be unreachable at a reload.
    ///
    /// `module` and `pin` are those of the URI or its defaults. Blocks for some milliseconds, at most 20 seconds.
    ///
    /// # Errors
    ///
    /// [`TokenError`] with the correction.
    pub fn attach(
        &self,
        uri: &KeyUri,
        module: &Path,
        pin: Option<&PinSource>,
        certified: &Certified,
    ) -> Result<Arc<TokenEngine>, TokenError> {
        let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        let place = Place { module: module.to_owned(), name: uri.token.clone(), pin: pin.cloned() };
        let engine = match in_use(&place) {
            Some(engine) => engine,
            None => self.open(place, uri)?,
        };
        let id = KeyId::of_spki(&certified.public_key);
        if engine.shared.key(id).is_none_or(|key| key.uri != *uri) {
            attach(&engine.shared, uri, certified)?;
        }
        Ok(engine)
    }

    fn open(&self, place: Place, uri: &KeyUri) -> Result<Arc<TokenEngine>, TokenError> {
        let path = place.module.clone();
        let silent = || TokenError::Silent { path: path.clone(), limit: LIMIT };
        let (sender, loaded) = mpsc::sync_channel(1);
        let load = {
            let path = path.clone();
            move || drop(sender.send(Module::load(&path)))
        };
        thread::Builder::new().name("token-load".to_owned()).spawn(load).map_err(TokenError::Threads)?;
        let module = loaded.recv_timeout(LIMIT).map_err(|_| silent())??;
        let access = Access { name: place.name.clone(), pin: place.pin.clone(), uri: uri.to_string() };
        let sessions = self.settings.sessions.get();
        let dispatcher = Dispatcher::new(sessions, self.settings.queue.get());
        let shared = Arc::new(Shared::new(module, access, dispatcher, sessions));
        let engine = Arc::new(TokenEngine { shared: Arc::clone(&shared) });
        started().push(Arc::downgrade(&shared));
        worker::start(&shared).map_err(TokenError::Threads)?;
        // On an error the engine is dropped, which ends its threads.
        shared.dispatcher.first_connection(LIMIT).ok_or_else(silent)??;
        tokens().push((place, Arc::downgrade(&engine)));
        Ok(engine)
    }
}

fn attach(shared: &Arc<Shared>, uri: &KeyUri, certified: &Certified) -> Result<(), TokenError> {
    let (sender, answer) = mpsc::sync_channel(1);
    let (within, asked, wanted) = (Arc::clone(shared), uri.clone(), certified.clone());
    shared.dispatcher.ask(Question::new(move |session, facts| {
        let examined = within.module.enter().and_then(|entered| {
            let lost = || TokenError::Call("the module was initialized anew".to_owned());
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
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            let gone = io::Error::from(io::ErrorKind::NotConnected);
            Err(TokenError::Call(format!("the token \"{}\" cannot be reached now: {gone}", shared.label())))
        }
    }
}

fn tokens() -> std::sync::MutexGuard<'static, Vec<(Place, Weak<TokenEngine>)>> {
    let mut tokens = TOKENS.lock().unwrap_or_else(PoisonError::into_inner);
    tokens.retain(|(_, engine)| engine.strong_count() > 0);
    tokens
}

fn started() -> std::sync::MutexGuard<'static, Vec<Weak<Shared>>> {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    started.retain(|shared| shared.strong_count() > 0);
    started
}

/// Stops all threads that call modules, and waits up to two seconds for them. Must be called before the process exits:
/// exit handlers of modules free their state, and a concurrent call would crash.
pub fn close() {
    let all: Vec<_> = started().iter().filter_map(Weak::upgrade).collect();
    let limit = Instant::now() + CLOSING;
    for shared in &all {
        shared.dispatcher.stop();
    }
    for shared in &all {
        shared.dispatcher.wait_for_end(limit);
    }
}

fn in_use(place: &Place) -> Option<Arc<TokenEngine>> {
    tokens().iter().find(|(known, _)| known == place).and_then(|(_, engine)| engine.upgrade())
}

/// Shared state of all engines in use.
fn in_use_now() -> Vec<Arc<Shared>> {
    tokens()
        .iter()
        .filter_map(|(_, engine)| engine.upgrade().map(|engine| Arc::clone(&engine.shared)))
        .collect()
}

/// Returns whether another token of the same module is reachable.
pub(crate) fn is_used_elsewhere(shared: &Shared) -> bool {
    in_use_now().iter().any(|other| {
        !std::ptr::eq(&raw const **other, shared)
            && Arc::ptr_eq(&other.module, &shared.module)
            && other.dispatcher.is_up()
    })
}

/// State of the tokens in use, by label. Several engines with one label are combined.
pub fn statuses() -> Vec<TokenStatus> {
    let mut tokens: BTreeMap<String, TokenStatus> = BTreeMap::new();
    for status in in_use_now().iter().map(|shared| shared.status()) {
        match tokens.entry(status.token.clone()) {
            Entry::Occupied(mut known) => known.get_mut().add(&status),
            Entry::Vacant(free) => {
                free.insert(status);
            }
        }
    }
    tokens.into_values().collect()
}

//! The tokens that this process uses. There is one set of them: what a module has initialized, and who is logged in, belongs to
//! the process.

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

/// How long a module may take to be loaded, to let in, or to find and try a key.
const LIMIT: Duration = Duration::from_secs(10);

/// How long the end of the process waits for modules to return.
const CLOSING: Duration = Duration::from_secs(2);

/// How the engine of a token is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenSettings {
    /// Sessions with each token, and as many threads: operations that it can be asked for at once. Default: 8. One that has
    /// room for fewer gets fewer.
    pub sessions: NonZeroUsize,
    /// Operations that may wait for a session with a token; one more is refused as overloaded. Default: 1024.
    pub queue: NonZeroUsize,
}

impl Default for TokenSettings {
    fn default() -> Self {
        let number = |number| NonZeroUsize::new(number).unwrap_or(NonZeroUsize::MIN);
        Self { sessions: number(8), queue: number(1024) }
    }
}

/// What makes two keys those of one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    module: PathBuf,
    name: TokenName,
    pin: Option<PinSource>,
}

/// The tokens in use. Each lives as long as its engine is in use.
static TOKENS: Mutex<Vec<(Place, Weak<TokenEngine>)>> = Mutex::new(Vec::new());

/// All whose threads have not ended yet.
static STARTED: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Held while a token is opened, so that it is opened once.
static OPENING: Mutex<()> = Mutex::new(());

/// Keys in tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenKeys {
    settings: TokenSettings,
}

impl TokenKeys {
    /// Tokens that are not in use yet are opened with these settings; for those that are, they come too late.
    pub const fn new(settings: TokenSettings) -> Self {
        Self { settings }
    }

    /// The engine that has the key of `uri`, which is found in its token and tried: a signature that it makes has to be one of
    /// the certificate's key. That is done once; a key that is in use is not tried again, and its token need not be there.
    ///
    /// `module` and `pin` are what the URI says, or what else is meant. Blocks for some milliseconds, for 20 seconds at most.
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
        // Where that fails the engine is dropped, which ends its threads.
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

/// Ends all threads that call modules, and waits for them, for two seconds at most. To be called before the process ends: at its
/// exit modules take themselves apart, which no call of them survives.
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

/// What engines and their threads have in common, of all engines in use.
fn in_use_now() -> Vec<Arc<Shared>> {
    tokens()
        .iter()
        .filter_map(|(_, engine)| engine.upgrade().map(|engine| Arc::clone(&engine.shared)))
        .collect()
}

/// Whether another token of the same module can be reached now.
pub(crate) fn is_used_elsewhere(shared: &Shared) -> bool {
    in_use_now().iter().any(|other| {
        !std::ptr::eq(&raw const **other, shared)
            && Arc::ptr_eq(&other.module, &shared.module)
            && other.dispatcher.is_up()
    })
}

/// How the tokens in use are doing, by their labels. Those of the same label, or that URIs name in several ways, are one.
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

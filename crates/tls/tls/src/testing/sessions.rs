//! Scripted session stores for server and client.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use brisk_session::{Claim, Lookup, MemorySettings, MemoryStore, Miss, SessionOrMiss, SessionStore};
use rustls::NamedGroup;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls_pki_types::ServerName;

/// A store in memory with scripted results.
#[derive(Debug)]
pub(crate) struct ScriptedStore {
    memory: MemoryStore,
    script: Mutex<Script>,
}

#[derive(Debug, Default)]
struct Script {
    miss: Option<Miss>,
    suspends: bool,
    claims: Vec<Claim>,
    kept: Vec<Vec<u8>>,
}

impl Default for ScriptedStore {
    fn default() -> Self {
        Self { memory: MemoryStore::new(&MemorySettings::default()), script: Mutex::default() }
    }
}

impl ScriptedStore {
    /// Makes every further look-up fail with this reason.
    pub(crate) fn miss(&self, miss: Miss) {
        self.script().miss = Some(miss);
    }

    /// Takes all sessions, as another client of the store would.
    pub(crate) fn spend(&self) {
        for id in std::mem::take(&mut self.script().kept) {
            assert!(matches!(self.memory.take(&id, Claim::Here), Lookup::Ready(Ok(_))));
        }
    }

    /// Makes every further result pending at first.
    pub(crate) fn suspend(&self) {
        self.script().suspends = true;
    }

    /// The claims of all takes since the last call.
    pub(crate) fn claims(&self) -> Vec<Claim> {
        std::mem::take(&mut self.script().claims)
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer<T: Send + 'static>(&self, lookup: Lookup<T>) -> Lookup<T> {
        if !self.script().suspends {
            return lookup;
        }
        Lookup::Pending(Box::pin(async move {
            let mut once = false;
            poll_fn(|cx| {
                if std::mem::replace(&mut once, true) {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            lookup.answer().await
        }))
    }

    fn missing(&self) -> Option<Lookup<SessionOrMiss>> {
        self.script().miss.map(|miss| Lookup::Ready(Err(miss)))
    }
}

impl SessionStore for ScriptedStore {
    fn put(&self, id: &[u8], session: Vec<u8>, lifetime: Duration) -> Lookup<bool> {
        self.script().kept.push(id.to_vec());
        self.answer(self.memory.put(id, session, lifetime))
    }

    fn get(&self, id: &[u8]) -> Lookup<SessionOrMiss> {
        self.answer(self.missing().unwrap_or_else(|| self.memory.get(id)))
    }

    fn take(&self, id: &[u8], claim: Claim) -> Lookup<SessionOrMiss> {
        self.script().claims.push(claim);
        self.answer(self.missing().unwrap_or_else(|| self.memory.take(id, claim)))
    }
}

/// A client's sessions, without remembering the group that the server prefers.
#[derive(Debug)]
pub(crate) struct Forgetful(ClientSessionMemoryCache);

impl Forgetful {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(ClientSessionMemoryCache::new(8)))
    }
}

impl ClientSessionStore for Forgetful {
    fn set_kx_hint(&self, _server: ServerName<'static>, _group: NamedGroup) {}

    fn kx_hint(&self, _server: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, server: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.set_tls12_session(server, value);
    }

    fn tls12_session(&self, server: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(server)
    }

    fn remove_tls12_session(&self, server: &ServerName<'static>) {
        self.0.remove_tls12_session(server);
    }

    fn insert_tls13_ticket(&self, server: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(server, value);
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(server)
    }
}

//! [`Notes`], the data exchanged between a connection and the callbacks of [`rustls`], which get at most a server name.
//!
//! rustls calls back only within calls of this crate, on the same thread. So a connection lends its notes to the thread
//! for the duration of each call.

use std::cell::RefCell;
use std::mem;
use std::sync::Arc;

use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::{ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{Error, KeyLog, NamedGroup, SignatureScheme};

use super::observe::Observer;

/// Maximum number of sessions kept per connection; further ones replace the oldest.
const KEPT: usize = 16;

thread_local! {
    static CURRENT: RefCell<Notes> = RefCell::new(Notes::default());
}

/// A session in the representation of [`rustls`].
#[derive(Debug)]
pub(super) enum SessionValue {
    Tls12(Tls12ClientSessionValue),
    Tls13(Tls13ClientSessionValue),
}

/// The notes of a connection.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// The session to be resumed; [`rustls`] takes it when it writes the `ClientHello`.
    pub(super) offered: Option<SessionValue>,
    /// Sessions from the server, at most [`KEPT`].
    pub(super) received: Vec<SessionValue>,
    /// Whether sessions received from now on are dropped.
    pub(super) refuses_sessions: bool,
    /// The scheme of the server's signature.
    pub(super) scheme: Option<SignatureScheme>,
    /// Length of the stapled OCSP response.
    pub(super) staple_bytes: usize,
    /// Why the chain or the signature is not trusted, if verification only reports.
    pub(super) distrust: Option<Error>,
    /// Observer of the connection.
    pub(super) observer: Option<Arc<dyn Observer>>,
    /// The server's name, for the observer.
    pub(super) server_name: String,
    /// The current time for [`NotedClock`]; `None` stands for the system's time.
    pub(super) clock: Option<UnixTime>,
}

impl Notes {
    /// Runs `work`, in which [`rustls`] may call back.
    pub(super) fn lend<T>(&mut self, work: impl FnOnce() -> T) -> T {
        // The cell is borrowed for the swaps only: the callbacks in `work` borrow it too.
        CURRENT.with_borrow_mut(|current| mem::swap(current, self));
        let result = work();
        CURRENT.with_borrow_mut(|current| mem::swap(current, self));
        result
    }
}

/// Changes the [`Notes`] of the connection that called [`rustls`].
pub(super) fn update<T>(change: impl FnOnce(&mut Notes) -> T) -> T {
    CURRENT.with_borrow_mut(change)
}

/// Session store that offers the caller's session and collects sessions from the server.
#[derive(Debug)]
pub(super) struct CallersSessions;

impl ClientSessionStore for CallersSessions {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    // The share is always for the first group in the settings.
    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        keep(SessionValue::Tls12(value));
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        update(|notes| match notes.offered.take() {
            Some(SessionValue::Tls12(value)) => Some(value),
            other => {
                notes.offered = other;
                None
            }
        })
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        keep(SessionValue::Tls13(value));
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        update(|notes| match notes.offered.take() {
            Some(SessionValue::Tls13(value)) => Some(value),
            // rustls requests a TLS 1.3 session first and then one of TLS 1.2, so the session must survive
            // this request.
            other => {
                notes.offered = other;
                None
            }
        })
    }
}

fn keep(value: SessionValue) {
    update(|notes| {
        if notes.refuses_sessions {
            return;
        }
        if notes.received.len() == KEPT {
            notes.received.remove(0);
        }
        notes.received.push(value);
    });
}

/// Passes secrets to [`Notes::observer`].
#[derive(Debug)]
pub(super) struct NotedKeyLog;

impl KeyLog for NotedKeyLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if let Some(observer) = update(|notes| notes.observer.clone()) {
            observer.secret(label, client_random, secret);
        }
    }

    fn will_log(&self, _: &str) -> bool {
        update(|notes| notes.observer.is_some())
    }
}

/// The system's time, unless [`Notes::clock`] contains another.
#[derive(Debug)]
pub(super) struct NotedClock;

impl TimeProvider for NotedClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(update(|notes| notes.clock).unwrap_or_else(UnixTime::now))
    }
}

//! What the callbacks of one handshake learn on the way: written in `hooks`, read by `acceptor`.
//!
//! The callbacks are shared by all connections, so their notes go through a thread-local that `suspend` swaps in while
//! a handshake runs.

use std::cell::Cell;
use std::time::{Duration, Instant};

use brisk_telemetry::Resumption;

/// Notes of one run of a handshake.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Notes {
    /// Position of the certificate to show, of those of the host: told to the callbacks, not by them.
    pub(crate) certificate: Option<usize>,
    /// Code point of the scheme that signed, when one did.
    pub(crate) scheme: Option<u16>,
    /// Where the resumed session came from, when one was found.
    pub(crate) resumption: Option<Resumption>,
    /// When the certificate was chosen.
    pub(crate) certificate_chosen: Option<Instant>,
    /// When the key operation began, and how long it took.
    pub(crate) key_operation: Option<(Instant, Duration)>,
    /// The key operation failed: the handshake's error is ours, not the client's.
    pub(crate) key_failed: bool,
    /// No certificate of the host suits the client.
    pub(crate) no_certificate: bool,
}

impl Notes {
    /// Adds what a later run of the same handshake noted.
    pub(crate) fn merge(&mut self, later: Self) {
        self.scheme = later.scheme.or(self.scheme);
        self.resumption = later.resumption.or(self.resumption);
        self.certificate_chosen = later.certificate_chosen.or(self.certificate_chosen);
        self.key_operation = later.key_operation.or(self.key_operation);
        self.key_failed |= later.key_failed;
        self.no_certificate |= later.no_certificate;
    }
}

thread_local! {
    static NOTES: Cell<Notes> = Cell::new(Notes::default());
}

/// The notes of the handshake that runs on this thread.
pub(crate) fn current() -> Notes {
    NOTES.get()
}

/// Changes the notes of the handshake that runs on this thread.
pub(crate) fn update(change: impl FnOnce(&mut Notes)) {
    let mut notes = NOTES.get();
    change(&mut notes);
    NOTES.set(notes);
}

/// Exchanges the thread's notes with `other`.
pub(crate) fn swap(other: &mut Notes) {
    *other = NOTES.replace(*other);
}

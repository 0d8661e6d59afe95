//! The input of the callbacks of one handshake, and the facts that they collect: written in `hooks`, read by `acceptor`.
//!
//! The callbacks are shared by all connections, so their notes go through a thread-local that `suspend` swaps in while
//! a handshake runs.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_telemetry::{Resumption, ResumptionFailure};
use brisk_wire::registry::NamedGroup;
use rustls::sign::CertifiedKey;

/// The input of the callbacks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HandshakeInput {
    /// The only group that a key may be exchanged in; `None` leaves the choice to rustls.
    pub(crate) group: Option<NamedGroup>,
    /// The client sends early data and the host takes some: the session has to be taken against everyone.
    pub(crate) early_data: bool,
    /// The handshake is one of TLS 1.2.
    pub(crate) tls12: bool,
    /// The client whose key operations are limited, if they are.
    pub(crate) client: Option<IpAddr>,
}

/// Notes of one run of a handshake.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is noted by itself")]
pub(crate) struct Notes {
    /// The input of the callbacks.
    pub(crate) input: HandshakeInput,
    /// Code point of the scheme that signed, when one did.
    pub(crate) scheme: Option<u16>,
    /// Where the session came from, when one was found. It may still not suit the connection.
    pub(crate) resumption: Option<Resumption>,
    /// Why the first session that the client offered was not found.
    pub(crate) resumption_failure: Option<ResumptionFailure>,
    /// The client resumes TLS 1.2 with a ticket that it may keep: no other is to be sent.
    pub(crate) keeps_ticket: bool,
    /// The ID that a new session of TLS 1.2 gets, if it gets one.
    pub(crate) session_id: Option<[u8; 32]>,
    /// The client's session ID was not made by this fleet: it asks for no session with it.
    pub(crate) foreign_id: bool,
    /// How many sessions the client offered so far were looked for in the store.
    pub(crate) looked_up: u8,
    /// When the certificate was chosen.
    pub(crate) certificate_chosen: Option<Instant>,
    /// When the key operation began, and how long it took.
    pub(crate) key_operation: Option<(Instant, Duration)>,
    /// The key operation failed: the handshake's error is ours, not the client's.
    pub(crate) key_failed: bool,
    /// The key operation was not begun, because the client has had its share of them.
    pub(crate) limited: bool,
    /// No certificate of the host suits the client.
    pub(crate) no_certificate: bool,
}

impl Notes {
    /// Adds what a later run of the same handshake noted.
    pub(crate) fn merge(&mut self, later: Self) {
        self.scheme = later.scheme.or(self.scheme);
        self.resumption = later.resumption.or(self.resumption);
        self.resumption_failure = self.resumption_failure.or(later.resumption_failure);
        self.foreign_id |= later.foreign_id;
        self.certificate_chosen = later.certificate_chosen.or(self.certificate_chosen);
        self.key_operation = later.key_operation.or(self.key_operation);
        self.key_failed |= later.key_failed;
        self.limited |= later.limited;
        self.no_certificate |= later.no_certificate;
    }

    /// Notes why a session is not there.
    pub(crate) fn missed(&mut self, failure: ResumptionFailure) {
        self.resumption_failure.get_or_insert(failure);
    }
}

thread_local! {
    static NOTES: Cell<Notes> = Cell::new(Notes::default());
    static CERTIFICATE: Cell<Option<Arc<CertifiedKey>>> = const { Cell::new(None) };
}

/// What a handshake has on its thread while it runs.
#[derive(Debug, Default)]
pub(crate) struct Running {
    pub(crate) notes: Notes,
    pub(crate) certificate: Option<Arc<CertifiedKey>>,
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

/// The certificate to show in the handshake that runs on this thread; `None` if none suits its client.
pub(crate) fn certificate() -> Option<Arc<CertifiedKey>> {
    let certificate = CERTIFICATE.take();
    CERTIFICATE.set(certificate.clone());
    certificate
}

/// Sets the certificate to show in the handshake that runs on this thread.
pub(crate) fn show(certificate: Option<Arc<CertifiedKey>>) {
    CERTIFICATE.set(certificate);
}

/// Exchanges what the thread has with `other`.
pub(crate) fn swap(other: &mut Running) {
    other.notes = NOTES.replace(other.notes);
    other.certificate = CERTIFICATE.replace(other.certificate.take());
}

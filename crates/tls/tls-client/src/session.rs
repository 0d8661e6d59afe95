//! Sessions kept by the caller.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use brisk_wire::registry::ProtocolVersion;
use rustls::client::{ClientConnectionData, Tls13ClientSessionValue};
use rustls::kernel::KernelConnection;
use rustls::pki_types::UnixTime;

use super::notes::{Notes, SessionValue};

/// A session from a server. Only the [`Client`](crate::Client) whose connection received it, and its clones, can resume
/// it. With another client the handshake is full.
#[derive(Debug)]
pub struct SavedSession(Saved);

#[derive(Debug)]
enum Saved {
    Once(SessionValue),
    Many(Arc<ManyTimes>),
}

/// A TLS 1.3 session that is derived from its ticket for each use, because [`rustls`] uses up a session when it offers it.
pub(super) struct ManyTimes {
    /// The connection that received the ticket.
    pub(super) origin: Arc<Mutex<KernelConnection<ClientConnectionData>>>,
    /// The body of the `NewSessionTicket`.
    pub(super) ticket: Vec<u8>,
    /// Origin of the ticket's age (`obfuscated_ticket_age`), for all derived sessions.
    pub(super) received: UnixTime,
    pub(super) early_data_limit: u32,
}

impl SavedSession {
    /// The TLS version of the session.
    pub fn version(&self) -> ProtocolVersion {
        match self.0 {
            Saved::Once(SessionValue::Tls12(_)) => ProtocolVersion::TLS1_2,
            Saved::Once(SessionValue::Tls13(_)) | Saved::Many(_) => ProtocolVersion::TLS1_3,
        }
    }

    /// Maximum bytes of early data that the server accepts with this session; 0 for none.
    pub fn early_data_limit(&self) -> u32 {
        match &self.0 {
            Saved::Once(SessionValue::Tls12(_)) => 0,
            Saved::Once(SessionValue::Tls13(value)) => value.max_early_data_size(),
            Saved::Many(session) => session.early_data_limit,
        }
    }

    /// Lifetime of a TLS 1.3 session in seconds; `None` if rustls does not expose it, as for sessions for one use.
    pub fn lifetime(&self) -> Option<u32> {
        let seconds = self.message()?.first_chunk()?;
        Some(u32::from_be_bytes(*seconds))
    }

    /// The ticket of a TLS 1.3 session; `None` in the same cases as [`lifetime`](Self::lifetime).
    pub fn ticket(&self) -> Option<&[u8]> {
        // RFC 8446 section 4.6.1: lifetime, age_add, then the nonce with its length.
        let rest = self.message()?.get(8..)?;
        let rest = rest.get(1 + usize::from(*rest.first()?)..)?;
        let length = usize::from(u16::from_be_bytes(*rest.first_chunk()?));
        rest.get(2..2 + length)
    }

    fn message(&self) -> Option<&[u8]> {
        match &self.0 {
            Saved::Once(_) => None,
            Saved::Many(session) => Some(&session.ticket),
        }
    }

    /// A copy for another connection; `None` for a TLS 1.3 session that may be resumed only once
    /// ([`SessionUse::Once`](crate::SessionUse::Once)).
    pub fn try_clone(&self) -> Option<Self> {
        match &self.0 {
            Saved::Once(SessionValue::Tls12(value)) => {
                Some(Self(Saved::Once(SessionValue::Tls12(value.clone()))))
            }
            Saved::Once(SessionValue::Tls13(_)) => None,
            Saved::Many(session) => Some(Self(Saved::Many(Arc::clone(session)))),
        }
    }

    /// The session for [`rustls`], which consumes it.
    pub(super) fn into_value(self) -> Option<SessionValue> {
        match self.0 {
            Saved::Once(value) => Some(value),
            Saved::Many(session) => session.value().map(SessionValue::Tls13),
        }
    }
}

impl From<SessionValue> for SavedSession {
    fn from(value: SessionValue) -> Self {
        Self(Saved::Once(value))
    }
}

impl ManyTimes {
    /// The session of the ticket whose body is `ticket`; `None` if [`rustls`] refuses it.
    pub(super) fn session(
        origin: &Arc<Mutex<KernelConnection<ClientConnectionData>>>,
        ticket: &[u8],
    ) -> Option<SavedSession> {
        let origin = Arc::clone(origin);
        let ticket = ticket.to_vec();
        let mut session = Self { origin, ticket, received: UnixTime::now(), early_data_limit: 0 };
        session.early_data_limit = session.value()?.max_early_data_size();
        Some(SavedSession(Saved::Many(Arc::new(session))))
    }

    fn value(&self) -> Option<Tls13ClientSessionValue> {
        // RFC 8446 section 8.3: a server may refuse early data if the age of the ticket is implausible.
        // rustls counts the age from this call, so the call sees the time of receipt.
        let mut notes = Notes { clock: Some(self.received), ..Notes::default() };
        let mut origin = self.origin.lock().unwrap_or_else(PoisonError::into_inner);
        notes.lend(|| origin.handle_new_session_ticket(&self.ticket)).ok()?;
        match mem::take(&mut notes.received).pop() {
            Some(SessionValue::Tls13(value)) => Some(value),
            _ => None,
        }
    }
}

impl fmt::Debug for ManyTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManyTimes").field("early_data_limit", &self.early_data_limit).finish_non_exhaustive()
    }
}

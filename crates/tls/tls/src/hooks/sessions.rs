//! Session look-up and tickets for rustls. rustls only needs to know whether a session was found; the reason for a miss
//! is recorded in [`notes`].

use std::mem;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brisk_session::{Claim, Lookup, Miss, OpenError, SessionIds, SessionOrMiss, SessionStore, TicketKeyring};
use brisk_telemetry::{Resumption, ResumptionFailure};
use rustls::server::{ProducesTickets, StoresServerSessions};
use zeroize::Zeroizing;

use crate::demands::Demands;
use crate::{notes, suspend};

/// Maximum lifetime of a session in the store. RFC 5246 appendix F.1.4 suggests it for session IDs; for TLS 1.3
/// sessions in the store, rustls announces it to clients regardless of the setting.
const LONGEST_STORED: Duration = Duration::from_hours(24);

/// RFC 8446 section 4.6.1: "Servers MUST NOT use any value greater than 604800 seconds (7 days)."
const LONGEST_TICKET: Duration = Duration::from_hours(7 * 24);

/// Length of the PSK identity that [`rustls`] generates for a TLS 1.3 session in the store, in bytes.
const IDENTITY: usize = 32;

/// Maximum number of look-ups per `ClientHello`. Clients offer one or two sessions; each look-up may wait for the store.
const LOOK_UPS: u8 = 4;

/// Prefixes a session with the mark of the demands on client certificates under which it was made.
///
/// Sessions outlive a reload and are shared by hosts and machines, and rustls requests no certificate from a client
/// that resumes. Therefore a session of another host's or an earlier configuration's demands counts as not found.
/// Sessions of hosts without demands have no mark.
///
/// Certificates of resumed sessions are not looked up in revocation lists again. Therefore the mark includes the lists,
/// and no session is found once they have expired, if that affects acceptance.
fn marked(demands: &Demands, session: Vec<u8>) -> Vec<u8> {
    match demands.mark() {
        None => session,
        Some(mark) => {
            let session = Zeroizing::new(session);
            [&mark[..], &session[..]].concat()
        }
    }
}

/// The session without the mark of `demands`; `None` with another mark, or once the revocation lists have expired.
fn unmarked(demands: &Demands, session: Vec<u8>) -> Option<Vec<u8>> {
    let mut session = Zeroizing::new(session);
    if demands.expire().is_some_and(|expire| SystemTime::now() >= expire) {
        return None;
    }
    match demands.mark() {
        None => Some(mem::take(&mut *session)),
        Some(mark) => session.strip_prefix(mark).map(<[u8]>::to_vec),
    }
}

/// Passes a session to [`rustls`], and notes its [`Resumption`] or the [`ResumptionFailure`].
fn admit(demands: &Demands, found: Result<Vec<u8>, ResumptionFailure>, kind: Resumption) -> Option<Vec<u8>> {
    let session = found.and_then(|session| unmarked(demands, session).ok_or(ResumptionFailure::Unsuitable));
    notes::update(|notes| match &session {
        Ok(_) => notes.resumption = Some(kind),
        Err(failure) => notes.missed(*failure),
    });
    session.ok()
}

/// Sessions by ID (TLS 1.2) or by PSK identity (TLS 1.3 without tickets).
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) store: Arc<dyn SessionStore>,
    /// Generates and recognizes the IDs of TLS 1.2 sessions.
    pub(crate) ids: SessionIds,
    pub(crate) lifetime: Duration,
    pub(crate) demands: Demands,
}

impl StoresServerSessions for Sessions {
    /// After early data the handshake ends in a [`Stream`](crate::Stream), where nothing can wait: a session that the
    /// store does not accept at once is lost, and the client gets no ticket. Stores should therefore write
    /// asynchronously.
    fn put(&self, id: Vec<u8>, session: Vec<u8>) -> bool {
        let lifetime = self.lifetime.min(LONGEST_STORED);
        answer(self.store.put(&id, marked(&self.demands, session), lifetime)).unwrap_or(false)
    }

    /// rustls calls this for TLS 1.2 sessions, which may be resumed several times.
    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        // Clients send random session IDs with tickets and for middlebox compatibility; a look-up in Redis for each
        // would be wasted.
        if !self.ids.are_ours(id) {
            notes::update(|notes| notes.foreign_id = true);
            return None;
        }
        admit(&self.demands, found(self.store.get(id)), Resumption::SessionId)
    }

    /// rustls calls this for TLS 1.3 sessions, each of which is used once.
    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        let notes = notes::current();
        // For example a ticket from an earlier configuration with tickets.
        if id.len() != IDENTITY || notes.looked_up == LOOK_UPS {
            return admit(&self.demands, Err(ResumptionFailure::NoSession), Resumption::Psk);
        }
        notes::update(|notes| notes.looked_up += 1);
        // RFC 8446 section 8.1: early data needs a session that no other gateway can use as well. It belongs to the
        // first identity only (section 4.2.10).
        let early_data = notes.input.early_data && notes.looked_up == 0;
        let claim = if early_data { Claim::Everywhere } else { Claim::Here };
        admit(&self.demands, found(self.store.take(id, claim)), Resumption::Psk)
    }

    /// In a full TLS 1.2 handshake rustls calls this before [`Tickets::enabled`] and before it draws the session's ID.
    /// The ID is generated here, where its key is, and then drawn from the notes by [`provider`](crate::provider).
    fn can_cache(&self) -> bool {
        let session_id = self.ids.make();
        notes::update(|notes| {
            notes.keeps_ticket = false;
            notes.session_id = session_id;
        });
        true
    }
}

fn found(lookup: Lookup<SessionOrMiss>) -> Result<Vec<u8>, ResumptionFailure> {
    answer(lookup).unwrap_or(Err(Miss::Late)).map_err(|miss| match miss {
        Miss::Used => ResumptionFailure::Used,
        Miss::Late => ResumptionFailure::StoreLate,
        Miss::Down => ResumptionFailure::StoreDown,
        Miss::Forged => ResumptionFailure::Forged,
        _ => ResumptionFailure::NoSession,
    })
}

fn answer<T>(lookup: Lookup<T>) -> Option<T> {
    match lookup {
        Lookup::Ready(value) => Some(value),
        Lookup::Pending(future) => suspend::wait(future),
    }
}

/// Tickets sealed with the keys of a [`TicketKeyring`].
#[derive(Debug)]
pub(crate) struct Tickets {
    pub(crate) keyring: Arc<TicketKeyring>,
    pub(crate) lifetime: Duration,
    pub(crate) demands: Demands,
}

impl ProducesTickets for Tickets {
    /// RFC 5077 section 3.3: if the server omits the extension in its response to a ticket, it sends no new ticket and
    /// the client keeps the old one. In TLS 1.2 rustls calls this for the extension, after the ticket was opened.
    fn enabled(&self) -> bool {
        !notes::current().keeps_ticket
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(self.lifetime.min(LONGEST_TICKET).as_secs()).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        match self.demands.mark() {
            None => self.keyring.seal(plain, SystemTime::now()),
            Some(mark) => self.keyring.seal(&Zeroizing::new([&mark[..], plain].concat()), SystemTime::now()),
        }
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let opened = self.keyring.open_ticket(ticket, SystemTime::now()).map_err(|error| match error {
            OpenError::Expired => ResumptionFailure::Expired,
            OpenError::Forged => ResumptionFailure::Forged,
            _ => ResumptionFailure::UnknownKey,
        });
        let is_fresh = opened.as_ref().is_ok_and(|opened| opened.is_fresh);
        let session = admit(&self.demands, opened.map(|opened| opened.session), Resumption::Ticket)?;
        // RFC 8446 appendix C.4: a ticket of TLS 1.3 is used once, so each resumption needs another.
        notes::update(|notes| notes.keeps_ticket = notes.input.tls12 && is_fresh);
        Some(session)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;

    use brisk_certs::Crl;
    use brisk_session::{KeySource, RotationSettings};
    use brisk_testkit::ca::{Crls, TestCa};
    use rustls_pki_types::CertificateDer;

    use super::*;
    use crate::notes::{HandshakeInput, Notes, Running};
    use crate::settings::{ClientCertificates, Revocation, UnknownRevocation};
    use crate::testing::ScriptedStore;

    /// Returns the notes of a callback.
    fn noted<T>(input: HandshakeInput, call: impl FnOnce() -> T) -> (T, Notes) {
        let mut running = Running { notes: Notes { input, ..Notes::default() }, ..Running::default() };
        notes::swap(&mut running);
        let result = call();
        notes::swap(&mut running);
        (result, running.notes)
    }

    fn demands(roots: &[&'static [u8]]) -> Demands {
        let roots = roots.iter().map(|&root| CertificateDer::from(root)).collect();
        Demands::new(ClientCertificates { required: true, roots, revocation: None, keep: false })
    }

    /// Demands with these revocation lists.
    fn with_lists(lists: &Crls, unknown: UnknownRevocation) -> Demands {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(lists.pem().as_bytes()).expect("written");
        let revocation = Revocation { lists: Crl::read(file.path()).expect("lists"), unknown };
        let revocation = Some(revocation);
        Demands::new(ClientCertificates { required: true, roots: Vec::new(), revocation, keep: false })
    }

    #[test]
    fn a_session_is_worth_nothing_under_other_revocation_lists_or_expired_ones() {
        let (ca, hour) = (TestCa::new(), Duration::from_hours(1));
        let leaf = ca.client("alice").issue();
        let (none, one) = (ca.crls(&[], hour), ca.crls(&[&leaf], hour));
        let session = marked(&with_lists(&none, UnknownRevocation::Refuse), b"session".to_vec());
        let found = |lists, unknown| unmarked(&with_lists(lists, unknown), session.clone());
        assert_eq!(found(&none, UnknownRevocation::Refuse).as_deref(), Some(&b"session"[..]));
        assert_eq!(found(&one, UnknownRevocation::Refuse), None);
        assert_eq!(found(&none, UnknownRevocation::Accept), None);
        let old = ca.expired_crls(&[]);
        for (unknown, found) in [(UnknownRevocation::Refuse, false), (UnknownRevocation::Accept, true)] {
            let demands = with_lists(&old, unknown);
            let session = marked(&demands, b"session".to_vec());
            assert_eq!(unmarked(&demands, session).is_some(), found, "{unknown:?}");
        }
    }

    #[test]
    fn a_session_is_found_under_its_own_demands_only() {
        let demand = demands(&[b"one", b"two"]);
        let session = marked(&demand, b"session".to_vec());
        assert_eq!(unmarked(&demands(&[b"other"]), session.clone()), None);
        assert_eq!(unmarked(&demand, session).as_deref(), Some(&b"session"[..]));
    }

    /// Whether freed memory at this address still contains most of a session of `[0x5a; 1024]`.
    fn remains(address: usize) -> bool {
        // On the stack: memory from the allocator could be the memory that is examined.
        let mut bytes = [0; 1024];
        let memory = File::open("/proc/self/mem").expect("the memory of this process");
        let is_mapped = memory.read_exact_at(&mut bytes, address as u64).is_ok();
        is_mapped && bytes.iter().filter(|byte| **byte == 0x5a).take(513).count() > 512
    }

    #[test]
    fn sessions_that_get_or_lose_a_mark_leave_no_copy() {
        let demand = demands(&[b"one"]);
        let session = vec![0x5a_u8; 1024];
        let address = session.as_ptr().addr();
        assert!(remains(address), "it is found while it exists");
        let session = marked(&demand, session);
        assert!(!remains(address));
        let (other, address) = (session.clone(), session.as_ptr().addr());
        assert!(unmarked(&demand, session).is_some() && !remains(address));
        let address = other.as_ptr().addr();
        assert!(unmarked(&demands(&[b"other"]), other).is_none() && !remains(address));
    }

    #[test]
    fn a_ticket_that_does_not_open_is_noted() {
        let keys = KeySource::Generated(RotationSettings::default());
        let keyring = Arc::new(TicketKeyring::new(keys, SystemTime::now()));
        let lifetime = Duration::from_mins(1);
        let tickets = Tickets { keyring, lifetime, demands: Demands::default() };
        let failure = |ticket: &[u8]| {
            let (session, notes) = noted(HandshakeInput::default(), || tickets.decrypt(ticket));
            assert_eq!(session.is_some(), notes.resumption_failure.is_none());
            notes.resumption_failure
        };
        let ticket = tickets.encrypt(b"session").expect("a ticket");
        assert_eq!(failure(&ticket), None);
        let mut forged = ticket.clone();
        *forged.last_mut().expect("bytes") ^= 1;
        assert_eq!(failure(&forged), Some(ResumptionFailure::Forged));
        assert_eq!(failure(b"ticket"), Some(ResumptionFailure::UnknownKey));
        let other = Tickets { demands: demands(&[]), ..tickets };
        let (session, notes) = noted(HandshakeInput::default(), || other.decrypt(&ticket));
        assert_eq!((session, notes.resumption_failure), (None, Some(ResumptionFailure::Unsuitable)));
    }

    #[test]
    fn few_sessions_of_a_hello_are_looked_for() {
        let store = Arc::new(ScriptedStore::default());
        let lifetime = Duration::from_mins(1);
        let (ids, demands) = (SessionIds::default(), Demands::default());
        let sessions = Sessions { store: Arc::clone(&store) as _, ids, lifetime, demands };
        let input = HandshakeInput { early_data: true, ..HandshakeInput::default() };
        let ((), notes) = noted(input, || {
            // Not an identity of this server.
            assert_eq!(sessions.take(&[0; 31]), None);
            for id in 0..100 {
                assert_eq!(sessions.take(&[id; IDENTITY]), None);
            }
        });
        assert_eq!(store.claims(), [Claim::Everywhere, Claim::Here, Claim::Here, Claim::Here]);
        assert_eq!(notes.resumption_failure, Some(ResumptionFailure::NoSession));
    }
}

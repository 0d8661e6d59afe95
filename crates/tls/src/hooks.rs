//! The callbacks that rustls makes in the middle of a handshake: certificate, signature, session store, tickets.
//!
//! Each of them may wait (`suspend::wait`) for an engine or a store that answers later; each notes what it did.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use brisk_certs::Certificate;
use brisk_keys::{KeyAlgorithm, KeyOperation, OperationKind, PrivateKeyEngine};
use brisk_session::{Claim, Lookup, SessionStore, TicketKeyring};
use brisk_telemetry::Resumption;
use brisk_wire::registry;
use bytes::Bytes;
use rustls::server::{ClientHello, ProducesTickets, ResolvesServerCert, StoresServerSessions};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

use crate::{notes, suspend};

/// How long a handshake waits for its key operation. Clients give up after about ten seconds.
const KEY_OPERATION_LIMIT: Duration = Duration::from_secs(5);

/// Shows the certificate of one host that the acceptor chose by the client's hello.
#[derive(Debug)]
pub(crate) struct HostResolver(Vec<Arc<CertifiedKey>>);

impl HostResolver {
    /// Certificates by the positions that [`notes`] name.
    pub(crate) fn new(certificates: &[Arc<Certificate>], engine: &Arc<dyn PrivateKeyEngine>) -> Self {
        let certified = certificates.iter().map(|certificate| {
            let key = EngineKey { engine: Arc::clone(engine), certificate: Arc::clone(certificate) };
            Arc::new(CertifiedKey::new(certificate.chain.clone(), Arc::new(key)))
        });
        Self(certified.collect())
    }
}

impl ResolvesServerCert for HostResolver {
    fn resolve(&self, _client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let chosen = notes::current().certificate.and_then(|position| self.0.get(position));
        notes::update(|notes| {
            notes.certificate_chosen = Some(Instant::now());
            notes.no_certificate = chosen.is_none();
        });
        chosen.map(Arc::clone)
    }
}

/// A private key that is wherever its engine has it.
#[derive(Debug)]
struct EngineKey {
    engine: Arc<dyn PrivateKeyEngine>,
    certificate: Arc<Certificate>,
}

impl SigningKey for EngineKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let schemes = self.certificate.algorithm.schemes();
        let scheme = *schemes.iter().find(|&&s| offered.contains(&scheme_from_wire(s)))?;
        Some(Box::new(EngineSigner {
            engine: Arc::clone(&self.engine),
            certificate: Arc::clone(&self.certificate),
            scheme,
        }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.certificate.algorithm {
            KeyAlgorithm::EcdsaP256 | KeyAlgorithm::EcdsaP384 => SignatureAlgorithm::ECDSA,
            KeyAlgorithm::Ed25519 => SignatureAlgorithm::ED25519,
            _ => SignatureAlgorithm::RSA,
        }
    }
}

#[derive(Debug)]
struct EngineSigner {
    engine: Arc<dyn PrivateKeyEngine>,
    certificate: Arc<Certificate>,
    scheme: registry::SignatureScheme,
}

impl Signer for EngineSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let started = Instant::now();
        let mut pending = self.engine.submit(KeyOperation {
            key: self.certificate.key,
            kind: OperationKind::Sign { scheme: self.scheme, message: Bytes::copy_from_slice(message) },
            deadline: started + KEY_OPERATION_LIMIT,
        });
        let result = match pending.try_take() {
            Some(result) => result,
            None => suspend::wait(pending)
                .ok_or_else(|| rustls::Error::General("key operation outside of a handshake".into()))?,
        };
        notes::update(|notes| {
            notes.scheme = Some(self.scheme.0);
            notes.key_operation = Some((started, started.elapsed()));
            notes.key_failed = result.is_err();
        });
        result.map_err(|error| rustls::Error::General(format!("key operation: {error}")))
    }

    fn scheme(&self) -> SignatureScheme {
        scheme_from_wire(self.scheme)
    }
}

fn scheme_from_wire(scheme: registry::SignatureScheme) -> SignatureScheme {
    SignatureScheme::from(scheme.0)
}

/// Whose client certificates a session vouches for: the demands of the host that made it, or `None` where it asks for none.
///
/// Sessions outlive a reload and are shared by hosts, and rustls asks a client that resumes for no certificate. So a
/// session is marked with the demands it was made under, and another host's, or an earlier configuration's, is not found.
pub(crate) type Demands = Option<u64>;

fn marked(demands: Demands, session: Vec<u8>) -> Vec<u8> {
    match demands {
        None => session,
        Some(demands) => [&demands.to_be_bytes()[..], &session].concat(),
    }
}

fn unmarked(demands: Demands, session: Vec<u8>) -> Option<Vec<u8>> {
    match demands {
        None => Some(session),
        Some(demands) => session.strip_prefix(&demands.to_be_bytes()).map(<[u8]>::to_vec),
    }
}

/// Sessions by ID (TLS 1.2) or by PSK identity (TLS 1.3 without tickets).
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) lifetime: Duration,
    pub(crate) demands: Demands,
}

impl Sessions {
    fn found(&self, session: Option<Vec<u8>>, kind: Resumption) -> Option<Vec<u8>> {
        let session = unmarked(self.demands, session?);
        if session.is_some() {
            notes::update(|notes| notes.resumption = Some(kind));
        }
        session
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, id: Vec<u8>, session: Vec<u8>) -> bool {
        answer(self.store.put(&id, marked(self.demands, session), self.lifetime)).unwrap_or(false)
    }

    /// rustls reads TLS 1.2 sessions: they may be resumed again.
    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.found(answer(self.store.get(id))?.ok(), Resumption::SessionId)
    }

    /// rustls takes TLS 1.3 sessions: each is used once.
    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.found(answer(self.store.take(id, Claim::Here))?.ok(), Resumption::Psk)
    }

    fn can_cache(&self) -> bool {
        true
    }
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
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(self.lifetime.as_secs()).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        match self.demands {
            None => self.keyring.seal(plain, SystemTime::now()),
            demands => self.keyring.seal(&marked(demands, plain.to_vec()), SystemTime::now()),
        }
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let session = unmarked(self.demands, self.keyring.open(ticket, SystemTime::now()).ok()?)?;
        notes::update(|notes| notes.resumption = Some(Resumption::Ticket));
        Some(session)
    }
}

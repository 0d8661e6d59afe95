//! The callbacks of rustls during a handshake: certificate and signature here, sessions and tickets in
//! `hooks/sessions`.
//!
//! Each may wait (`suspend::wait`) for an engine or a store, and records its result in [`notes`].

mod sessions;

use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_certs::{Certificate, Served};
use brisk_keys::{KeyAlgorithm, KeyOperation, PrivateKeyEngine, turn};
use brisk_wire::registry;
use bytes::Bytes;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

use crate::gate::KeyGate;
use crate::gather::Kind;
use crate::{gather, notes, suspend};
pub(crate) use sessions::{Sessions, Tickets};

/// Maximum time of a [`KeyOperation`]. Clients give up after about ten seconds.
const KEY_OPERATION_LIMIT: Duration = Duration::from_secs(5);

/// Presents the certificate that the acceptor chose by the `ClientHello`. Therefore the configurations of [`rustls`]
/// contain no certificate, and a renewal does not change them.
#[derive(Debug)]
pub(crate) struct ChosenCertificate;

impl ResolvesServerCert for ChosenCertificate {
    fn resolve(&self, _client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let chosen = notes::certificate();
        notes::update(|notes| {
            notes.certificate_chosen = Some(Instant::now());
            notes.no_certificate = chosen.is_none();
        });
        chosen
    }
}

/// Converts a certificate into a [`CertifiedKey`] whose operations its [`PrivateKeyEngine`] performs.
pub(crate) fn certified(served: &Served, gate: &Arc<KeyGate>) -> Arc<CertifiedKey> {
    let Served { certificate, engine, staple } = served.clone();
    let chain = certificate.chain.clone();
    let key = Arc::new(EngineKey { engine, gate: Arc::clone(gate), certificate });
    Arc::new(CertifiedKey { ocsp: staple.map(|staple| staple.der.clone()), ..CertifiedKey::new(chain, key) })
}

/// A private key in a [`PrivateKeyEngine`].
#[derive(Debug)]
struct EngineKey {
    engine: Arc<dyn PrivateKeyEngine>,
    gate: Arc<KeyGate>,
    certificate: Arc<Certificate>,
}

impl SigningKey for EngineKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let schemes = self.certificate.algorithm.schemes();
        // In the order of the server (`KeyAlgorithm::schemes`), not of the client.
        let scheme = *schemes.iter().find(|&&s| offered.contains(&scheme_from_wire(s)))?;
        Some(Box::new(EngineSigner {
            engine: Arc::clone(&self.engine),
            gate: Arc::clone(&self.gate),
            certificate: Arc::clone(&self.certificate),
            scheme,
        }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.certificate.algorithm {
            KeyAlgorithm::EcdsaP256 | KeyAlgorithm::EcdsaP384 => SignatureAlgorithm::ECDSA,
            KeyAlgorithm::Ed25519 => SignatureAlgorithm::ED25519,
            // Also for ML-DSA: rustls uses the value for the suites of TLS 1.2 only, for which such a key
            // is never chosen.
            _ => SignatureAlgorithm::RSA,
        }
    }
}

#[derive(Debug)]
struct EngineSigner {
    engine: Arc<dyn PrivateKeyEngine>,
    gate: Arc<KeyGate>,
    certificate: Arc<Certificate>,
    scheme: registry::SignatureScheme,
}

impl Signer for EngineSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        // Before the submission, so that a client beyond its share does not enter the engine's queue.
        let Some(_pass) = self.gate.enter(notes::current().input.client) else {
            notes::update(|notes| notes.limited = true);
            return Err(rustls::Error::General(
                "the client has had its share of key operations, or the process is overloaded".into(),
            ));
        };
        let started = Instant::now();
        let (message, deadline) = (Bytes::copy_from_slice(message), started + KEY_OPERATION_LIMIT);
        let operation = KeyOperation::sign(self.certificate.key, self.scheme, message, deadline);
        let submit = || self.engine.submit(operation);
        // Without company, a gathered signature would wait for the end of the turn without effect.
        let mut pending = if self.waits_for_others() { submit() } else { turn::alone(submit) };
        let result = match pending.try_take() {
            // Engines that sign on this thread are done now: no suspension and no waker are needed.
            Some(result) => result,
            None => suspend::wait(pending)
                .ok_or_else(|| rustls::Error::General("key operation outside of a handshake".into()))?,
        };
        notes::update(|notes| {
            notes.scheme = Some(self.scheme.0);
            notes.key_operation = Some((started, started.elapsed()));
            notes.key_failed = result.is_err();
        });
        result
            // Not wiped: a signature is public.
            .map(|mut signature| std::mem::take(&mut *signature))
            .map_err(|error| rustls::Error::General(format!("key operation: {error}")))
    }

    fn scheme(&self) -> SignatureScheme {
        scheme_from_wire(self.scheme)
    }
}

impl EngineSigner {
    /// Whether the signature is computed at the end of the worker's turn, together with those of other handshakes.
    fn waits_for_others(&self) -> bool {
        self.certificate.algorithm == KeyAlgorithm::EcdsaP256 && gather::has_company(Kind::Signature)
    }
}

fn scheme_from_wire(scheme: registry::SignatureScheme) -> SignatureScheme {
    SignatureScheme::from(scheme.0)
}

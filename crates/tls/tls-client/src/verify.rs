//! [`Verifier`] of servers: chains with a cache, and the signature of each handshake.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, ParsedPublicKey};
use brisk_tls_base::{file_roots, system_roots};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::error::ClientError;
use super::notes;
use super::settings::Verification;

/// Maximum number of [`Verified`] chains in the cache. A server has only a few.
const REMEMBERED: usize = 32;

/// How long a verified chain is trusted before it is verified again.
const BELIEVED: Duration = Duration::from_mins(1);

/// Verifies the chain of a server, caches it by its exact bytes, and verifies the signature of each handshake.
///
/// It belongs to one [`Client`](crate::Client), so that all its chains were verified for the same name.
pub(super) struct Verifier {
    /// `None` accepts every server.
    chains: Option<Arc<WebPkiServerVerifier>>,
    /// Whether errors are noted and accepted: [`Verification::Reported`].
    only_reports: bool,
    algorithms: WebPkiSupportedAlgorithms,
    schemes: Vec<SignatureScheme>,
    verified: Mutex<Vec<Verified>>,
}

struct Verified {
    end_entity: Vec<u8>,
    intermediates: Vec<Vec<u8>>,
    until: UnixTime,
    /// The parsed public key of the certificate, if it is for ECDSA on secp256r1.
    key: Option<Arc<ParsedPublicKey>>,
}

/// Verifies a signature with a certificate that must be parsed first.
type SignatureCheck = fn(
    &[u8],
    &CertificateDer<'_>,
    &DigitallySignedStruct,
    &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error>;

impl Verifier {
    /// `schemes` are accepted from servers; an empty list stands for all.
    pub(super) fn new(
        verification: &Verification,
        schemes: Vec<SignatureScheme>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, ClientError> {
        let algorithms = provider.signature_verification_algorithms;
        let known = algorithms.supported_schemes();
        if let Some(unknown) = schemes.iter().find(|scheme| !known.contains(scheme)) {
            return Err(ClientError::Settings(format!("signature scheme {unknown:?} is not supported")));
        }
        let chains = match verification {
            Verification::Off => None,
            Verification::Reported(files) if !files.is_empty() => Some(authorities(files)?),
            Verification::System | Verification::Reported(_) => {
                Some(system_roots().map_err(ClientError::settings)?)
            }
            Verification::Authorities(files) => Some(authorities(files)?),
        };
        let chains = chains.map(|roots| {
            let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
            builder.build().map_err(ClientError::settings)
        });
        let schemes = if schemes.is_empty() { known } else { schemes };
        let only_reports = matches!(verification, Verification::Reported(_));
        Ok(Self {
            chains: chains.transpose()?,
            only_reports,
            algorithms,
            schemes,
            verified: Mutex::default(),
        })
    }

    fn remembers(&self, end_entity: &[u8], intermediates: &[CertificateDer<'_>], now: UnixTime) -> bool {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        verified.iter().any(|chain| {
            chain.until > now
                && chain.end_entity == end_entity
                && chain.intermediates.iter().map(Vec::as_slice).eq(intermediates.iter().map(AsRef::as_ref))
        })
    }

    fn remember(&self, end_entity: &[u8], intermediates: &[CertificateDer<'_>], now: UnixTime) {
        let until = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs()) + BELIEVED);
        let intermediates = intermediates.iter().map(|certificate| certificate.to_vec()).collect();
        // Parsed once: a load generator verifies a signature with this key in each full handshake.
        let key = secp256r1_key(end_entity).map(Arc::new);
        let chain = Verified { end_entity: end_entity.to_vec(), intermediates, until, key };
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        verified.retain(|chain| chain.until > now);
        if verified.len() == REMEMBERED {
            verified.remove(0);
        }
        verified.push(chain);
    }

    /// Verifies with a cached public key; `None` if there is none for this certificate and scheme.
    fn verify_with_remembered(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Option<Result<HandshakeSignatureValid, Error>> {
        if signed.scheme != SignatureScheme::ECDSA_NISTP256_SHA256 {
            return None;
        }
        let valid = self.remembered_key(certificate)?.verify_sig(message, signed.signature());
        Some(match valid {
            Ok(()) => Ok(HandshakeSignatureValid::assertion()),
            Err(_) => Err(CertificateError::BadSignature.into()),
        })
    }

    /// The lock is held for the look-up only, because verification takes long.
    fn remembered_key(&self, certificate: &[u8]) -> Option<Arc<ParsedPublicKey>> {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        verified.iter().find(|chain| chain.end_entity == certificate)?.key.clone()
    }

    fn verify_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
        otherwise: SignatureCheck,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.note_scheme(signed.scheme)?;
        if self.chains.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let valid = self
            .verify_with_remembered(message, certificate, signed)
            .unwrap_or_else(|| otherwise(message, certificate, signed, &self.algorithms));
        self.or_reported(valid, HandshakeSignatureValid::assertion)
    }

    /// Returns the result; if errors are only reported, notes the first error and returns `accepted` instead.
    fn or_reported<T>(&self, result: Result<T, Error>, accepted: fn() -> T) -> Result<T, Error> {
        match result {
            Err(error) if self.only_reports => {
                observe(Some(&error));
                notes::update(|notes| {
                    // The first error stays: after a bad chain, a bad signature explains nothing more.
                    notes.distrust.get_or_insert(error);
                });
                Ok(accepted())
            }
            result => result,
        }
    }

    fn verify_chain(
        &self,
        chains: &WebPkiServerVerifier,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        staple: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.remembers(end_entity, intermediates, now) {
            let valid = chains.verify_server_cert(end_entity, intermediates, server_name, staple, now);
            valid.map_err(|error| match error {
                // An authority with the name of a trusted one, but another key.
                Error::InvalidCertificate(CertificateError::BadSignature) => {
                    CertificateError::UnknownIssuer.into()
                }
                other => other,
            })?;
            self.remember(end_entity, intermediates, now);
        }
        Ok(ServerCertVerified::assertion())
    }

    /// Records the scheme. An error if the server signed with a scheme that was not offered.
    fn note_scheme(&self, scheme: SignatureScheme) -> Result<(), Error> {
        notes::update(|notes| notes.scheme = Some(scheme));
        // The functions of rustls compare with all schemes that they support, and the offer may have fewer.
        if self.schemes.contains(&scheme) {
            return Ok(());
        }
        Err(rustls::PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        staple: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        notes::update(|notes| {
            notes.staple_bytes = staple.len();
            if let Some(observer) = &notes.observer {
                let all = [end_entity].into_iter().chain(intermediates);
                observer.chain(&all.map(AsRef::as_ref).collect::<Vec<_>>(), staple);
            }
        });
        let Some(chains) = &self.chains else { return Ok(ServerCertVerified::assertion()) };
        let valid = self.verify_chain(chains, end_entity, intermediates, server_name, staple, now);
        if valid.is_ok() {
            observe(None);
        }
        self.or_reported(valid, ServerCertVerified::assertion)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, certificate, signed, verify_tls12_signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, certificate, signed, verify_tls13_signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("schemes", &self.schemes).finish_non_exhaustive()
    }
}

/// Passes the verdict to `Observer::verified` of the connection, if it has an observer.
fn observe(error: Option<&Error>) {
    let (observer, name) = notes::update(|notes| (notes.observer.clone(), notes.server_name.clone()));
    if let Some(observer) = observer {
        let reason = error.map(|error| ClientError::of_handshake(error, &name).to_string());
        observer.verified(reason.as_deref());
    }
}

/// Prefix of a `SubjectPublicKeyInfo` for ECDSA on secp256r1 (RFC 5480); the uncompressed point follows.
const SECP256R1_INFO: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

fn secp256r1_key(certificate: &[u8]) -> Option<ParsedPublicKey> {
    let certificate = CertificateDer::from(certificate);
    let info = ParsedCertificate::try_from(&certificate).ok()?.subject_public_key_info();
    let point = info.strip_prefix(&SECP256R1_INFO)?;
    ParsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).ok()
}

fn authorities(files: &[PathBuf]) -> Result<RootCertStore, ClientError> {
    let mut roots = RootCertStore::empty();
    for file in files {
        roots.roots.extend(file_roots(file).map_err(ClientError::settings)?.roots);
    }
    if roots.is_empty() {
        return Err(ClientError::Settings("no file with certificate authorities is named".to_owned()));
    }
    Ok(roots)
}

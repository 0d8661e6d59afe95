//! OCSP (RFC 6960) for servers that staple: requests, and the verification of responses before clients get them.

mod response;

use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use thiserror::Error;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::der::{INTEGER, Malformed, OCTET_STRING, SEQUENCE, write};
use crate::error::day;
use crate::signature::{signed_by, verifies};
use response::{Basic, CertStatus, Responder, SingleStatus};

/// Maximum size of a response in bytes. Responses usually have 300 to 3,000.
pub const RESPONSE_LIMIT: usize = 64 * 1024;

/// Tolerated difference between the clocks of this machine and of the responder.
const SKEW: Duration = Duration::from_mins(5);

/// Time for which a response without `nextUpdate` is a staple, from `producedAt`. RFC 6960 section 4.2.2.1: newer information is
/// available at all times. Firefox accepts such a response for a day.
const WITHOUT_END: Duration = Duration::from_hours(12);

/// Maximum number of certificates in a response that are tried as its signer. Responses usually have none or one.
const SIGNERS: usize = 8;

/// `AlgorithmIdentifier` and OIDs of the hashes in `CertID`, where collision resistance does not matter.
const SHA1_ID: &[u8] = &[0x30, 9, 6, 5, 0x2b, 0x0e, 3, 2, 0x1a, 5, 0];
const SHA1_OID: &[u8] = &[0x2b, 0x0e, 3, 2, 0x1a];
const SHA256_OID: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];

/// A verified response with the status *good*.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staple {
    /// The response as received, for clients.
    pub der: Vec<u8>,
    /// `thisUpdate`: the time at which the status was known to be correct.
    pub this_update: SystemTime,
    /// `nextUpdate`: the end of its validity. For a response without `nextUpdate`, 12 hours after it was made.
    pub next_update: SystemTime,
}

impl Staple {
    /// Whether clients accept the staple at `now`.
    pub fn is_fresh(&self, now: SystemTime) -> bool {
        now < self.next_update
    }
}

/// Reasons for not presenting a response to clients.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum OcspError {
    /// The response is malformed.
    #[error("it is no OCSP response: {0}")]
    Malformed(&'static str),
    /// The responder returned an error (RFC 6960 section 4.2.1).
    #[error("the responder refused to answer: {0}")]
    Refused(&'static str),
    /// The response is about other certificates.
    #[error("it is not about this certificate")]
    OtherCertificate,
    /// The signer is not authorised by the certificate's issuer.
    #[error(
        "it is signed neither by the issuer of the certificate nor by a responder that the issuer appointed"
    )]
    Signer,
    /// The signature is invalid.
    #[error("its signature is wrong")]
    Signature,
    /// `thisUpdate` is in the future.
    #[error("it is not valid before {}; is this machine's clock right?", day(*.0))]
    NotYetValid(SystemTime),
    /// `nextUpdate` has passed.
    #[error("it expired on {}", day(*.0))]
    Stale(SystemTime),
    /// The certificate is revoked.
    #[error("the certificate was revoked on {}", day(*.0))]
    Revoked(SystemTime),
    /// The responder does not know the certificate.
    #[error("the responder does not know this certificate")]
    Unknown,
}

impl From<Malformed> for OcspError {
    fn from(reason: Malformed) -> Self {
        Self::Malformed(reason)
    }
}

/// Identity of a certificate in OCSP: its serial number and issuer.
#[derive(Clone, Debug)]
pub struct CertId {
    issuer: Vec<u8>,
    issuer_name: Vec<u8>,
    /// Contents of the issuer's `subjectPublicKey`.
    issuer_key: Vec<u8>,
    serial: Vec<u8>,
}

impl CertId {
    /// Identifies `certificate`, issued by `issuer`; both are DER. `None` if one of them cannot be parsed.
    pub fn new(certificate: &[u8], issuer: &[u8]) -> Option<Self> {
        let (_, leaf) = X509Certificate::from_der(certificate).ok()?;
        let (_, parsed) = X509Certificate::from_der(issuer).ok()?;
        Some(Self {
            issuer: issuer.to_vec(),
            issuer_name: leaf.issuer().as_raw().to_vec(),
            issuer_key: parsed.public_key().subject_public_key.data.to_vec(),
            serial: leaf.tbs_certificate.raw_serial().to_vec(),
        })
    }

    /// The request in DER. It uses SHA-1, which every responder supports, and no nonce, so that the responder can send
    /// a response that it has signed in advance (RFC 5019 sections 2.1.1 and 4).
    pub fn request(&self) -> Vec<u8> {
        let (name, key) = self.hashes(&SHA1_FOR_LEGACY_USE_ONLY);
        let id = write(
            SEQUENCE,
            &[
                SHA1_ID,
                &write(OCTET_STRING, &[&name]),
                &write(OCTET_STRING, &[&key]),
                &write(INTEGER, &[&self.serial]),
            ],
        );
        let list = write(SEQUENCE, &[&write(SEQUENCE, &[&id])]);
        write(SEQUENCE, &[&write(SEQUENCE, &[&list])])
    }

    /// Verifies that `response` is valid at `now` and states that the certificate is good (RFC 6960 section 3.2).
    pub fn verify(&self, response: &[u8], now: SystemTime) -> Result<Staple, OcspError> {
        let basic = Basic::read(response)?;
        // A response for other certificates is refused before the signature is verified, which costs much
        // more.
        let single = self.answer(&basic)?;
        self.verify_signature(&basic, now)?;
        if single.this_update > now + SKEW {
            return Err(OcspError::NotYetValid(single.this_update));
        }
        // Before `nextUpdate` is compared: an expired response still proves a revocation.
        if let CertStatus::Revoked(since) = single.status {
            return Err(OcspError::Revoked(since));
        }
        if single.next_update.is_none() && basic.produced_at > now + SKEW {
            return Err(OcspError::NotYetValid(basic.produced_at));
        }
        let next_update = end(&single, &basic);
        if next_update <= now {
            return Err(OcspError::Stale(next_update));
        }
        match single.status {
            CertStatus::Good => {
                Ok(Staple { der: response.to_vec(), this_update: single.this_update, next_update })
            }
            _ => Err(OcspError::Unknown),
        }
    }

    fn hashes(&self, algorithm: &'static Algorithm) -> (Vec<u8>, Vec<u8>) {
        let hash = |bytes| digest(algorithm, bytes).as_ref().to_vec();
        (hash(&self.issuer_name), hash(&self.issuer_key))
    }

    /// Finds the status of this certificate. The status of another certificate is not parsed, so a malformed status there
    /// has no effect. A malformed `CertID` is an error: clients search the response for their certificate and refuse it.
    fn answer(&self, basic: &Basic<'_>) -> Result<SingleStatus, OcspError> {
        for single in basic.answers() {
            let single = single?;
            let (name, key) = match single.hash {
                SHA1_OID => self.hashes(&SHA1_FOR_LEGACY_USE_ONLY),
                SHA256_OID => self.hashes(&SHA256),
                _ => continue,
            };
            if single.issuer_name == name && single.issuer_key == key && single.serial == self.serial {
                return Ok(single.status()?);
            }
        }
        Err(OcspError::OtherCertificate)
    }

    // RFC 6960 section 4.2.2.2: the signer is the issuer, or a responder with a certificate for OCSP signing from it.
    fn verify_signature(&self, basic: &Basic<'_>, now: SystemTime) -> Result<(), OcspError> {
        let (_, issuer) =
            X509Certificate::from_der(&self.issuer).map_err(|_| "its issuer cannot be parsed")?;
        let mut outcome = Err(OcspError::Signer);
        if is_named(&basic.responder, &issuer) {
            outcome = verify_by(&issuer, basic);
        }
        let given = basic.certificates().filter_map(|der| X509Certificate::from_der(der).ok());
        // After a change of its key, a responder may send several certificates of one name.
        for (_, signer) in given.take(SIGNERS) {
            if outcome.is_err() && is_named(&basic.responder, &signer) && is_appointed(&signer, &issuer, now)
            {
                outcome = verify_by(&signer, basic);
            }
        }
        outcome
    }
}

/// The latest end of a response, without verification; `None` if it is malformed.
pub fn ends(response: &[u8]) -> Option<SystemTime> {
    let basic = Basic::read(response).ok()?;
    basic.answers().filter_map(|single| Some(end(&single.ok()?.status().ok()?, &basic))).max()
}

/// `nextUpdate`, or the end of the local lifetime.
fn end(single: &SingleStatus, basic: &Basic<'_>) -> SystemTime {
    single.next_update.unwrap_or_else(|| single.this_update.max(basic.produced_at) + WITHOUT_END)
}

fn verify_by(signer: &X509Certificate<'_>, basic: &Basic<'_>) -> Result<(), OcspError> {
    let right = verifies(signer.public_key(), &basic.algorithm, basic.signature, basic.signed);
    if right { Ok(()) } else { Err(OcspError::Signature) }
}

fn is_named(responder: &Responder<'_>, certificate: &X509Certificate<'_>) -> bool {
    match responder {
        Responder::Name(name) => certificate.subject().as_raw() == *name,
        Responder::Key(hash) => {
            // RFC 6960 section 4.2.1: `KeyHash` is always SHA-1. It only selects the signer, whose
            // signature is verified.
            let key = &certificate.public_key().subject_public_key.data;
            digest(&SHA1_FOR_LEGACY_USE_ONLY, key).as_ref() == *hash
        }
    }
}

fn is_appointed(signer: &X509Certificate<'_>, issuer: &X509Certificate<'_>, now: SystemTime) -> bool {
    // RFC 6960 section 4.2.2.2: the issuer itself must have issued the certificate of the responder, so no
    // chain is built here.
    let usage = signer.extended_key_usage().ok().flatten();
    let validity = signer.validity();
    let (begin, end) =
        (crate::x509::system_time(validity.not_before), crate::x509::system_time(validity.not_after));
    usage.is_some_and(|usage| usage.value.ocsp_signing)
        && begin <= now + SKEW
        && now <= end
        && signed_by(signer, issuer)
}

#[cfg(test)]
mod tests;

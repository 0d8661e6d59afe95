//! Whether a certificate is on the revocation list of its issuer (RFC 5280 section 5). Lists may be long: they are read
//! in place, and nothing is kept of them.

mod extensions;
#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::x509::AlgorithmIdentifier;

use crate::der::{BIT_STRING, GENERALIZED_TIME, INTEGER, Malformed, Reader, SEQUENCE, UTC_TIME, sequence};
use crate::signature::verifies;
use extensions::{Point, entry_is_understood};

/// What clocks may differ by.
const SKEW: Duration = Duration::from_mins(5);

/// A context's element: constructed.
const EXPLICIT: u8 = 0xa0;

/// A revocation list in its bytes, its signature not verified yet. It is whole: those of changes only, of several issuers,
/// for some reasons, or with critical extensions that are unknown here are refused when they are read (RFC 5280 section
/// 6.3.3).
pub struct RevocationList<'a> {
    signed: &'a [u8],
    algorithm: AlgorithmIdentifier<'a>,
    signature: &'a [u8],
    issuer: &'a [u8],
    entries: Reader<'a>,
    /// Which certificates it is about; all of the issuer if it does not say.
    point: Option<Point<'a>>,
    /// When it was made.
    pub this_update: SystemTime,
    /// When the next one is due, if it says so.
    pub next_update: Option<SystemTime>,
}

impl<'a> RevocationList<'a> {
    /// Reads a list in DER, or says in a few words why it is none to rely on.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut list = sequence(bytes)?;
        let signed = list.expect(SEQUENCE)?;
        let algorithm = list.expect(SEQUENCE)?.whole;
        let signature = list.expect(BIT_STRING)?.bits()?;
        list.end()?;
        let mut inside = signed.inside();
        inside.optional(INTEGER)?;
        // RFC 5280 section 5.1.1.2: both name the same.
        if inside.expect(SEQUENCE)?.whole != algorithm {
            return Err("two algorithms in the place of one");
        }
        let (_, algorithm) =
            AlgorithmIdentifier::from_der(algorithm).map_err(|_| "an algorithm that cannot be read")?;
        let issuer = inside.expect(SEQUENCE)?.whole;
        let this_update = inside.next()?.time()?;
        let next_update = match (inside.optional(UTC_TIME)?, inside.optional(GENERALIZED_TIME)?) {
            (Some(next), None) | (None, Some(next)) => Some(next.time()?),
            (None, None) => None,
            _ => return Err("two times in the place of one"),
        };
        let entries = inside.optional(SEQUENCE)?.map_or(Reader::new(&[]), crate::der::Element::inside);
        let point = inside.optional(EXPLICIT)?.map_or(Ok(None), |given| extensions::read(given.content))?;
        inside.end()?;
        let signed = signed.whole;
        Ok(Self { signed, algorithm, signature, issuer, entries, point, this_update, next_update })
    }

    /// Whether `issuer`, DER, signed it.
    pub fn is_signed_by(&self, issuer: &[u8]) -> bool {
        X509Certificate::from_der(issuer).is_ok_and(|(_, issuer)| {
            issuer.subject().as_raw() == self.issuer
                && verifies(issuer.public_key(), &self.algorithm, self.signature, self.signed)
        })
    }

    /// Whether it is about server certificates that say that their list is at one of `addresses`: issuers may divide
    /// their lists.
    pub fn is_for(&self, addresses: &[String]) -> bool {
        self.point.as_ref().is_none_or(|point| point.is_for(addresses))
    }

    /// Whether it has begun at `now`.
    pub fn has_begun(&self, now: SystemTime) -> bool {
        self.this_update <= now + SKEW
    }

    /// Since when the certificate of its issuer with this serial number, as it is written in the certificate, is
    /// revoked; `None` if it is not.
    pub fn revoked(&self, serial: &[u8]) -> Result<Option<SystemTime>, Malformed> {
        let mut entries = self.entries;
        let mut is_understood = true;
        while !entries.is_empty() {
            let mut entry = entries.expect(SEQUENCE)?.inside();
            if entry.expect(INTEGER)?.content == serial {
                return entry.next()?.time().map(Some);
            }
            entry.next()?;
            is_understood &= entry_is_understood(entry)?;
        }
        // RFC 5280 section 5.3: with an entry that is not understood the list says nothing of any certificate.
        if is_understood { Ok(None) } else { Err("an entry with a critical extension that is unknown here") }
    }
}

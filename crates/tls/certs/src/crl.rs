//! Certificate revocation lists (RFC 5280 section 5). [`RevocationList`] reads a list in place, because a list may have
//! megabytes; [`Crl`] is a list from a file of the operator, for the verification of client certificates.

mod extensions;
mod file;
#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::x509::AlgorithmIdentifier;

use crate::der::{
    BIT_STRING, Element, GENERALIZED_TIME, INTEGER, Malformed, Reader, SEQUENCE, UTC_TIME, sequence,
};
use crate::signature::verifies;
use extensions::{DistributionPoint, entry_is_understood};
pub use file::Crl;

/// Tolerated difference between the clocks of this machine and of the issuer.
const SKEW: Duration = Duration::from_mins(5);

/// Tag of `crlExtensions`: context-specific 0, constructed.
const EXTENSIONS: u8 = 0xa0;

/// A revocation list that borrows its DER. Its signature is verified by [`is_signed_by`](Self::is_signed_by), not when
/// it is read.
pub struct RevocationList<'a> {
    signed: &'a [u8],
    algorithm: AlgorithmIdentifier<'a>,
    signature: &'a [u8],
    issuer: &'a [u8],
    entries: Reader<'a>,
    /// The certificates that the list covers; `None` covers all certificates of the issuer.
    point: Option<DistributionPoint<'a>>,
    /// `thisUpdate` (RFC 5280 section 5.1.2.4).
    pub this_update: SystemTime,
    /// `nextUpdate` (RFC 5280 section 5.1.2.5), which some issuers omit.
    pub next_update: Option<SystemTime>,
}

impl<'a> RevocationList<'a> {
    /// Reads a list in DER that alone decides about the certificates that it covers.
    ///
    /// # Errors
    ///
    /// Malformed DER, delta lists, indirect lists, lists for some revocation reasons and unknown critical extensions
    /// (RFC 5280 section 6.3.3).
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (list, extensions) = Self::parse(bytes)?;
        let point = extensions.map_or(Ok(None), |extensions| extensions::read(extensions.content))?;
        Ok(Self { point, ..list })
    }

    /// The fields of a list of any kind, with its extensions unread.
    fn parse(bytes: &'a [u8]) -> Result<(Self, Option<Element<'a>>), Malformed> {
        let mut list = sequence(bytes)?;
        let signed = list.expect(SEQUENCE)?;
        let algorithm = list.expect(SEQUENCE)?.whole;
        let signature = list.expect(BIT_STRING)?.bits()?;
        list.end()?;
        let mut inside = signed.inside();
        // RFC 5280 section 5.1.2.1: lists of version 1 have no version field, and this one is 1 for version 2.
        if inside.optional(INTEGER)?.is_some_and(|version| version.content != [1]) {
            return Err("a version that is unknown here");
        }
        // RFC 5280 section 5.1.1.2: signatureAlgorithm and tbsCertList.signature must be equal.
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
        let entries = inside.optional(SEQUENCE)?.map_or(Reader::new(&[]), Element::inside);
        let extensions = inside.optional(EXTENSIONS)?;
        inside.end()?;
        let signed = signed.whole;
        let list =
            Self { signed, algorithm, signature, issuer, entries, point: None, this_update, next_update };
        Ok((list, extensions))
    }

    /// Whether `issuer`, a certificate in DER, signed the list.
    pub fn is_signed_by(&self, issuer: &[u8]) -> bool {
        X509Certificate::from_der(issuer).is_ok_and(|(_, issuer)| {
            issuer.subject().as_raw() == self.issuer
                && verifies(issuer.public_key(), &self.algorithm, self.signature, self.signed)
        })
    }

    /// Whether the list covers server certificates whose CRL distribution points are `addresses`. Issuers may divide
    /// their certificates among several lists (RFC 5280 section 5.2.5).
    pub fn is_for(&self, addresses: &[String]) -> bool {
        self.point.as_ref().is_none_or(|point| point.is_for(addresses))
    }

    /// Whether `thisUpdate` has passed at `now`, with a tolerance of five minutes.
    pub fn has_begun(&self, now: SystemTime) -> bool {
        self.this_update <= now + SKEW
    }

    /// The revocation date of the certificate with the serial number `serial` (contents of the DER INTEGER), or `None`
    /// if the list does not contain it. Takes time proportional to the length of the list.
    ///
    /// # Errors
    ///
    /// Malformed entries. Absence of the certificate from a list with an unknown critical entry extension.
    pub fn revoked(&self, serial: &[u8]) -> Result<Option<SystemTime>, Malformed> {
        let mut entries = self.entries;
        let mut is_understood = true;
        while let Some(entry) = Entry::next(&mut entries)? {
            // Decided before the rest of the list is parsed: a fault in a later entry must not hide a
            // revocation.
            if entry.serial.content == serial {
                return entry.date.time().map(Some);
            }
            entry.serial.integer()?;
            is_understood &= entry_is_understood(entry.rest)?;
        }
        // RFC 5280 section 5.3: an unknown critical extension may assign its entry to another issuer, so the absence
        // of the serial number proves nothing.
        if is_understood { Ok(None) } else { Err("an entry with a critical extension that is unknown here") }
    }

    /// Reads all entries, whose form [`Self::parse`] does not look at.
    fn check_entries(&self) -> Result<(), Malformed> {
        let mut entries = self.entries;
        while let Some(entry) = Entry::next(&mut entries)? {
            entry.serial.integer()?;
            entry.date.time()?;
            entry_is_understood(entry.rest)?;
        }
        Ok(())
    }
}

/// An element of `revokedCertificates` (RFC 5280 section 5.1.2.6).
struct Entry<'a> {
    serial: Element<'a>,
    date: Element<'a>,
    /// The extensions of the entry, if it has any.
    rest: Reader<'a>,
}

impl<'a> Entry<'a> {
    fn next(entries: &mut Reader<'a>) -> Result<Option<Self>, Malformed> {
        if entries.is_empty() {
            return Ok(None);
        }
        let mut rest = entries.expect(SEQUENCE)?.inside();
        let serial = rest.expect(INTEGER)?;
        Ok(Some(Self { serial, date: rest.next()?, rest }))
    }
}

//! Whether a certificate is on the revocation list of its issuer (RFC 5280 section 5). Lists may be long: they are read
//! in place, and nothing is kept of them.

use std::time::SystemTime;

use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::x509::AlgorithmIdentifier;

use crate::der::{BIT_STRING, GENERALIZED_TIME, INTEGER, Malformed, Reader, SEQUENCE, UTC_TIME, sequence};
use crate::signature::verifies;

/// A revocation list in its bytes, its signature not verified yet.
pub struct RevocationList<'a> {
    signed: &'a [u8],
    algorithm: AlgorithmIdentifier<'a>,
    signature: &'a [u8],
    issuer: &'a [u8],
    entries: Reader<'a>,
    /// When the next one is due, if it says so.
    pub next_update: Option<SystemTime>,
}

impl<'a> RevocationList<'a> {
    /// Reads a list in DER, or says in a few words why it is none.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut list = sequence(bytes)?;
        let signed = list.expect(SEQUENCE)?;
        let algorithm = list.expect(SEQUENCE)?.whole;
        let signature = list.expect(BIT_STRING)?.bits()?;
        list.end()?;
        let (_, algorithm) =
            AlgorithmIdentifier::from_der(algorithm).map_err(|_| "an algorithm that cannot be read")?;
        let mut inside = signed.inside();
        inside.optional(INTEGER)?;
        inside.expect(SEQUENCE)?;
        let issuer = inside.expect(SEQUENCE)?.whole;
        inside.next()?.time()?;
        let next_update = match (inside.optional(UTC_TIME)?, inside.optional(GENERALIZED_TIME)?) {
            (Some(next), None) | (None, Some(next)) => Some(next.time()?),
            (None, None) => None,
            _ => return Err("two times in the place of one"),
        };
        let entries = inside.optional(SEQUENCE)?.map_or(Reader::new(&[]), crate::der::Element::inside);
        Ok(Self { signed: signed.whole, algorithm, signature, issuer, entries, next_update })
    }

    /// Whether `issuer`, DER, signed it.
    pub fn is_signed_by(&self, issuer: &[u8]) -> bool {
        X509Certificate::from_der(issuer).is_ok_and(|(_, issuer)| {
            issuer.subject().as_raw() == self.issuer
                && verifies(issuer.public_key(), &self.algorithm, self.signature, self.signed)
        })
    }

    /// Since when the certificate of its issuer with this serial number, as it is written in the certificate, is
    /// revoked;
    /// `None` if it is not.
    pub fn revoked(&self, serial: &[u8]) -> Result<Option<SystemTime>, Malformed> {
        let mut entries = self.entries;
        while !entries.is_empty() {
            let mut entry = entries.expect(SEQUENCE)?.inside();
            if entry.expect(INTEGER)?.content == serial {
                return entry.next()?.time().map(Some);
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use brisk_testkit::ca::{Leaf, TestCa};
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;

    use super::*;

    fn serial(leaf: &Leaf) -> Vec<u8> {
        let der = CertificateDer::from_pem_slice(leaf.certificate_pem.as_bytes()).unwrap();
        crate::x509::Facts::read(&der).unwrap().services.serial
    }

    #[test]
    fn what_is_on_the_list_of_the_issuer_is_revoked() {
        let (ca, other) = (TestCa::new(), TestCa::new());
        let (good, bad) = (ca.server(&["a.test"]).issue(), ca.server(&["a.test"]).issue());
        let crls = ca.crls(&[&bad], Duration::from_hours(1));
        let list = RevocationList::read(&crls.intermediate_der).unwrap();
        assert_eq!(list.revoked(&serial(&good)), Ok(None));
        assert!(list.revoked(&serial(&bad)).unwrap().is_some_and(|since| since < SystemTime::now()));
        assert!(list.next_update.is_some_and(|next| next > SystemTime::now()));
        assert!(list.is_signed_by(&ca.intermediate_der()));
        assert!(!list.is_signed_by(&other.intermediate_der()));
    }

    #[test]
    fn a_list_without_entries_revokes_nothing_and_a_changed_one_is_not_signed() {
        let ca = TestCa::new();
        let leaf = ca.server(&["a.test"]).issue();
        let mut der = ca.crls(&[], Duration::from_hours(1)).intermediate_der;
        assert_eq!(RevocationList::read(&der).unwrap().revoked(&serial(&leaf)), Ok(None));
        let last = der.len() - 1;
        der[last] ^= 1;
        assert!(RevocationList::read(&der).is_ok_and(|list| !list.is_signed_by(&ca.intermediate_der())));
        assert!(RevocationList::read(&der[..last]).is_err());
        assert!(RevocationList::read(b"<html>").is_err());
    }
}

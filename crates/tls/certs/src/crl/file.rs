//! Revocation lists in files of the operator, for client certificates.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use brisk_keys::pem_sections;
use rustls_pki_types::CertificateRevocationListDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

use super::RevocationList;
use crate::error::{CertError, Warning};

/// A revocation list from a file. Handshakes verify its signature; it is not verified here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crl {
    /// The list in DER.
    pub der: CertificateRevocationListDer<'static>,
    /// `nextUpdate` (RFC 5280 section 5.1.2.5): the list is expired from this time on.
    pub next_update: SystemTime,
    issuer: String,
    issuer_der: Vec<u8>,
}

impl Crl {
    /// Reads a file with one list in DER, or with one or more lists in PEM.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, contains no list, or a list that is malformed or has no `nextUpdate`.
    pub fn read(file: &Path) -> Result<Vec<Self>, CertError> {
        let bytes = fs::read(file).map_err(|source| CertError::Read { path: file.to_owned(), source })?;
        let malformed = |reason| CertError::Crl { path: file.to_owned(), reason };
        // A list in DER begins with the tag of a SEQUENCE, the character '0', which begins no PEM file.
        if bytes.first() == Some(&0x30) {
            return Ok(vec![Self::parse(bytes).map_err(malformed)?]);
        }
        let sections = pem_sections(&bytes, &["X509 CRL"], &["CERTIFICATE"])
            .map_err(|reason| CertError::Pem { path: file.to_owned(), reason })?;
        let lists: Vec<_> =
            sections.into_iter().map(Self::parse).collect::<Result<_, _>>().map_err(malformed)?;
        if lists.is_empty() {
            return Err(malformed(
                "there is none, neither in DER nor between -----BEGIN X509 CRL----- lines".to_owned(),
            ));
        }
        Ok(lists)
    }

    fn parse(der: Vec<u8>) -> Result<Self, String> {
        let (list, _) = RevocationList::parse(&der)?;
        // A malformed entry is a mistake of the file and is reported here, at the start or reload.
        list.check_entries()?;
        // RFC 5280 section 5.1.2.5: "Conforming CRL issuers MUST include the nextUpdate field in all CRLs."
        let next_update = list.next_update.ok_or("it does not say when the next one is due (nextUpdate)")?;
        let (_, issuer) = X509Name::from_der(list.issuer).map_err(|error| error.to_string())?;
        let (issuer, issuer_der) = (issuer.to_string(), list.issuer.to_vec());
        Ok(Self { der: der.into(), next_update, issuer, issuer_der })
    }

    /// Whether the issuer of the list has the name of `authority`, a certificate in DER.
    pub fn is_of(&self, authority: &[u8]) -> bool {
        X509Certificate::from_der(authority)
            .is_ok_and(|(_, certificate)| certificate.subject().as_raw() == self.issuer_der)
    }

    /// [`Warning::CrlExpired`] if the list, read from `file`, is expired at `now`.
    pub fn warning(&self, file: &Path, now: SystemTime) -> Option<Warning> {
        (now >= self.next_update).then(|| Warning::CrlExpired {
            path: file.to_owned(),
            issuer: self.issuer.clone(),
            since: self.next_update,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use brisk_testkit::ca::TestCa;
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;

    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<Crl>, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("crl");
        fs::write(&file, bytes).unwrap();
        Crl::read(&file)
            .map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
    }

    #[test]
    fn a_file_holds_one_list_in_der_or_any_number_in_pem() {
        let ca = TestCa::new();
        let crls = ca.crls(&[], Duration::from_hours(1));
        let lists = read(crls.pem().as_bytes()).unwrap();
        assert_eq!(lists.len(), 2);
        assert_eq!(read(&crls.intermediate_der).unwrap(), lists[..1]);
        let root = CertificateFile::der(&ca.root_pem());
        assert_eq!(lists.iter().map(|list| list.is_of(&root)).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn an_expired_list_is_a_warning() {
        let ca = TestCa::new();
        let list = read(&ca.crls(&[], Duration::from_hours(1)).intermediate_der).unwrap().remove(0);
        let now = SystemTime::now();
        assert_eq!(list.warning(Path::new("a.crl"), now), None);
        let later = list.warning(Path::new("a.crl"), now + Duration::from_hours(2));
        assert!(matches!(later, Some(Warning::CrlExpired { .. })));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let ca = TestCa::new();
        for (bytes, expected) in [
            (
                ca.root_pem().as_bytes(),
                "crl: no revocation list to use: there is none, neither in DER nor between \
              -----BEGIN X509 CRL----- lines",
            ),
            (b"0\x03\x02\x01\x01", "crl: no revocation list to use: "),
        ] {
            let message = read(bytes).unwrap_err();
            assert!(message.starts_with(expected), "{message}");
        }
    }

    struct CertificateFile;

    impl CertificateFile {
        fn der(pem: &str) -> Vec<u8> {
            CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
        }
    }
}

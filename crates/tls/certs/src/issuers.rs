//! Parser for issuer certificates that CAs publish at `caIssuers` addresses (RFC 5280 section 4.2.2.1): DER, PEM, or a
//! PKCS #7 bundle without signatures.

use brisk_keys::pem_certificates;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::der::{Reader, SEQUENCE, sequence};
use crate::signature::is_signed_by;
use crate::x509::Facts;

/// Maximum size of a fetched file in bytes.
pub const ISSUER_LIMIT: usize = 64 * 1024;

/// OID of `id-signedData` (RFC 5652 section 5.1).
const SIGNED_DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 2];
const OID: u8 = 0x06;
const EXPLICIT: u8 = 0xa0;

/// The certificate among `bytes` that signed `certificate` (DER). Its signature is verified.
pub fn issuer_in(bytes: &[u8], certificate: &[u8]) -> Option<CertificateDer<'static>> {
    // `is_signed_by` ignores bytes after the certificate, which clients would receive as a part of it.
    let is_whole = |candidate: &CertificateDer<'_>| Facts::read(candidate).is_ok();
    let mut candidates = candidates(bytes).into_iter();
    // The file has usually been fetched over plain HTTP: the signature alone proves that its certificate
    // belongs here.
    candidates.find(|candidate| is_whole(candidate) && is_signed_by(certificate, candidate))
}

/// The fault of `bytes` in PEM that can hide certificates from [`issuer_in`].
pub(crate) fn fault_in(bytes: &[u8]) -> Option<String> {
    if is_der(bytes) { None } else { pem_certificates(bytes).err() }
}

fn candidates(bytes: &[u8]) -> Vec<CertificateDer<'static>> {
    if is_der(bytes) {
        return bundled(bytes).unwrap_or_else(|| vec![CertificateDer::from(bytes.to_vec())]);
    }
    // A damaged section does not hide the others.
    let sound = || CertificateDer::pem_slice_iter(bytes).filter_map(Result::ok).collect();
    pem_certificates(bytes).unwrap_or_else(|_| sound())
}

/// Whether `bytes` begin with the tag of a SEQUENCE, the character '0', which begins no PEM file.
fn is_der(bytes: &[u8]) -> bool {
    bytes.first() == Some(&SEQUENCE)
}

/// RFC 5652 section 5.1: `ContentInfo { signedData, [0] { version, digests, content, [0] certificates, ... } }`.
fn bundled(bytes: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let mut info = sequence(bytes).ok()?;
    if info.expect(OID).ok()?.content != SIGNED_DATA {
        return None;
    }
    let mut data = sequence(info.expect(EXPLICIT).ok()?.content).ok()?;
    while let Ok(element) = data.next() {
        // The content of `encapContentInfo` has this tag too, but one level deeper, so it is not mistaken
        // for certificates.
        if element.tag == EXPLICIT {
            return Some(all(element.inside()));
        }
    }
    Some(Vec::new())
}

fn all(mut certificates: Reader<'_>) -> Vec<CertificateDer<'static>> {
    let next = || certificates.next().ok();
    std::iter::from_fn(next)
        .filter(|element| element.tag == SEQUENCE)
        .map(|element| CertificateDer::from(element.whole.to_vec()))
        .collect()
}

#[cfg(test)]
mod tests {
    use brisk_testkit::ca::TestCa;
    use brisk_testkit::process::command;

    use super::*;

    #[test]
    fn every_form_of_the_right_issuer_is_found_and_no_other() {
        let (ca, other) = (TestCa::new(), TestCa::new());
        let leaf = ca.server(&["a.test"]).issue();
        let der = CertificateDer::from_pem_slice(leaf.certificate_pem.as_bytes()).unwrap();
        let bundle = ca.folder().join("bundle.p7c");
        let output = command("openssl")
            .args(["crl2pkcs7", "-nocrl", "-outform", "DER", "-certfile"])
            .arg(ca.root_file())
            .arg("-certfile")
            .arg(ca.intermediate_files().0)
            .arg("-out")
            .arg(&bundle)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let pem = other.intermediate_pem() + &ca.root_pem() + &ca.intermediate_pem();
        for form in [ca.intermediate_der(), pem.into_bytes(), std::fs::read(&bundle).unwrap()] {
            assert_eq!(issuer_in(&form, &der).as_deref(), Some(&ca.intermediate_der()[..]));
        }
        for wrong in [other.intermediate_der(), ca.root_pem().into_bytes(), b"<html>".to_vec(), vec![0x30, 0]]
        {
            assert_eq!(issuer_in(&wrong, &der), None);
        }
    }

    #[test]
    fn a_damaged_section_hides_no_issuer_and_is_reported() {
        let ca = TestCa::new();
        let leaf = ca.server(&["a.test"]).issue();
        let der = CertificateDer::from_pem_slice(leaf.certificate_pem.as_bytes()).unwrap();
        let (root, issuer) = (ca.root_pem(), ca.intermediate_pem());
        let damaged = |pem: &str| pem.replacen('\n', "\n> ", 1);
        let older = issuer.replace("CERTIFICATE-----", "X509 CERTIFICATE-----");
        for pem in [format!("{root}{older}"), format!("{}{issuer}", damaged(&root))] {
            assert_eq!(issuer_in(pem.as_bytes(), &der).as_deref(), Some(&ca.intermediate_der()[..]), "{pem}");
        }
        let lost = format!("{root}{}", damaged(&issuer));
        assert_eq!(issuer_in(lost.as_bytes(), &der), None);
        assert!(fault_in(lost.as_bytes()).is_some_and(|fault| fault.contains("not base64")), "{lost}");
        assert_eq!((fault_in(issuer.as_bytes()), fault_in(&ca.intermediate_der())), (None, None));
    }
}

//! Verification of responses from the responder of `openssl`.

use std::sync::LazyLock;

use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::ca_site::response;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::*;

static CA: LazyLock<TestCa> = LazyLock::new(TestCa::new);

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

fn cert_id(leaf: &Leaf) -> CertId {
    CertId::new(&der(&leaf.certificate_pem), &CA.intermediate_der()).unwrap()
}

fn leaf() -> Leaf {
    CA.server(&["a.test"]).issue()
}

/// Result for a response about `leaf`, signed by `signer`.
fn verified(leaf: &Leaf, signer: Option<&Leaf>) -> Result<Staple, OcspError> {
    let cert_id = cert_id(leaf);
    let response = response(&CA, &[leaf], &[], signer, &cert_id.request());
    cert_id.verify(&response, SystemTime::now())
}

#[test]
fn the_issuer_and_those_that_it_appoints_may_sign() {
    let leaf = leaf();
    let staple = verified(&leaf, None).unwrap();
    let life = staple.next_update.duration_since(staple.this_update).unwrap();
    assert_eq!(life, Duration::from_mins(5));
    assert!(staple.is_fresh(SystemTime::now()) && !staple.is_fresh(staple.next_update));
    assert!(verified(&leaf, Some(&CA.ocsp_signer().issue())).is_ok());
}

#[test]
fn others_may_not_sign() {
    let leaf = leaf();
    let other = TestCa::new();
    for signer in [
        // Issued by the same CA, for another purpose.
        CA.client("alice").issue(),
        CA.server(&["a.test"]).issue(),
        // For OCSP signing, but expired.
        CA.ocsp_signer().expired().issue(),
        // For OCSP signing, but issued by another CA of the same name, or by the root.
        other.ocsp_signer().issue(),
        CA.ocsp_signer().below_root().issue(),
    ] {
        assert_eq!(verified(&leaf, Some(&signer)), Err(OcspError::Signer), "{}", signer.chain_pem);
    }
}

#[test]
fn revoked_and_unknown_are_not_shown() {
    let leaf = leaf();
    let (cert_id, now) = (cert_id(&leaf), SystemTime::now());
    let revoked = response(&CA, &[], &[&leaf], None, &cert_id.request());
    assert!(matches!(cert_id.verify(&revoked, now), Err(OcspError::Revoked(_))));
    let unknown = response(&CA, &[], &[], None, &cert_id.request());
    assert_eq!(cert_id.verify(&unknown, now), Err(OcspError::Unknown));
}

#[test]
fn times_are_kept_to() {
    let leaf = leaf();
    let (cert_id, now) = (cert_id(&leaf), SystemTime::now());
    let response = response(&CA, &[&leaf], &[], None, &cert_id.request());
    let staple = cert_id.verify(&response, now).unwrap();
    assert_eq!(cert_id.verify(&response, staple.next_update), Err(OcspError::Stale(staple.next_update)),);
    let early = cert_id.verify(&response, staple.this_update - Duration::from_mins(10));
    assert_eq!(early, Err(OcspError::NotYetValid(staple.this_update)));
}

#[test]
fn a_response_is_for_its_certificate_alone() {
    let (one, other) = (leaf(), leaf());
    let response = response(&CA, &[&one], &[], None, &cert_id(&one).request());
    let verified = cert_id(&other).verify(&response, SystemTime::now());
    assert_eq!(verified, Err(OcspError::OtherCertificate));
}

#[test]
fn no_byte_of_what_is_signed_can_be_changed() {
    let leaf = leaf();
    let (cert_id, now) = (cert_id(&leaf), SystemTime::now());
    let response = response(&CA, &[&leaf], &[], None, &cert_id.request());
    assert!(cert_id.verify(&response, now).is_ok());
    for place in 0..response.len() {
        let mut changed = response.clone();
        changed[place] ^= 1;
        if let Ok(staple) = cert_id.verify(&changed, now) {
            // `openssl` includes the issuer's certificate, which is not signed and not needed.
            let certificate = CA.intermediate_der();
            let begin = response.windows(certificate.len()).position(|window| *window == *certificate);
            assert!(begin.is_some_and(|begin| place >= begin), "{place}: {:?}", staple.next_update);
        }
    }
    for len in 0..response.len() {
        assert!(cert_id.verify(&response[..len], now).is_err(), "{len}");
    }
}

#[test]
fn a_responder_that_refuses_says_why() {
    let leaf = leaf();
    for (status, reason) in [(3, "try later"), (6, "unauthorized: it does not know the certificate")] {
        let response = [0x30, 3, 0x0a, 1, status];
        assert_eq!(cert_id(&leaf).verify(&response, SystemTime::now()), Err(OcspError::Refused(reason)));
    }
    assert!(matches!(cert_id(&leaf).verify(b"<html>", SystemTime::now()), Err(OcspError::Malformed(_))));
}

#[test]
fn a_response_without_an_end_is_valid_for_twelve_hours() {
    let leaf = leaf();
    let cert_id = cert_id(&leaf);
    let response = CA.ocsp_response(&cert_id.request(), "20261128120000Z", None);
    let made = SystemTime::UNIX_EPOCH + Duration::from_hours(498_852);
    let hours = Duration::from_hours;
    let staple = cert_id.verify(&response, made).unwrap();
    assert_eq!((staple.this_update, staple.next_update), (made, made + hours(12)));
    assert_eq!(ends(&response), Some(made + hours(12)), "it is kept over a restart");
    assert!(cert_id.verify(&response, made + hours(11)).is_ok());
    assert_eq!(cert_id.verify(&response, made + hours(12)), Err(OcspError::Stale(made + hours(12))));
    assert_eq!(cert_id.verify(&response, made - hours(1)), Err(OcspError::NotYetValid(made)));
}

#[test]
fn a_malformed_status_of_another_certificate_is_skipped() {
    let (own, other) = (cert_id(&leaf()), cert_id(&leaf()));
    let malformed = |id: &CertId| write(SEQUENCE, &[&id.request()[8..], &[0x85, 0]]);
    let made = SystemTime::UNIX_EPOCH + Duration::from_hours(498_852);
    let verified = |first: &[u8]| {
        let response = CA.ocsp_response_after(first, &own.request(), "20261128120000Z", None);
        own.verify(&response, made)
    };
    assert!(verified(&malformed(&other)).is_ok());
    assert_eq!(verified(&malformed(&own)), Err(OcspError::Malformed("an unknown status")));
    assert!(matches!(verified(&[SEQUENCE, 2, SEQUENCE, 0]), Err(OcspError::Malformed(_))));
}

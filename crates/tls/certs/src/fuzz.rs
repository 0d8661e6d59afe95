//! Properties of the parsers for responses, lists and issuers that are fetched from addresses in certificates; used by
//! tests and libFuzzer.

use std::time::{Duration, SystemTime};

use crate::crl::RevocationList;
use crate::issuers::issuer_in;
use crate::ocsp::{CertId, OcspError};
use crate::x509::Facts;

pub(crate) const LEAF: &[u8] = include_bytes!("fuzz/leaf.crt");
pub(crate) const ISSUER: &[u8] = include_bytes!("fuzz/issuer.crt");
pub(crate) const GOOD: [&[u8]; 2] = [
    include_bytes!("../../../../fuzz/seeds/ocsp_response/issuer"),
    include_bytes!("../../../../fuzz/seeds/ocsp_response/appointed"),
];
const REVOKED: &[u8] = include_bytes!("../../../../fuzz/seeds/ocsp_response/revoked");
const LIST: &[u8] = include_bytes!("../../../../fuzz/seeds/revocation_list/one");

/// Serial number of the leaf, which is on the list.
const SERIAL: &[u8] = &[0x03, 0xe8];

/// A time at which all recorded data is valid: December 2026.
const NOW: Duration = Duration::from_mins(29_950_000);

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + NOW
}

/// A response is accepted, or its certificate considered revoked, only if it has the signed content of a recorded
/// response, recognised by its times.
pub fn ocsp_response(bytes: &[u8]) {
    let cert_id = CertId::new(LEAF, ISSUER).expect("certificates");
    let recorded = |response: &[u8]| cert_id.verify(response, now());
    match cert_id.verify(bytes, now()) {
        Ok(staple) => {
            let times = (staple.this_update, staple.next_update);
            let known = GOOD.iter().filter_map(|good| recorded(good).ok());
            assert!(known.map(|good| (good.this_update, good.next_update)).any(|good| good == times));
            assert_eq!(staple.der, bytes);
        }
        Err(error @ OcspError::Revoked(_)) => assert_eq!(recorded(REVOKED), Err(error)),
        Err(_) => {}
    }
}

/// A list is read or refused without panic, and a list with the issuer's signature yields the same result as the
/// recorded list.
pub fn revocation_list(bytes: &[u8]) {
    let Ok(list) = RevocationList::read(bytes) else { return };
    let found = list.revoked(SERIAL);
    let recorded = RevocationList::read(LIST).expect("a list");
    if list.is_signed_by(ISSUER) {
        assert_eq!(found, recorded.revoked(SERIAL));
        assert_eq!(list.next_update, recorded.next_update);
    }
}

/// Only a certificate with the issuer's public key and name is accepted as the issuer.
pub fn issuer_bundle(bytes: &[u8]) {
    if let Some(found) = issuer_in(bytes, LEAF) {
        let own = Facts::read(ISSUER).expect("a certificate");
        let other = Facts::read(&found).expect("a certificate, as the one that was found is");
        assert_eq!((other.public_key, other.subject), (own.public_key, own.subject));
    }
}

#[cfg(test)]
mod tests {
    use brisk_testkit::fuzz::drive;

    use super::*;

    #[test]
    fn recorded_responses_and_lists_are_what_they_should_be() {
        let cert_id = CertId::new(LEAF, ISSUER).unwrap();
        assert!(GOOD.iter().all(|good| cert_id.verify(good, now()).is_ok()));
        assert!(matches!(cert_id.verify(REVOKED, now()), Err(OcspError::Revoked(_))));
        let list = RevocationList::read(LIST).unwrap();
        assert!(list.is_signed_by(ISSUER) && list.revoked(SERIAL).unwrap().is_some());
    }

    #[test]
    fn fuzz_ocsp_response() {
        drive("ocsp_response", &[&[0x30, 0x82], &[0x30, 0x80], &[0xa0, 0x84, 0xff]], ocsp_response);
    }

    #[test]
    fn fuzz_revocation_list() {
        drive("revocation_list", &[SERIAL, &[0x30, 0x82], &[0x30, 0x80]], revocation_list);
    }

    #[test]
    fn fuzz_issuer_bundle() {
        drive("issuer_bundle", &[&[0xa0, 0x82], b"-----BEGIN CERTIFICATE-----\n"], issuer_bundle);
    }
}

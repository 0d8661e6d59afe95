//! What must hold for any bytes that come from the addresses in certificates, for tests and for libFuzzer.

use std::time::{Duration, SystemTime};

use crate::issuers::issuer_in;
use crate::ocsp::{OcspError, Question};
use crate::revoked::RevocationList;
use crate::x509::Facts;

pub(crate) const LEAF: &[u8] = include_bytes!("fuzz/leaf.crt");
pub(crate) const ISSUER: &[u8] = include_bytes!("fuzz/issuer.crt");
pub(crate) const GOOD: [&[u8]; 2] = [
    include_bytes!("../../../fuzz/seeds/ocsp_response/issuer"),
    include_bytes!("../../../fuzz/seeds/ocsp_response/appointed"),
];
const REVOKED: &[u8] = include_bytes!("../../../fuzz/seeds/ocsp_response/revoked");
const LIST: &[u8] = include_bytes!("../../../fuzz/seeds/revocation_list/one");

/// The serial number of the leaf, which is on the list.
const SERIAL: &[u8] = &[0x03, 0xe8];

/// A time in the life of all of them: in December 2026.
const NOW: Duration = Duration::from_mins(29_950_000);

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + NOW
}

/// A response is accepted, and a certificate taken for revoked, by what was signed alone: its times are those of a
/// response that was recorded.
pub fn ocsp_response(bytes: &[u8]) {
    let question = Question::new(LEAF, ISSUER).expect("certificates");
    let recorded = |response: &[u8]| question.verify(response, now());
    match question.verify(bytes, now()) {
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

/// A list is read to its end or refused, and one that the issuer signed says what the recorded one says.
pub fn revocation_list(bytes: &[u8]) {
    let Ok(list) = RevocationList::read(bytes) else { return };
    let found = list.revoked(SERIAL);
    let recorded = RevocationList::read(LIST).expect("a list");
    if list.is_signed_by(ISSUER) {
        assert_eq!(found, recorded.revoked(SERIAL));
        assert_eq!(list.next_update, recorded.next_update);
    }
}

/// Of any bytes nothing but the issuer itself is taken for the issuer, as far as its key and its name go.
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
        let question = Question::new(LEAF, ISSUER).unwrap();
        assert!(GOOD.iter().all(|good| question.verify(good, now()).is_ok()));
        assert!(matches!(question.verify(REVOKED, now()), Err(OcspError::Revoked(_))));
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

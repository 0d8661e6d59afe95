//! [`RevocationList`] with lists of the issuer and of other issuers, complete and partitioned.

use brisk_testkit::ca::{Leaf, TestCa};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::*;
use crate::der::{BOOLEAN, OCTET_STRING, OID, write};

const HOUR: Duration = Duration::from_hours(1);
const HERE: &str = "http://crl.test/7.crl";

fn serial(leaf: &Leaf) -> Vec<u8> {
    let der = CertificateDer::from_pem_slice(leaf.certificate_pem.as_bytes()).unwrap();
    crate::x509::Facts::read(&der).unwrap().services.serial
}

/// An extension with this ID below 2.5.29.
fn extension(id: u8, is_critical: bool, value: &[u8]) -> Vec<u8> {
    let critical = if is_critical { write(BOOLEAN, &[&[0xff]]) } else { Vec::new() };
    write(SEQUENCE, &[&write(OID, &[&[0x55, 0x1d, id]]), &critical, &write(OCTET_STRING, &[value])])
}

/// `list` with its extensions replaced, and with `of_entries` added to each entry. Its signature becomes invalid.
fn with(list: &[u8], extensions: &[u8], of_entries: &[u8]) -> Vec<u8> {
    let mut outside = sequence(list).unwrap();
    let mut inside = outside.expect(SEQUENCE).unwrap().inside();
    let mut signed = Vec::new();
    for _ in 0..5 {
        signed.extend_from_slice(inside.next().unwrap().whole);
    }
    let mut entries = inside.expect(SEQUENCE).unwrap().inside();
    let mut changed = Vec::new();
    while !entries.is_empty() {
        let mut entry = entries.next().unwrap().inside();
        let (serial, time) = (entry.next().unwrap().whole, entry.next().unwrap().whole);
        changed.extend(write(SEQUENCE, &[serial, time, &write(SEQUENCE, &[of_entries])]));
    }
    signed.extend(write(SEQUENCE, &[&changed]));
    signed.extend(write(EXTENSIONS, &[&write(SEQUENCE, &[extensions])]));
    let (algorithm, signature) = (outside.next().unwrap().whole, outside.next().unwrap().whole);
    write(SEQUENCE, &[&write(SEQUENCE, &[&signed]), algorithm, signature])
}

/// An `IssuingDistributionPoint` for the list at `address`, with more fields.
fn point(address: &str, more: &[u8]) -> Vec<u8> {
    let name = write(0xa0, &[&write(0xa0, &[&write(0x86, &[address.as_bytes()])])]);
    extension(28, true, &write(SEQUENCE, &[&name, more]))
}

#[test]
fn what_is_on_the_list_of_the_issuer_is_revoked() {
    let (ca, other) = (TestCa::new(), TestCa::new());
    let (good, bad) = (ca.server(&["a.test"]).issue(), ca.server(&["a.test"]).issue());
    let crls = ca.crls(&[&bad], HOUR);
    let list = RevocationList::read(&crls.intermediate_der).unwrap();
    assert_eq!(list.revoked(&serial(&good)), Ok(None));
    assert!(list.revoked(&serial(&bad)).unwrap().is_some_and(|since| since < SystemTime::now()));
    assert!(list.next_update.is_some_and(|next| next > SystemTime::now()));
    assert!(list.is_signed_by(&ca.intermediate_der()));
    assert!(!list.is_signed_by(&other.intermediate_der()));
    assert!(list.is_for(&[]), "it says nothing of a part");
    assert!(list.has_begun(SystemTime::now()) && !list.has_begun(SystemTime::UNIX_EPOCH));
}

#[test]
fn a_list_without_entries_revokes_nothing_and_a_changed_one_is_not_signed() {
    let ca = TestCa::new();
    let leaf = ca.server(&["a.test"]).issue();
    let mut der = ca.crls(&[], HOUR).intermediate_der;
    assert_eq!(RevocationList::read(&der).unwrap().revoked(&serial(&leaf)), Ok(None));
    let last = der.len() - 1;
    der[last] ^= 1;
    assert!(RevocationList::read(&der).is_ok_and(|list| !list.is_signed_by(&ca.intermediate_der())));
    assert!(RevocationList::read(&der[..last]).is_err());
    assert!(RevocationList::read(b"<html>").is_err());
}

#[test]
fn a_list_of_another_part_is_not_for_a_certificate() {
    let ca = TestCa::new();
    let whole = ca.crls(&[&ca.server(&["a.test"]).issue()], HOUR).intermediate_der;
    let part = with(&whole, &point(HERE, &write(0x81, &[&[0xff]])), &[]);
    let list = RevocationList::read(&part).unwrap();
    assert!(list.is_for(&["http://crl.test/6.crl".to_owned(), HERE.to_owned()]));
    assert!(!list.is_for(&["http://crl.test/8.crl".to_owned()]));
    // As rcgen writes it, which signs it too.
    let signed = ca.crl_at(HERE, &[]);
    let list = RevocationList::read(&signed).unwrap();
    assert!(list.is_signed_by(&ca.intermediate_der()));
    assert!(list.is_for(&[HERE.to_owned()]) && !list.is_for(&["http://crl.test/8.crl".to_owned()]));
}

#[test]
fn lists_that_are_not_whole_or_not_understood_are_refused() {
    let ca = TestCa::new();
    let (good, bad) = (ca.server(&["a.test"]).issue(), ca.server(&["b.test"]).issue());
    let whole = ca.crls(&[&bad], HOUR).intermediate_der;
    let yes = |tag: u8| write(tag, &[&[0xff]]);
    for (extensions, expected) in [
        (extension(27, true, &write(INTEGER, &[&[1]])), "changes to another list"),
        (point(HERE, &yes(0x82)), "not for server certificates"),
        (point(HERE, &yes(0x85)), "not for server certificates"),
        (point(HERE, &write(0x83, &[&[1, 0x40]])), "some reasons"),
        (point(HERE, &yes(0x84)), "several issuers"),
        ([point(HERE, &[]), point(HERE, &[])].concat(), "twice"),
        (extension(99, true, &[5, 0]), "critical extension"),
        // BER permits these values for TRUE. They used to count as FALSE, so that the list covered server certificates.
        (point(HERE, &write(0x82, &[&[1]])), "BOOLEAN"),
        (point(HERE, &write(0x84, &[&[1]])), "BOOLEAN"),
        (point(HERE, &write(0x85, &[&[0xff, 0xff]])), "BOOLEAN"),
        // A second name, and fields in another order than that of the type.
        (point(HERE, &write(0xa0, &[])), "unknown way"),
        (point(HERE, &[yes(0x84), write(0x81, &[&[0]])].concat()), "several issuers"),
        (point(HERE, &[write(0x84, &[&[0]]), yes(0x82)].concat()), "unknown way"),
    ] {
        let refused = RevocationList::read(&with(&whole, &extensions, &[])).map(drop).unwrap_err();
        assert!(refused.contains(expected), "{refused}");
    }
    let harmless = [extension(99, false, &[5, 0]), extension(20, false, &write(INTEGER, &[&[7]]))].concat();
    let known = with(&whole, &harmless, &extension(21, true, &write(0x0a, &[&[1]])));
    assert_eq!(RevocationList::read(&known).unwrap().revoked(&serial(&good)), Ok(None));
    let unknown = with(&whole, &harmless, &extension(29, true, &[5, 0]));
    let list = RevocationList::read(&unknown).unwrap();
    assert!(list.revoked(&serial(&good)).is_err(), "the entry may be of another issuer");
    assert!(list.revoked(&serial(&bad)).unwrap().is_some());
}

/// Such a number differs as bytes from that of the certificate, which used to count as absent from the list.
#[test]
fn a_list_with_a_serial_number_in_a_longer_form_proves_no_absence() {
    let ca = TestCa::new();
    let bad = ca.server(&["a.test"]).issue();
    let mut list = ca.crls(&[&bad], HOUR).intermediate_der;
    let own = write(INTEGER, &[&serial(&bad)]);
    let at = list.windows(own.len()).position(|part| part == own).unwrap();
    list[at + 2..at + own.len()].copy_from_slice(&[0, 5]);
    assert!(RevocationList::read(&list).unwrap().revoked(&[5]).is_err());
}

#[test]
fn a_list_of_an_unknown_version_is_refused() {
    let mut list = TestCa::new().crls(&[], HOUR).intermediate_der;
    let version = list.windows(3).position(|part| part == [INTEGER, 1, 1]).unwrap();
    list[version + 2] = 2;
    assert!(RevocationList::read(&list).is_err());
}

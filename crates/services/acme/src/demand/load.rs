//! Stored on-demand certificates: loading, and removal of names without use.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brisk_certs::Certificate;
use brisk_keys::Keystore;

use crate::AcmeError;
use crate::certify::first_missing;
use crate::host::usable;
use crate::records::{Records, moment};
use crate::settings::{CertificateSpec, KeyKind};

/// Time for which an expired certificate is kept.
const KEPT: Duration = Duration::from_hours(30 * 24);

/// Time for which a name without certificate is kept after its last attempt; longer than any pause between attempts.
const TRIED: Duration = Duration::from_hours(48);

/// Certificates of one name with their keys.
pub(super) struct Loaded {
    pub(super) certificates: Vec<Arc<Certificate>>,
    pub(super) keys: Keystore,
    /// Earliest end of validity.
    pub(super) ends: SystemTime,
}

/// Loads the valid certificates for `wanted`, possibly not of every kind of key. `None` if there is none. Blocks.
pub(super) fn load(records: &Records, wanted: &CertificateSpec) -> Result<Option<Loaded>, AcmeError> {
    let (mut certificates, mut keys, mut ends) = (Vec::new(), Keystore::new(), None);
    for kind in wanted.keys.iter().copied() {
        let found = match usable(records, wanted.name(), kind) {
            Err(error @ (AcmeError::InvalidChain(_) | AcmeError::Unusable(_) | AcmeError::StoredKey(_))) => {
                tracing::warn!(host = wanted.name(), key = %kind, %error, "cannot publish a stored certificate");
                None
            }
            found => found?,
        };
        let Some(own) = found else { continue };
        let not_after = own.certificate.not_after;
        if not_after <= SystemTime::now() || first_missing(&wanted.names, &own.certificate.names).is_some() {
            continue;
        }
        keys.add_pem(own.issued.key.as_str().as_bytes())?;
        certificates.push(own.certificate);
        ends = Some(ends.map_or(not_after, |before: SystemTime| before.min(not_after)));
    }
    Ok(ends.map(|ends| Loaded { certificates, keys, ends }))
}

/// Returns whether the certificates of `name` expired more than [`KEPT`] ago and no attempt was made within [`TRIED`].
/// Blocks.
pub(super) fn is_over(records: &Records, name: &str, now: SystemTime) -> Result<bool, AcmeError> {
    // All kinds, because an earlier configuration may have ordered other kinds.
    for kind in KeyKind::ALL {
        match usable(records, name, kind) {
            Ok(Some(own)) if own.certificate.not_after + KEPT > now => return Ok(false),
            Err(error @ AcmeError::Store(_)) => return Err(error),
            _ => {}
        }
        let failed = of_store(records.status(name, kind))?.map_or(0, |status| status.failed);
        let begun = of_store(records.pending(name, kind))?.flatten().map_or(0, |order| order.begun);
        if moment(failed.max(begun)) + TRIED > now {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Maps damaged values to `None`, and keeps errors of the [`Store`].
fn of_store<T>(read: Result<T, AcmeError>) -> Result<Option<T>, AcmeError> {
    match read {
        Err(error @ AcmeError::Store(_)) => Err(error),
        read => Ok(read.ok()),
    }
}

/// Removes all records of `name` if it [is over](is_over). Returns whether it did. Blocks.
pub(super) fn forget(records: &Records, name: &str, now: SystemTime) -> Result<bool, AcmeError> {
    let Some(_lock) = records.lock(name)? else { return Ok(false) };
    // Another gateway may have obtained a certificate before the lock was taken.
    if !is_over(records, name, now)? {
        return Ok(false);
    }
    for kind in KeyKind::ALL {
        records.end_issued(name, kind)?;
        records.end_pending(name, kind)?;
        records.end_status(name, kind)?;
    }
    records.end_demanded(name)?;
    records.end_tried(name)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use brisk_testkit::ca::TestCa;

    use super::*;
    use crate::records::{AttemptStatus, IssuedCertificate, seconds};

    fn issued(name: &str) -> IssuedCertificate {
        let leaf = TestCa::new().server(&[name]).issue();
        let [chain, key] = [&leaf.chain, &leaf.key].map(|path| std::fs::read_to_string(path).unwrap());
        IssuedCertificate::imported(&[name.to_owned()], "", &chain, &key, SystemTime::now())
    }

    #[test]
    fn a_kind_of_key_that_is_missing_or_damaged_keeps_no_other_from_being_shown() {
        let (_folder, records) = Records::of_test();
        let keys = vec![KeyKind::Ecdsa, KeyKind::Rsa];
        let wanted = CertificateSpec { names: vec!["a.test".to_owned()], keys, profile: None };
        assert!(load(&records, &wanted).unwrap().is_none());
        records.put_issued("a.test", KeyKind::Ecdsa, &issued("a.test")).unwrap();
        assert_eq!(load(&records, &wanted).unwrap().unwrap().certificates.len(), 1);
        records.put_issued("a.test", KeyKind::Rsa, &issued("b.test")).unwrap();
        assert_eq!(load(&records, &wanted).unwrap().unwrap().certificates.len(), 1, "one of another name");
    }

    #[test]
    fn a_name_that_was_tried_is_forgotten_later_and_one_with_a_certificate_is_not() {
        let (_folder, records) = Records::of_test();
        let now = SystemTime::now();
        let failed = AttemptStatus { failures: 1, failed: seconds(now), ..AttemptStatus::default() };
        for name in ["tried.test", "kept.test"] {
            records.put_tried(name).unwrap();
            records.put_status(name, KeyKind::Ecdsa, &failed).unwrap();
            assert!(!forget(&records, name, now).unwrap(), "{name}");
        }
        records.put_issued("kept.test", KeyKind::Ecdsa, &issued("kept.test")).unwrap();
        let later = now + TRIED;
        assert!(forget(&records, "tried.test", later).unwrap());
        assert!(!forget(&records, "kept.test", later).unwrap());
        assert_eq!(records.tried().unwrap(), ["kept.test"]);
        assert_eq!(records.status("tried.test", KeyKind::Ecdsa).unwrap().failures, 0);
    }
}

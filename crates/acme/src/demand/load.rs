//! Certificates of the store that are shown again: loaded when a handshake asks for them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brisk_certs::Certificate;
use brisk_keys::Keystore;

use crate::AcmeError;
use crate::certify::first_missing;
use crate::host::usable;
use crate::records::Records;
use crate::settings::{KeyKind, Wanted};

/// How long after its end a certificate is kept that no client asks for.
const KEPT: Duration = Duration::from_hours(30 * 24);

/// Certificates of one name, and their keys.
pub(super) struct Loaded {
    pub(super) certificates: Vec<Arc<Certificate>>,
    pub(super) keys: Keystore,
    /// When the first of them ends.
    pub(super) ends: SystemTime,
}

/// What the store has for `wanted`, if it is a certificate of each kind, for this name, and valid. Blocks.
pub(super) fn load(records: &Records, wanted: &Wanted) -> Result<Option<Loaded>, AcmeError> {
    let (mut certificates, mut keys, mut ends) = (Vec::new(), Keystore::new(), None);
    for kind in wanted.keys.iter().copied() {
        let found = match usable(records, wanted.name(), kind) {
            Err(error @ (AcmeError::Issued(_) | AcmeError::Unusable(_) | AcmeError::StoredKey(_))) => {
                tracing::warn!(host = wanted.name(), key = %kind, %error, "a certificate of the store is not shown");
                None
            }
            found => found?,
        };
        let Some(own) = found else { return Ok(None) };
        let not_after = own.certificate.not_after;
        if not_after <= SystemTime::now() || first_missing(&wanted.names, &own.certificate.names).is_some() {
            return Ok(None);
        }
        keys.add_pem(own.issued.key.as_str().as_bytes())?;
        certificates.push(own.certificate);
        ends = Some(ends.map_or(not_after, |before: SystemTime| before.min(not_after)));
    }
    Ok(ends.map(|ends| Loaded { certificates, keys, ends }))
}

/// Forgets what the store has of `name`, if it ended long ago, and whether it did. Blocks.
pub(super) fn forget_ended(records: &Records, name: &str, now: SystemTime) -> Result<bool, AcmeError> {
    let Some(_lock) = records.lock(name)? else { return Ok(false) };
    for kind in KeyKind::ALL {
        match usable(records, name, kind) {
            Ok(Some(own)) if own.certificate.not_after + KEPT > now => return Ok(false),
            Err(error @ AcmeError::Store(_)) => return Err(error),
            _ => {}
        }
    }
    for kind in KeyKind::ALL {
        records.end_issued(name, kind)?;
        records.end_pending(name, kind)?;
        records.end_status(name, kind)?;
    }
    records.end_demanded(name)?;
    Ok(true)
}

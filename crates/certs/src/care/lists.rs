//! Watches the revocation list that a certificate names. Certificates of one list share what is fetched.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;

use super::schedule::{pause, random, sleep_towards};
use super::staples::{restored, revoked};
use super::ward::{Ward, Witness};
use super::{Shared, lock};
use crate::revoked::RevocationList;

/// The most bytes of a list. Those of public CAs for servers are in parts of less than one.
const LIST_LIMIT: usize = 16 * 1024 * 1024;

/// Bounds of the time between two looks at a list.
const SOONEST: Duration = Duration::from_hours(1);
const LATEST: Duration = Duration::from_hours(24);

const FIRST_PAUSE: Duration = Duration::from_mins(1);
const LONGEST_PAUSE: Duration = Duration::from_hours(6);

/// The lists by their addresses, each with the lock of who fetches it.
#[derive(Debug, Default)]
pub(super) struct Lists(Mutex<HashMap<String, Arc<tokio::sync::Mutex<Option<List>>>>>);

/// A list, and when it is fetched again.
#[derive(Clone, Debug)]
struct List {
    bytes: Arc<Vec<u8>>,
    due: SystemTime,
}

impl Lists {
    async fn current(&self, shared: &Shared, url: &str) -> Result<List, String> {
        let place = Arc::clone(lock(&self.0).entry(url.to_owned()).or_default());
        let mut kept = place.lock().await;
        if let Some(list) = kept.as_ref().filter(|list| SystemTime::now() < list.due) {
            return Ok(list.clone());
        }
        let fetched = shared.fetch(url, LIST_LIMIT).await?;
        let due = due(&fetched.body, fetched.max_age)?;
        let list = List { bytes: Arc::new(fetched.body), due };
        *kept = Some(list.clone());
        Ok(list)
    }
}

/// When a list that came now is fetched again: before the next is due, when caches are to, and at least daily.
fn due(bytes: &[u8], max_age: Option<Duration>) -> Result<SystemTime, String> {
    let list = RevocationList::read(bytes).map_err(|reason| format!("it is no revocation list: {reason}"))?;
    let now = SystemTime::now();
    let left = list.next_update.map(|next| next.duration_since(now).unwrap_or_default());
    let wait = [left, max_age].into_iter().flatten().min().unwrap_or(LATEST).clamp(SOONEST, LATEST);
    Ok(now + wait.mul_f64(0.8 + 0.2 * random()))
}

/// Watches until the task ends.
pub(super) async fn watch(shared: &Shared, ward: &Ward, issuer: &CertificateDer<'static>) {
    let certificate = Arc::clone(ward.certificate());
    let Some(url) = certificate.services.lists.first().filter(|_| shared.settings().watches) else { return };
    let mut failures = 0;
    loop {
        let next = match look(shared, ward, issuer, url).await {
            Ok(next) => {
                failures = 0;
                next
            }
            Err(reason) => {
                failures += 1;
                let reason = format!("its revocation list {url} cannot be read: {reason}");
                if ward.failed(reason.clone(), |failures| failures.list += 1) {
                    tracing::warn!(certificate = certificate.title(), "{reason}");
                }
                SystemTime::now() + pause(failures, FIRST_PAUSE, LONGEST_PAUSE, random())
            }
        };
        while SystemTime::now() < next {
            sleep_towards(next).await;
        }
    }
}

/// Looks the certificate up. Returns when to look again.
async fn look(
    shared: &Shared,
    ward: &Ward,
    issuer: &CertificateDer<'static>,
    url: &str,
) -> Result<SystemTime, String> {
    let kept = shared.lists.current(shared, url).await?;
    let certificate = ward.certificate();
    let list = RevocationList::read(&kept.bytes)?;
    if !list.is_signed_by(issuer) {
        return Err("it is not signed by the issuer of the certificate".to_owned());
    }
    let found = list.revoked(&certificate.services.serial)?;
    let now = SystemTime::now();
    ward.list_was_read(now);
    let expired = list.next_update.is_some_and(|next| next < now);
    match found {
        Some(since) => revoked(shared, ward, Witness::List, since, url),
        None if expired => return Err("it has expired".to_owned()),
        None => restored(ward, Witness::List),
    }
    shared.apply(|fingerprint| *fingerprint == certificate.fingerprint);
    Ok(kept.due)
}

//! Watching of the revocation lists that certificates name. Certificates with the same list share one fetch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use brisk_keys::pem_fault;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::{PemObject, SectionKind};

use super::maintained::{FetchKind, MaintainedCertificate, Origin, RevocationSource};
use super::schedule::{Due, pause, random, sleep_towards};
use super::staples::{restored, revoked};
use super::{Shared, lock};
use crate::crl::RevocationList;

/// Maximum size of a list in bytes. Public CAs partition the lists of server certificates into parts below 1 MiB.
const LIST_LIMIT: usize = 16 * 1024 * 1024;

/// Bounds of the interval between two fetches of a list.
const SOONEST: Duration = Duration::from_hours(1);
const LATEST: Duration = Duration::from_hours(24);

/// Maximum number of addresses that are tried for the list of a certificate.
const ADDRESSES: usize = 4;

const FIRST_PAUSE: Duration = Duration::from_mins(1);
const LONGEST_PAUSE: Duration = Duration::from_hours(6);

/// How long a fetched list stays in memory: long enough for all certificates that name it.
const KEPT: Duration = Duration::from_mins(5);

/// The lists by URL. The inner lock is held while a list is fetched.
#[derive(Debug, Default)]
pub(super) struct Lists(Mutex<HashMap<String, Arc<tokio::sync::Mutex<Option<List>>>>>);

/// A verified list and the time of its next fetch.
#[derive(Clone, Debug)]
struct List {
    bytes: Arc<Vec<u8>>,
    due: SystemTime,
    fetched: Instant,
}

impl Lists {
    /// The list at `url`, from memory or fetched now. `accept` verifies it and returns its `nextUpdate`; a rejected
    /// list is not kept.
    async fn current(
        &self,
        shared: &Shared,
        url: &str,
        accept: impl Fn(&[u8]) -> Result<Option<SystemTime>, String>,
    ) -> Result<List, String> {
        // The outer lock is released at once, so that a slow server delays only its own list.
        let place = Arc::clone(lock(&self.0).entry(url.to_owned()).or_default());
        let mut kept = place.lock().await;
        if let Some(list) = kept.as_ref().filter(|list| SystemTime::now() < list.due && !list.is_old()) {
            // The list in memory was fetched for another certificate, whose issuer or distribution points
            // may differ.
            accept(&list.bytes)?;
            return Ok(list.clone());
        }
        // Freed before the fetch, so that two lists of up to 16 MiB are not in memory at once.
        *kept = None;
        let fetched = shared.fetch(url, LIST_LIMIT).await?;
        let body = der(fetched.body)?;
        let due = due(accept(&body)?, fetched.max_age, SystemTime::now(), random());
        let list = List { bytes: Arc::new(body), due, fetched: Instant::now() };
        *kept = Some(list.clone());
        Ok(list)
    }

    /// Drops lists that were fetched more than five minutes ago.
    pub(super) fn forget_old(&self) {
        lock(&self.0).retain(|_, place| {
            // An entry whose list is being fetched stays: a second entry would fetch the list twice.
            let is_used = Arc::strong_count(place) > 1;
            is_used || place.try_lock().is_ok_and(|kept| kept.as_ref().is_some_and(|list| !list.is_old()))
        });
    }
}

impl List {
    fn is_old(&self) -> bool {
        self.fetched.elapsed() > KEPT
    }
}

/// The list in DER. RFC 5280 section 4.2.1.13 requires DER; some issuers publish PEM. `Err` with the fault of a
/// damaged PEM body without a whole list.
fn der(body: Vec<u8>) -> Result<Vec<u8>, String> {
    // A list in DER begins with the tag of a SEQUENCE, the character '0', which begins no PEM file.
    if body.first() == Some(&0x30) {
        return Ok(body);
    }
    let mut sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(&body).filter_map(Result::ok);
    let list = sections.find_map(|(kind, der)| (kind == SectionKind::Crl).then_some(der));
    match list {
        Some(list) => Ok(list),
        None => match pem_fault(&body) {
            Some(fault) => Err(format!("its PEM is damaged: {fault}")),
            None => Ok(body),
        },
    }
}

/// The time of the next fetch: within `nextUpdate` and `max_age`, at least daily, at most hourly, up to 20 % earlier at
/// random.
fn due(
    next_update: Option<SystemTime>,
    max_age: Option<Duration>,
    now: SystemTime,
    random: f64,
) -> SystemTime {
    let left = next_update.map(|next| next.duration_since(now).unwrap_or_default());
    let wait = [left, max_age].into_iter().flatten().min().unwrap_or(LATEST).clamp(SOONEST, LATEST);
    now + wait.mul_f64(0.8 + 0.2 * random)
}

fn is_watched(shared: &Shared, maintained: &MaintainedCertificate) -> bool {
    let names_list = !maintained.certificate().services.lists.is_empty();
    shared.settings().watches && maintained.origin() == Origin::Host && names_list
}

/// Logs that a certificate's list is not watched, because its issuer is unknown.
pub(super) fn warn_of_issuer(shared: &Shared, maintained: &MaintainedCertificate) {
    let reason = "its revocation list is not watched: its issuer is not known; append the certificate of the issuer to the chain \
                  file";
    let certificate = maintained.certificate();
    if is_watched(shared, maintained) && maintained.failed(FetchKind::List, reason.to_owned()) {
        tracing::warn!(certificate = certificate.title(), "{reason}");
    }
}

/// Watches the list of `maintained`. Never returns if it names one; the caller aborts the task.
pub(super) async fn watch(
    shared: &Shared,
    maintained: &MaintainedCertificate,
    issuer: &CertificateDer<'static>,
) {
    let certificate = Arc::clone(maintained.certificate());
    if !is_watched(shared, maintained) {
        return;
    }
    let mut failures = 0;
    loop {
        let next = match look_in_any(shared, maintained, issuer).await {
            Ok(next) => {
                failures = 0;
                maintained.succeeded(FetchKind::List);
                Due::at(next)
            }
            Err(reason) => {
                failures += 1;
                if maintained.failed(FetchKind::List, reason.clone()) {
                    tracing::warn!(certificate = certificate.title(), "{reason}");
                }
                Due::after(pause(failures, FIRST_PAUSE, LONGEST_PAUSE, random()))
            }
        };
        while !next.is_past() {
            sleep_towards(next.moment()).await;
        }
    }
}

/// Looks up the certificate in the list of the first distribution point that has one to rely on (RFC 5280 section 4.2.1.13: each
/// address is an alternative). Returns the time of the next look-up.
async fn look_in_any(
    shared: &Shared,
    maintained: &MaintainedCertificate,
    issuer: &CertificateDer<'static>,
) -> Result<SystemTime, String> {
    let mut failures = Vec::new();
    for url in maintained.certificate().services.lists.iter().take(ADDRESSES) {
        match look(shared, maintained, issuer, url).await {
            Ok(next) => return Ok(next),
            Err(reason) => failures.push(format!("its revocation list {url} cannot be used: {reason}")),
        }
    }
    Err(failures.join("; "))
}

/// Looks up the certificate in the list at `url`. Returns the time of the next look-up.
async fn look(
    shared: &Shared,
    maintained: &MaintainedCertificate,
    issuer: &CertificateDer<'static>,
    url: &str,
) -> Result<SystemTime, String> {
    let services = &maintained.certificate().services;
    let accept = |bytes: &[u8]| accept(bytes, issuer, &services.lists, SystemTime::now());
    let kept = shared.lists.current(shared, url, accept).await?;
    let list = RevocationList::read(&kept.bytes)?;
    let found = list.revoked(&services.serial)?;
    let now = SystemTime::now();
    let expired = list.next_update.is_some_and(|next| next < now);
    // An expired list still proves a revocation, but not its absence.
    match found {
        Some(since) => revoked(shared, maintained, RevocationSource::List, since, url),
        None if expired => return Err("it has expired".to_owned()),
        None => restored(maintained, RevocationSource::List),
    }
    maintained.list_was_read(now);
    shared.apply(maintained.certificate().fingerprint);
    Ok(kept.due)
}

/// Verifies that `bytes` are a current list by `issuer` for certificates with the distribution points `addresses`.
/// Returns `nextUpdate`.
fn accept(
    bytes: &[u8],
    issuer: &[u8],
    addresses: &[String],
    now: SystemTime,
) -> Result<Option<SystemTime>, String> {
    let list = RevocationList::read(bytes).map_err(|reason| format!("it is no list to rely on: {reason}"))?;
    if !list.is_signed_by(issuer) {
        return Err("it is not signed by the issuer of the certificate".to_owned());
    }
    // RFC 5280 section 6.3.3 (b) (2) (i).
    if !list.is_for(addresses) {
        return Err("it is for other certificates of the issuer: it names another address".to_owned());
    }
    if !list.has_begun(now) {
        let day = crate::error::day(list.this_update);
        return Err(format!("it is not valid before {day}; is this machine's clock right?"));
    }
    Ok(list.next_update)
}

#[cfg(test)]
mod tests {
    use brisk_testkit::ca::TestCa;

    use super::*;

    #[test]
    fn only_lists_of_the_issuer_for_this_address_that_have_begun_are_accepted() {
        let (ca, other) = (TestCa::new(), TestCa::new());
        let list = ca.crl_at("http://crl.test/7", &[]);
        let now = SystemTime::now();
        let accept = |issuer: &TestCa, address: &str, now| {
            accept(&list, &issuer.intermediate_der(), &[address.to_owned()], now)
        };
        assert!(accept(&ca, "http://crl.test/7", now).unwrap().is_some_and(|next| next > now));
        assert!(accept(&other, "http://crl.test/7", now).unwrap_err().contains("not signed"));
        assert!(accept(&ca, "http://crl.test/8", now).unwrap_err().contains("other certificates"));
        let week = Duration::from_hours(7 * 24);
        assert!(accept(&ca, "http://crl.test/7", now - week).unwrap_err().contains("not valid before"));
    }

    #[test]
    fn lists_are_fetched_before_they_are_due_and_within_bounds() {
        let now = SystemTime::now();
        let hours = |next: Option<u64>, age: Option<u64>| {
            let hours = |count| Duration::from_hours(count);
            let due = due(next.map(|next| now + hours(next)), age.map(hours), now, 1.0);
            due.duration_since(now).unwrap().as_secs() / 3600
        };
        assert_eq!(hours(Some(100), None), 24);
        assert_eq!(hours(Some(10), Some(3)), 3);
        assert_eq!((hours(Some(0), None), hours(None, None)), (1, 24));
    }

    #[test]
    fn a_damaged_list_in_pem_is_reported_with_its_fault() {
        let ca = TestCa::new();
        let crls = ca.crls(&[], Duration::from_hours(1));
        let pem = crls.intermediate_pem;
        assert_eq!(der(pem.clone().into_bytes()).as_ref(), Ok(&crls.intermediate_der));
        assert_eq!(der(crls.intermediate_der.clone()), Ok(crls.intermediate_der));
        let fault = der(pem.replacen('\n', "\n> ", 1).into_bytes()).unwrap_err();
        assert!(fault.contains("its PEM is damaged: line 2: not base64"), "{fault}");
        assert_eq!(der(b"<html>".to_vec()), Ok(b"<html>".to_vec()), "the parser of lists refuses it");
    }

    #[test]
    fn lists_leave_memory() {
        let lists = Lists::default();
        let with = |age: Duration| {
            let (bytes, due) = (Arc::default(), SystemTime::now() + LATEST);
            let list = List { bytes, due, fetched: Instant::now().checked_sub(age).unwrap() };
            Arc::new(tokio::sync::Mutex::new(Some(list)))
        };
        lock(&lists.0).insert("young".to_owned(), with(Duration::ZERO));
        lock(&lists.0).insert("old".to_owned(), with(KEPT + Duration::from_secs(1)));
        lock(&lists.0).insert("none".to_owned(), Arc::default());
        lists.forget_old();
        assert_eq!(lock(&lists.0).keys().collect::<Vec<_>>(), ["young"]);
    }
}

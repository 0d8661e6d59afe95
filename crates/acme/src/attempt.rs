//! One look at one certificate of a host: what the authority advises, whether it is due, and the order if so.

use std::time::{Duration, SystemTime};

use brisk_certs::Certificate;
use brisk_certs::store::Lock;
use instant_acme::CertificateIdentifier;

use crate::AcmeError;
use crate::advice::{ask, is_about, unknown};
use crate::common::Common;
use crate::host::{Usable, fitting, usable};
use crate::order::Job;
use crate::records::{Held, Issued, Status, moment, seconds};
use crate::renewal::{after_revocation, due, floor, held_until, pause, retry};
use crate::settings::{AuthoritySettings, ChallengeKind, KeyKind, Wanted};

/// Failures in a row after which the next authority is asked.
const FAILURES_OF_ONE: u32 = 3;

/// The next look while another gateway orders what is missing here.
const SOON: Duration = Duration::from_secs(2);

/// The longest pause of a name on demand that could not be verified: strangers may cause its orders before it points here.
const UNVERIFIED: Duration = Duration::from_mins(15);

/// What is done for a certificate.
pub(crate) struct Attempt<'h> {
    common: &'h Common,
    wanted: &'h Wanted,
    kind: KeyKind,
    /// The name is decided at run time.
    on_demand: bool,
}

impl<'h> Attempt<'h> {
    pub(crate) fn new(common: &'h Common, wanted: &'h Wanted, kind: KeyKind) -> Self {
        Self { common, wanted, kind, on_demand: false }
    }

    /// For a name that is decided at run time: it leaves places to hosts of the configuration, and is tried again earlier.
    pub(crate) fn on_demand(common: &'h Common, wanted: &'h Wanted, kind: KeyKind) -> Self {
        Self { common, wanted, kind, on_demand: true }
    }

    /// Obtains the certificate if it is missing or due. Returns when it is to be looked at again.
    pub(crate) async fn turn(&self) -> Result<SystemTime, AcmeError> {
        let have = self.have()?;
        if let Some(rest) = self.common.rest_of(self.name(), self.kind) {
            return Ok(SystemTime::now() + rest);
        }
        if let Some(have) = &have {
            self.listen(have).await?;
        }
        let at = self.due(have.as_ref(), &self.status()?);
        if !is_past(at) {
            return Ok(at);
        }
        // The lock last: who holds it does nothing but order.
        let _of_demand = if self.on_demand { Some(self.common.demand_orders.acquire().await) } else { None };
        let _place = self.common.orders.acquire().await.expect("it is never closed");
        let Some(mut lock) = self.common.records.lock(self.name())? else {
            return Ok(SystemTime::now() + SOON);
        };
        // Another gateway may have done it in the meantime.
        let (status, have) = (self.status()?, self.have()?);
        let at = self.due(have.as_ref(), &status);
        if !is_past(at) {
            return Ok(at);
        }
        self.probe(&status)?;
        let obtained = self.obtain(have.as_ref(), &status, &mut *lock).await;
        let noted = self.note(status, obtained);
        // A failure that cannot be written down is remembered here, or orders would follow one another.
        self.common.remember(self.name(), self.kind, noted.is_err());
        noted
    }

    /// Until when there is nothing to do or to ask, by what was read of the store. `None`: there is.
    pub(crate) fn rests_until(&self, have: Option<&Usable>, status: &Status) -> Option<SystemTime> {
        if let Some(rest) = self.common.rest_of(self.name(), self.kind) {
            return Some(SystemTime::now() + rest);
        }
        let mut at = self.due(have, status);
        if let Some((_, certificate)) = have.and_then(|have| self.adviser(have)) {
            let known = status.advice.as_ref().filter(|own| own.certificate == certificate.to_string());
            at = at.min(moment(known?.again));
        }
        Some(at).filter(|at| !is_past(*at))
    }

    /// The authority that advises on the renewal of a certificate, and how it calls it.
    fn adviser<'u>(&self, have: &'u Usable) -> Option<(&'h AuthoritySettings, CertificateIdentifier<'u>)> {
        let mut issuers = self.common.settings.authorities.iter();
        let settings = issuers.find(|own| own.directory == have.issued.authority)?;
        Some((settings, CertificateIdentifier::try_from(&have.certificate.chain[0]).ok()?))
    }

    /// Asks the authority for its advice, and orders nothing. Returns when the certificate is due.
    pub(crate) async fn look(&self) -> Result<SystemTime, AcmeError> {
        let have = self.have()?;
        if let Some(have) = &have {
            self.listen(have).await?;
        }
        let due = self.due(have.as_ref(), &self.status()?);
        let rest = self.common.rest_of(self.name(), self.kind).map(|rest| SystemTime::now() + rest);
        Ok(rest.map_or(due, |rest| due.max(rest)))
    }

    /// Whether the store takes what an order needs: nothing is asked of an authority that could not be kept.
    fn probe(&self, status: &Status) -> Result<(), AcmeError> {
        self.common.records.put_status(self.name(), self.kind, status)
    }

    /// Obtains it now, whatever is due, for an operator who waits for the outcome.
    pub(crate) async fn at_once(&self) -> Result<(), AcmeError> {
        let Some(mut lock) = self.common.records.lock(self.name())? else {
            return Err(AcmeError::Busy);
        };
        let (status, have) = (self.status()?, self.have()?);
        self.probe(&status)?;
        // An operator who asks for it has no use for a trial.
        let in_earnest = Status { tried: true, ..status.clone() };
        match self.obtain(have.as_ref(), &in_earnest, &mut *lock).await {
            Ok(obtained) => self.note(status, Ok(obtained)).map(drop),
            Err(error) => Err(error),
        }
    }

    fn name(&self) -> &str {
        self.wanted.name()
    }

    fn status(&self) -> Result<Status, AcmeError> {
        match self.common.records.status(self.name(), self.kind) {
            Err(AcmeError::Damaged { .. }) => Ok(Status::default()),
            status => status,
        }
    }

    /// The certificate, if it is what is wanted.
    fn have(&self) -> Result<Option<Usable>, AcmeError> {
        fitting(self.common, self.wanted, self.kind)
    }

    fn due(&self, have: Option<&Usable>, status: &Status) -> SystemTime {
        let now = SystemTime::now();
        let mut pause = retry(status, now);
        if self.on_demand && have.is_none() && status.unverified {
            pause = pause.min(moment(status.failed) + UNVERIFIED);
        }
        let due = due_of(have, status, now).max(pause).max(self.all_held(status));
        match self.revoked_unless(have) {
            Some(Usable { issued, certificate }) => {
                let lifetime = lifetime(&certificate);
                due.max(after_revocation(issued.obtained, lifetime, status.revoked, now))
            }
            None => due,
        }
    }

    /// The certificate of the store, if it is revoked, which it is not if there is one to `have`.
    fn revoked_unless(&self, have: Option<&Usable>) -> Option<Usable> {
        if have.is_some() {
            return None;
        }
        let own = usable(&self.common.records, self.name(), self.kind).ok()??;
        self.common.revoked.has(own.certificate.fingerprint).then_some(own)
    }

    /// When one of the authorities may be asked again, if none may now.
    fn all_held(&self, status: &Status) -> SystemTime {
        let until = |own: &AuthoritySettings| held_until(status, &own.directory);
        self.common.settings.authorities.iter().map(until).min().unwrap_or(moment(0))
    }

    /// Asks the authority when the certificate is to be renewed, if that is due itself.
    async fn listen(&self, have: &Usable) -> Result<(), AcmeError> {
        let Some((settings, certificate)) = self.adviser(have) else { return Ok(()) };
        let status = self.status()?;
        let id = certificate.to_string();
        let known = status.advice.as_ref().filter(|advice| advice.certificate == id);
        if known.is_some_and(|advice| !is_past(moment(advice.again))) {
            return Ok(());
        }
        self.probe(&status)?;
        let advice = match self.common.authority(settings, &settings.directory).await {
            Ok(authority) => ask(&authority, &certificate, known).await,
            Err(error) => Err(error),
        };
        // Where there is no advice the lifetime decides meanwhile.
        let advice = advice.unwrap_or_else(|error| {
            tracing::debug!(host = self.name(), key = %self.kind, %error, "no advice on the renewal");
            None
        });
        let advice = advice.unwrap_or_else(|| unknown(id, known));
        if known.is_none_or(|known| known.chosen != advice.chosen) && advice.is_known() {
            let (renewal, why) = (rfc3339(moment(advice.chosen)), advice.explanation.as_deref());
            tracing::info!(host = self.name(), key = %self.kind, renewal, why, "the authority advises when to renew");
        }
        let status = Status { advice: Some(advice), ..self.status()? };
        self.common.records.put_status(self.name(), self.kind, &status)
    }

    async fn obtain(
        &self,
        have: Option<&Usable>,
        status: &Status,
        lock: &mut dyn Lock,
    ) -> Result<Obtained, AcmeError> {
        let settings = self.choice(status);
        let trial = settings.trial.as_deref();
        let trial = trial.filter(|_| have.is_none() && status.unverified && !status.tried);
        let directory = trial.unwrap_or(&settings.directory);
        let names = self.wanted.names.join(" ");
        tracing::info!(host = self.name(), names, key = %self.kind, authority = directory, "obtaining a certificate");
        let revoked = self.revoked_unless(have);
        match self.order(have.or(revoked.as_ref()), status, (settings, directory), lock).await {
            Ok(issued) if trial.is_none() => {
                self.common.records.put_issued(self.name(), self.kind, &issued)?;
                self.common.records.end_pending(self.name(), self.kind)?;
                Ok(Obtained::Certificate { replaces_revoked: revoked.is_some() })
            }
            Ok(_) => {
                self.common.records.end_pending(self.name(), self.kind)?;
                Ok(Obtained::Trial)
            }
            // A trial is for names that may not be proven, and not worth more than what it protects.
            Err(error)
                if trial.is_some() && !error.is_about_names() && !matches!(error, AcmeError::Overtaken) =>
            {
                tracing::warn!(host = self.name(), key = %self.kind, %error, "no trial: now in earnest");
                Ok(Obtained::NoTrial)
            }
            Err(error) => Err(error),
        }
    }

    async fn order(
        &self,
        before: Option<&Usable>,
        status: &Status,
        (settings, directory): (&AuthoritySettings, &str),
        lock: &mut dyn Lock,
    ) -> Result<Issued, AcmeError> {
        let authority = self.common.authority(settings, directory).await?;
        let _only = match &self.common.settings.dns {
            Some(dns) if dns.takes_one_order() => Some(self.common.dns_orders.acquire().await),
            _ => None,
        };
        let replaced = before.filter(|own| own.issued.authority == directory);
        let mut job = Job {
            host: self.name(),
            names: &self.wanted.names,
            kind: self.kind,
            profile: self.wanted.profile.as_deref().or(settings.profile.as_deref()),
            authority: &authority,
            records: &self.common.records,
            answers: &self.common.answers,
            challenges: self.challenges(status.failures),
            dns: self.common.settings.dns.as_ref(),
            replaces: replaced
                .and_then(|own| CertificateIdentifier::try_from(&own.certificate.chain[0]).ok()),
            lock,
        };
        let obtained = job.obtain().await;
        if let Err(error) = &obtained {
            // Its directory may have changed, or its account be gone.
            self.common.forget(directory);
            if error.is_account_gone() {
                authority.forget_account(&self.common.records)?;
            }
        }
        obtained
    }

    /// The authority whose turn it is after the failures so far; the next one that may be asked, if that may not.
    fn choice(&self, status: &Status) -> &AuthoritySettings {
        let all = &self.common.settings.authorities;
        let turn = (status.failures / FAILURES_OF_ONE) as usize;
        let mut in_turn = (0..all.len()).map(|next| &all[(turn + next) % all.len()]);
        in_turn.find(|own| is_past(held_until(status, &own.directory))).unwrap_or(&all[turn % all.len()])
    }

    /// The ways to prove names, another one first after each failure.
    fn challenges(&self, failures: u32) -> Vec<ChallengeKind> {
        let mut all = self.common.settings.challenges.clone();
        let turns = failures as usize % all.len().max(1);
        all.rotate_left(turns);
        all
    }

    fn note(&self, before: Status, obtained: Result<Obtained, AcmeError>) -> Result<SystemTime, AcmeError> {
        let error = match obtained {
            Ok(Obtained::Certificate { replaces_revoked }) => {
                return self.succeeded(if replaces_revoked { before.revoked.saturating_add(1) } else { 0 });
            }
            Ok(own @ (Obtained::Trial | Obtained::NoTrial)) => {
                if matches!(own, Obtained::Trial) {
                    tracing::info!(host = self.name(), key = %self.kind, "the trial authority would have issued: now in earnest");
                }
                let status = Status { tried: true, retry: 0, ..before };
                self.common.records.put_status(self.name(), self.kind, &status)?;
                return Ok(SystemTime::now());
            }
            // It is the other gateway's order now, and its failure if it fails.
            Err(AcmeError::Overtaken) => return Ok(SystemTime::now() + SOON),
            Err(error) => error,
        };
        let failures = before.failures.saturating_add(1);
        let now = SystemTime::now();
        let others = self.common.settings.authorities.len() > 1;
        // Where there is another authority, only the one that asked for more is left alone for longer.
        let next = now + pause(failures, error.retry_after().filter(|_| !others));
        let status = Status {
            failures,
            last_error: Some(error.to_string()),
            failed: seconds(now),
            retry: seconds(next),
            held: self.held(&before, &error, now),
            unverified: error.is_about_names(),
            // What fails at the authority after it went well in the trial may fail for another reason than the names.
            tried: before.tried && !error.is_about_names(),
            advice: before.advice,
            revoked: before.revoked,
        };
        let written = self.common.records.put_status(self.name(), self.kind, &status);
        tracing::error!(host = self.name(), key = %self.kind, %error, failures, next = rfc3339(next), "no certificate was obtained");
        written.map(|()| next)
    }

    /// The authorities that are left alone after `error`, besides those that were before.
    fn held(&self, before: &Status, error: &AcmeError, now: SystemTime) -> Vec<Held> {
        let asked = &self.choice(before).directory;
        let mut held: Vec<_> =
            before.held.iter().filter(|own| !is_past(moment(own.until))).cloned().collect();
        if let Some(retry_after) = error.retry_after().filter(|said| !said.is_zero()) {
            held.retain(|own| own.authority != *asked);
            held.push(Held { authority: asked.clone(), until: seconds(now + retry_after) });
        }
        held
    }

    /// There is a new certificate; `revoked` in a row were ordered as the one before was revoked.
    fn succeeded(&self, revoked: u32) -> Result<SystemTime, AcmeError> {
        let status = Status { revoked, ..Status::default() };
        self.common.records.put_status(self.name(), self.kind, &status)?;
        if let Some(Usable { certificate, issued }) = self.have()? {
            let (ends, names) = (rfc3339(certificate.not_after), issued.names.join(" "));
            tracing::info!(host = self.name(), names, key = %self.kind, ends, "a certificate was obtained");
        }
        // The authority is asked for advice on it at once.
        Ok(SystemTime::now())
    }
}

/// What an order gave.
enum Obtained {
    /// A certificate, which is in the store.
    Certificate {
        /// The one before it was revoked.
        replaces_revoked: bool,
    },
    /// The proof that there would have been one.
    Trial,
    /// Nothing, as the trial authority cannot be asked.
    NoTrial,
}

/// When a certificate is renewed, or ordered, if nothing has failed.
pub(crate) fn due_of(have: Option<&Usable>, status: &Status, now: SystemTime) -> SystemTime {
    let Some(Usable { issued, certificate }) = have else { return moment(0) };
    let advice = status.advice.as_ref().filter(|advice| is_about(advice, certificate));
    let due = due(certificate.not_before, certificate.not_after, advice);
    if issued.imported {
        return due;
    }
    due.max(floor(issued.obtained, lifetime(certificate), now))
}

fn lifetime(certificate: &Certificate) -> Duration {
    certificate.not_after.duration_since(certificate.not_before).unwrap_or_default()
}

fn is_past(at: SystemTime) -> bool {
    seconds(at) <= seconds(SystemTime::now())
}

/// As logs write it: RFC 3339, in UTC.
pub fn rfc3339(at: SystemTime) -> String {
    let at =
        i64::try_from(seconds(at)).ok().and_then(|at| time::OffsetDateTime::from_unix_timestamp(at).ok());
    at.and_then(|at| at.format(&time::format_description::well_known::Rfc3339).ok()).unwrap_or_default()
}

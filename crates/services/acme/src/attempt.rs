//! One certificate of a host: renewal information, due time, and the order when it is due.

mod outcome;

use std::time::{Duration, SystemTime};

use brisk_certs::Certificate;
use brisk_certs::store::Lock;
use instant_acme::CertificateIdentifier;

use self::outcome::OrderOutcome;
use crate::AcmeError;
use crate::advice::{ask, is_about, unknown};
use crate::context::AcmeContext;
use crate::host::{UsableCertificate, fitting, usable};
use crate::order::OrderJob;
use crate::records::{AttemptStatus, IssuedCertificate, moment, seconds};
use crate::renewal::{after_revocation, due, floor, held_until, retry};
use crate::settings::{AuthoritySettings, CertificateSpec, ChallengeKind, KeyKind};

/// Consecutive failures after which the next authority is used.
const FAILURES_OF_ONE: u32 = 3;

/// Pause while another gateway orders the certificate that is missing here.
const SOON: Duration = Duration::from_secs(2);

/// Longest pause after a failed verification of an on-demand name. Shorter than for configured hosts: unknown clients
/// can cause orders before the name points to this gateway.
const UNVERIFIED: Duration = Duration::from_mins(15);

/// Obtains and renews one certificate: the names of a host with one kind of key.
pub(crate) struct Attempt<'h> {
    context: &'h AcmeContext,
    wanted: &'h CertificateSpec,
    kind: KeyKind,
    /// The name was accepted at run time (on-demand certificates).
    on_demand: bool,
}

impl<'h> Attempt<'h> {
    pub(crate) fn new(context: &'h AcmeContext, wanted: &'h CertificateSpec, kind: KeyKind) -> Self {
        Self { context, wanted, kind, on_demand: false }
    }

    /// An attempt for an on-demand name. It uses a permit of [`AcmeContext::demand_orders`], so that configured hosts
    /// are never starved, and is retried sooner.
    pub(crate) fn on_demand(context: &'h AcmeContext, wanted: &'h CertificateSpec, kind: KeyKind) -> Self {
        Self { context, wanted, kind, on_demand: true }
    }

    /// Obtains the certificate if it is missing or due. Returns the time of the next call.
    ///
    /// # Errors
    ///
    /// Errors of the store. Failed orders are recorded in [`AttemptStatus`] instead.
    pub(crate) async fn obtain_if_due(&self) -> Result<SystemTime, AcmeError> {
        let have = self.stored_certificate()?;
        if let Some(rest) = self.context.remaining_pause(self.name(), self.kind) {
            return Ok(SystemTime::now() + rest);
        }
        if let Some(have) = &have {
            self.update_renewal_info(have).await?;
        }
        let at = self.due(have.as_ref(), &self.status()?);
        if !is_past(at) {
            return Ok(at);
        }
        // The lock is taken after the permits: a gateway that waits for a permit must not keep others of the fleet from
        // ordering.
        let _of_demand = if self.on_demand { Some(self.context.demand_orders.acquire().await) } else { None };
        let _place = self.context.orders.acquire().await.expect("it is never closed");
        let Some(mut lock) = self.context.records.lock(self.name())? else {
            return Ok(SystemTime::now() + SOON);
        };
        // Another gateway may have renewed it while this one waited.
        let (status, have) = (self.status()?, self.stored_certificate()?);
        let at = self.due(have.as_ref(), &status);
        if !is_past(at) {
            return Ok(at);
        }
        self.check_writable(&status)?;
        let obtained = self.obtain(have.as_ref(), &status, &mut *lock).await;
        let noted = self.note(status, obtained);
        // An outcome that the store rejects is remembered in this process; without it, orders would follow one another
        // without a pause.
        self.context.remember(self.name(), self.kind, noted.is_err());
        noted
    }

    /// Returns the time until which neither an order nor a request for renewal information is due, from data already
    /// read from the store. `None` if something is due now.
    pub(crate) fn idle_until(
        &self,
        have: Option<&UsableCertificate>,
        status: &AttemptStatus,
    ) -> Option<SystemTime> {
        if let Some(rest) = self.context.remaining_pause(self.name(), self.kind) {
            return Some(SystemTime::now() + rest);
        }
        let mut at = self.due(have, status);
        if let Some((_, certificate)) = have.and_then(|have| self.issuing_authority(have)) {
            let known = status.advice.as_ref().filter(|own| own.certificate == certificate.to_string());
            at = at.min(moment(known?.again));
        }
        Some(at).filter(|at| !is_past(*at))
    }

    /// The configured authority that issued the certificate, with the certificate's identifier for renewal information
    /// (RFC 9773 section 4.1).
    fn issuing_authority<'u>(
        &self,
        have: &'u UsableCertificate,
    ) -> Option<(&'h AuthoritySettings, CertificateIdentifier<'u>)> {
        let mut issuers = self.context.settings.authorities.iter();
        let settings = issuers.find(|own| own.directory == have.issued.authority)?;
        Some((settings, CertificateIdentifier::try_from(&have.certificate.chain[0]).ok()?))
    }

    /// Updates the renewal information without ordering. Returns the time at which the certificate is due.
    pub(crate) async fn next_renewal(&self) -> Result<SystemTime, AcmeError> {
        let have = self.stored_certificate()?;
        if let Some(have) = &have {
            self.update_renewal_info(have).await?;
        }
        let due = self.due(have.as_ref(), &self.status()?);
        let rest = self.context.remaining_pause(self.name(), self.kind).map(|rest| SystemTime::now() + rest);
        Ok(rest.map_or(due, |rest| due.max(rest)))
    }

    /// Writes the unchanged status, to find a store that rejects writes before anything is requested from the
    /// authority.
    fn check_writable(&self, status: &AttemptStatus) -> Result<(), AcmeError> {
        self.context.records.put_status(self.name(), self.kind, status)
    }

    /// Obtains the certificate now, due or not, for an operator who waits for the result.
    pub(crate) async fn obtain_now(&self) -> Result<(), AcmeError> {
        let Some(mut lock) = self.context.records.lock(self.name())? else {
            return Err(AcmeError::Busy);
        };
        let (status, have) = (self.status()?, self.stored_certificate()?);
        self.check_writable(&status)?;
        // A trial order would only delay the operator.
        let in_earnest = AttemptStatus { tried: true, ..status.clone() };
        // A failure is reported to the operator only, and leaves the pauses of the gateway as they are.
        match self.obtain(have.as_ref(), &in_earnest, &mut *lock).await {
            Ok(obtained) => self.note(status, Ok(obtained)).map(drop),
            Err(error) => Err(error),
        }
    }

    fn name(&self) -> &str {
        self.wanted.name()
    }

    fn status(&self) -> Result<AttemptStatus, AcmeError> {
        match self.context.records.status(self.name(), self.kind) {
            // A damaged status costs the history of failures only; the certificate must not wait for an
            // operator.
            Err(AcmeError::Damaged { .. }) => Ok(AttemptStatus::default()),
            status => status,
        }
    }

    /// The stored certificate, if it still satisfies the configuration.
    fn stored_certificate(&self) -> Result<Option<UsableCertificate>, AcmeError> {
        fitting(self.context, self.wanted, self.kind)
    }

    fn due(&self, have: Option<&UsableCertificate>, status: &AttemptStatus) -> SystemTime {
        let now = SystemTime::now();
        let mut pause = retry(status, now);
        if self.on_demand && have.is_none() && status.unverified {
            pause = pause.min(moment(status.failed) + UNVERIFIED);
        }
        let due = due_of(have, status, now).max(pause).max(self.all_held(status));
        match self.revoked_unless(have) {
            Some(UsableCertificate { issued, certificate }) => {
                let lifetime = lifetime(&certificate);
                due.max(after_revocation(issued.obtained, lifetime, status.revoked, now))
            }
            None => due,
        }
    }

    /// The stored certificate, if it is revoked. `None` if `have` is a usable certificate.
    fn revoked_unless(&self, have: Option<&UsableCertificate>) -> Option<UsableCertificate> {
        if have.is_some() {
            return None;
        }
        let own = usable(&self.context.records, self.name(), self.kind).ok()??;
        self.context.revoked.has(own.certificate.fingerprint).then_some(own)
    }

    /// The earliest time at which an authority accepts requests again; in the past if one does now.
    fn all_held(&self, status: &AttemptStatus) -> SystemTime {
        let until = |own: &AuthoritySettings| held_until(status, &own.directory);
        self.context.settings.authorities.iter().map(until).min().unwrap_or(moment(0))
    }

    /// Updates the renewal information of the certificate, if the authority's `Retry-After` has passed (RFC 9773
    /// section 4.3).
    async fn update_renewal_info(&self, have: &UsableCertificate) -> Result<(), AcmeError> {
        let Some((settings, certificate)) = self.issuing_authority(have) else { return Ok(()) };
        let status = self.status()?;
        let id = certificate.to_string();
        let known = status.advice.as_ref().filter(|advice| advice.certificate == id);
        if known.is_some_and(|advice| !is_past(moment(advice.again))) {
            return Ok(());
        }
        self.check_writable(&status)?;
        let advice = match self.context.authority(settings, &settings.directory).await {
            Ok(authority) => ask(&authority, &certificate, known).await,
            Err(error) => Err(error),
        };
        // Without renewal information the lifetime decides; see [`by_lifetime`](crate::renewal::by_lifetime).
        let advice = advice.unwrap_or_else(|error| {
            tracing::debug!(host = self.name(), key = %self.kind, %error, "no renewal information");
            Some(unknown(id.clone(), known, error.retry_after()))
        });
        let advice = advice.unwrap_or_else(|| unknown(id, known, None));
        if known.is_none_or(|known| known.chosen != advice.chosen) && advice.is_known() {
            let (renewal, why) = (rfc3339(moment(advice.chosen)), advice.explanation.as_deref());
            tracing::info!(host = self.name(), key = %self.kind, renewal, why, "the authority advises when to renew");
        }
        let status = AttemptStatus { advice: Some(advice), ..self.status()? };
        self.context.records.put_status(self.name(), self.kind, &status)
    }

    async fn obtain(
        &self,
        have: Option<&UsableCertificate>,
        status: &AttemptStatus,
        lock: &mut dyn Lock,
    ) -> Result<OrderOutcome, AcmeError> {
        let settings = self.choose_authority(status);
        let trial = settings.trial.as_deref();
        let trial = trial.filter(|_| have.is_none() && status.unverified && !status.tried);
        let directory = trial.unwrap_or(&settings.directory);
        let names = self.wanted.names.join(" ");
        tracing::info!(host = self.name(), names, key = %self.kind, authority = directory, "obtaining a certificate");
        let revoked = self.revoked_unless(have);
        match self.order(have.or(revoked.as_ref()), status, (settings, directory), lock).await {
            Ok(issued) if trial.is_none() => {
                // Stored before the order is removed: after a kill between the two, `left_over` finds that
                // the order is done.
                self.context.records.put_issued(self.name(), self.kind, &issued)?;
                self.context.records.end_pending(self.name(), self.kind)?;
                Ok(OrderOutcome::Certificate { replaces_revoked: revoked.is_some() })
            }
            Ok(_) => {
                self.context.records.end_pending(self.name(), self.kind)?;
                Ok(OrderOutcome::Trial)
            }
            // A trial protects the rate limits of the real authority against names that cannot be verified. Any other
            // failure of the trial is no reason to delay the order.
            Err(error)
                if trial.is_some() && !error.is_about_names() && !matches!(error, AcmeError::Overtaken) =>
            {
                tracing::warn!(host = self.name(), key = %self.kind, %error, "the trial authority is not available; ordering from the real one");
                Ok(OrderOutcome::NoTrial)
            }
            Err(error) => Err(error),
        }
    }

    async fn order(
        &self,
        before: Option<&UsableCertificate>,
        status: &AttemptStatus,
        (settings, directory): (&AuthoritySettings, &str),
        lock: &mut dyn Lock,
    ) -> Result<IssuedCertificate, AcmeError> {
        let authority = self.context.authority(settings, directory).await?;
        let _only = match &self.context.settings.dns {
            Some(dns) if dns.takes_one_order() => Some(self.context.dns_orders.acquire().await),
            _ => None,
        };
        let replaced = before.filter(|own| own.issued.authority == directory);
        let mut job = OrderJob {
            host: self.name(),
            names: &self.wanted.names,
            kind: self.kind,
            profile: self.wanted.profile.as_deref().or(settings.profile.as_deref()),
            authority: &authority,
            records: &self.context.records,
            answers: &self.context.answers,
            challenges: self.challenges(status.failures),
            dns: self.context.settings.dns.as_ref(),
            replaces: replaced
                .and_then(|own| CertificateIdentifier::try_from(&own.certificate.chain[0]).ok()),
            lock,
        };
        let obtained = job.obtain().await;
        if let Err(error) = &obtained {
            // The authority's directory may have changed, or the account may be gone: both are read again.
            self.context.forget(directory);
            if error.is_account_gone() {
                authority.forget_account(&self.context.records)?;
            }
        }
        obtained
    }

    /// The authority for the next order: the next in the list after every [`FAILURES_OF_ONE`] failures, skipping those
    /// that requested a pause.
    fn choose_authority(&self, status: &AttemptStatus) -> &AuthoritySettings {
        let all = &self.context.settings.authorities;
        let turn = (status.failures / FAILURES_OF_ONE) as usize;
        let mut in_turn = (0..all.len()).map(|next| &all[(turn + next) % all.len()]);
        in_turn.find(|own| is_past(held_until(status, &own.directory))).unwrap_or(&all[turn % all.len()])
    }

    /// The configured challenges, rotated by one after each failure, so that a broken one does not block the
    /// certificate.
    fn challenges(&self, failures: u32) -> Vec<ChallengeKind> {
        let mut all = self.context.settings.challenges.clone();
        let turns = failures as usize % all.len().max(1);
        all.rotate_left(turns);
        all
    }
}

/// The time at which a certificate is renewed or ordered, without pauses after failures.
pub(crate) fn due_of(
    have: Option<&UsableCertificate>,
    status: &AttemptStatus,
    now: SystemTime,
) -> SystemTime {
    let Some(UsableCertificate { issued, certificate }) = have else { return moment(0) };
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

/// Formats `at` as RFC 3339 in UTC, as in logs. Empty if the year exceeds 9999.
pub fn rfc3339(at: SystemTime) -> String {
    let at =
        i64::try_from(seconds(at)).ok().and_then(|at| time::OffsetDateTime::from_unix_timestamp(at).ok());
    at.and_then(|at| at.format(&time::format_description::well_known::Rfc3339).ok()).unwrap_or_default()
}

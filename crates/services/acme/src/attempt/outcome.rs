//! Outcome of an order: the [`AttemptStatus`] that is recorded, and the time of the next attempt.

use std::time::{Duration, SystemTime};

use super::{Attempt, SOON, is_past, rfc3339};
use crate::AcmeError;
use crate::host::UsableCertificate;
use crate::records::{AttemptStatus, PausedAuthority, moment, seconds};
use crate::renewal::pause;

/// Result of an order.
pub(super) enum OrderOutcome {
    /// The certificate, already stored.
    Certificate {
        /// It replaces a revoked certificate.
        replaces_revoked: bool,
    },
    /// The trial authority would have issued it.
    Trial,
    /// The trial authority could not be used.
    NoTrial,
}

/// Rounds up: no request is sent before the moment that the authority has named.
fn whole_seconds(at: SystemTime) -> u64 {
    seconds(at + Duration::from_millis(999))
}

impl Attempt<'_> {
    /// Records the outcome. Returns the time of the next attempt.
    pub(super) fn note(
        &self,
        before: AttemptStatus,
        obtained: Result<OrderOutcome, AcmeError>,
    ) -> Result<SystemTime, AcmeError> {
        let error = match obtained {
            Ok(OrderOutcome::Certificate { replaces_revoked }) => {
                return self.succeeded(if replaces_revoked { before.revoked.saturating_add(1) } else { 0 });
            }
            Ok(own @ (OrderOutcome::Trial | OrderOutcome::NoTrial)) => {
                if matches!(own, OrderOutcome::Trial) {
                    tracing::info!(host = self.name(), key = %self.kind, "the trial order succeeded; ordering from the real authority");
                }
                let status = AttemptStatus { tried: true, retry: 0, ..before };
                self.context.records.put_status(self.name(), self.kind, &status)?;
                return Ok(SystemTime::now());
            }
            // The other gateway records the outcome of the order.
            Err(AcmeError::Overtaken) => return Ok(SystemTime::now() + SOON),
            Err(error) => error,
        };
        let failures = before.failures.saturating_add(1);
        let now = SystemTime::now();
        let others = self.context.settings.authorities.len() > 1;
        // With several authorities, only the rate-limited one is paused (see `held`); the others are tried after the
        // usual pause.
        let requested = error.retry_after().filter(|said| !others && !said.is_zero());
        let next = now + pause(failures, requested);
        let status = AttemptStatus {
            failures,
            last_error: Some(error.to_string()),
            failed: seconds(now),
            retry: whole_seconds(next),
            held: self.held(&before, &error, now),
            unverified: error.is_about_names(),
            // A failure other than verification after a successful trial says nothing about the names, so the trial is
            // not repeated.
            tried: before.tried && !error.is_about_names(),
            advice: before.advice,
            revoked: before.revoked,
        };
        let written = self.context.records.put_status(self.name(), self.kind, &status);
        tracing::error!(host = self.name(), key = %self.kind, %error, failures, next = rfc3339(next), "no certificate was obtained");
        written.map(|()| next)
    }

    /// Authorities that requested a pause, including the response to the present attempt.
    fn held(&self, before: &AttemptStatus, error: &AcmeError, now: SystemTime) -> Vec<PausedAuthority> {
        let asked = &self.choose_authority(before).directory;
        let mut held: Vec<_> =
            before.held.iter().filter(|own| !is_past(moment(own.until))).cloned().collect();
        if let Some(retry_after) = error.retry_after().filter(|said| !said.is_zero()) {
            held.retain(|own| own.authority != *asked);
            held.push(PausedAuthority { authority: asked.clone(), until: whole_seconds(now + retry_after) });
        }
        held
    }

    /// Records a success. `revoked` counts consecutive certificates that replaced a revoked one.
    fn succeeded(&self, revoked: u32) -> Result<SystemTime, AcmeError> {
        let status = AttemptStatus { revoked, ..AttemptStatus::default() };
        self.context.records.put_status(self.name(), self.kind, &status)?;
        if let Some(UsableCertificate { certificate, issued }) = self.stored_certificate()? {
            let (ends, names) = (rfc3339(certificate.not_after), issued.names.join(" "));
            tracing::info!(host = self.name(), names, key = %self.kind, ends, "a certificate was obtained");
        }
        // Run again at once to request renewal information for the new certificate.
        Ok(SystemTime::now())
    }
}

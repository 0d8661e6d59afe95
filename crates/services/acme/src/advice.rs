//! Renewal information of authorities (ARI, RFC 9773).

use std::time::{Duration, SystemTime};

use brisk_certs::Certificate;
use instant_acme::CertificateIdentifier;
use time::OffsetDateTime;

use crate::AcmeError;
use crate::account::Authority;
use crate::records::{RenewalAdvice, moment, seconds};
use crate::renewal::{ask_again, choose};

impl RenewalAdvice {
    /// Returns whether the authority has suggested a window. `false` for the placeholder that [`unknown`] stores.
    pub(crate) fn is_known(&self) -> bool {
        self.chosen != u64::MAX
    }

    /// Returns the suggested renewal window (RFC 9773 section 4.2); `None` if the authority suggested none.
    pub fn window(&self) -> Option<(SystemTime, SystemTime)> {
        self.is_known().then(|| (moment(self.start), moment(self.end)))
    }
}

/// Requests renewal information for `certificate`. `known` is the stored information about the same certificate.
/// Returns `None` if the authority does not implement RFC 9773.
pub(crate) async fn ask(
    authority: &Authority,
    certificate: &CertificateIdentifier<'_>,
    known: Option<&RenewalAdvice>,
) -> Result<Option<RenewalAdvice>, AcmeError> {
    let (info, again) = match authority.account.renewal_info(certificate).await {
        Ok(answer) => answer,
        Err(instant_acme::Error::Unsupported(_)) => return Ok(None),
        Err(error) => return Err(authority.error("no renewal information", error)),
    };
    // A window before 1970 counts as one in the past, which means an immediate renewal.
    let bound = |at: OffsetDateTime| u64::try_from(at.unix_timestamp()).unwrap_or_default();
    let (start, end) = (bound(info.suggested_window.start), bound(info.suggested_window.end));
    // The moment is chosen once per window. A new random moment for each response would postpone the renewal again and
    // again.
    let same = known.filter(|known| known.start == start && known.end == end && known.is_known());
    Ok(Some(RenewalAdvice {
        certificate: certificate.to_string(),
        start,
        end,
        chosen: same.map_or_else(|| choose(start, end), |known| known.chosen),
        again: seconds(ask_again(SystemTime::now(), Some(again))),
        explanation: info.explanation_url,
    }))
}

/// Information to store after a request without result: the `known` window or none, and the time of the next request, which
/// the authority may have sent as `Retry-After`.
pub(crate) fn unknown(
    certificate: String,
    known: Option<&RenewalAdvice>,
    retry_after: Option<Duration>,
) -> RenewalAdvice {
    let again = seconds(ask_again(SystemTime::now(), retry_after));
    let none = RenewalAdvice { certificate, start: 0, end: 0, chosen: u64::MAX, again, explanation: None };
    known.cloned().map_or(none, |known| RenewalAdvice { again, ..known })
}

/// Returns whether `advice` concerns this certificate, and not its predecessor.
pub(crate) fn is_about(advice: &RenewalAdvice, certificate: &Certificate) -> bool {
    let own = certificate.chain.first().map(CertificateIdentifier::try_from);
    matches!(own, Some(Ok(own)) if own.to_string() == advice.certificate)
}

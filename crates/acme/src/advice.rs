//! What authorities advise on renewals (RFC 9773).

use std::time::SystemTime;

use brisk_certs::Certificate;
use instant_acme::CertificateIdentifier;
use time::OffsetDateTime;

use crate::AcmeError;
use crate::account::Authority;
use crate::records::{Advice, moment, seconds};
use crate::renewal::{ask_again, choose};

impl Advice {
    /// Whether it is advice at all, and not only the note that there was none.
    pub(crate) fn is_known(&self) -> bool {
        self.chosen != u64::MAX
    }

    /// The window that the authority advises; `None` if it gave no advice.
    pub fn window(&self) -> Option<(SystemTime, SystemTime)> {
        self.is_known().then(|| (moment(self.start), moment(self.end)))
    }
}

/// Asks the authority for advice; `None` if it gives none to any client. `known` is what it said before of this certificate.
pub(crate) async fn ask(
    authority: &Authority,
    certificate: &CertificateIdentifier<'_>,
    known: Option<&Advice>,
) -> Result<Option<Advice>, AcmeError> {
    let (info, again) = match authority.account.renewal_info(certificate).await {
        Ok(answer) => answer,
        Err(instant_acme::Error::Unsupported(_)) => return Ok(None),
        Err(error) => return Err(authority.error("no advice on the renewal", error)),
    };
    let bound = |at: OffsetDateTime| u64::try_from(at.unix_timestamp()).unwrap_or_default();
    let (start, end) = (bound(info.suggested_window.start), bound(info.suggested_window.end));
    // A moment is chosen once for a window: one chosen anew with each answer would be put off again and again.
    let same = known.filter(|known| known.start == start && known.end == end && known.is_known());
    Ok(Some(Advice {
        certificate: certificate.to_string(),
        start,
        end,
        chosen: same.map_or_else(|| choose(start, end), |known| known.chosen),
        again: seconds(ask_again(SystemTime::now(), Some(again))),
        explanation: info.explanation_url,
    }))
}

/// What is noted where the authority gave no advice: what it said before, and when it is asked again.
pub(crate) fn unknown(certificate: String, known: Option<&Advice>) -> Advice {
    let again = seconds(ask_again(SystemTime::now(), None));
    let none = Advice { certificate, start: 0, end: 0, chosen: u64::MAX, again, explanation: None };
    known.cloned().map_or(none, |known| Advice { again, ..known })
}

/// Whether `advice` is about this certificate, and not about the one before it.
pub(crate) fn is_about(advice: &Advice, certificate: &Certificate) -> bool {
    let own = certificate.chain.first().map(CertificateIdentifier::try_from);
    matches!(own, Some(Ok(own)) if own.to_string() == advice.certificate)
}

//! Reasons for which clients refuse a certificate, in words: dates, names, and the remedy.

use brisk_handshake_view::{Certificate, Chain};
use time::OffsetDateTime;

/// Maximum number of names of a certificate in [`Refusal::reason`].
const NAMES: usize = 5;

/// A reason why clients refuse a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The reason.
    pub(crate) reason: String,
    /// The remedy; empty if it is unknown.
    pub(crate) remedy: &'static str,
}

/// The reason for which `chain` is refused for `host`, in words. `verdict` is the reason of the verifier, which names one
/// fault only and no facts of the certificate.
pub(crate) fn refusal(chain: &Chain, verdict: &str, host: &str, now: i64) -> Refusal {
    let Some(leaf) = chain.certificates.first() else {
        return Refusal { reason: verdict.to_owned(), remedy: "" };
    };
    let mut found = Vec::new();
    for certificate in &chain.certificates {
        let subject = if certificate == leaf {
            "the certificate".to_owned()
        } else {
            format!("{:?}", certificate.subject)
        };
        found.extend(wrong_time(&subject, certificate, now));
    }
    // Words of `brisk_tls_client::ClientError`: a change of its messages changes the branches here and below.
    if verdict.contains("not valid for") {
        found.push(wrong_name(leaf, host));
    }
    if found.is_empty() {
        found.push(issuer(chain, leaf, verdict));
    }
    let remedy = found[0].remedy;
    let reasons: Vec<_> = found.into_iter().map(|refusal| refusal.reason).collect();
    Refusal { reason: reasons.join("; "), remedy }
}

fn wrong_time(subject: &str, certificate: &Certificate, now: i64) -> Option<Refusal> {
    let (begin, end) = (certificate.not_before, certificate.not_after);
    if end < now {
        let reason = format!("{subject} expired on {}, {} ago", date(end), days(now - end));
        let remedy = "renew it now (brisk cert renew); acme = true of the host renews in time";
        return Some(Refusal { reason, remedy });
    }
    (begin > now).then(|| Refusal {
        reason: format!("{subject} is valid from {} only, in {}", date(begin), days(begin - now)),
        remedy: "check the clock of this machine; otherwise use the previous certificate until then",
    })
}

fn wrong_name(leaf: &Certificate, host: &str) -> Refusal {
    let mut names = leaf.names.iter().take(NAMES).cloned().collect::<Vec<_>>().join(", ");
    if names.is_empty() {
        return Refusal {
            reason: format!("the certificate contains no names (subjectAltName), so it is not for {host}"),
            remedy: "a certificate with this name in subjectAltName; clients ignore the common name",
        };
    }
    if let Some(more @ 1..) = leaf.names.len().checked_sub(NAMES) {
        names = format!("{names} and {more} more");
    }
    Refusal {
        reason: format!("the certificate is for {names}, not for {host}"),
        remedy: "a certificate with this name; or the server has no host of this name and sends another one's",
    }
}

fn issuer(chain: &Chain, leaf: &Certificate, verdict: &str) -> Refusal {
    let issuer = &leaf.issuer;
    if leaf.is_self_signed {
        return Refusal {
            reason: "the certificate is signed by itself, so clients know no authority for it".to_owned(),
            remedy: "acme = true of the host, or a certificate of an authority; --ca FILE trusts it here",
        };
    }
    // Other verdicts have a cause that the fields of the certificate do not show.
    if !verdict.contains("authority") {
        return Refusal { reason: verdict.to_owned(), remedy: "" };
    }
    let sent = if chain.is_alone { ", and was not sent" } else { "" };
    Refusal {
        reason: format!("the authority {issuer:?} is not trusted here{sent}"),
        remedy: "a certificate of a public authority; --ca FILE trusts an authority of your own here",
    }
}

/// A day as `2026-11-28`; the seconds themselves outside of the calendar.
fn date(seconds: i64) -> String {
    OffsetDateTime::from_unix_timestamp(seconds)
        .map_or_else(|_| seconds.to_string(), |at| at.date().to_string())
}

fn days(seconds: i64) -> String {
    match seconds / 86_400 {
        0 => format!("{} h", (seconds / 3600).max(1)),
        1 => "a day".to_owned(),
        days => format!("{days} days"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_795_860_000; // 2026-11-28

    fn leaf(begin: i64, end: i64, names: &[&str]) -> Chain {
        let certificate = Certificate {
            subject: "a.test".to_owned(),
            issuer: "CA".to_owned(),
            bytes: 900,
            key: "ECDSA P-256".to_owned(),
            not_before: NOW + begin,
            not_after: NOW + end,
            is_self_signed: false,
            names_responder: false,
            names_issuer: false,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            public_key: Vec::new(),
        };
        Chain { certificates: vec![certificate], is_alone: true, ..Chain::default() }
    }

    fn reason(chain: &Chain, verdict: &str) -> String {
        refusal(chain, verdict, "b.test", NOW).reason
    }

    #[test]
    fn times_have_dates_and_names_are_those_of_the_certificate() {
        let day = 86_400;
        let names = ["a.test", "c.test"];
        assert_eq!(
            reason(&leaf(-90 * day, -27 * day, &names), "the server's certificate has expired"),
            "the certificate expired on 2026-11-01, 27 days ago"
        );
        assert_eq!(
            reason(&leaf(3 * day, 90 * day, &names), ""),
            "the certificate is valid from 2026-12-01 only, in 3 days"
        );
        let wrong = "the server's certificate is not valid for b.test";
        assert_eq!(
            reason(&leaf(-day, day, &names), wrong),
            "the certificate is for a.test, c.test, not for b.test"
        );
        assert_eq!(
            reason(&leaf(-2 * day, -7200, &["1", "2", "3", "4", "5", "6"]), wrong),
            "the certificate expired on 2026-11-28, 2 h ago; the certificate is for 1, 2, 3, 4, 5 and 1 more, not for \
             b.test"
        );
    }

    #[test]
    fn unknown_authorities_and_other_reasons() {
        let unknown = "the server's certificate is not signed by an authority that is trusted";
        let mut chain = leaf(-1, 1000, &["b.test"]);
        assert_eq!(reason(&chain, unknown), "the authority \"CA\" is not trusted here, and was not sent");
        assert_eq!(reason(&chain, "another reason"), "another reason");
        chain.certificates[0].is_self_signed = true;
        let own = "the certificate is signed by itself, so clients know no authority for it";
        assert_eq!(reason(&chain, "Other(CaUsedAsEndEntity)"), own);
        assert_eq!(reason(&Chain::default(), "another reason"), "another reason");
    }
}

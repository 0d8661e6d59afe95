//! Findings: costs in round trips, bytes or trust, and the changes that avoid them. At most five, the most expensive
//! first.

use std::time::{SystemTime, UNIX_EPOCH};

use brisk_handshake_view::Chain;
use serde::Serialize;

use crate::Settings;
use crate::delivery;
use crate::eyeballs::{NO_ROUTE, OVERTAKEN};
use crate::report::{INITIAL_WINDOW, Report, TlsFacts};
use crate::trust::refusal;

/// Maximum number of [`Report::findings`].
const MOST: usize = 5;

/// Days before the end of a certificate from which on it is a finding.
const DAYS: i64 = 14;

/// A possible improvement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Stable name, e.g. `hello-retry`.
    pub id: &'static str,
    /// Description in one sentence.
    pub text: String,
    /// Round trips added to each connection.
    pub round_trips: u32,
    /// Bytes added to each connection.
    pub bytes: u64,
    /// Cost in milliseconds: round trips times the round-trip time, or for an address that does not connect the
    /// measured time.
    pub ms: f64,
    /// Change of brisk's configuration; empty if there is none.
    pub brisk: String,
    /// Change of nginx's configuration; empty if there is none.
    pub nginx: String,
    /// Any other change.
    pub advice: String,
    /// Whether clients refuse the connection.
    #[serde(skip)]
    is_fatal: bool,
}

impl Finding {
    pub(crate) fn new(id: &'static str, text: impl Into<String>) -> Self {
        let (brisk, nginx, advice) = (String::new(), String::new(), String::new());
        let text = text.into();
        Self { id, text, round_trips: 0, bytes: 0, ms: 0.0, brisk, nginx, advice, is_fatal: false }
    }

    pub(crate) fn costs(mut self, round_trips: u32, bytes: u64) -> Self {
        (self.round_trips, self.bytes) = (round_trips, bytes);
        self
    }

    /// Costs this time in milliseconds.
    pub(crate) fn takes(mut self, ms: f64) -> Self {
        self.ms = ms;
        self
    }

    pub(crate) fn change(mut self, brisk: &str, nginx: &str) -> Self {
        (self.brisk, self.nginx) = (brisk.to_owned(), nginx.to_owned());
        self
    }

    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }

    fn fatal(mut self) -> Self {
        self.is_fatal = true;
        self
    }
}

/// [`Finding`]s of a report. Features that `settings` did not offer are not held against the server.
pub(crate) fn findings(report: &Report, settings: &Settings) -> Vec<Finding> {
    let mut all = Vec::new();
    if let Some(tls) = &report.tls {
        handshake(tls, &mut all);
        certificates(tls, &settings.url.host, &mut all);
        sessions(tls, &mut all);
    }
    connection(report, &mut all);
    all.extend(report.answer.iter().flat_map(delivery::findings));
    all.retain(|finding| match finding.id {
        "old-version" => settings.version.is_none(),
        "no-http2" => !settings.http1,
        _ => true,
    });
    let rtt = report.rtt_ms();
    for finding in &mut all {
        finding.ms += f64::from(finding.round_trips) * rtt;
    }
    // Time is before round trips: over loopback a dead address costs more than a round trip.
    let price = |finding: &Finding| (finding.is_fatal, finding.ms, finding.round_trips, finding.bytes);
    all.sort_by(|a, b| price(b).partial_cmp(&price(a)).unwrap_or(std::cmp::Ordering::Equal));
    all.truncate(MOST);
    all
}

fn handshake(tls: &TlsFacts, all: &mut Vec<Finding>) {
    let found = [hello_retry(tls), long_flight(tls), old_version(tls), not_post_quantum(tls)];
    all.extend(found.into_iter().flatten());
}

fn hello_retry(tls: &TlsFacts) -> Option<Finding> {
    let group = tls.hello_retry.as_ref()?;
    let text = format!(
        "the server wants the group {group} and says so in a HelloRetryRequest: a round trip is lost"
    );
    let finding = Finding::new("hello-retry", text)
        .costs(1, 0)
        .change("", "ssl_ecdh_curve X25519MLKEM768:X25519:prime256v1;")
        .advise("accept the groups of which clients send shares: X25519MLKEM768 and X25519");
    Some(finding)
}

fn long_flight(tls: &TlsFacts) -> Option<Finding> {
    // A flight that arrived at once is within the server's window, however long it is.
    let flight = tls.flight_bytes.filter(|flight| *flight > tls.window_bytes)?;
    let end = match tls.flight_waited {
        Some(false) => return None,
        Some(true) => "its end waited for an acknowledgement",
        None => {
            "with the usual initial window its end waits for an acknowledgement, which cannot be seen over this link"
        }
    };
    let text = format!(
        "the server's flight of {flight} bytes is longer than {INITIAL_WINDOW} segments ({} bytes): {end}",
        tls.window_bytes
    );
    let finding = Finding::new("flight-beyond-window", text)
        .costs(1, flight - tls.window_bytes)
        .change(
            "tls.certificate_compression = true, and an ECDSA certificate",
            "ssl_certificate with an ECDSA chain",
        )
        .advise("send a shorter chain; or: ip route change default via GATEWAY initcwnd 30");
    Some(finding)
}

fn old_version(tls: &TlsFacts) -> Option<Finding> {
    if tls.version == "TLS 1.3" || tls.resumption != "full" {
        return None;
    }
    let text = format!("{} is spoken: the full handshake has two round trips in place of one", tls.version);
    let saves = if tls.false_start == Some(true) {
        "clients with False Start save this round trip here"
    } else {
        "not even False Start saves it: that takes ECDHE, an AEAD and ALPN"
    };
    let finding = Finding::new("old-version", text)
        .costs(1, 0)
        .change("", "ssl_protocols TLSv1.2 TLSv1.3;")
        .advise(saves);
    Some(finding)
}

fn not_post_quantum(tls: &TlsFacts) -> Option<Finding> {
    let group = tls.group.as_deref().filter(|group| !group.contains("MLKEM"))?;
    // TLS 1.2 has no hybrid groups; `old-version` is the finding there.
    if tls.version != "TLS 1.3" {
        return None;
    }
    let text = format!("the key exchange with {group} does not resist quantum computers");
    let nginx = "ssl_ecdh_curve X25519MLKEM768:X25519; with OpenSSL 3.5";
    Some(Finding::new("not-post-quantum", text).change("", nginx))
}

fn certificates(tls: &TlsFacts, host: &str, all: &mut Vec<Finding>) {
    let Some(chain) = &tls.chain else { return };
    let found = [
        tls.verdict.as_ref().map(|reason| distrusted(chain, reason, host)),
        chain.root.as_ref().map(|(name, bytes)| useless_root(name, *bytes)),
        chain.out_of_order.first().map(|subject| wrong_order(subject)),
        expires_soon(chain),
        uncompressed(tls, chain),
        no_staple(chain),
    ];
    all.extend(found.into_iter().flatten());
}

fn distrusted(chain: &Chain, reason: &str, host: &str) -> Finding {
    // Without the issuer's URL it is unknown whether clients trust an authority further up.
    let leaf = chain.certificates.first().filter(|_| chain.is_alone && reason.contains("authority"));
    if leaf.is_some_and(|leaf| leaf.names_issuer) {
        let text =
            "the server sends its certificate without the intermediate: clients that do not have it refuse";
        let brisk = "certificates.complete_chains = true, or a full chain file";
        return Finding::new("missing-intermediate", text)
            .change(brisk, "ssl_certificate fullchain.pem;")
            .fatal();
    }
    let refusal = refusal(chain, reason, host, now());
    Finding::new("not-trusted", format!("clients refuse the connection: {}", refusal.reason))
        .advise(refusal.remedy)
        .fatal()
}

fn useless_root(name: &str, bytes: usize) -> Finding {
    let text = format!("the root {name:?} is sent: clients have it, or do not trust it");
    Finding::new("useless-root", text).costs(0, bytes as u64).advise("leave it out of the chain file")
}

fn wrong_order(subject: &str) -> Finding {
    let text = format!("the chain is not in order: {subject:?} does not certify the one before it");
    Finding::new("chain-order", text).advise("the certificate first, then each issuer of the one before")
}

fn expires_soon(chain: &Chain) -> Option<Finding> {
    let first = chain.certificates.first()?;
    let left = ends_in(first.not_before, first.not_after, now())?;
    let text = match left / 86_400 {
        0 => format!("the certificate ends in {} hours", left / 3600),
        1 => "the certificate ends in a day".to_owned(),
        days => format!("the certificate ends in {days} days"),
    };
    Some(Finding::new("expires-soon", text).change("acme = true", "").advise("renew it now"))
}

fn uncompressed(tls: &TlsFacts, chain: &Chain) -> Option<Finding> {
    if chain.compressed.is_some() || tls.version != "TLS 1.3" || chain.bytes <= 2500 {
        return None;
    }
    let text = format!(
        "the chain of {} bytes is not compressed, though this client takes it so (RFC 8879)",
        chain.bytes
    );
    let finding = Finding::new("uncompressed-chain", text)
        .costs(0, chain.saving() as u64)
        .change("tls.certificate_compression = true", "ssl_certificate_compression on;");
    Some(finding)
}

fn no_staple(chain: &Chain) -> Option<Finding> {
    let first = chain.certificates.first()?;
    // Without the URL of a responder there is no status that a server could staple.
    if !first.names_responder || chain.staple_bytes > 0 {
        return None;
    }
    let text =
        "no OCSP response is stapled: clients that check ask the authority, over a connection of its own";
    Some(Finding::new("no-staple", text).change("certificates.staple = true", "ssl_stapling on;"))
}

/// Seconds until the end of validity, if fewer than 14 days and less than a third of the validity are left.
fn ends_in(begin: i64, end: i64, now: i64) -> Option<i64> {
    // A third as well: certificates for six days would always be near their end.
    let few = (DAYS * 86_400).min(end.saturating_sub(begin) / 3);
    Some(end.saturating_sub(now)).filter(|left| (0..few).contains(left))
}

fn sessions(tls: &TlsFacts, all: &mut Vec<Finding>) {
    // A handshake that was not completed has no session yet, and is not "full".
    if !tls.gives_session && tls.resumption == "full" {
        // A full handshake of TLS 1.3 has as many round trips as a resumption; only the chain is saved.
        let is12 = tls.version != "TLS 1.3";
        let text =
            "the server gives no session that could be resumed: each connection pays for a full handshake";
        all.push(
            Finding::new("no-session", text)
                .costs(u32::from(is12), tls.chain.as_ref().map_or(0, |chain| chain.bytes as u64))
                .change("tls.tickets = true", "ssl_session_tickets on;"),
        );
    }
}

fn connection(report: &Report, all: &mut Vec<Finding>) {
    // Without a route it is this machine that has none.
    let mut dead = report.refused.iter().filter(|(_, why)| why != NO_ROUTE);
    if let Some((address, why)) = dead.next()
        && report.phases.connect_ms.is_some()
        && report.phases.unfinished != Some("tcp")
    {
        let text = if why == OVERTAKEN {
            format!("{address} has {why}, and clients wait that long for it before they try the next")
        } else {
            format!("{address} does not connect ({why}), and clients try it first")
        };
        let mut finding = Finding::new("dead-address", text);
        // What the attempts took here, not round trips.
        finding.ms = report.phases.refused_ms.unwrap_or_default();
        all.push(finding.advise("take it out of the name's records, or serve it"));
    }
    let Some(answer) = &report.answer else { return };
    if (300..400).contains(&answer.status)
        && let Some(location) = answer.header("location")
    {
        let text = format!(
            "the answer is a redirect to {location}: a round trip, and a connection if the host is another"
        );
        all.push(Finding::new("redirect", text).costs(1, 0).advise("link to that URL"));
    }
    if answer.protocol != "h2" && report.tls.as_ref().is_some_and(|tls| tls.protocol.as_deref() != Some("h2"))
    {
        let text = "HTTP/2 is not offered: requests beside the first wait, or take connections of their own";
        all.push(
            Finding::new("no-http2", text)
                .costs(0, 0)
                .change("tls.protocols = [\"h2\", \"http/1.1\"]", "http2 on;"),
        );
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs().cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_near_by_its_seconds_and_by_the_whole_time() {
        let (hour, day) = (3600, 86_400);
        assert_eq!(ends_in(0, 90 * day, 90 * day + 23 * hour), None, "it has ended");
        assert_eq!(ends_in(0, 90 * day, 89 * day), Some(day));
        assert_eq!(ends_in(0, 90 * day, 75 * day), None);
        assert_eq!(ends_in(0, 6 * day, 3 * day), None, "such certificates are always near their end");
        assert_eq!(ends_in(0, 6 * day, 5 * day + hour), Some(23 * hour));
        assert_eq!(ends_in(i64::MAX, i64::MIN, 0), None);
    }
}

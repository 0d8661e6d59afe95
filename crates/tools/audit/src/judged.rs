//! Findings with their evidence, from the results of an audit.

use brisk_wire::registry::ProtocolVersion;
use brisk_wire::suites::{Cipher, Suite};
use serde::Serialize;

use crate::catalogue::{self, Kind, Severity};
use crate::certificate::Certificate;
use crate::contact::is_address;
use crate::grade::HALF_A_YEAR;
use crate::http::{Http, PlainHttp};
use crate::protocols::{has_short_blocks, names};
use crate::{Audit, caa, grade};

/// A finding with its evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Kind.
    #[serde(flatten)]
    pub kind: Kind,
    /// Evidence.
    pub evidence: String,
}

/// [`Certificate::days_left`] below which a certificate expires soon; at most a third of its validity.
const SOON: i64 = 14;

/// Whether any of the sets in [`Certificate::trust`] trusts the certificate.
pub(crate) fn is_trusted(certificate: &Certificate) -> bool {
    certificate.trust.iter().any(|trust| trust.distrust.is_none())
}

/// All findings, the most severe first.
pub(crate) fn findings(audit: &Audit) -> Vec<Finding> {
    let mut found = Findings::default();
    protocols(audit, &mut found);
    suites(audit, &mut found);
    groups(audit, &mut found);
    for certificate in &audit.certificates {
        chain(certificate, &mut found);
        certificate_itself(certificate, &mut found);
    }
    let is_rsa = |certificate: &Certificate| certificate.key == "RSA";
    if !audit.certificates.is_empty() && audit.certificates.iter().all(is_rsa) {
        let bits = audit.certificates[0].key_bits;
        found.add(catalogue::NO_ECDSA, format!("only a certificate with RSA of {bits} bits is shown"));
    }
    authorities(audit, &mut found);
    attacks(audit, &mut found);
    sessions(audit, &mut found);
    if let Some(http) = &audit.http {
        self::http(http, is_address(&audit.host), &mut found);
    }
    let mut found = found.0;
    found.sort_by_key(|finding| std::cmp::Reverse(finding.kind.severity));
    found
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, kind: Kind, evidence: impl Into<String>) {
        let evidence = evidence.into();
        // One finding for each kind: SARIF and JUnit identify findings by their kind.
        match self.0.iter_mut().find(|finding| finding.kind.id == kind.id) {
            Some(finding) if finding.evidence != evidence => {
                finding.evidence.push_str("; ");
                finding.evidence.push_str(&evidence);
            }
            Some(_) => {}
            None => self.0.push(Finding { kind, evidence }),
        }
    }

    fn add_if(&mut self, is_so: bool, kind: Kind, evidence: &str) {
        if is_so {
            self.add(kind, evidence);
        }
    }
}

fn protocols(audit: &Audit, found: &mut Findings) {
    let has = |version| audit.protocols.version(version);
    found.add_if(
        audit.protocols.sslv2,
        catalogue::SSLV2,
        "a hello of SSL 2.0 is answered with a certificate",
    );
    for (version, kind) in [
        (ProtocolVersion::SSL3_0, catalogue::SSLV3),
        (ProtocolVersion::TLS1_0, catalogue::TLS10),
        (ProtocolVersion::TLS1_1, catalogue::TLS11),
    ] {
        if let Some(own) = has(version) {
            found.add(kind, format!("{} suites, the first is {}", own.suites.len(), own.suites[0].name));
        }
    }
    let tls13 = audit.protocols.versions.iter().find(|own| own.version == ProtocolVersion::TLS1_3.0);
    if let Some(tls13) = tls13.filter(|own| !own.offered && own.unanswered == 0) {
        let how = if tls13.refusal.is_empty() { "it is refused" } else { &tls13.refusal };
        found.add(catalogue::NO_TLS13, format!("a hello of TLS 1.3: {how}"));
    }
    let compresses = audit.protocols.compression == Some(true);
    found.add_if(compresses, catalogue::COMPRESSION, "DEFLATE is chosen when it is offered");
    let fallback = audit.protocols.fallback_signal == Some(false);
    found.add_if(fallback, catalogue::NO_FALLBACK_SIGNAL, "TLS_FALLBACK_SCSV in an older version is ignored");
}

fn suites(audit: &Audit, found: &mut Findings) {
    let all = || audit.protocols.suites();
    let mut add = |kind: Kind, fits: &dyn Fn(ProtocolVersion, &Suite) -> bool| {
        let evidence = names(all().filter(|(version, suite)| fits(*version, suite)));
        if !evidence.is_empty() {
            found.add(kind, evidence);
        }
    };
    add(catalogue::SUITE_NULL, &|_, suite| suite.cipher == Cipher::Null);
    add(catalogue::SUITE_ANONYMOUS, &|_, suite| suite.is_anonymous);
    add(catalogue::SUITE_EXPORT, &|_, suite| suite.is_export);
    add(catalogue::SUITE_RC4, &|_, suite| suite.cipher == Cipher::Rc4);
    add(catalogue::SUITE_SHORT_BLOCKS, &|_, suite| has_short_blocks(suite));
    add(catalogue::NO_FORWARD_SECRECY, &|_, suite| !suite.has_forward_secrecy());
    add(catalogue::BEAST, &|version, suite| {
        version <= ProtocolVersion::TLS1_0 && !matches!(suite.cipher, Cipher::Rc4 | Cipher::Null)
    });
    let has_aead = all().any(|(_, suite)| suite.cipher == Cipher::Aead);
    if !has_aead && all().next().is_some() && audit.protocols.is_whole() {
        found.add(catalogue::NO_AEAD, names(all()));
    }
    for own in audit.protocols.versions.iter().filter(|own| own.server_order == Some(false)) {
        let is_weak =
            |suite: &Suite| !suite.has_forward_secrecy() || suite.cipher != Cipher::Aead || suite.bits < 128;
        if own.suites.iter().any(|suite| is_weak(&suite.suite)) {
            found.add(catalogue::CLIENT_ORDER, format!("in {}", own.name));
        }
    }
}

fn groups(audit: &Audit, found: &mut Findings) {
    let groups = &audit.groups;
    if let Some(bits) = groups.dh_bits.filter(|bits| *bits < 2048) {
        found.add(catalogue::DH_SMALL, format!("a prime of {bits} bits"));
    }
    let quantum = groups.post_quantum == Some(false);
    found.add_if(quantum, catalogue::NO_POST_QUANTUM, &format!("groups: {}", groups.tls13.join(", ")));
    let weak: Vec<_> = groups.tls12.iter().filter(|name| name.contains("192")).cloned().collect();
    if !weak.is_empty() {
        found.add(catalogue::GROUP_WEAK, weak.join(", "));
    }
    let sha1: Vec<_> = groups.schemes_tls12.iter().filter(|name| name.ends_with("sha1")).cloned().collect();
    if !sha1.is_empty() {
        found.add(catalogue::SCHEME_SHA1, sha1.join(", "));
    }
}

fn chain(certificate: &Certificate, found: &mut Findings) {
    let about = |text: &str| format!("{} ({}): {text}", certificate.subject, certificate.key);
    let missing = certificate.missing.as_deref().unwrap_or_default();
    if !certificate.is_complete {
        let evidence =
            format!("{missing} is neither sent nor trusted here, and the chain says where it is to be had");
        found.add(catalogue::CHAIN_INCOMPLETE, about(&evidence));
    }
    if certificate.strays > 0 {
        found.add(catalogue::CHAIN_STRAY, about(&format!("{} of {}", certificate.strays, certificate.sent)));
    } else if !certificate.in_order {
        found.add(catalogue::CHAIN_ORDER, about("a certificate is not followed by its issuer"));
    }
    found.add_if(certificate.has_root, catalogue::CHAIN_ROOT, &about("the last one is signed by itself"));
    if !certificate.name_matches {
        let names = certificate.names.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
        found.add(catalogue::WRONG_NAME, format!("it is for {names}"));
    }
    if let Some(reason) = &certificate.wrong_time {
        found.add(catalogue::EXPIRED, reason);
    } else if certificate.days_left < SOON.min(certificate.lifetime_days / 3) {
        let (days, end) = (certificate.days_left, &certificate.not_after);
        found.add(catalogue::EXPIRES_SOON, about(&format!("{days} days left, until {end}")));
    }
    // What an intermediate would mend is said above; the one that more than a certificate leads to may be a root.
    let untrusted = !is_trusted(certificate)
        && (certificate.is_complete || certificate.sent > 1)
        && certificate.name_matches
        && certificate.wrong_time.is_none();
    if untrusted {
        let verdicts = certificate
            .trust
            .iter()
            .filter_map(|trust| Some(format!("{}: {}", trust.authorities, trust.distrust.as_ref()?)));
        let mut evidence = verdicts.collect::<Vec<_>>().join("; ");
        if !missing.is_empty() {
            evidence = format!("{evidence}; it ends at {missing}, which is neither sent nor trusted here");
        }
        found.add(catalogue::UNTRUSTED, about(&evidence));
    }
}

fn certificate_itself(certificate: &Certificate, found: &mut Findings) {
    if let Some(reason) = &certificate.weak_hash {
        found.add(catalogue::SHA1, reason);
    }
    if let Some(reason) = &certificate.weak_key {
        found.add(catalogue::KEY_SMALL, reason);
    }
    let mozilla = certificate.trust.iter().find(|trust| trust.authorities == "Mozilla");
    let is_public = mozilla.is_some_and(|trust| trust.is_anchored);
    // Browsers apply both rules to public authorities only.
    if is_public && certificate.lifetime_days > 398 {
        found.add(catalogue::LIFETIME, format!("{} days", certificate.lifetime_days));
    }
    if is_public && certificate.sct_logs < 2 && !certificate.has_hidden_scts {
        found.add(catalogue::NO_SCT, format!("SCTs of {} logs", certificate.sct_logs));
    }
    let missing = certificate.must_staple && !certificate.is_stapled;
    found.add_if(missing, catalogue::MUST_STAPLE, "TLS feature status_request, and no CertificateStatus");
    found.add_if(certificate.staple_is_wrong, catalogue::STAPLE_WRONG, &certificate.staple);
}

fn authorities(audit: &Audit, found: &mut Findings) {
    for caa in &audit.caa {
        let subject = &caa.subject;
        if caa.is_missing() {
            found.add(catalogue::CAA_MISSING, format!("neither {subject} nor a parent has any"));
        }
        let name = caa.name.as_deref().unwrap_or_default();
        for issuer in caa.issuers.iter().filter(|issuer| issuer.permitted == Some(false)) {
            let identifiers = issuer.identifiers.join(" or ");
            let evidence =
                format!("those of {name} do not name {} ({identifiers}) for {subject}", issuer.name);
            found.add(catalogue::CAA_ISSUER, evidence);
        }
    }
}

fn attacks(audit: &Audit, found: &mut Findings) {
    let weak = &audit.weaknesses;
    for (is_so, kind, evidence) in [
        (
            weak.heartbleed,
            catalogue::HEARTBLEED,
            "a heartbeat that has no padding is answered: lengths are not compared",
        ),
        (weak.early_ccs, catalogue::EARLY_CCS, "what follows an early change_cipher_spec is decrypted"),
        (weak.robot, catalogue::ROBOT, "answers depend on the padding of the premaster secret, twice alike"),
        (
            weak.padding_accepted,
            catalogue::PADDING_ACCEPTED,
            "a request whose padding is wrong is answered as a right one",
        ),
        (
            // A server that accepts a wrong padding differs too; one cause is one finding.
            weak.padding_oracle.map(|differs| differs && weak.padding_accepted != Some(true)),
            catalogue::PADDING_ORACLE,
            "records with a wrong padding and with a wrong MAC are answered differently, twice alike",
        ),
        (weak.ticketbleed, catalogue::TICKETBLEED, "a session ID of 31 bytes comes back longer"),
        (
            weak.client_renegotiation,
            catalogue::CLIENT_RENEGOTIATION,
            "a second handshake within a connection begins",
        ),
    ] {
        found.add_if(is_so == Some(true), kind, evidence);
    }
    let insecure = audit.protocols.secure_renegotiation == Some(false);
    found.add_if(insecure, catalogue::INSECURE_RENEGOTIATION, "the hello lacks renegotiation_info");
}

fn sessions(audit: &Audit, found: &mut Findings) {
    const WEEK: u32 = 7 * 24 * 3600;
    let lifetimes = [audit.sessions.ticket_lifetime, audit.weaknesses.ticket_lifetime];
    if let Some(longest) = lifetimes.into_iter().flatten().max().filter(|longest| *longest > WEEK) {
        found.add(catalogue::TICKET_LIFETIME, format!("{longest} s"));
    }
    if audit.sessions.early_data_replayed == Some(true) {
        let status = audit.sessions.replay_status.unwrap_or(0);
        let evidence = format!("a GET of one session was answered twice, the second time with {status}");
        found.add(catalogue::REPLAY, evidence);
    }
    if let Some((seconds, Some(false))) = audit.sessions.watched {
        let mut kind = catalogue::TICKET_KEYS;
        // Keys that rotate daily stay the same during a shorter watch.
        if seconds < 24 * 3600 {
            kind.severity = Severity::Info;
        }
        found.add(kind, format!("the name of the key stayed for the {seconds} s of the watch"));
    }
    let apart: Vec<_> = audit.sessions.addresses.iter().filter(|(_, resumed)| !resumed).collect();
    if !apart.is_empty() {
        let all: Vec<_> = apart.iter().map(|(address, _)| address.as_str()).collect();
        found.add(catalogue::NOT_SHARED, all.join(", "));
    }
}

fn http(http: &Http, is_address: bool, found: &mut Findings) {
    match &http.hsts {
        // Browsers keep none of addresses (RFC 6797 section 8.1.1).
        _ if is_address => {}
        None => found.add(catalogue::NO_HSTS, format!("an answer {} without the header", http.status)),
        Some(hsts) => {
            match hsts.max_age {
                None => found.add(catalogue::NO_HSTS, "max-age cannot be read"),
                Some(age) if age < HALF_A_YEAR => found.add(catalogue::SHORT_HSTS, format!("max-age={age}")),
                Some(_) => {}
            }
            if hsts.preload && !hsts.fits_preload_list() {
                found.add(catalogue::PRELOAD, "max-age of a year and includeSubDomains are needed");
            }
        }
    }
    match &http.plain {
        PlainHttp::Answers(status) => found.add(catalogue::PLAIN, format!("status {status}")),
        PlainHttp::OtherHost(hops) => found.add(catalogue::PLAIN_OTHER, hops.join(" -> ")),
        _ => {}
    }
    for cookie in &http.cookies {
        found.add(catalogue::COOKIE, format!("{} lacks {}", cookie.name, cookie.lacks.join(", ")));
    }
    let missing: Vec<_> = ["content-security-policy", "referrer-policy", "x-content-type-options"]
        .into_iter()
        .filter(|name| !http.headers.contains_key(*name))
        .collect();
    if !missing.is_empty() {
        found.add(catalogue::HEADERS, missing.join(", "));
    }
    if http.headers.contains_key("public-key-pins") {
        found.add(catalogue::PINS, "Public-Key-Pins");
    }
}

/// Reason why a [`Kind`] of finding could not be judged; `None` if it could, so that its absence is meaningful.
pub(crate) fn not_judged(audit: &Audit, kind: &Kind) -> Option<&'static str> {
    const SILENT: &str = "hellos got no answer";
    let protocols = &audit.protocols;
    let silent = |version: ProtocolVersion| {
        let own = protocols.versions.iter().find(|own| own.version == version.0);
        own.is_some_and(|own| own.unanswered > 0)
    };
    let (weak, sessions) = (&audit.weaknesses, &audit.sessions);
    let is_old = protocols.newest_before_13().is_some();
    let unknown = |verdict: Option<bool>| is_old && verdict.is_none();
    let (is_unknown, reason) = match kind.id {
        "protocol-sslv3" => (silent(ProtocolVersion::SSL3_0), SILENT),
        "protocol-tls10" | "suite-cbc-tls10" => (silent(ProtocolVersion::TLS1_0), SILENT),
        "protocol-tls11" => (silent(ProtocolVersion::TLS1_1), SILENT),
        "protocol-no-tls13" => (silent(ProtocolVersion::TLS1_3), SILENT),
        "group-no-post-quantum" => (
            protocols.version(ProtocolVersion::TLS1_3).is_some() && audit.groups.post_quantum.is_none(),
            SILENT,
        ),
        "compression" => (unknown(protocols.compression), SILENT),
        "renegotiation-insecure" => (unknown(protocols.secure_renegotiation), SILENT),
        "heartbleed" => (unknown(weak.heartbleed), "no answer in time"),
        "ccs-injection" => (unknown(weak.early_ccs), "no answer in time"),
        "robot" => (unknown(weak.robot), "no answer that repeats"),
        "padding-accepted" => (unknown(weak.padding_accepted), "no answer that repeats"),
        "padding-oracle" => (unknown(weak.padding_oracle), "no answer that repeats"),
        "ticketbleed" => (unknown(weak.ticketbleed), "no ticket of TLS 1.2, or no answer"),
        "renegotiation-by-client" => {
            (unknown(weak.client_renegotiation), "no suite of ECDHE with AES-GCM, or no answer")
        }
        "ticket-keys-fixed" => (!matches!(sessions.watched, Some((_, Some(_)))), "not watched to its end"),
        "early-data-replayed" => (
            sessions.early_data > 0 && sessions.early_data_replayed.is_none(),
            "early data was not taken, or no answer",
        ),
        "resumption-not-shared" => (sessions.addresses.is_empty(), "no other address was asked"),
        "certificate-no-sct"
            if audit.certificates.iter().any(|own| own.has_hidden_scts && own.sct_logs < 2) =>
        {
            (true, "TLS 1.3 hides the SCTs of its extension")
        }
        "http-plain" | "http-redirect-host" => match audit.http.as_ref().map(|http| &http.plain) {
            None | Some(PlainHttp::Unasked) => (true, "port 80 was not asked"),
            Some(plain) => (*plain == PlainHttp::Unjudged, "port 80 gave no answer of HTTP"),
        },
        "caa-missing" => (!caa::are_known(&audit.caa), "CAA records are not known"),
        "caa-issuer" => (!caa::are_compared(&audit.caa), "CAA records or identifiers are not known"),
        id if id.starts_with("suite-") => (!protocols.is_whole(), SILENT),
        id if ["hsts-", "cookie-", "header"].iter().any(|begin| id.starts_with(begin)) => {
            (audit.http.is_none(), "no answer over HTTP")
        }
        id if ["certificate-", "chain-", "staple-"].iter().any(|begin| id.starts_with(begin)) => {
            (audit.certificates.is_empty(), "no certificate could be read")
        }
        _ => (false, ""),
    };
    is_unknown.then_some(reason)
}

/// Whether [`Audit::grade`] is worse than `least`.
pub fn is_below(audit: &Audit, least: grade::Letter) -> bool {
    audit.grade.letter > least
}

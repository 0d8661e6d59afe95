//! Certificate chains as sent by a server, and their faults.

mod staple;

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use brisk_report::json::timestamp;
use brisk_tls_client::{Authorities, Distrust, Judge};
use serde::Serialize;
use x509_parser::oid_registry::{
    OID_HASH_SHA1, OID_PKCS1_MD5WITHRSAENC, OID_PKCS1_RSASSAPSS, OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA,
};
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::signature_algorithm::RsaSsaPssParams;

use self::staple::{logs, must_staple, staple};
use crate::error::AuditError;

/// A chain as sent, and the data sent with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SentChain {
    /// Certificates (DER) in the server's order.
    pub(crate) chain: Vec<Vec<u8>>,
    pub(crate) staple: Option<Vec<u8>>,
    /// Content of the TLS extension `signed_certificate_timestamp`.
    pub(crate) scts: Option<Vec<u8>>,
    /// Whether the chain was sent in TLS 1.3, where `signed_certificate_timestamp` is not visible here.
    pub(crate) is_tls13: bool,
}

/// Properties and faults of a chain.
#[derive(Clone, Debug, Default, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, and a field of the document")]
pub struct Certificate {
    /// Subject of the server's certificate.
    pub subject: String,
    /// Issuer of the server's certificate.
    pub issuer: String,
    /// Organisation in the issuer.
    #[serde(skip)]
    pub issuer_organization: Option<String>,
    /// Host names and addresses.
    pub names: Vec<String>,
    /// `RSA`, `ECDSA` or another.
    pub key: String,
    /// Bits of the key.
    pub key_bits: usize,
    /// End of validity.
    pub not_after: String,
    /// Days until the end of validity; negative afterwards.
    pub days_left: i64,
    /// Days from begin to end of validity.
    pub lifetime_days: i64,
    /// Number of certificates sent.
    pub sent: usize,
    /// Size of the chain in bytes.
    pub bytes: usize,
    /// Whether the certificate is valid for the host's name.
    pub name_matches: bool,
    /// Whether each certificate is followed by its issuer.
    pub in_order: bool,
    /// Whether no certificate is known to be missing. `false` if the chain leads to no authority known here and its last
    /// certificate contains the URL of its issuer.
    pub is_complete: bool,
    /// Issuer that was not sent and is no known authority; `None` if the chain is complete.
    #[serde(skip)]
    pub missing: Option<String>,
    /// Whether the root was sent, which clients do not need.
    pub has_root: bool,
    /// Number of sent certificates that do not belong to the chain.
    pub strays: usize,
    /// Broken hashes of signatures: `SHA-1`, `MD5`.
    pub weak_hash: Option<String>,
    /// Keys of the chain that are too short, with their sizes in bits.
    pub weak_key: Option<String>,
    /// A certificate of the chain that has expired or is not valid yet.
    pub wrong_time: Option<String>,
    /// Whether the certificate requires a staple (`status_request` of RFC 7633).
    pub must_staple: bool,
    /// State of the staple: `none`, `good`, or its fault.
    pub staple: String,
    /// Whether a staple was sent that clients reject.
    #[serde(skip)]
    pub staple_is_wrong: bool,
    /// A staple was sent.
    #[serde(skip)]
    pub is_stapled: bool,
    /// Number of logs that have the certificate, by SCTs in the certificate, the TLS extension and the staple.
    pub sct_logs: usize,
    /// Whether SCTs of the TLS extension are not visible here, so that `sct_logs` may be too low.
    #[serde(skip)]
    pub has_hidden_scts: bool,
    /// Verdicts by set of authorities.
    pub trust: Vec<Trust>,
}

/// Verdict by a set of authorities.
#[derive(Clone, Debug, Serialize)]
pub struct Trust {
    /// Name of the set.
    pub authorities: &'static str,
    /// Reason for [`Distrust`]; `None` if trusted.
    pub distrust: Option<String>,
    /// Whether the chain leads to an authority of the set, even if it has other faults.
    #[serde(skip)]
    pub is_anchored: bool,
}

/// Sets of authorities that judge chains.
#[derive(Debug)]
pub(crate) struct AuthoritySets(Vec<(&'static str, Judge)>);

impl AuthoritySets {
    /// Mozilla's authorities, the system's if there are any, and those of `files`.
    pub(crate) fn new(files: &[std::path::PathBuf]) -> Result<Self, AuditError> {
        let mut all = Vec::new();
        if !files.is_empty() {
            let own = Judge::new(&Authorities::Files(files.to_vec())).map_err(AuditError::Authorities)?;
            all.push(("those of --ca", own));
        }
        all.push(("Mozilla", Judge::new(&Authorities::Mozilla)?));
        // A system without authorities, such as a container, is no error: those of Mozilla remain.
        if let Ok(system) = Judge::new(&Authorities::System) {
            all.push(("this system", system));
        }
        Ok(Self(all))
    }
}

/// Judges a chain; `None` if the server's own certificate cannot be parsed.
pub(crate) fn judge(
    shown: &SentChain,
    host: &str,
    judges: &AuthoritySets,
    now: SystemTime,
) -> Option<Certificate> {
    let parsed: Vec<_> = shown.chain.iter().map(|der| X509Certificate::from_der(der).ok()).collect();
    let all: Vec<&X509Certificate<'_>> =
        parsed.iter().flatten().map(|(_, certificate)| certificate).collect();
    let own = parsed.first()?.as_ref().map(|(_, certificate)| certificate)?;
    let (key, key_bits) = key(own);
    let mut found = Certificate {
        subject: own.subject().to_string(),
        issuer: own.issuer().to_string(),
        issuer_organization: own
            .issuer()
            .iter_organization()
            .find_map(|of| of.as_str().ok().map(str::to_owned)),
        names: names(own),
        key,
        key_bits,
        not_after: timestamp(time(own.validity().not_after.timestamp())),
        days_left: days(own.validity().not_after.timestamp() - seconds(now)),
        lifetime_days: days(own.validity().not_after.timestamp() - own.validity().not_before.timestamp()),
        sent: shown.chain.len(),
        bytes: shown.chain.iter().map(Vec::len).sum(),
        ..Certificate::default()
    };
    found.name_matches = is_for(own, host);
    let last = links(&all, &mut found);
    found.weak_hash = all.iter().find_map(|certificate| weak_hash(certificate));
    found.weak_key = all.iter().find_map(|certificate| weak_key(certificate));
    found.wrong_time = all.iter().find_map(|certificate| wrong_time(certificate, seconds(now)));
    found.must_staple = must_staple(own);
    staple(shown, now, &mut found);
    found.sct_logs = logs(own, shown, &found);
    found.has_hidden_scts = shown.is_tls13;
    found.trust = verdicts(shown, host, judges, now, &all);
    // An authority that clients have needs not be sent.
    if !found.trust.iter().any(|trust| trust.is_anchored) && !is_self_signed(last) {
        found.missing = Some(last.issuer().to_string());
    }
    // Whether the issuer is an intermediate or a root that is not known here, only the certificate can say.
    found.is_complete = found.missing.is_none() || !names_issuer(last);
    Some(found)
}

/// The verdict of each set of authorities.
fn verdicts(
    shown: &SentChain,
    host: &str,
    judges: &AuthoritySets,
    now: SystemTime,
    all: &[&X509Certificate<'_>],
) -> Vec<Trust> {
    let in_its_time = within(all);
    let verdict = |(authorities, judge): &(&'static str, Judge)| {
        let distrust = judge.judge_at(&shown.chain, host, now).err();
        let is_anchored = match distrust {
            // A judge refuses an expired certificate before it looks for issuers, and compares the name last.
            Some(Distrust::Time) => in_its_time.is_some_and(|time| {
                matches!(judge.judge_at(&shown.chain, host, time), Ok(()) | Err(Distrust::Name))
            }),
            None | Some(Distrust::Name) => true,
            _ => false,
        };
        let distrust = distrust.map(|distrust| match distrust {
            _ if is_self_signed(all[0]) => "it is signed by itself".to_owned(),
            Distrust::UnknownIssuer => "it leads to none of these authorities".to_owned(),
            Distrust::Time => "a certificate is not valid at this time".to_owned(),
            Distrust::Name => format!("it is not for {host}"),
            Distrust::Other(reason) => reason,
        });
        Trust { authorities, distrust, is_anchored }
    };
    judges.0.iter().map(verdict).collect()
}

/// A time at which all certificates are valid, otherwise one at which the server's own is.
fn within(all: &[&X509Certificate<'_>]) -> Option<SystemTime> {
    let begin = |certificate: &&X509Certificate<'_>| certificate.validity().not_before.timestamp();
    let end = |certificate: &&X509Certificate<'_>| certificate.validity().not_after.timestamp();
    let own = all.first()?;
    let (latest, earliest) = (all.iter().map(begin).max()?, all.iter().map(end).min()?);
    let (begin, end) = if latest < earliest { (latest, earliest) } else { (begin(own), end(own)) };
    Some(time(i64::midpoint(begin, end)))
}

/// Whether the certificate contains the URL of its issuer's certificate (`caIssuers`, RFC 5280 section 4.2.2.1).
fn names_issuer(certificate: &X509Certificate<'_>) -> bool {
    certificate.extensions().iter().any(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityInfoAccess(access) => {
            access.accessdescs.iter().any(|one| one.access_method.to_id_string() == "1.3.6.1.5.5.7.48.2")
        }
        _ => false,
    })
}

fn is_self_signed(certificate: &X509Certificate<'_>) -> bool {
    // Names only (self-issued by RFC 5280 section 3.2): no issuer follows in either case, and `verdicts`
    // verifies signatures.
    certificate.subject().as_raw() == certificate.issuer().as_raw()
}

/// Follows the issuers from the server's certificate and returns the last one.
fn links<'a, 'b>(all: &[&'a X509Certificate<'b>], found: &mut Certificate) -> &'a X509Certificate<'b> {
    let issues = |issuer: &X509Certificate<'_>, below: &X509Certificate<'_>| {
        below.issuer().as_raw() == issuer.subject().as_raw()
    };
    found.in_order = all.windows(2).all(|pair| issues(pair[1], pair[0]));
    let mut used = vec![false; all.len()];
    let mut last = 0;
    used[0] = true;
    while !is_self_signed(all[last]) {
        // `used` prevents a loop of certificates that name each other as issuers.
        let next = (0..all.len()).find(|index| !used[*index] && issues(all[*index], all[last]));
        let Some(next) = next else { break };
        used[next] = true;
        last = next;
    }
    found.strays = used.iter().filter(|used| !**used).count();
    found.has_root = all.len() > 1 && is_self_signed(all[last]);
    all[last]
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let all = alternatives.into_iter().flat_map(|found| &found.value.general_names);
    all.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
        _ => None,
    })
    .collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// Whether a certificate has the name or the address of a host.
fn is_for(certificate: &X509Certificate<'_>, host: &str) -> bool {
    let Ok(wanted) = host.trim_matches(['[', ']']).trim_end_matches('.').parse::<IpAddr>() else {
        return names(certificate).iter().any(|name| matches(name, host));
    };
    // RFC 9525 section 6.1: clients compare addresses with entries for addresses only, and not with names that look the same.
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let mut all = alternatives.into_iter().flat_map(|found| &found.value.general_names);
    all.any(|name| matches!(name, GeneralName::IPAddress(bytes) if address(bytes) == Some(wanted)))
}

/// Whether a name matches, with wildcards by RFC 9525 section 6.3: a wildcard is the whole first label and matches one
/// label.
pub(crate) fn matches(pattern: &str, host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    match pattern.strip_prefix("*.") {
        Some(parent) => host.split_once('.').is_some_and(|(_, rest)| rest == parent),
        None => pattern == host,
    }
}

fn key(certificate: &X509Certificate<'_>) -> (String, usize) {
    match certificate.public_key().parsed() {
        Ok(PublicKey::RSA(key)) => ("RSA".to_owned(), key.key_size()),
        Ok(PublicKey::EC(point)) => ("ECDSA".to_owned(), point.key_size()),
        Ok(PublicKey::DSA(key)) => ("DSA".to_owned(), key.len() * 8),
        _ => {
            let algorithm = certificate.public_key().algorithm.algorithm.to_id_string();
            match algorithm.as_str() {
                "1.3.101.112" => ("Ed25519".to_owned(), 256),
                "1.3.101.113" => ("Ed448".to_owned(), 448),
                _ => (algorithm, certificate.public_key().subject_public_key.data.len() * 8),
            }
        }
    }
}

fn weak_key(certificate: &X509Certificate<'_>) -> Option<String> {
    let (kind, bits) = key(certificate);
    let least = if kind == "RSA" || kind == "DSA" { 2048 } else { 224 };
    (bits < least).then(|| format!("{} has a key of {kind} with {bits} bits", certificate.subject()))
}

fn weak_hash(certificate: &X509Certificate<'_>) -> Option<String> {
    // A root's own signature is verified by no client.
    if is_self_signed(certificate) {
        return None;
    }
    let signed = &certificate.signature_algorithm;
    let oid = &signed.algorithm;
    // RFC 4055 section 3.1: SHA-1 is the default if the parameters do not name a hash.
    let pss_sha1 = *oid == OID_PKCS1_RSASSAPSS
        && signed.parameters.as_ref().is_none_or(|parameters| {
            RsaSsaPssParams::try_from(parameters).is_ok_and(|pss| *pss.hash_algorithm_oid() == OID_HASH_SHA1)
        });
    let sha1 = [OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA].contains(oid)
        || ["1.2.840.10045.4.1", "1.2.840.10040.4.3"].contains(&oid.to_id_string().as_str());
    let hash = if sha1 || pss_sha1 { "SHA-1" } else { (*oid == OID_PKCS1_MD5WITHRSAENC).then_some("MD5")? };
    Some(format!("{} is signed with {hash}", certificate.subject()))
}

fn wrong_time(certificate: &X509Certificate<'_>, now: i64) -> Option<String> {
    let (begin, end) = (certificate.validity().not_before, certificate.validity().not_after);
    let day = |at: i64| timestamp(time(at));
    if now > end.timestamp() {
        return Some(format!("{} expired on {}", certificate.subject(), day(end.timestamp())));
    }
    let early = now < begin.timestamp();
    early.then(|| format!("{} is not valid before {}", certificate.subject(), day(begin.timestamp())))
}

fn seconds(at: SystemTime) -> i64 {
    at.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

fn time(seconds: i64) -> SystemTime {
    // The year 9999, in which certificates without an end end, is the last that can be written.
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.clamp(0, 253_402_300_799) as u64)
}

fn days(seconds: i64) -> i64 {
    seconds.div_euclid(24 * 3600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_matches_one_label() {
        assert!(matches("*.a.test", "B.a.test.") && !matches("*.a.test", "c.b.a.test"));
    }
}

//! Grades by SSL Labs' Server Rating Guide, version 2009r (2025).
//!
//! Scores for protocol, key exchange and cipher give a number, the number a letter, and rules lower the letter. One
//! rule of the guide uses simulated clients; here the accepted suites decide. Checks without a response never lower a
//! grade.

use std::fmt;

use brisk_wire::registry::ProtocolVersion;
use brisk_wire::suites::{Cipher, Exchange};
use serde::{Serialize, Serializer};

use crate::Audit;
use crate::protocols::{Protocol, Protocols};

/// Name and version of the guide.
pub const GUIDE: &str = "SSL Labs Server Rating Guide 2009r";

/// Letter of a grade; the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Letter {
    /// A+
    APlus,
    /// A
    A,
    /// A-
    AMinus,
    /// B
    B,
    /// C
    C,
    /// D
    D,
    /// E
    E,
    /// F
    F,
    /// The certificate is not trusted.
    T,
    /// The certificate is for other names.
    M,
}

const ALL: [(Letter, &str); 10] = [
    (Letter::APlus, "A+"),
    (Letter::A, "A"),
    (Letter::AMinus, "A-"),
    (Letter::B, "B"),
    (Letter::C, "C"),
    (Letter::D, "D"),
    (Letter::E, "E"),
    (Letter::F, "F"),
    (Letter::T, "T"),
    (Letter::M, "M"),
];

impl fmt::Display for Letter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, name) = ALL.iter().find(|(own, _)| own == self).unwrap_or(&ALL[7]);
        f.pad(name)
    }
}

impl Serialize for Letter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl std::str::FromStr for Letter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Without T and M, which are no levels of the scale but states of the certificate.
        let found = ALL[..8].iter().find(|(_, name)| name.eq_ignore_ascii_case(text));
        found.map(|(letter, _)| *letter).ok_or_else(|| "write a grade from A+ to F".to_owned())
    }
}

/// A grade and its reasons.
#[derive(Clone, Debug, Serialize)]
pub struct Grade {
    /// The letter.
    pub letter: Letter,
    /// Letter if the certificate were trusted; equal to `letter` if it is.
    pub if_trusted: Letter,
    /// Name and version of the guide.
    pub guide: &'static str,
    /// Score of the versions, at most 100.
    pub protocol: u32,
    /// Score of keys and groups, at most 100.
    pub key_exchange: u32,
    /// Score of ciphers, at most 100.
    pub cipher: u32,
    /// Weighted score: 30, 30 and 40 percent.
    pub score: u32,
    /// Rules that lowered `letter` or prevented an A+.
    pub reasons: Vec<String>,
}

impl Grade {
    /// Value before [`grade`] has run.
    pub(crate) fn pending() -> Self {
        Self {
            letter: Letter::F,
            if_trusted: Letter::F,
            guide: GUIDE,
            protocol: 0,
            key_exchange: 0,
            cipher: 0,
            score: 0,
            reasons: Vec::new(),
        }
    }
}

/// Grades the results of an audit.
pub(crate) fn grade(audit: &Audit) -> Grade {
    let (protocol, key_exchange, cipher) =
        (protocol(&audit.protocols), key_exchange(audit), cipher(&audit.protocols));
    let score = (protocol * 30 + key_exchange * 30 + cipher * 40) / 100;
    let mut rules = Rules { letter: by_score(score), reasons: Vec::new() };
    // By the guide, a zero in one category makes the whole score zero.
    if [protocol, key_exchange, cipher].contains(&0) {
        rules.cap(Letter::F, "one of the three scores is 0");
    }
    protocols(audit, &mut rules);
    suites(audit, &mut rules);
    keys(audit, &mut rules);
    attacks(audit, &mut rules);
    warnings(audit, &mut rules);
    // Before the rules of trust, which hide the quality of the configuration.
    let if_trusted = rules.letter;
    trust(audit, &mut rules);
    let Rules { letter, reasons } = rules;
    Grade { letter, if_trusted, guide: GUIDE, protocol, key_exchange, cipher, score, reasons }
}

fn by_score(score: u32) -> Letter {
    match score {
        // The guide has A from 80 on; `warnings` lowers A+ unless all of its conditions are met.
        80.. => Letter::APlus,
        65.. => Letter::B,
        50.. => Letter::C,
        35.. => Letter::D,
        20.. => Letter::E,
        _ => Letter::F,
    }
}

fn protocol(found: &Protocols) -> u32 {
    let score = |version: u16| match ProtocolVersion(version) {
        ProtocolVersion::SSL3_0 => 80,
        ProtocolVersion::TLS1_0 => 90,
        ProtocolVersion::TLS1_1 => 95,
        _ => 100,
    };
    let offered = found.versions.iter().filter(|own| own.offered).map(|own| score(own.version));
    mean(offered.chain(found.sslv2.then_some(0)))
}

/// Mean of the best and the worst score.
fn mean(scores: impl Iterator<Item = u32>) -> u32 {
    let all: Vec<u32> = scores.collect();
    match (all.iter().max(), all.iter().min()) {
        (Some(most), Some(least)) => u32::midpoint(*most, *least),
        _ => 0,
    }
}

/// Strength of the weakest key or group, in bits of RSA.
fn key_exchange(audit: &Audit) -> u32 {
    if audit.protocols.suites().any(|(_, suite)| suite.is_anonymous) {
        return 0;
    }
    let certificates = audit.certificates.iter().map(|certificate| match certificate.key.as_str() {
        "RSA" | "DSA" => certificate.key_bits,
        // As the guide counts elliptic curves: 256 bits are worth 3072 of RSA.
        _ => certificate.key_bits * 12,
    });
    let groups = audit.groups.tls13.iter().chain(&audit.groups.tls12).filter_map(|name| group_bits(name));
    let bits = certificates.chain(audit.groups.dh_bits).chain(groups).min().unwrap_or(0);
    let is_export = audit.protocols.suites().any(|(_, suite)| suite.is_export);
    let score = match bits {
        ..512 => 20,
        512..1024 => 40,
        1024..2048 => 80,
        2048..4096 => 90,
        _ => 100,
    };
    if is_export { score.min(40) } else { score }
}

/// Strength of a group in bits of RSA; `None` for pure lattice groups. Hybrids count as their curve.
fn group_bits(name: &str) -> Option<usize> {
    let name = name.to_ascii_lowercase();
    if let Some(bits) = name.strip_prefix("ffdhe") {
        return bits.parse().ok();
    }
    let curves = [("25519", 256), ("448", 448), ("521", 521), ("512", 512), ("384", 384), ("256", 256)];
    let mut all = curves.into_iter().chain([("224", 224), ("192", 192)]);
    all.find(|(part, _)| name.contains(part)).map(|(_, bits)| bits * 12)
}

fn cipher(found: &Protocols) -> u32 {
    mean(found.suites().map(|(_, suite)| match suite.bits {
        0 => 0,
        1..128 => 20,
        128..256 => 80,
        _ => 100,
    }))
}

struct Rules {
    letter: Letter,
    reasons: Vec<String>,
}

impl Rules {
    fn cap(&mut self, letter: Letter, reason: impl Into<String>) {
        // `Letter` is ordered from the best to the worst, so `max` never improves a grade.
        self.letter = self.letter.max(letter);
        self.reasons.push(format!("{letter} at most: {}", reason.into()));
    }
}

fn protocols(audit: &Audit, rules: &mut Rules) {
    let has = |version| audit.protocols.version(version).is_some();
    if audit.protocols.sslv2 {
        rules.cap(Letter::F, "SSL 2.0 is spoken");
    }
    if has(ProtocolVersion::SSL3_0) {
        // Stream ciphers have no padding and thus no POODLE.
        let cbc = audit.protocols.suites().any(|(version, suite)| {
            version == ProtocolVersion::SSL3_0 && !matches!(suite.cipher, Cipher::Rc4 | Cipher::Null)
        });
        if cbc {
            rules.cap(Letter::C, "SSL 3.0 with block ciphers (POODLE)");
        } else {
            rules.cap(Letter::B, "SSL 3.0 is spoken");
        }
    }
    if has(ProtocolVersion::TLS1_0) || has(ProtocolVersion::TLS1_1) {
        rules.cap(Letter::B, "TLS 1.0 or TLS 1.1 is spoken");
    }
    let is_silent = audit.protocols.versions.iter().any(|own| own.version >= 0x303 && own.unanswered > 0);
    if !has(ProtocolVersion::TLS1_2) && !has(ProtocolVersion::TLS1_3) && !is_silent {
        rules.cap(Letter::C, "neither TLS 1.2 nor TLS 1.3 is spoken");
    }
}

fn suites(audit: &Audit, rules: &mut Rules) {
    let all = || audit.protocols.suites();
    if all().any(|(_, suite)| suite.is_anonymous || suite.is_export || suite.cipher == Cipher::Null) {
        rules.cap(Letter::F, "suites without authentication, without encryption, or made weak for export");
    }
    let modern_rc4 =
        |version: ProtocolVersion, cipher| version >= ProtocolVersion::TLS1_1 && cipher == Cipher::Rc4;
    if all().any(|(version, suite)| modern_rc4(version, suite.cipher)) {
        rules.cap(Letter::C, "RC4 with TLS 1.1 or newer");
    } else if all().any(|(_, suite)| suite.cipher == Cipher::Rc4) {
        rules.cap(Letter::B, "RC4");
    }
    let modern = |version| version >= ProtocolVersion::TLS1_1;
    if all().any(|(version, suite)| modern(version) && suite.cipher == Cipher::TripleDes) {
        rules.cap(Letter::C, "Triple DES with TLS 1.1 or newer");
    }
    if all().any(|(_, suite)| suite.bits == 56 && !suite.is_export) {
        rules.cap(Letter::F, "DES");
    }
    // A suite of this kind may hide behind a lost hello.
    let is_whole = audit.protocols.is_whole();
    if is_whole && !all().any(|(_, suite)| suite.has_forward_secrecy()) {
        rules.cap(Letter::B, "no forward secrecy");
    }
    if is_whole && !all().any(|(_, suite)| suite.cipher == Cipher::Aead) {
        rules.cap(Letter::B, "no suite with authenticated encryption (AEAD)");
    }
}

fn keys(audit: &Audit, rules: &mut Rules) {
    let uses_dh = audit.protocols.suites().any(|(_, suite)| suite.exchange == Exchange::Dhe);
    match audit.groups.dh_bits.filter(|_| uses_dh) {
        Some(bits) if bits < 1024 => rules.cap(Letter::F, format!("Diffie-Hellman with {bits} bits")),
        Some(bits) if bits < 2048 => rules.cap(Letter::B, format!("Diffie-Hellman with {bits} bits")),
        _ => {}
    }
    for certificate in &audit.certificates {
        if certificate.key == "RSA" && certificate.key_bits < 1024 {
            rules.cap(Letter::F, format!("a key of {} bits", certificate.key_bits));
        } else if certificate.key == "RSA" && certificate.key_bits < 2048 {
            rules.cap(Letter::B, format!("a key of {} bits", certificate.key_bits));
        }
        match &certificate.weak_hash {
            Some(hash) if hash.ends_with("MD5") => rules.cap(Letter::F, hash),
            // No client trusts it: a rule of trust.
            _ => {}
        }
        if !certificate.is_complete {
            rules.cap(Letter::B, "the chain lacks an intermediate");
        }
    }
}

fn attacks(audit: &Audit, rules: &mut Rules) {
    let weak = &audit.weaknesses;
    for (found, name) in [
        (weak.heartbleed, "Heartbleed"),
        (weak.early_ccs, "CCS injection"),
        (weak.robot, "ROBOT"),
        (weak.padding_accepted, "POODLE against TLS"),
        (weak.padding_oracle, "an oracle of CBC padding"),
        (weak.ticketbleed, "Ticketbleed"),
    ] {
        if found == Some(true) {
            rules.cap(Letter::F, name);
        }
    }
    let insecure = audit.protocols.secure_renegotiation == Some(false);
    if insecure && weak.client_renegotiation == Some(true) {
        rules.cap(Letter::F, "insecure renegotiation");
    }
    if audit.protocols.compression == Some(true) {
        rules.cap(Letter::C, "TLS compression (CRIME)");
    }
}

/// Applies the rules that prevent an A+ or lower it to A-.
fn warnings(audit: &Audit, rules: &mut Rules) {
    let tls13 = audit.protocols.versions.iter().find(|own| own.version == ProtocolVersion::TLS1_3.0);
    if tls13.is_none_or(|own| !own.offered && own.unanswered == 0) {
        rules.cap(Letter::AMinus, "no TLS 1.3");
    }
    if audit.protocols.secure_renegotiation == Some(false) {
        rules.cap(Letter::AMinus, "renegotiation is not secured (RFC 5746)");
    }
    // Who may choose matters where both kinds are to be had: never in TLS 1.3.
    let is_open = |own: &Protocol| {
        let has = |is_secret| own.suites.iter().any(|suite| suite.forward_secrecy == is_secret);
        own.server_order == Some(false) && has(true) && has(false)
    };
    if audit.protocols.versions.iter().any(is_open) {
        rules.cap(Letter::AMinus, "clients may choose suites without forward secrecy");
    }
    if audit.protocols.fallback_signal == Some(false) {
        rules.cap(Letter::A, "a fallback to an older version is not refused (RFC 7507)");
    }
    let age = audit.http.as_ref().and_then(|http| http.hsts.as_ref()).and_then(|hsts| hsts.max_age);
    match age {
        _ if crate::contact::is_address(&audit.host) => {
            rules.cap(Letter::A, "no HSTS, which addresses cannot have (RFC 6797)");
        }
        None if audit.http.is_none() => rules.cap(Letter::A, "HSTS not known: no answer over HTTP"),
        None => rules.cap(Letter::A, "no HSTS"),
        Some(age) if age < HALF_A_YEAR => {
            rules.cap(Letter::A, format!("HSTS of {age} s, less than 180 days"));
        }
        Some(_) => {}
    }
}

/// Minimum `max-age` of HSTS in seconds.
pub(crate) const HALF_A_YEAR: u64 = 180 * 24 * 3600;

fn trust(audit: &Audit, rules: &mut Rules) {
    // First, because a certificate of another name is usually not trusted either, and the name is the cause.
    if audit.certificates.iter().any(|certificate| !certificate.name_matches) {
        rules.letter = Letter::M;
        rules.reasons.insert(0, "M: a certificate is not for this name".to_owned());
        return;
    }
    if audit.certificates.is_empty() {
        rules.letter = rules.letter.max(Letter::T);
        rules.reasons.insert(0, "T: no certificate could be read, so none is trusted".to_owned());
        return;
    }
    let weak = audit.certificates.iter().find_map(|certificate| certificate.weak_hash.as_ref());
    if let Some(hash) = weak.filter(|hash| !hash.ends_with("MD5")) {
        rules.letter = rules.letter.max(Letter::T);
        rules.reasons.insert(0, format!("T: {hash}"));
    }
    let untrusted = audit.certificates.iter().any(|certificate| !crate::judged::is_trusted(certificate));
    if untrusted && rules.letter < Letter::T {
        rules.letter = Letter::T;
        rules.reasons.insert(0, "T: a certificate is not trusted".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_read_as_they_are_written() {
        for (letter, name) in ALL {
            assert_eq!(letter.to_string(), name);
        }
        assert_eq!("a+".parse(), Ok(Letter::APlus));
        assert!("T".parse::<Letter>().is_err() && "G".parse::<Letter>().is_err());
        assert!(Letter::APlus < Letter::A && Letter::F < Letter::T);
    }

    #[test]
    fn scores_become_letters() {
        assert_eq!(by_score(80), Letter::APlus);
        assert_eq!(by_score(79), Letter::B);
        assert_eq!(by_score(19), Letter::F);
        assert_eq!(mean([100, 90, 80].into_iter()), 90);
        assert_eq!(mean([].into_iter()), 0);
    }

    #[test]
    fn groups_are_worth_their_curve() {
        for (name, bits) in [
            ("x25519", Some(3072)),
            ("X25519MLKEM768", Some(3072)),
            ("secp521r1", Some(6252)),
            ("SecP384r1MLKEM1024", Some(4608)),
            ("brainpoolP512r1", Some(6144)),
            ("secp192r1", Some(2304)),
            ("ffdhe2048", Some(2048)),
            ("MLKEM768", None),
        ] {
            assert_eq!(group_bits(name), bits, "{name}");
        }
    }
}

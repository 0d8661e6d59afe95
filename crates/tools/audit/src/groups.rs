//! Groups and signature schemes, each found with a hello, in the server's order of preference.

use brisk_wire::offer::{Offer, extension};
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};
use brisk_wire::server_flight::Exchanged;
use brisk_wire::suites::{Exchange, Suite};
use serde::Serialize;

use crate::contact::AuditTarget;
use crate::error::AuditError;
use crate::protocols::{Protocols, SCHEMES, offer};
use crate::random;

/// All offered groups; those without a name in the registry are Brainpool and old curves of RFC 8422.
pub(crate) const EVERY: &[NamedGroup] = &[
    NamedGroup::X25519MLKEM768,
    NamedGroup::SECP256R1MLKEM768,
    NamedGroup::SECP384R1MLKEM1024,
    NamedGroup::MLKEM768,
    NamedGroup::X25519KYBER768DRAFT00,
    NamedGroup::X25519,
    NamedGroup::SECP256R1,
    NamedGroup::SECP384R1,
    NamedGroup::SECP521R1,
    NamedGroup::X448,
    NamedGroup(26),
    NamedGroup(27),
    NamedGroup(28),
    NamedGroup(22),
    NamedGroup(21),
    NamedGroup(19),
    NamedGroup::FFDHE2048,
    NamedGroup::FFDHE3072,
    NamedGroup(0x0102),
    NamedGroup(0x0103),
    NamedGroup(0x0104),
];

/// Generator of secp256r1 (SEC 2 section 2.4.2), uncompressed: a point that every server accepts.
const P256: [u8; 65] = [
    0x04, 0x6b, 0x17, 0xd1, 0xf2, 0xe1, 0x2c, 0x42, 0x47, 0xf8, 0xbc, 0xe6, 0xe5, 0x63, 0xa4, 0x40, 0xf2,
    0x77, 0x03, 0x7d, 0x81, 0x2d, 0xeb, 0x33, 0xa0, 0xf4, 0xa1, 0x39, 0x45, 0xd8, 0x98, 0xc2, 0x96, 0x4f,
    0xe3, 0x42, 0xe2, 0xfe, 0x1a, 0x7f, 0x9b, 0x8e, 0xe7, 0xeb, 0x4a, 0x7c, 0x0f, 0x9e, 0x16, 0x2b, 0xce,
    0x33, 0x57, 0x6b, 0x31, 0x5e, 0xce, 0xcb, 0xb6, 0x40, 0x68, 0x37, 0xbf, 0x51, 0xf5,
];

/// Groups and signature schemes of a server.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Groups {
    /// Groups of TLS 1.3, in the server's order if it has one.
    pub tls13: Vec<String>,
    /// Curves of TLS 1.2 and earlier.
    pub tls12: Vec<String>,
    /// Whether a TLS 1.3 group resists quantum computers; `None` without TLS 1.3 or without a response.
    pub post_quantum: Option<bool>,
    /// Whether the server's order of groups decides; `None` if there is no choice.
    pub server_order: Option<bool>,
    /// Size in bits of the smallest prime for Diffie-Hellman.
    pub dh_bits: Option<usize>,
    /// Schemes of TLS 1.3 signatures.
    pub schemes_tls13: Vec<String>,
    /// Schemes of TLS 1.2 signatures.
    pub schemes_tls12: Vec<String>,
    /// Size in bits of a temporary RSA key (export suites).
    pub temporary_rsa_bits: Option<usize>,
}

/// Name of a group, including groups that brisk does not support.
pub(crate) fn name(group: NamedGroup) -> String {
    let name = match group.0 {
        19 => "secp192r1",
        21 => "secp224r1",
        22 => "secp256k1",
        26 => "brainpoolP256r1",
        27 => "brainpoolP384r1",
        28 => "brainpoolP512r1",
        0x0102 => "ffdhe4096",
        0x0103 => "ffdhe6144",
        0x0104 => "ffdhe8192",
        _ => return group.to_string(),
    };
    name.to_owned()
}

/// Finds groups and schemes of the supported versions.
pub(crate) fn find(contact: &AuditTarget, protocols: &Protocols) -> Result<Groups, AuditError> {
    contact.step("groups");
    let mut found = Groups::default();
    let mut tls13 = Vec::new();
    if protocols.version(ProtocolVersion::TLS1_3).is_some() {
        let failures = contact.failures();
        tls13 = all(|left| retried(contact, protocols, left))?;
        let is_whole = contact.failures() == failures;
        found.server_order = order(&tls13, |list| retried(contact, protocols, list))?;
        let has_one = tls13.iter().any(|group| is_post_quantum(*group));
        // A group that was found is certain; its absence is certain only if no hello was lost.
        found.post_quantum = (has_one || is_whole).then_some(has_one);
    }
    let curves = suites(protocols, |suite| suite.exchange == Exchange::Ecdhe);
    if let Some((version, curves)) = curves {
        let mut classic = EVERY.to_vec();
        // Curves alone: hybrid groups are for TLS 1.3, and ECDHE suites have no primes.
        classic.retain(|group| (19..=30).contains(&group.0));
        let tls12 = all_of(classic, |left| curve(contact, version, &curves, left))?;
        found.server_order = match found.server_order {
            None => order(&tls12, |list| curve(contact, version, &curves, list))?,
            known => known,
        };
        found.tls12 = tls12.into_iter().map(name).collect();
    }
    primes(contact, protocols, &mut found)?;
    contact.step("signature schemes");
    schemes(contact, protocols, &tls13, &mut found)?;
    found.tls13 = tls13.into_iter().map(name).collect();
    Ok(found)
}

fn is_post_quantum(group: NamedGroup) -> bool {
    [
        NamedGroup::X25519MLKEM768,
        NamedGroup::SECP256R1MLKEM768,
        NamedGroup::SECP384R1MLKEM1024,
        NamedGroup::MLKEM768,
    ]
    .contains(&group)
}

fn all(
    ask: impl FnMut(&[NamedGroup]) -> Result<Option<NamedGroup>, AuditError>,
) -> Result<Vec<NamedGroup>, AuditError> {
    all_of(EVERY.to_vec(), ask)
}

fn all_of(
    mut left: Vec<NamedGroup>,
    mut ask: impl FnMut(&[NamedGroup]) -> Result<Option<NamedGroup>, AuditError>,
) -> Result<Vec<NamedGroup>, AuditError> {
    let mut found = Vec::new();
    while let Some(group) = if left.is_empty() { None } else { ask(&left)? } {
        // A group outside of the offer would stay in the list, and the hellos would not end.
        let Some(index) = left.iter().position(|own| *own == group) else { break };
        found.push(left.remove(index));
    }
    Ok(found)
}

fn order(
    found: &[NamedGroup],
    mut ask: impl FnMut(&[NamedGroup]) -> Result<Option<NamedGroup>, AuditError>,
) -> Result<Option<bool>, AuditError> {
    if found.len() < 2 {
        return Ok(None);
    }
    let reversed: Vec<_> = found.iter().rev().copied().collect();
    let (one, other) = (ask(found)?, ask(&reversed)?);
    Ok(one.zip(other).map(|(one, other)| one == other))
}

/// Newest version before TLS 1.3 with suites that `fit`, and these suites.
fn suites(
    protocols: &Protocols,
    fit: impl Fn(&Suite) -> bool,
) -> Option<(ProtocolVersion, Vec<CipherSuite>)> {
    let fitting = protocols.suites().filter(|(_, suite)| fit(suite));
    let version = fitting.map(|(version, _)| version).max()?;
    let own = protocols.suites().filter(|(own, suite)| *own == version && fit(suite));
    Some((version, own.map(|(_, suite)| suite.code).collect()))
}

/// Group requested by a TLS 1.3 server that receives no share.
fn retried(
    contact: &AuditTarget,
    protocols: &Protocols,
    groups: &[NamedGroup],
) -> Result<Option<NamedGroup>, AuditError> {
    let answer = contact.ask(&modern(contact, protocols, groups, SCHEMES)?.key_shares(&[]))?;
    Ok(answer.agreed(ProtocolVersion::TLS1_3).and_then(|hello| hello.group))
}

/// TLS 1.3 hello without shares.
fn modern(
    contact: &AuditTarget,
    protocols: &Protocols,
    groups: &[NamedGroup],
    schemes: &[SignatureScheme],
) -> Result<Offer, AuditError> {
    let version = ProtocolVersion::TLS1_3;
    let own = protocols.suites().filter(|(own, _)| *own == version).map(|(_, suite)| suite.code);
    let mut offer = Offer::new(version, random::bytes()?, own.collect());
    // RFC 8446 appendix D.4: middleboxes expect the session ID of TLS 1.2.
    offer.session_id = random::bytes::<32>()?.to_vec();
    if let Some(name) = contact.name() {
        offer = offer.server_name(name);
    }
    Ok(offer.versions(&[version]).groups(groups).schemes(schemes))
}

/// Curve of a TLS 1.2 `ServerKeyExchange`.
fn curve(
    contact: &AuditTarget,
    version: ProtocolVersion,
    suites: &[CipherSuite],
    groups: &[NamedGroup],
) -> Result<Option<NamedGroup>, AuditError> {
    let asked = offer(contact, version, suites.to_vec())?;
    let asked = asked.without(&[extension::GROUPS, extension::POINT_FORMATS]).groups(groups);
    let answer = contact.ask(&asked)?;
    Ok(match answer.agreed(version).and(answer.exchanged()) {
        Some(Exchanged::Curve { group, .. }) => Some(group),
        _ => None,
    })
}

/// Primes and temporary keys of all suites that have their own, including export suites.
fn primes(contact: &AuditTarget, protocols: &Protocols, found: &mut Groups) -> Result<(), AuditError> {
    let kinds: [fn(&Suite) -> bool; 3] = [
        |suite| suite.exchange == Exchange::Dhe && !suite.is_export,
        |suite| suite.exchange == Exchange::Dhe && suite.is_export,
        |suite| suite.exchange == Exchange::Rsa && suite.is_export,
    ];
    for kind in kinds {
        let Some((version, suites)) = suites(protocols, kind) else { continue };
        // With groups of RFC 7919 a server may choose one of those, which is not the one that others get.
        let asked = offer(contact, version, suites)?.without(&[extension::GROUPS, extension::POINT_FORMATS]);
        let answer = contact.ask(&asked)?;
        match answer.agreed(version).and(answer.exchanged()) {
            Some(Exchanged::Prime { prime, .. }) => {
                // Leading zeros do not add to the strength of a prime.
                let bits = prime.len() * 8 - prime.first().map_or(0, |first| first.leading_zeros() as usize);
                found.dh_bits = Some(found.dh_bits.map_or(bits, |least| least.min(bits)));
            }
            Some(Exchanged::Rsa { bits }) => found.temporary_rsa_bits = Some(bits),
            _ => {}
        }
    }
    Ok(())
}

fn schemes(
    contact: &AuditTarget,
    protocols: &Protocols,
    groups: &[NamedGroup],
    found: &mut Groups,
) -> Result<(), AuditError> {
    // RFC 7748 section 5: any 32 bytes are a public key of X25519. The private key is not needed, because the
    // handshake is not completed.
    let random = random::bytes::<32>()?;
    let share: Option<(NamedGroup, &[u8])> = if groups.contains(&NamedGroup::X25519) {
        Some((NamedGroup::X25519, &random))
    } else {
        groups.contains(&NamedGroup::SECP256R1).then_some((NamedGroup::SECP256R1, &P256[..]))
    };
    let signed = suites(protocols, |suite| {
        matches!(suite.exchange, Exchange::Ecdhe | Exchange::Dhe) && !suite.is_anonymous && !suite.is_export
    });
    for scheme in SCHEMES {
        // PKCS #1 v1.5 and SHA-1 sign no handshakes of TLS 1.3 (RFC 8446 section 4.2.3).
        let fits = !matches!(scheme.0, 0x0201 | 0x0203 | 0x0401 | 0x0501 | 0x0601);
        if let (Some((group, share)), true) = (share, fits) {
            // Signatures within the chain may be of any scheme: what is refused is the handshake's.
            let offer = modern(contact, protocols, &[group], &[*scheme])?;
            let offer = offer.with(50, chain_schemes()).key_shares(&[(group, share)]);
            let answer = contact.ask(&offer)?;
            // A `HelloRetryRequest` precedes the choice of a signature scheme and proves nothing.
            if answer.agreed(ProtocolVersion::TLS1_3).is_some_and(|hello| !hello.is_retry) {
                found.schemes_tls13.push(scheme.to_string());
            }
        }
        if let Some((ProtocolVersion::TLS1_2, suites)) = &signed {
            let asked = offer(contact, ProtocolVersion::TLS1_2, suites.clone())?;
            let asked = asked.without(&[extension::SCHEMES]).schemes(&[*scheme]).with(50, chain_schemes());
            let answer = contact.ask(&asked)?;
            let used = match answer.agreed(ProtocolVersion::TLS1_2).and(answer.exchanged()) {
                Some(Exchanged::Curve { scheme, .. } | Exchanged::Prime { scheme, .. }) => scheme,
                _ => None,
            };
            // A server may ignore the offer and sign with another scheme; only the scheme of the signature is
            // evidence.
            if used == Some(*scheme) {
                found.schemes_tls12.push(scheme.to_string());
            }
        }
    }
    Ok(())
}

/// Content of `signature_algorithms_cert` (RFC 8446 section 4.2.3) with all schemes.
fn chain_schemes() -> Vec<u8> {
    let numbers: Vec<u8> = SCHEMES.iter().flat_map(|scheme| scheme.0.to_be_bytes()).collect();
    [&(numbers.len() as u16).to_be_bytes()[..], &numbers].concat()
}

//! Accepted versions and suites of a server, found with hellos: each hello leaves out the suites accepted before.

use brisk_wire::offer::{Offer, extension, sslv2_hello};
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};
use brisk_wire::server_flight::{alert_name, sslv2_accepts};
use brisk_wire::suites::{self, Cipher, Exchange, Suite};
use serde::Serialize;

use crate::contact::{Answer, AuditTarget, ConnectionEnd};
use crate::error::AuditError;
use crate::random;

/// Maximum number of suites of one hello: some servers do not respond to more than 128.
const CHUNK: usize = 110;

/// Groups of hellos that do not test groups.
pub(crate) const GROUPS: &[NamedGroup] = &[
    NamedGroup::X25519,
    NamedGroup::SECP256R1,
    NamedGroup::SECP384R1,
    NamedGroup::SECP521R1,
    NamedGroup::X448,
    NamedGroup::FFDHE2048,
    NamedGroup::FFDHE3072,
];

/// Schemes of hellos that do not test schemes.
pub(crate) const SCHEMES: &[SignatureScheme] = SignatureScheme::ALL;

/// A version with its accepted suites.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Protocol {
    /// Name.
    pub name: String,
    /// Version number in TLS.
    #[serde(skip)]
    pub version: u16,
    /// Whether the server supports the version.
    pub offered: bool,
    /// Accepted suites; the server's first choice first.
    pub suites: Vec<AcceptedSuite>,
    /// Whether the server's order of suites decides; `None` if there is no choice.
    pub server_order: Option<bool>,
    /// Number of unanswered hellos. Support for their suites is unknown.
    pub unanswered: u32,
    /// The server's way of refusing the version.
    #[serde(skip)]
    pub refusal: String,
}

/// An accepted suite.
#[derive(Clone, Debug, Serialize)]
pub struct AcceptedSuite {
    /// Registered name.
    pub name: &'static str,
    /// Strength in bits.
    pub bits: u16,
    /// Forward secrecy: keys of the server cannot decrypt recorded traffic.
    pub forward_secrecy: bool,
    /// Properties of the suite.
    #[serde(skip)]
    pub suite: Suite,
}

impl From<&Suite> for AcceptedSuite {
    fn from(suite: &Suite) -> Self {
        Self {
            name: suite.name,
            bits: suite.bits,
            forward_secrecy: suite.has_forward_secrecy(),
            suite: *suite,
        }
    }
}

/// Versions, suites and properties common to all versions.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Protocols {
    /// Whether the server supports SSL 2.0.
    pub sslv2: bool,
    /// Other versions, oldest first.
    pub versions: Vec<Protocol>,
    /// The server accepts TLS compression (CRIME); `None` without a response.
    pub compression: Option<bool>,
    /// Whether renegotiation is secure (`renegotiation_info`, RFC 5746); `None` if the server supports only TLS 1.3, which
    /// has none.
    pub secure_renegotiation: Option<bool>,
    /// Whether the server refuses a fallback to an older version (`TLS_FALLBACK_SCSV`, RFC 7507); `None` if it supports no
    /// older one.
    pub fallback_signal: Option<bool>,
    /// ALPN protocol chosen from `h2` and `http/1.1`.
    pub alpn: Option<String>,
}

impl Protocols {
    /// The [`Protocol`] of a version.
    pub fn version(&self, version: ProtocolVersion) -> Option<&Protocol> {
        self.versions.iter().find(|own| own.version == version.0 && own.offered)
    }

    /// Whether all hellos were answered, so that unlisted suites are not accepted.
    pub fn is_whole(&self) -> bool {
        self.versions.iter().all(|own| own.unanswered == 0)
    }

    /// All accepted suites with their versions.
    pub fn suites(&self) -> impl Iterator<Item = (ProtocolVersion, &Suite)> {
        self.versions
            .iter()
            .flat_map(|own| own.suites.iter().map(|suite| (ProtocolVersion(own.version), &suite.suite)))
    }

    /// Newest supported version up to TLS 1.2.
    pub fn newest_before_13(&self) -> Option<ProtocolVersion> {
        let old = self.versions.iter().filter(|own| own.offered && own.version < ProtocolVersion::TLS1_3.0);
        old.map(|own| ProtocolVersion(own.version)).max()
    }
}

/// Hello of `version` with all extensions that servers expect.
pub(crate) fn offer(
    contact: &AuditTarget,
    version: ProtocolVersion,
    suites: Vec<CipherSuite>,
) -> Result<Offer, AuditError> {
    let mut offer = Offer::new(version, random::bytes()?, suites);
    if version == ProtocolVersion::SSL3_0 {
        // RFC 5746 section 3.3: a suite value signals secure renegotiation where a hello has no extensions.
        offer.suites.push(CipherSuite::TLS_EMPTY_RENEGOTIATION_INFO_SCSV);
        return Ok(offer);
    }
    if let Some(name) = contact.name() {
        offer = offer.server_name(name);
    }
    offer = offer.with(extension::RENEGOTIATION, vec![0]);
    if version == ProtocolVersion::TLS1_3 {
        // RFC 8446 appendix D.4: middleboxes expect the session ID of TLS 1.2.
        offer.session_id = random::bytes::<32>()?.to_vec();
        return Ok(offer.versions(&[version]).groups(crate::groups::EVERY).schemes(SCHEMES).key_shares(&[]));
    }
    offer = offer.groups(GROUPS);
    if version == ProtocolVersion::TLS1_2 {
        offer = offer.schemes(SCHEMES);
    }
    Ok(offer)
}

/// Finds accepted versions and suites.
pub(crate) fn find(contact: &AuditTarget) -> Result<Protocols, AuditError> {
    contact.step("versions and suites");
    let mut found = Protocols::default();
    let mut refusal = String::new();
    // The newest first: if all versions are refused, the message contains the reaction to the newest one.
    for version in [
        ProtocolVersion::TLS1_3,
        ProtocolVersion::TLS1_2,
        ProtocolVersion::TLS1_1,
        ProtocolVersion::TLS1_0,
        ProtocolVersion::SSL3_0,
    ] {
        let mut protocol = Protocol { name: version.to_string(), version: version.0, ..Protocol::default() };
        let failures = contact.failures();
        enumerate(contact, version, &mut protocol)?;
        protocol.unanswered = contact.failures() - failures;
        if refusal.is_empty() {
            refusal.clone_from(&protocol.refusal);
        }
        found.versions.insert(0, protocol);
    }
    found.sslv2 = sslv2(contact)?;
    if !found.sslv2 && found.versions.iter().all(|version| !version.offered) {
        return Err(AuditError::NoTls { address: contact.address, reason: refusal });
    }
    in_passing(contact, &mut found)?;
    Ok(found)
}

fn candidates(version: ProtocolVersion) -> Vec<Vec<CipherSuite>> {
    let fits = |suite: &&Suite| suite.is_tls13() == (version == ProtocolVersion::TLS1_3);
    let mut all: Vec<_> = suites::all().iter().filter(fits).collect();
    // Those that servers have, first: a version that is refused needs one hello.
    all.sort_by_key(|suite| (suite.exchange == Exchange::Shared, suite.is_anonymous, !is_common(suite)));
    all.chunks(CHUNK).map(|chunk| chunk.iter().map(|suite| suite.code).collect()).collect()
}

fn is_common(suite: &Suite) -> bool {
    let kind = ["_RSA_WITH", "TLS_RSA", "ECDHE_ECDSA"].iter().any(|part| suite.name.contains(part));
    kind && !["ARIA", "CAMELLIA"].iter().any(|part| suite.name.contains(part))
}

fn enumerate(
    contact: &AuditTarget,
    version: ProtocolVersion,
    protocol: &mut Protocol,
) -> Result<(), AuditError> {
    let mut found: Vec<&'static Suite> = Vec::new();
    for mut chunk in candidates(version) {
        while !chunk.is_empty() {
            let answer = contact.ask(&offer(contact, version, chunk.clone())?)?;
            let Some(suite) = answer.agreed(version).and_then(|_| answer.suite()) else {
                if found.is_empty() && protocol.refusal.is_empty() {
                    protocol.refusal = describe(&answer);
                }
                // 70, protocol_version: no other suite would do.
                if found.is_empty() && (answer.alert == Some(70) || answer.hello.is_some()) {
                    return Ok(());
                }
                break;
            };
            // A suite outside of the offer would stay in the list, and the hellos would not end.
            let Some(index) = chunk.iter().position(|code| *code == suite.code) else { break };
            chunk.remove(index);
            found.push(suite);
        }
    }
    protocol.offered = !found.is_empty();
    protocol.server_order = order(contact, version, &mut found)?;
    protocol.suites = found.into_iter().map(AcceptedSuite::from).collect();
    Ok(())
}

/// Whether the server's order decides: it chooses the same suite from two opposite orders.
fn order(
    contact: &AuditTarget,
    version: ProtocolVersion,
    found: &mut [&'static Suite],
) -> Result<Option<bool>, AuditError> {
    if found.len() < 2 {
        return Ok(None);
    }
    let codes: Vec<_> = found.iter().map(|suite| suite.code).collect();
    let reversed: Vec<_> = codes.iter().rev().copied().collect();
    let chosen = |codes: Vec<CipherSuite>| -> Result<Option<CipherSuite>, AuditError> {
        let answer = contact.ask(&offer(contact, version, codes)?)?;
        Ok(answer.agreed(version).map(|hello| hello.suite))
    };
    let (one, other) = (chosen(codes)?, chosen(reversed)?);
    if let (Some(one), true) = (one, one == other) {
        // Chunks were asked one after the other: what is chosen of all is the first.
        if let Some(index) = found.iter().position(|suite| suite.code == one) {
            found[..=index].rotate_right(1);
        }
        return Ok(Some(true));
    }
    Ok((one.is_some() && other.is_some()).then_some(false))
}

pub(crate) fn describe(answer: &Answer) -> String {
    match (answer.alert, answer.end, &answer.hello) {
        (Some(alert), ..) => {
            let name = alert_name(alert).unwrap_or("an alert without a name here");
            format!("it answers a hello with the alert {name}")
        }
        (_, Some(ConnectionEnd::Closed), _) => "it closes the connection after a hello".to_owned(),
        (_, Some(ConnectionEnd::Broken), _) => "it resets the connection after a hello".to_owned(),
        (_, Some(ConnectionEnd::Silent), _) => "it does not answer a hello in time".to_owned(),
        (_, Some(ConnectionEnd::Wrong(error)), _) => error.to_string(),
        (_, _, Some(hello)) => format!("it answers with {}, which was not offered", hello.version),
        _ => "it does not answer".to_owned(),
    }
}

fn sslv2(contact: &AuditTarget) -> Result<bool, AuditError> {
    let mut line = contact.open()?;
    // Raw bytes, because records of SSL 2.0 have another header, which the reader of TLS records refuses.
    let answer = line.send(&sslv2_hello(random::bytes()?)).and_then(|()| line.raw());
    Ok(answer.is_ok_and(|bytes| sslv2_accepts(&bytes)))
}

/// Checks compression, renegotiation, ALPN and fallback with the newest suitable version.
fn in_passing(contact: &AuditTarget, found: &mut Protocols) -> Result<(), AuditError> {
    contact.step("compression and fallback");
    let Some(newest) = found.newest_before_13() else {
        // TLS 1.3 has none.
        found.compression = Some(false);
        return Ok(());
    };
    let codes = |found: &Protocols, version: ProtocolVersion| -> Vec<CipherSuite> {
        let own = found.versions.iter().filter(|own| own.version == version.0);
        own.flat_map(|own| own.suites.iter().map(|suite| suite.suite.code)).collect()
    };
    let mut asked = offer(contact, newest, codes(found, newest))?;
    // DEFLATE (RFC 3749) first, so that servers that follow the client's order select it too; null must not
    // be missing (RFC 5246 section 7.4.1.2).
    asked.compression = vec![1, 0];
    if newest > ProtocolVersion::SSL3_0 {
        asked = asked.alpn(&["h2", "http/1.1"]);
    }
    let answer = contact.ask(&asked)?;
    if let Some(hello) = answer.agreed(newest) {
        found.compression = Some(hello.compression != 0);
        found.secure_renegotiation = Some(hello.extension(extension::RENEGOTIATION).is_some());
        found.alpn = hello.alpn();
    }
    found.fallback_signal = fallback(contact, found, &codes)?;
    Ok(())
}

/// Tests a fallback to the oldest version if the server supports a newer one.
fn fallback(
    contact: &AuditTarget,
    found: &Protocols,
    codes: &dyn Fn(&Protocols, ProtocolVersion) -> Vec<CipherSuite>,
) -> Result<Option<bool>, AuditError> {
    let offered = found.versions.iter().filter(|own| own.offered);
    let mut versions: Vec<_> = offered.map(|own| ProtocolVersion(own.version)).collect();
    versions.sort_unstable();
    // From TLS 1.3 to TLS 1.2 the random protects (RFC 8446 section 4.1.3).
    let (Some(&oldest), Some(&newest)) = (versions.first(), versions.last()) else { return Ok(None) };
    if oldest >= ProtocolVersion::TLS1_2 || oldest == newest {
        return Ok(None);
    }
    let mut suites = codes(found, oldest);
    suites.push(CipherSuite::TLS_FALLBACK_SCSV);
    let answer = contact.ask(&offer(contact, oldest, suites)?)?;
    // A lost hello is no refusal.
    Ok((!answer.has_failed).then(|| answer.agreed(oldest).is_none()))
}

/// Name of the cipher that suites share.
pub(crate) fn names<'a>(suites: impl Iterator<Item = (ProtocolVersion, &'a Suite)>) -> String {
    let mut names: Vec<_> = suites.map(|(_, suite)| suite.name).collect();
    names.sort_unstable();
    names.dedup();
    match names.len() {
        0..=4 => names.join(", "),
        count => format!("{} and {} more", names[..4].join(", "), count - 4),
    }
}

/// Whether blocks have 64 bits, which collide within gigabytes (SWEET32).
pub(crate) fn has_short_blocks(suite: &Suite) -> bool {
    let ciphers = ["_DES_", "IDEA", "RC2", "DES40"];
    suite.cipher == Cipher::TripleDes || ciphers.iter().any(|part| suite.name.contains(part))
}

//! Oracles of CBC padding in TLS 1.2: differences between the reactions of a server to a wrong padding and to a wrong
//! MAC.
//!
//! Records of block ciphers are authenticated before they are padded. A server that reveals which of both was wrong
//! lets an attacker on the path decrypt records byte by byte (Vaudenay, 2002). Servers reveal it if they check only the
//! length of the padding (POODLE against TLS, CVE-2014-8730), by different alerts or connection ends (GOLDENDOODLE and
//! Zombie POODLE, 2019), and with empty records (CVE-2019-1559). Each connection sends one record with one flaw.
//! Compared are properties visible from outside, i.e. record types and the end of the connection, never the content of
//! an encrypted alert.

use std::time::{Duration, Instant};

use aws_lc_rs::cipher::{AES_128, AES_256, EncryptingKey, UnboundCipherKey};
use aws_lc_rs::hmac;
use brisk_wire::offer::record;
use brisk_wire::registry::{CipherSuite, ProtocolVersion};
use brisk_wire::server_flight::Part;
use brisk_wire::suites::Suite;

use crate::contact::{AuditConnection, AuditTarget, ConnectionEnd};
use crate::error::AuditError;
use crate::protocols::Protocols;
use crate::weaknesses::SILENCE;
use crate::{http, random, tls12};

const V12: ProtocolVersion = ProtocolVersion::TLS1_2;

/// Size of a block and of an initialization vector in bytes.
pub(crate) const BLOCK: usize = 16;

/// Beginning of a request. With its MAC it is shorter than the 255 bytes of padding that a wrong length claims.
const SHORT: &[u8] = b"GET / HTTP/1.1\r\n";

/// Wait for the end of a connection after an alert: servers close at once, or leave that to the client.
const END: Duration = Duration::from_millis(300);

/// Timeout of this check: silent servers take seconds for each connection.
const BUDGET: Duration = Duration::from_secs(30);

/// Maximum number of records compared of a [`Reaction`].
const PARTS: usize = 4;

/// Record protection of a suite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protection {
    pub(crate) mac: hmac::Algorithm,
    /// Size of an AES key in bytes.
    pub(crate) key: usize,
}

/// Record protection of supported suites with AES-CBC; suites with forward secrecy first.
const SUITES: &[(u16, hmac::Algorithm, usize)] = &[
    (0xc009, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, 16),
    (0xc013, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, 16),
    (0xc00a, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, 32),
    (0xc014, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, 32),
    (0xc023, hmac::HMAC_SHA256, 16),
    (0xc027, hmac::HMAC_SHA256, 16),
    (0xc024, hmac::HMAC_SHA384, 32),
    (0xc028, hmac::HMAC_SHA384, 32),
    (0x002f, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, 16),
    (0x0035, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, 32),
    (0x003c, hmac::HMAC_SHA256, 16),
    (0x003d, hmac::HMAC_SHA256, 32),
];

/// Record protection of a suite; `None` unless it uses AES-CBC.
pub(crate) fn protection(suite: CipherSuite) -> Option<Protection> {
    let found = SUITES.iter().find(|(code, ..)| *code == suite.0)?;
    Some(Protection { mac: found.1, key: found.2 })
}

/// Flaw of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// Wrong MAC, right padding.
    Mac,
    /// Wrong bytes of the padding with a right length, right MAC.
    Padding,
    Both,
    /// The padding claims to be longer than the record, which is true for the plaintext [`SHORT`].
    Length,
}

/// Encryption of the client's records (RFC 5246 section 6.2.3.2).
pub(crate) struct Sealer {
    cipher: EncryptingKey,
    mac: hmac::Key,
    sequence: u64,
}

impl Sealer {
    /// Uses the client's keys of the key block; `None` if the lengths do not fit `protection`.
    pub(crate) fn new(protection: Protection, mac: &[u8], key: &[u8]) -> Option<Self> {
        let algorithm = if protection.key == 32 { &AES_256 } else { &AES_128 };
        let cipher = EncryptingKey::ecb(UnboundCipherKey::new(algorithm, key).ok()?).ok()?;
        Some(Self { cipher, mac: hmac::Key::new(protection.mac, mac), sequence: 0 })
    }

    /// A record of type `kind` with this [`Flaw`].
    pub(crate) fn seal(&mut self, kind: u8, plaintext: &[u8], flaw: Flaw) -> Option<Vec<u8>> {
        let header = [kind, 3, 3, (plaintext.len() >> 8) as u8, plaintext.len() as u8];
        let covered = [&self.sequence.to_be_bytes()[..], &header, plaintext].concat();
        // RFC 5246 section 6.2.3.1: the MAC covers sequence number, header and plaintext, but not the
        // padding. This order is the cause of padding oracles.
        let mut content = [plaintext, hmac::sign(&self.mac, &covered).as_ref()].concat();
        self.sequence += 1;
        if matches!(flaw, Flaw::Mac | Flaw::Both) {
            // Only the first byte of the MAC: lengths and padding stay right, so that the reaction depends on
            // the MAC alone.
            content[plaintext.len()] ^= 0x55;
        }
        // One block more than it takes, so that there is padding to be wrong in.
        let length = 2 * BLOCK - 1 - content.len() % BLOCK;
        content.resize(content.len() + length + 1, length as u8);
        let last = content.len() - 1;
        match flaw {
            Flaw::Padding | Flaw::Both => {
                // Without the last byte, which is the length: a wrong length is `Flaw::Length`.
                content[last - length..last].iter_mut().for_each(|byte| *byte ^= 0x55);
            }
            Flaw::Length => content[last] = 0xff,
            Flaw::None | Flaw::Mac => {}
        }
        // RFC 5246 section 6.2.3.2: each record has a new, unpredictable initialization vector.
        let mut before = random::bytes::<BLOCK>().ok()?;
        let mut sealed = before.to_vec();
        for block in content.chunks_exact(BLOCK) {
            before.iter_mut().zip(block).for_each(|(byte, other)| *byte ^= other);
            self.cipher.encrypt(&mut before).ok()?;
            sealed.extend_from_slice(&before);
        }
        Some(record(kind, V12, &sealed))
    }
}

/// Reaction of a server to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reaction {
    seen: Vec<RecordKind>,
    end: Option<ConnectionEnd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordKind {
    Data,
    Alert { is_encrypted: bool },
    Other,
}

impl Reaction {
    fn of(line: &mut AuditConnection) -> Self {
        let (mut seen, mut end) = (Vec::new(), None);
        while seen.len() < PARTS && end.is_none() {
            match line.part() {
                // An answer may come in any number of records.
                Ok(Part::Data(_)) => return Self { seen: vec![RecordKind::Data], end: None },
                Ok(Part::Alert(alert)) => {
                    line.hurry(END);
                    seen.push(RecordKind::Alert { is_encrypted: alert.is_none() });
                }
                Ok(_) => seen.push(RecordKind::Other),
                // Whether the system reports an end or a reset depends on what it had read.
                Err(ConnectionEnd::Broken) => end = Some(ConnectionEnd::Closed),
                Err(other) => end = Some(other),
            }
        }
        Self { seen, end }
    }

    /// Whether the server responded to the request.
    fn is_answer(&self) -> bool {
        self.seen == [RecordKind::Data]
    }
}

/// Result of the check; `None` if it could not be judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Oracles {
    /// The server accepts a wrong padding (POODLE against TLS).
    pub(crate) accepts: Option<bool>,
    /// The server reacts differently to a wrong padding and to a wrong MAC.
    pub(crate) differs: Option<bool>,
}

/// Looks for oracles with one suite for each hash of the MAC, since servers have separate code for each.
pub(crate) fn find(contact: &AuditTarget, protocols: &Protocols) -> Result<Oracles, AuditError> {
    contact.step("oracles of CBC padding");
    find_until(contact, protocols, contact.budget(BUDGET))
}

/// [`find`] with a deadline; checks not finished at `end` stay `None`.
pub(crate) fn find_until(
    contact: &AuditTarget,
    protocols: &Protocols,
    end: Instant,
) -> Result<Oracles, AuditError> {
    let own: Vec<_> =
        protocols.suites().filter(|(version, _)| *version == V12).map(|(_, suite)| suite.code).collect();
    let spoken: Vec<_> = SUITES.iter().filter(|(code, ..)| own.contains(&CipherSuite(*code))).collect();
    // The absence of oracles is a claim about all block ciphers of the server: one untested suite leaves the
    // verdict open.
    let none = is_all_spoken(protocols).then_some(false);
    let mut all = Oracles { accepts: none, differs: none };
    let mut tried: Vec<hmac::Algorithm> = Vec::new();
    for (code, mac, _) in &spoken {
        if tried.contains(mac) {
            continue;
        }
        // Without a handshake another suite of this hash may have one.
        if let Some(found) = judge(contact, protocols, CipherSuite(*code), end)? {
            tried.push(*mac);
            all = all.and(found);
        }
    }
    let is_whole = spoken.iter().all(|(_, mac, _)| tried.contains(mac));
    Ok(if is_whole { all } else { all.and(Oracles::default()) })
}

/// Whether all block cipher suites that the server accepts below TLS 1.3 are known and supported here.
fn is_all_spoken(protocols: &Protocols) -> bool {
    let is_spoken = |version, suite: &Suite| version == V12 && protection(suite.code).is_some();
    let mut blocks = protocols
        .suites()
        .filter(|(version, suite)| *version < ProtocolVersion::TLS1_3 && suite.name.contains("_CBC_"));
    // Of a server that does not answer, no one knows whether it has such suites.
    protocols.is_whole() && blocks.all(|(version, suite)| is_spoken(version, suite))
}

impl Oracles {
    fn and(self, other: Self) -> Self {
        Self { accepts: either(self.accepts, other.accepts), differs: either(self.differs, other.differs) }
    }
}

/// `Some(true)` if one of both is true, `Some(false)` if both are false, otherwise `None`.
fn either(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    if one == Some(true) || other == Some(true) { Some(true) } else { one.and(other) }
}

/// Flaws of a record with a request, then flaws of an empty record.
const FLAWS: [Flaw; 4] = [Flaw::Mac, Flaw::Padding, Flaw::Both, Flaw::Length];
const EMPTY: [Flaw; 3] = [Flaw::Mac, Flaw::Padding, Flaw::Both];

/// Result for one suite; `None` without a handshake, or without a result before `end`.
fn judge(
    contact: &AuditTarget,
    protocols: &Protocols,
    suite: CipherSuite,
    end: Instant,
) -> Result<Option<Oracles>, AuditError> {
    let react = |plaintext: &[u8], flaw| {
        if Instant::now() < end { react(contact, protocols, suite, plaintext, flaw) } else { Ok(None) }
    };
    let request = http::request(contact, "/");
    // What a server does otherwise says nothing if it does not answer what is right.
    let Some(right) = react(request.as_bytes(), Flaw::None)? else { return Ok(None) };
    if !right.is_answer() {
        return Ok(Some(Oracles::default()));
    }
    let mut first = None;
    for _ in 0..2 {
        let mut reactions = Vec::new();
        for (plaintext, flaws) in [(request.as_bytes(), &FLAWS[..]), (&[], &EMPTY[..])] {
            for flaw in flaws {
                let plaintext = if *flaw == Flaw::Length { SHORT } else { plaintext };
                let Some(reaction) = react(plaintext, *flaw)? else { return Ok(None) };
                reactions.push(reaction);
            }
        }
        // The flaw with this index is `Flaw::Padding`, which has a right MAC: only a server that ignores the
        // padding responds.
        let accepts = Some(reactions[1].is_answer());
        let is_one = |all: &[Reaction]| all.windows(2).all(|pair| pair[0] == pair[1]);
        // Compared within each group: an empty record is no request, so its reaction may differ without an
        // oracle.
        let (with, without) = reactions.split_at(FLAWS.len());
        if is_one(with) && is_one(without) {
            // Alike may also be: answered whatever is wrong.
            return Ok(Some(Oracles { accepts, differs: Some(false) }));
        }
        // The network may have made the difference: the same one twice is the server's.
        if first.as_ref() == Some(&reactions) {
            return Ok(Some(Oracles { accepts, differs: Some(true) }));
        }
        first = Some(reactions);
    }
    Ok(Some(Oracles::default()))
}

/// Reaction to one record after a handshake; `None` without a handshake.
fn react(
    contact: &AuditTarget,
    protocols: &Protocols,
    suite: CipherSuite,
    plaintext: &[u8],
    flaw: Flaw,
) -> Result<Option<Reaction>, AuditError> {
    // One connection may fail.
    for _ in 0..2 {
        let Some(mut session) = tls12::connect_with(contact, protocols, &[suite.0])? else { continue };
        session.line.hurry(SILENCE * 2);
        return Ok(Some(match session.send_flawed(plaintext, flaw) {
            Ok(()) => Reaction::of(&mut session.line),
            // A failed write means that the server has closed already, as `Reaction::of` reports for a failed
            // read.
            Err(_) => Reaction { seen: Vec::new(), end: Some(ConnectionEnd::Closed) },
        }));
    }
    Ok(None)
}

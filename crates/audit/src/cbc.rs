//! Oracles of CBC padding in TLS 1.2: whether a server's answers distinguish a wrong padding from a wrong MAC.
//!
//! Records of block ciphers are authenticated before they are padded, so a server that shows which of both was wrong lets who
//! changes records on their way decrypt them byte by byte (Vaudenay, 2002). Servers have shown it by looking at the length of the
//! padding alone (POODLE against TLS, CVE-2014-8730), by other alerts or ends of the connection (GOLDENDOODLE and Zombie POODLE,
//! 2019), and with records without content (CVE-2019-1559). Each connection here sends one record of its own that is wrong in
//! one way. What is compared is what can be seen from outside: kinds of records, and the end; never what an encrypted alert says.

use std::time::{Duration, Instant};

use aws_lc_rs::cipher::{AES_128, AES_256, EncryptingKey, UnboundCipherKey};
use aws_lc_rs::hmac;
use brisk_wire::offer::record;
use brisk_wire::registry::{CipherSuite, ProtocolVersion};
use brisk_wire::server_flight::Part;
use brisk_wire::suites::Suite;

use crate::contact::{Contact, End, Line};
use crate::error::AuditError;
use crate::protocols::Protocols;
use crate::weaknesses::SILENCE;
use crate::{http, random, tls12};

const V12: ProtocolVersion = ProtocolVersion::TLS1_2;

/// Bytes of a block, and of an initialization vector.
pub(crate) const BLOCK: usize = 16;

/// The beginning of a request. With its MAC it is shorter than the 255 bytes of padding that a wrong length claims.
const SHORT: &[u8] = b"GET / HTTP/1.1\r\n";

/// How long the end of a connection is waited for after an alert: servers close at once, or leave that to the client.
const END: Duration = Duration::from_millis(300);

/// All connections here at most: servers that keep silent take seconds each.
const BUDGET: Duration = Duration::from_secs(30);

/// Parts of a reaction that are looked at.
const PARTS: usize = 4;

/// What a suite protects records with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protection {
    pub(crate) mac: hmac::Algorithm,
    /// Bytes of a key of AES.
    pub(crate) key: usize,
}

/// That of a suite of AES in CBC that is spoken here; those with forward secrecy first.
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

/// What this suite protects records with, if it is AES in CBC.
pub(crate) fn protection(suite: CipherSuite) -> Option<Protection> {
    let found = SUITES.iter().find(|(code, ..)| *code == suite.0)?;
    Some(Protection { mac: found.1, key: found.2 })
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// The MAC, below a right padding.
    Mac,
    /// The bytes of the padding, not its length, around a right MAC.
    Padding,
    Both,
    /// The padding says that it is longer than the record, which holds where the plaintext is [`SHORT`].
    Length,
}

/// Encrypts the client's records (RFC 5246 section 6.2.3.2).
pub(crate) struct Sealer {
    cipher: EncryptingKey,
    mac: hmac::Key,
    sequence: u64,
}

impl Sealer {
    /// With the client's keys of the key block.
    pub(crate) fn new(protection: Protection, mac: &[u8], key: &[u8]) -> Option<Self> {
        let algorithm = if protection.key == 32 { &AES_256 } else { &AES_128 };
        let cipher = EncryptingKey::ecb(UnboundCipherKey::new(algorithm, key).ok()?).ok()?;
        Some(Self { cipher, mac: hmac::Key::new(protection.mac, mac), sequence: 0 })
    }

    /// A record with this flaw.
    pub(crate) fn seal(&mut self, kind: u8, plaintext: &[u8], flaw: Flaw) -> Option<Vec<u8>> {
        let header = [kind, 3, 3, (plaintext.len() >> 8) as u8, plaintext.len() as u8];
        let covered = [&self.sequence.to_be_bytes()[..], &header, plaintext].concat();
        let mut content = [plaintext, hmac::sign(&self.mac, &covered).as_ref()].concat();
        self.sequence += 1;
        if matches!(flaw, Flaw::Mac | Flaw::Both) {
            content[plaintext.len()] ^= 0x55;
        }
        // One block more than it takes, so that there is padding to be wrong in.
        let length = 2 * BLOCK - 1 - content.len() % BLOCK;
        content.resize(content.len() + length + 1, length as u8);
        let last = content.len() - 1;
        match flaw {
            Flaw::Padding | Flaw::Both => {
                content[last - length..last].iter_mut().for_each(|byte| *byte ^= 0x55);
            }
            Flaw::Length => content[last] = 0xff,
            Flaw::None | Flaw::Mac => {}
        }
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

/// What a server showed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reaction {
    seen: Vec<Seen>,
    end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Data,
    Alert { is_encrypted: bool },
    Other,
}

impl Reaction {
    fn of(line: &mut Line) -> Self {
        let (mut seen, mut end) = (Vec::new(), None);
        while seen.len() < PARTS && end.is_none() {
            match line.part() {
                // An answer may come in any number of records.
                Ok(Part::Data(_)) => return Self { seen: vec![Seen::Data], end: None },
                Ok(Part::Alert(alert)) => {
                    line.hurry(END);
                    seen.push(Seen::Alert { is_encrypted: alert.is_none() });
                }
                Ok(_) => seen.push(Seen::Other),
                // Whether the system reports an end or a reset depends on what it had read.
                Err(End::Broken) => end = Some(End::Closed),
                Err(other) => end = Some(other),
            }
        }
        Self { seen, end }
    }

    /// It answered the request.
    fn is_answer(&self) -> bool {
        self.seen == [Seen::Data]
    }
}

/// What was found; `None` where it cannot be judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Oracles {
    /// A wrong padding is accepted (POODLE against TLS).
    pub(crate) accepts: Option<bool>,
    /// A wrong padding and a wrong MAC are answered differently.
    pub(crate) differs: Option<bool>,
}

/// Whether there is such an oracle, with one suite for each hash of the MAC, which servers have own code for.
pub(crate) fn find(contact: &Contact, protocols: &Protocols) -> Result<Oracles, AuditError> {
    contact.step("oracles of CBC padding");
    find_until(contact, protocols, contact.budget(BUDGET))
}

/// The same. What is not judged at `end` stays so.
pub(crate) fn find_until(
    contact: &Contact,
    protocols: &Protocols,
    end: Instant,
) -> Result<Oracles, AuditError> {
    let own: Vec<_> =
        protocols.suites().filter(|(version, _)| *version == V12).map(|(_, suite)| suite.code).collect();
    let spoken: Vec<_> = SUITES.iter().filter(|(code, ..)| own.contains(&CipherSuite(*code))).collect();
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

/// Whether every suite of block ciphers that the server accepts below TLS 1.3 is known, and is spoken here.
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

/// Yes if one of both is, no if both are.
fn either(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    if one == Some(true) || other == Some(true) { Some(true) } else { one.and(other) }
}

/// Flaws of a record with a request, then those of one without content.
const FLAWS: [Flaw; 4] = [Flaw::Mac, Flaw::Padding, Flaw::Both, Flaw::Length];
const EMPTY: [Flaw; 3] = [Flaw::Mac, Flaw::Padding, Flaw::Both];

/// What is found of a suite; `None` without a handshake, or none until `end`.
fn judge(
    contact: &Contact,
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
        let accepts = Some(reactions[1].is_answer());
        let is_one = |all: &[Reaction]| all.windows(2).all(|pair| pair[0] == pair[1]);
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

/// What a server does with one record after a handshake; `None` without a handshake.
fn react(
    contact: &Contact,
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
            Err(_) => Reaction { seen: Vec::new(), end: Some(End::Closed) },
        }));
    }
    Ok(None)
}

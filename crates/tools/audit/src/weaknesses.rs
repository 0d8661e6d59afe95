//! Known weaknesses, found by a server's behaviour. A probe stops once the weakness is shown: none makes a server
//! reveal memory other than one byte of Ticketbleed, and each ends at most its own connection.

use std::time::Duration;

use brisk_wire::offer::{extension, handshake, record};
use brisk_wire::registry::{CipherSuite, ProtocolVersion};
use brisk_wire::server_flight::Part;
use brisk_wire::suites::Exchange;
use serde::Serialize;

use crate::contact::{AuditConnection, AuditTarget, ConnectionEnd};
use crate::error::AuditError;
use crate::protocols::{Protocols, offer};
use crate::rsa::Key;
use crate::{cbc, random, tls12};

/// Timeout for responses that are optional.
pub(crate) const SILENCE: Duration = Duration::from_millis(1500);

/// Results; `None` if a weakness cannot be judged, or the server lacks the feature.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Weaknesses {
    /// Heartbeats reveal memory (Heartbleed, CVE-2014-0160).
    pub heartbleed: Option<bool>,
    /// Whether the server accepts an early `change_cipher_spec` (CVE-2014-0224).
    pub early_ccs: Option<bool>,
    /// RSA decryption is an oracle (ROBOT).
    pub robot: Option<bool>,
    /// The server accepts a wrong padding of block ciphers (POODLE against TLS).
    pub padding_accepted: Option<bool>,
    /// The server reacts differently to a wrong padding and to a wrong MAC (GOLDENDOODLE, Zombie POODLE,
    /// CVE-2019-1559).
    pub padding_oracle: Option<bool>,
    /// Session IDs are completed from memory (Ticketbleed, CVE-2016-9244).
    pub ticketbleed: Option<bool>,
    /// Clients may renegotiate.
    pub client_renegotiation: Option<bool>,
    /// Lifetime of a TLS 1.2 ticket in seconds.
    pub ticket_lifetime: Option<u32>,
}

/// Runs all tests of [`Weaknesses`].
pub(crate) fn find(contact: &AuditTarget, protocols: &Protocols) -> Result<Weaknesses, AuditError> {
    let mut found = Weaknesses::default();
    let Some(version) = protocols.newest_before_13() else { return Ok(found) };
    let own = protocols.suites().filter(|(own, _)| *own == version);
    let suites: Vec<_> = own.map(|(_, suite)| suite.code).collect();
    // RFC 6520 section 2 negotiates heartbeats by an extension, which SSL 3.0 does not have.
    if version > ProtocolVersion::SSL3_0 {
        found.heartbleed = heartbleed(contact, version, suites.clone())?;
    }
    found.early_ccs = early_ccs(contact, version, suites)?;
    found.robot = robot(contact, protocols)?;
    let padding = cbc::find(contact, protocols)?;
    (found.padding_accepted, found.padding_oracle) = (padding.accepts, padding.differs);
    found.client_renegotiation = tls12::renegotiates(contact, protocols)?;
    if let Some(session) = tls12::connect(contact, protocols)?
        && let Some(ticket) = &session.ticket
    {
        found.ticket_lifetime = Some(ticket.lifetime);
        found.ticketbleed = tls12::bleeds_ids(contact, &ticket.ticket, session.hello.suite)?;
    }
    Ok(found)
}

/// Size of a heartbeat. All bytes are sent, so a vulnerable server has nothing to add.
const BEAT: usize = 16;

/// A heartbeat without its padding, which a correct server drops (RFC 6520 section 4). A server that does not compare
/// the lengths returns the received bytes and nothing else.
fn heartbleed(
    contact: &AuditTarget,
    version: ProtocolVersion,
    suites: Vec<CipherSuite>,
) -> Result<Option<bool>, AuditError> {
    contact.step("Heartbleed");
    let asked = offer(contact, version, suites)?.with(extension::HEARTBEAT, vec![1]);
    let (answer, mut line) = contact.ask_keeping(&asked)?;
    let Some(hello) = answer.agreed(version) else { return Ok(None) };
    // RFC 6520 section 2: a heartbeat must not be sent to a server that has not agreed to heartbeats.
    if hello.extension(extension::HEARTBEAT).is_none() {
        return Ok(Some(false));
    }
    line.hurry(SILENCE);
    let own = random::bytes::<BEAT>()?;
    if line.send(&record(24, version, &[&[1, 0, BEAT as u8][..], &own].concat())).is_err() {
        return Ok(None);
    }
    Ok(Some(match line.part() {
        Ok(Part::Heartbeat(body)) => body.first() == Some(&2) && body.get(3..3 + BEAT) == Some(&own[..]),
        _ => false,
    }))
}

/// Sends `change_cipher_spec` before the key exchange. A correct server refuses it. A vulnerable one decrypts the next
/// record with empty keys and fails in another way.
fn early_ccs(
    contact: &AuditTarget,
    version: ProtocolVersion,
    suites: Vec<CipherSuite>,
) -> Result<Option<bool>, AuditError> {
    contact.step("CCS injection");
    let (answer, mut line) = contact.ask_keeping(&offer(contact, version, suites)?)?;
    if answer.agreed(version).is_none() || answer.end.is_some() {
        return Ok(None);
    }
    line.hurry(SILENCE * 2);
    let mut bytes = record(20, version, &[1]);
    bytes.extend(record(22, version, &random::bytes::<40>()?));
    if line.send(&bytes).is_err() {
        return Ok(None);
    }
    Ok(match line.part() {
        // `decryption_failed` or `bad_record_mac`: the server took the message and tried to decrypt.
        Ok(Part::Alert(Some((_, 20 | 21)) | None)) => Some(true),
        Ok(_) | Err(ConnectionEnd::Closed | ConnectionEnd::Broken) => Some(false),
        Err(_) => None,
    })
}

/// Reaction of a server to a premaster secret of some form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reaction {
    Alert(Option<u8>),
    End(ConnectionEnd),
    Other,
}

/// Bleichenbacher's oracle (RFC 8446 appendix C; ROBOT, 2018): whether the reaction depends on the form of the
/// decrypted block.
fn robot(contact: &AuditTarget, protocols: &Protocols) -> Result<Option<bool>, AuditError> {
    contact.step("ROBOT");
    // Of a server that does not answer, no one knows whether it has such suites.
    let none = protocols.is_whole().then_some(false);
    let rsa = protocols.suites().filter(|(version, suite)| {
        *version >= ProtocolVersion::TLS1_0 && suite.exchange == Exchange::Rsa && !suite.is_export
    });
    let Some((version, suite)) = rsa.max_by_key(|(version, _)| *version) else { return Ok(none) };
    // Some servers show it only where nothing follows the key exchange.
    let whole = differs(contact, version, suite.code, Follows::Finished)?;
    if whole == Some(true) {
        return Ok(whole);
    }
    let alone = differs(contact, version, suite.code, Follows::Nothing)?;
    // `Some(false)` only if both tests have a result.
    Ok(if alone == Some(true) { alone } else { whole.and(alone) })
}

/// Messages after the premaster secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follows {
    /// `ChangeCipherSpec` and an imitation of `Finished`.
    Finished,
    /// None: a correct server waits.
    Nothing,
}

/// Whether the reactions differ in the same way twice; `None` if they are not repeatable.
fn differs(
    contact: &AuditTarget,
    version: ProtocolVersion,
    suite: CipherSuite,
    follows: Follows,
) -> Result<Option<bool>, AuditError> {
    let mut first = None;
    for _ in 0..2 {
        let mut reactions = Vec::new();
        for form in FORMS {
            match react(contact, version, suite, *form, follows)? {
                Some(reaction) => reactions.push(reaction),
                None => return Ok(None),
            }
        }
        if reactions.windows(2).all(|pair| pair[0] == pair[1]) {
            return Ok(Some(false));
        }
        // The network may have made the difference: the same one twice is the server's.
        if first.as_ref() == Some(&reactions) {
            return Ok(Some(true));
        }
        first = Some(reactions);
    }
    Ok(None)
}

/// Creates a padded premaster secret from random bytes without zeros.
type Form = fn(&mut [u8], ProtocolVersion);

/// A correct block, and four with the flaws that known leaks depend on.
const FORMS: &[Form] = &[
    |block, version| padded(block, 49, version),
    |block, version| {
        padded(block, 49, version);
        block[0] = 0x41;
        block[1] = 0x17;
    },
    // `Key::filling` has no zero byte, so the padding of this block has no end.
    |block, _| block[..2].copy_from_slice(&[0, 2]),
    |block, version| {
        // A premaster secret of two bytes instead of 48.
        padded(block, 3, version);
    },
    |block, _| padded(block, 49, ProtocolVersion(0x0202)),
];

/// Padding of RFC 8017 section 7.2.1 with the zero `distance` bytes before the end.
fn padded(block: &mut [u8], distance: usize, version: ProtocolVersion) {
    block[..2].copy_from_slice(&[0, 2]);
    let zero = block.len() - distance;
    block[zero] = 0;
    block[zero + 1..zero + 3].copy_from_slice(&version.0.to_be_bytes());
}

fn react(
    contact: &AuditTarget,
    version: ProtocolVersion,
    suite: CipherSuite,
    form: Form,
    follows: Follows,
) -> Result<Option<Reaction>, AuditError> {
    let (answer, mut line) = contact.ask_keeping(&offer(contact, version, vec![suite])?)?;
    let Some(key) = answer.certificates.first().and_then(|der| Key::of(der)) else { return Ok(None) };
    if answer.agreed(version).is_none() {
        return Ok(None);
    }
    let mut block = key.filling()?;
    form(&mut block, version);
    let body = key.exchange(&block);
    let mut bytes = record(22, version, &handshake(16, &body));
    if follows == Follows::Finished {
        bytes.extend(record(20, version, &[1]));
        bytes.extend(record(22, version, &random::bytes::<64>()?));
    }
    // A correct server waits for `Finished` in silence, so that each of these blocks costs the whole timeout.
    line.hurry(if follows == Follows::Finished { SILENCE * 2 } else { SILENCE });
    Ok(Some(match line.send(&bytes) {
        Ok(()) => reaction(&mut line),
        Err(end) => Reaction::End(end),
    }))
}

fn reaction(line: &mut AuditConnection) -> Reaction {
    match line.part() {
        Ok(Part::Alert(alert)) => Reaction::Alert(alert.map(|(_, description)| description)),
        Ok(_) => Reaction::Other,
        // Whether the system reports an end or a reset depends on what it had read.
        Err(ConnectionEnd::Broken) => Reaction::End(ConnectionEnd::Closed),
        Err(end) => Reaction::End(end),
    }
}

//! TLS 1.2 handshakes without a TLS library, for tests that libraries do not allow: renegotiation, raw tickets.
//!
//! The server is not authenticated: neither certificate nor signature nor `Finished` is verified, and no secret data is
//! sent. Suites: ECDHE with AES-GCM, on X25519 and secp256r1, and AES-CBC with ECDHE or RSA for [`cbc`].

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::{digest, hmac};
use brisk_wire::offer::{extension, handshake, record};
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion};
use brisk_wire::server_flight::{self, Exchanged, Part, ServerHello, SessionTicket};
use brisk_wire::suites::{self, Exchange};

use crate::contact::{AuditConnection, AuditTarget, ConnectionEnd};
use crate::error::AuditError;
use crate::protocols::{Protocols, offer};
use crate::rsa::Key;
use crate::{cbc, random};

const V12: ProtocolVersion = ProtocolVersion::TLS1_2;

/// Supported suites with AES-GCM.
const SUITES: [u16; 4] = [0xc02f, 0xc02b, 0xc030, 0xc02c];

/// A connection after its handshake.
pub(crate) struct Session {
    pub(crate) line: AuditConnection,
    pub(crate) hello: ServerHello,
    pub(crate) ticket: Option<SessionTicket>,
    /// The client's `verify_data`, which a renegotiation contains.
    pub(crate) verify_data: Vec<u8>,
    sealer: Sealer,
}

impl Session {
    /// Sends an encrypted handshake message.
    pub(crate) fn send_handshake(&mut self, message: &[u8]) -> Result<(), ConnectionEnd> {
        let bytes = self.sealer.seal(22, message).ok_or(ConnectionEnd::Broken)?;
        self.line.send(&bytes)
    }

    /// Sends application data of a block cipher with this [`Flaw`](cbc::Flaw).
    pub(crate) fn send_flawed(&mut self, plaintext: &[u8], flaw: cbc::Flaw) -> Result<(), ConnectionEnd> {
        let Sealer::Cbc(sealer) = &mut self.sealer else { return Err(ConnectionEnd::Broken) };
        let bytes = sealer.seal(23, plaintext, flaw).ok_or(ConnectionEnd::Broken)?;
        self.line.send(&bytes)
    }
}

/// Full handshake with [`SUITES`]; `None` if the server has no supported suite, or ends the handshake.
pub(crate) fn connect(contact: &AuditTarget, protocols: &Protocols) -> Result<Option<Session>, AuditError> {
    connect_with(contact, protocols, &SUITES)
}

/// Full handshake with the suites of `suites` that the server accepts.
pub(crate) fn connect_with(
    contact: &AuditTarget,
    protocols: &Protocols,
    suites: &[u16],
) -> Result<Option<Session>, AuditError> {
    let own = protocols.suites().filter(|(version, suite)| *version == V12 && suites.contains(&suite.code.0));
    let suites: Vec<CipherSuite> = own.map(|(_, suite)| suite.code).collect();
    if suites.is_empty() {
        return Ok(None);
    }
    // `offer` names more groups than `agree` supports, and the server selects one of them.
    let asked = offer(contact, V12, suites.clone())?.without(&[extension::GROUPS, extension::POINT_FORMATS]);
    let asked =
        asked.groups(&[NamedGroup::X25519, NamedGroup::SECP256R1]).with(extension::TICKET, Vec::new());
    let mut line = contact.open()?;
    let mut transcript = asked.message();
    if line.send(&asked.to_bytes()).is_err() {
        return Ok(None);
    }
    // A suite outside of the offer is not followed: the lengths of its keys are not known here.
    let flight = flight(&mut line, &mut transcript).filter(|flight| suites.contains(&flight.hello.suite));
    let Some(flight) = flight else { return Ok(None) };
    let Some(agreed) = flight.exchange.perform()? else { return Ok(None) };
    Ok(finish(line, transcript, flight, &asked.random, &agreed))
}

/// First flight of the server.
struct Flight {
    hello: ServerHello,
    exchange: Agreement,
    wants_certificate: bool,
}

/// Key exchange.
enum Agreement {
    Curve { group: NamedGroup, point: Vec<u8> },
    Rsa(Key),
}

fn flight(line: &mut AuditConnection, transcript: &mut Vec<u8>) -> Option<Flight> {
    let (mut hello, mut exchange, mut key, mut wants_certificate) = (None, None, None, false);
    loop {
        let Part::Handshake(kind, body) = line.part().ok()? else { return None };
        // RFC 5246 section 7.4.9: `Finished` covers every message before it, so messages without a meaning
        // here count too.
        transcript.extend(handshake(kind, &body));
        match kind {
            2 => hello = ServerHello::read(&body).ok(),
            11 => key = server_flight::certificates(&body).ok()?.first().and_then(|der| Key::of(der)),
            12 => {
                let own: &ServerHello = hello.as_ref()?;
                exchange = server_flight::key_exchange(&body, suites::find(own.suite)?, own.version).ok();
            }
            13 => wants_certificate = true,
            14 => break,
            _ => {}
        }
    }
    let hello: ServerHello = hello?;
    let exchange = match (suites::find(hello.suite)?.exchange, exchange) {
        // RFC 5246 section 7.4.3: `ServerKeyExchange` is not legal with RSA suites; a server that sends one
        // is not followed.
        (Exchange::Rsa, None) => Agreement::Rsa(key?),
        (_, Some(Exchanged::Curve { group, point, .. })) => Agreement::Curve { group, point },
        _ => return None,
    };
    Some(Flight { hello, exchange, wants_certificate })
}

/// Completes the handshake.
fn finish(
    mut line: AuditConnection,
    mut transcript: Vec<u8>,
    flight: Flight,
    client: &[u8; 32],
    agreed: &Agreed,
) -> Option<Session> {
    let Flight { hello, wants_certificate, .. } = flight;
    let mut messages = Vec::new();
    // RFC 5246 section 7.4.6: a client without a certificate sends an empty list. Servers that only request
    // one continue.
    if wants_certificate {
        messages.extend(handshake(11, &[0, 0, 0]));
    }
    messages.extend(handshake(16, &agreed.body));
    transcript.extend(&messages);
    let hash = Hash::of(hello.suite);
    let server = hello.random;
    // RFC 5246 section 8.1. The hello does not offer `extended_master_secret`, so the seed consists of both
    // randoms.
    let master = hash.prf(&agreed.secret, b"master secret", &[&client[..], &server].concat(), 48);
    // RFC 5246 section 6.3: here the server's random is first, unlike in the seed of the master secret.
    let keys = hash.prf(&master, b"key expansion", &[&server[..], client].concat(), KEYS);
    let verify_data = hash.prf(&master, b"client finished", &hash.digest(&transcript), 12);
    let mut sealer = Sealer::new(hello.suite, hash, &keys)?;
    let mut bytes = record(22, V12, &messages);
    bytes.extend(record(20, V12, &[1]));
    bytes.extend(sealer.seal(22, &handshake(20, &verify_data))?);
    line.send(&bytes).ok()?;
    let mut ticket = None;
    let mut is_encrypted = false;
    loop {
        match line.part().ok()? {
            Part::Handshake(4, body) => ticket = server_flight::session_ticket(&body).ok(),
            Part::ChangeCipherSpec => is_encrypted = true,
            // The server's `Finished`: it has accepted the client's.
            Part::Data(_) if is_encrypted => {
                return Some(Session { line, hello, ticket, verify_data, sealer });
            }
            Part::Handshake(..) => {}
            _ => return None,
        }
    }
}

/// Size of the largest key block in bytes: two keys of HMAC-SHA384 and two of AES-256.
const KEYS: usize = 2 * (48 + 32);

/// Result of the key exchange.
struct Agreed {
    /// Body of the client's message.
    body: Vec<u8>,
    /// Premaster secret.
    secret: Vec<u8>,
}

impl Agreement {
    /// The client's part; `None` if the server's share is invalid.
    fn perform(&self) -> Result<Option<Agreed>, AuditError> {
        match self {
            Self::Curve { group, point } => {
                let agreed = agree(*group, point);
                Ok(agreed.map(|(share, secret)| Agreed {
                    body: [&[share.len() as u8][..], &share].concat(),
                    secret,
                }))
            }
            Self::Rsa(key) => {
                // RFC 5246 section 7.4.7.1: the secret begins with the offered version, by which servers
                // detect a rollback.
                let secret = [&[3, 3][..], &random::bytes::<46>()?].concat();
                let mut block = key.filling()?;
                // RFC 8017 section 7.2.1.
                let zero = block.len() - secret.len() - 1;
                block[..2].copy_from_slice(&[0, 2]);
                block[zero] = 0;
                block[zero + 1..].copy_from_slice(&secret);
                Ok(Some(Agreed { body: key.exchange(&block), secret }))
            }
        }
    }
}

fn agree(group: NamedGroup, point: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let algorithm = if group == NamedGroup::X25519 { &X25519 } else { &ECDH_P256 };
    let own = EphemeralPrivateKey::generate(algorithm, &SystemRandom::new()).ok()?;
    let share = own.compute_public_key().ok()?.as_ref().to_vec();
    let peer = UnparsedPublicKey::new(algorithm, point);
    let secret = agree_ephemeral(own, peer, (), |secret| Ok(secret.to_vec())).ok()?;
    Some((share, secret))
}

/// Hash and encryption of a suite.
#[derive(Clone, Copy)]
pub(crate) struct Hash {
    mac: hmac::Algorithm,
    digest: &'static digest::Algorithm,
    /// Size of a key in bytes.
    key: usize,
}

impl Hash {
    pub(crate) fn of(suite: CipherSuite) -> Self {
        if [0xc030, 0xc02c, 0xc024, 0xc028].contains(&suite.0) {
            return Self { mac: hmac::HMAC_SHA384, digest: &digest::SHA384, key: 32 };
        }
        // RFC 5246 section 5: the PRF uses SHA-256, also for suites whose MAC is SHA-1.
        Self { mac: hmac::HMAC_SHA256, digest: &digest::SHA256, key: 16 }
    }

    fn digest(&self, bytes: &[u8]) -> Vec<u8> {
        digest::digest(self.digest, bytes).as_ref().to_vec()
    }

    // RFC 5246 section 5.
    pub(crate) fn prf(&self, secret: &[u8], label: &[u8], seed: &[u8], length: usize) -> Vec<u8> {
        let key = hmac::Key::new(self.mac, secret);
        let seed = [label, seed].concat();
        let mut a = seed.clone();
        let mut out = Vec::with_capacity(length + 48);
        while out.len() < length {
            a = hmac::sign(&key, &a).as_ref().to_vec();
            out.extend_from_slice(hmac::sign(&key, &[&a[..], &seed].concat()).as_ref());
        }
        out.truncate(length);
        out
    }
}

/// Encryption of the client's records.
enum Sealer {
    Gcm(GcmSealer),
    Cbc(Box<cbc::Sealer>),
}

impl Sealer {
    fn new(suite: CipherSuite, hash: Hash, keys: &[u8]) -> Option<Self> {
        let Some(protection) = cbc::protection(suite) else {
            return GcmSealer::new(hash, keys).map(Self::Gcm);
        };
        // RFC 5246 section 6.3: both MAC keys, then both keys.
        let mac = protection.mac.digest_algorithm().output_len();
        let key = keys.get(2 * mac..2 * mac + protection.key)?;
        cbc::Sealer::new(protection, keys.get(..mac)?, key).map(Box::new).map(Self::Cbc)
    }

    fn seal(&mut self, kind: u8, plaintext: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Gcm(sealer) => sealer.seal(kind, plaintext),
            Self::Cbc(sealer) => sealer.seal(kind, plaintext, cbc::Flaw::None),
        }
    }
}

/// Encryption with AES-GCM (RFC 5288).
struct GcmSealer {
    key: LessSafeKey,
    salt: [u8; 4],
    sequence: u64,
}

impl GcmSealer {
    fn new(hash: Hash, keys: &[u8]) -> Option<Self> {
        let algorithm = if hash.key == 32 { &AES_256_GCM } else { &AES_128_GCM };
        let key = UnboundKey::new(algorithm, keys.get(..hash.key)?).ok()?;
        // RFC 5288 section 3: AEAD suites have no MAC keys, and the client's implicit nonce follows both
        // keys.
        let salt = keys.get(2 * hash.key..2 * hash.key + 4)?.try_into().ok()?;
        Some(Self { key: LessSafeKey::new(key), salt, sequence: 0 })
    }

    fn seal(&mut self, kind: u8, plaintext: &[u8]) -> Option<Vec<u8>> {
        // RFC 5288 section 3: the sequence number as explicit nonce never repeats under one key.
        let explicit = self.sequence.to_be_bytes();
        let nonce: [u8; 12] = [&self.salt[..], &explicit].concat().try_into().ok()?;
        let length = (plaintext.len() as u16).to_be_bytes();
        let aad = [&explicit[..], &[kind, 3, 3], &length].concat();
        let mut sealed = plaintext.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, Aad::from(aad), &mut sealed).ok()?;
        self.sequence += 1;
        Some(record(kind, V12, &[&explicit[..], &sealed].concat()))
    }
}

/// Requests a second handshake on the connection: `None` without a first one, otherwise whether the server begins it.
pub(crate) fn renegotiates(contact: &AuditTarget, protocols: &Protocols) -> Result<Option<bool>, AuditError> {
    contact.step("renegotiation");
    let Some(mut session) = connect(contact, protocols)? else { return Ok(None) };
    // RFC 5746 section 3.5: in a renegotiation, the extension contains the client's `verify_data`. The empty
    // one of `offer` would be a reason for a refusal.
    let mut asked = offer(contact, V12, vec![session.hello.suite])?.without(&[extension::RENEGOTIATION]);
    if session.hello.extension(extension::RENEGOTIATION).is_some() {
        let own = [&[session.verify_data.len() as u8][..], &session.verify_data].concat();
        asked = asked.with(extension::RENEGOTIATION, own);
    }
    if session.send_handshake(&asked.message()).is_err() {
        return Ok(None);
    }
    session.line.hurry(crate::weaknesses::SILENCE);
    // Encrypted or not: a handshake record is the hello of the second handshake, everything else a refusal.
    Ok(Some(matches!(session.line.part(), Ok(Part::Data(_) | Part::Handshake(..)))))
}

/// Length of the short session ID; a vulnerable server returns it one byte longer, the smallest proof.
const ID: usize = 31;

/// Tests for Ticketbleed (CVE-2016-9244): offers one of the server's tickets with a session ID that is one byte too
/// short, and checks whether the server completes it from its memory. `None` without a response.
pub(crate) fn bleeds_ids(
    contact: &AuditTarget,
    ticket: &[u8],
    suite: CipherSuite,
) -> Result<Option<bool>, AuditError> {
    contact.step("Ticketbleed");
    let mut asked = offer(contact, V12, vec![suite])?.with(extension::TICKET, ticket.to_vec());
    asked.session_id = random::bytes::<ID>()?.to_vec();
    let answer = contact.ask(&asked)?;
    // A new session ID of the server may also be longer; only the offered one with an additional byte is a
    // leak.
    Ok(answer
        .agreed(V12)
        .map(|hello| hello.session_id.len() > ID && hello.session_id.starts_with(&asked.session_id)))
}

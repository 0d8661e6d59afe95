//! The records of each direction, opened, and the handshake messages in them.

use std::time::Instant;

use brisk_wire::registry::{CipherSuite, ProtocolVersion};

use crate::capture::{Noted, Party};
use crate::message::{self, Hello};
use crate::open::Opener;

const HEADER: usize = 5;

/// Records noted of each direction.
const MOST: usize = 4096;

/// Handshake bytes gathered of each direction.
const GATHERED: usize = 256 * 1024;

/// What a record carries: its type, once it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// `change_cipher_spec`
    ChangeCipherSpec,
    /// `alert`
    Alert,
    /// `handshake`
    Handshake,
    /// `application_data`
    ApplicationData,
    /// Of a type that TLS does not have, or one that cannot be opened.
    Unknown,
}

impl Content {
    const fn of(kind: u8) -> Self {
        match kind {
            20 => Self::ChangeCipherSpec,
            21 => Self::Alert,
            22 => Self::Handshake,
            23 => Self::ApplicationData,
            _ => Self::Unknown,
        }
    }

    /// The name in RFC 8446 section 5.1.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ChangeCipherSpec => "change_cipher_spec",
            Self::Alert => "alert",
            Self::Handshake => "handshake",
            Self::ApplicationData => "application_data",
            Self::Unknown => "unknown",
        }
    }
}

/// A record.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) from: Party,
    /// Where its header begins among all bytes of its direction.
    pub(crate) offset: u64,
    /// Bytes with the header.
    pub(crate) len: usize,
    pub(crate) content: Content,
    pub(crate) is_encrypted: bool,
    /// Bytes that it carries, if it could be opened.
    pub(crate) plaintext: Option<usize>,
    /// Level and description.
    pub(crate) alert: Option<(u8, u8)>,
    /// When its last byte was there.
    pub(crate) at: Instant,
}

/// A handshake message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) from: Party,
    /// Its type; `None` where it could not be read (TLS 1.2 encrypts `Finished`).
    pub(crate) kind: Option<u8>,
    /// Bytes with the header.
    pub(crate) len: usize,
    /// The record that it begins in, among those of its direction.
    pub(crate) record: usize,
    /// Records that it spans.
    pub(crate) records: usize,
    pub(crate) body: Vec<u8>,
    pub(crate) at: Instant,
}

/// Both directions of a connection, as far as they could be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wire {
    pub(crate) client: Vec<Record>,
    pub(crate) server: Vec<Record>,
    /// Of both directions, by time.
    pub(crate) messages: Vec<Message>,
    /// The server's choice; that of a `HelloRetryRequest` comes first.
    pub(crate) hellos: Vec<Hello>,
}

impl Wire {
    /// Reads what was noted. Never fails: what cannot be read ends the list.
    pub(crate) fn read(noted: &Noted) -> Self {
        let hellos = server_hellos(&noted.server.bytes);
        let chosen = hellos.iter().find(|hello| !hello.is_retry);
        let version = chosen.map_or(ProtocolVersion::TLS1_2, |hello| hello.version);
        let suite = chosen.filter(|_| version == ProtocolVersion::TLS1_3).map(|hello| hello.suite);
        let overhead = chosen.map_or(0, |hello| overhead(hello.suite));
        let read = |party, labels: &[&str]| {
            let secrets = labels.iter().filter_map(|label| noted.secret(label));
            Reader::new(party, suite.map(|suite| Opener::new(suite, secrets)), overhead).read(noted)
        };
        let early =
            ["CLIENT_EARLY_TRAFFIC_SECRET", "CLIENT_HANDSHAKE_TRAFFIC_SECRET", "CLIENT_TRAFFIC_SECRET_0"];
        let client = read(Party::Client, &early);
        let server = read(Party::Server, &["SERVER_HANDSHAKE_TRAFFIC_SECRET", "SERVER_TRAFFIC_SECRET_0"]);
        let mut messages = client.messages;
        messages.extend(server.messages);
        messages.sort_by_key(|message| message.at);
        Self { client: client.records, server: server.records, messages, hellos }
    }

    /// The records that `party` sent.
    pub(crate) fn from(&self, party: Party) -> &[Record] {
        match party {
            Party::Client => &self.client,
            Party::Server => &self.server,
        }
    }

    /// The hello that was not a `HelloRetryRequest`.
    pub(crate) fn chosen(&self) -> Option<&Hello> {
        self.hellos.iter().find(|hello| !hello.is_retry)
    }

    /// The first message of this type from `party`.
    pub(crate) fn message(&self, party: Party, kind: u8) -> Option<&Message> {
        self.messages.iter().find(|message| message.from == party && message.kind == Some(kind))
    }
}

/// Bytes that a suite of TLS 1.2 adds to a record: a tag, and AES-GCM a nonce (RFC 5288, RFC 7905).
fn overhead(suite: CipherSuite) -> usize {
    let is_chacha = matches!(
        suite,
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
    );
    if is_chacha { 16 } else { 24 }
}

/// The hellos at the beginning of what the server sent, which are not encrypted.
pub(crate) fn server_hellos(bytes: &[u8]) -> Vec<Hello> {
    let mut hellos = Vec::new();
    let (mut rest, mut handshake) = (bytes, Vec::new());
    while let Some((header, payload, after)) = split(rest) {
        rest = after;
        match header[0] {
            20 => continue,
            21 if is_warning(payload) => continue,
            22 if handshake.len() + payload.len() <= GATHERED => handshake.extend_from_slice(payload),
            _ => break,
        }
        if hellos.len() == 2 || !whole(&handshake) {
            continue;
        }
        let (message, _) = first(&handshake).expect("it is whole");
        if message.0 != message::SERVER_HELLO {
            break;
        }
        let Some(hello) = Hello::read(message.1) else { break };
        let is_retry = hello.is_retry;
        hellos.push(hello);
        if !is_retry {
            break;
        }
        handshake.clear();
    }
    hellos
}

/// An alert behind which the handshake goes on, such as `unrecognized_name` in TLS 1.2 (RFC 5246 section 7.2).
pub(crate) fn is_warning(alert: &[u8]) -> bool {
    matches!(alert, [1, description] if *description != 0)
}

/// Header, payload and the rest, where the record is whole.
pub(crate) fn split(bytes: &[u8]) -> Option<(&[u8; HEADER], &[u8], &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
    let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
    let (payload, after) = rest.split_at_checked(len)?;
    Some((header, payload, after))
}

fn whole(handshake: &[u8]) -> bool {
    first(handshake).is_some()
}

/// Type and body of a message.
type Part<'a> = (u8, &'a [u8]);

/// The first message, and what follows it.
fn first(handshake: &[u8]) -> Option<(Part<'_>, &[u8])> {
    let &[kind, high, middle, low, ref rest @ ..] = handshake else { return None };
    let len = u32::from_be_bytes([0, high, middle, low]) as usize;
    let (body, after) = rest.split_at_checked(len)?;
    Some(((kind, body), after))
}

/// Reads one direction.
struct Reader {
    party: Party,
    /// `None` before TLS 1.3.
    opener: Option<Opener>,
    records: Vec<Record>,
    messages: Vec<Message>,
    /// Handshake bytes that are no whole message yet, and the record that they begin in.
    gathered: Vec<u8>,
    begun: usize,
    /// TLS 1.2: what encryption adds to a record.
    overhead: usize,
    /// TLS 1.2: everything behind `change_cipher_spec` is encrypted.
    changed: bool,
}

impl Reader {
    fn new(party: Party, opener: Option<Opener>, overhead: usize) -> Self {
        let (records, messages, gathered) = (Vec::new(), Vec::new(), Vec::new());
        Self { party, opener, records, messages, gathered, begun: 0, overhead, changed: false }
    }

    fn read(mut self, noted: &Noted) -> Self {
        let direction = noted.from(self.party);
        let mut offset = 0;
        while self.records.len() < MOST
            && let Some((header, payload, _)) = split(&direction.bytes[offset..])
        {
            let len = HEADER + payload.len();
            let Some(at) = direction.time_of((offset + len) as u64) else { break };
            self.record(*header, payload, offset as u64, at);
            offset += len;
        }
        self
    }

    fn record(&mut self, header: [u8; HEADER], payload: &[u8], offset: u64, at: Instant) {
        let outer = Content::of(header[0]);
        let is_encrypted = match &self.opener {
            Some(_) => outer == Content::ApplicationData,
            None => self.changed,
        };
        let opened = match &mut self.opener {
            Some(opener) if is_encrypted => opener.open(header, payload),
            _ if is_encrypted => None,
            _ => Some((header[0], payload.to_vec())),
        };
        let content = match &opened {
            Some((kind, _)) => Content::of(*kind),
            None if self.opener.is_some() => Content::Unknown,
            None => outer,
        };
        let alert = match (&opened, content) {
            (Some((_, body)), Content::Alert) => body.first().copied().zip(body.get(1).copied()),
            _ => None,
        };
        let plaintext = match &opened {
            Some((_, body)) => Some(body.len()),
            None if self.opener.is_none() => payload.len().checked_sub(self.overhead),
            None => None,
        };
        let len = HEADER + payload.len();
        self.records.push(Record {
            from: self.party,
            offset,
            len,
            content,
            is_encrypted,
            plaintext,
            alert,
            at,
        });
        self.changed |= self.opener.is_none() && outer == Content::ChangeCipherSpec;
        match (content, opened) {
            (Content::Handshake, Some((_, body))) => self.handshake(&body, at),
            (Content::Handshake, None) => self.message(None, plaintext.unwrap_or(payload.len()), &[], at),
            _ => {}
        }
    }

    fn handshake(&mut self, bytes: &[u8], at: Instant) {
        if self.gathered.is_empty() {
            self.begun = self.records.len() - 1;
        }
        if self.gathered.len() + bytes.len() > GATHERED {
            return;
        }
        self.gathered.extend_from_slice(bytes);
        let gathered = std::mem::take(&mut self.gathered);
        let mut rest = &gathered[..];
        while let Some(((kind, body), after)) = first(rest) {
            self.message(Some(kind), 4 + body.len(), body, at);
            self.begun = self.records.len() - 1;
            rest = after;
        }
        self.gathered = rest.to_vec();
    }

    fn message(&mut self, kind: Option<u8>, len: usize, body: &[u8], at: Instant) {
        let record = if kind.is_some() { self.begun } else { self.records.len() - 1 };
        let records = self.records.len() - record;
        let body = body.to_vec();
        self.messages.push(Message { from: self.party, kind, len, record, records, body, at });
    }
}

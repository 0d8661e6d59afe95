//! Records of both directions, decrypted where possible, and their handshake messages.

use std::time::Instant;

use brisk_wire::registry::{CipherSuite, ProtocolVersion};
use brisk_wire::suites;

use crate::message::{self, ServerChoice, Ticket};
use crate::opener::{OpenedRecord, RecordOpener};
use crate::recording::{Party, Recording};

const HEADER: usize = 5;

/// Records kept of each direction.
const RECORDS: usize = 4096;

/// Handshake bytes reassembled in each direction.
const GATHERED: usize = 256 * 1024;

/// Content type of a record; of an encrypted record, the type inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentType {
    /// `change_cipher_spec`
    ChangeCipherSpec,
    /// `alert`
    Alert,
    /// `handshake`
    Handshake,
    /// `application_data`
    ApplicationData,
    /// A type unknown to TLS, or a record that cannot be decrypted.
    Unknown,
}

impl ContentType {
    pub(crate) const fn of(kind: u8) -> Self {
        match kind {
            20 => Self::ChangeCipherSpec,
            21 => Self::Alert,
            22 => Self::Handshake,
            23 => Self::ApplicationData,
            _ => Self::Unknown,
        }
    }

    /// Name in RFC 8446 section 5.1.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ChangeCipherSpec => "change_cipher_spec",
            Self::Alert => "alert",
            Self::Handshake => "handshake",
            Self::ApplicationData => "application_data",
            Self::Unknown => "unknown",
        }
    }
}

/// A TLS record.
#[derive(Clone, Debug)]
pub struct Record {
    /// Sender.
    pub from: Party,
    /// Offset of the header in the bytes of its direction.
    pub offset: u64,
    /// Size in bytes with the header.
    pub len: usize,
    /// Content type.
    pub content: ContentType,
    /// The payload is encrypted.
    pub is_encrypted: bool,
    /// Size of the content in bytes, if it is known.
    pub plaintext: Option<usize>,
    /// Level and description of an alert.
    pub alert: Option<(u8, u8)>,
    /// Time of the last byte.
    pub at: Instant,
}

/// A handshake message, possibly in several records.
#[derive(Clone, Debug)]
pub struct Message {
    /// Sender.
    pub from: Party,
    /// Type; `None` for an encrypted message of TLS 1.2 (`Finished`).
    pub kind: Option<u8>,
    /// Size in bytes with the header.
    pub len: usize,
    /// Index of its first record among the records of its direction.
    pub record: usize,
    /// Number of records that contain parts of the message.
    pub records: usize,
    /// Body without the header.
    pub body: Vec<u8>,
    /// Time of the last byte.
    pub at: Instant,
}

/// Records and handshake messages of a recorded connection.
#[derive(Clone, Debug, Default)]
pub struct ConnectionView {
    /// Records from the client.
    pub client: Vec<Record>,
    /// Records from the server.
    pub server: Vec<Record>,
    /// Handshake messages of both directions, by time.
    pub messages: Vec<Message>,
    /// Hellos from the server: a `HelloRetryRequest`, if there was one, and the `ServerHello`.
    pub hellos: Vec<ServerChoice>,
}

impl ConnectionView {
    /// Parses a recording. Never fails: lists end before the first malformed record.
    pub fn read(recording: &Recording) -> Self {
        // Read first: the keys of both directions depend on the server's choice.
        let hellos = server_hellos(&recording.server.bytes);
        let chosen = hellos.iter().find(|hello| !hello.is_retry);
        let overhead = chosen.and_then(|hello| overhead(hello.suite));
        let read = |party| {
            let opener = RecordOpener::new(chosen, recording, party);
            Reader::new(party, opener, overhead).read(recording)
        };
        let (client, server) = (read(Party::Client), read(Party::Server));
        let mut messages = client.messages;
        messages.extend(server.messages);
        // The sort is stable, so messages of one read keep their order.
        messages.sort_by_key(|message| message.at);
        Self { client: client.records, server: server.records, messages, hellos }
    }

    /// Records from `party`.
    pub fn from(&self, party: Party) -> &[Record] {
        match party {
            Party::Client => &self.client,
            Party::Server => &self.server,
        }
    }

    /// The `ServerHello` that is no `HelloRetryRequest`.
    pub fn chosen(&self) -> Option<&ServerChoice> {
        self.hellos.iter().find(|hello| !hello.is_retry)
    }

    /// The first message of type `kind` from `party`.
    pub fn message(&self, party: Party, kind: u8) -> Option<&Message> {
        self.messages.iter().find(|message| message.from == party && message.kind == Some(kind))
    }

    /// The first 64 tickets of the server.
    pub fn tickets(&self, version: ProtocolVersion) -> Vec<Ticket> {
        let of_server = self.messages.iter().filter(|message| message.from == Party::Server);
        let tickets = of_server.filter(|message| message.kind == Some(message::NEW_SESSION_TICKET));
        tickets.take(64).filter_map(|message| Ticket::read(&message.body, version)).collect()
    }

    /// Begin and end of the server's first flight in its bytes: from `ServerHello` to `Finished`, before TLS 1.3 to
    /// `ServerHelloDone`; `None` if the recording does not contain all of it.
    pub fn server_flight(&self, is_tls13: bool) -> Option<(u64, u64)> {
        let last_of = |kind: u8| {
            self.messages.iter().rfind(|message| message.from == Party::Server && message.kind == Some(kind))
        };
        let end = last_of(if is_tls13 { message::FINISHED } else { message::SERVER_HELLO_DONE })?;
        // RFC 8446 section 4.1.4: a `HelloRetryRequest` has the same type, so the last one counts.
        let begin = last_of(message::SERVER_HELLO)?;
        let last = &self.server[end.record + end.records - 1];
        Some((self.server[begin.record].offset, last.offset + last.len as u64))
    }
}

/// Bytes that a suite of TLS 1.2 adds to a record: a tag, and for AES-GCM and AES-CCM a nonce (RFC 5288, RFC 6655, RFC 7905).
/// `None` for suites without AEAD: the padding of CBC is unknown.
fn overhead(suite: CipherSuite) -> Option<usize> {
    let name = suites::find(suite)?.name;
    if name.contains("POLY1305") || name.ends_with("_CCM_8") {
        return Some(16);
    }
    (name.contains("_GCM_") || name.ends_with("_CCM")).then_some(24)
}

/// Unencrypted hellos at the beginning of the bytes from a server: at most a `HelloRetryRequest` and a `ServerHello`.
pub fn server_hellos(bytes: &[u8]) -> Vec<ServerChoice> {
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
        let Some(hello) = ServerChoice::read(message.1) else { break };
        let is_retry = hello.is_retry;
        hellos.push(hello);
        if !is_retry {
            break;
        }
        handshake.clear();
    }
    hellos
}

/// Whether the handshake continues after this alert, e.g. `unrecognized_name` in TLS 1.2 (RFC 5246 section 7.2).
pub fn is_warning(alert: &[u8]) -> bool {
    // `close_notify` (0) has the level of a warning, and is the end of the connection.
    matches!(alert, [1, description] if *description != 0)
}

/// Header and payload of the first record, and the bytes after it; `None` if the record is incomplete.
pub fn split(bytes: &[u8]) -> Option<(&[u8; HEADER], &[u8], &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
    let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
    let (payload, after) = rest.split_at_checked(len)?;
    Some((header, payload, after))
}

fn whole(handshake: &[u8]) -> bool {
    first(handshake).is_some()
}

/// Type and body of a message.
type TypeAndBody<'a> = (u8, &'a [u8]);

/// The first message and the bytes after it; `None` if the message is incomplete.
fn first(handshake: &[u8]) -> Option<(TypeAndBody<'_>, &[u8])> {
    let &[kind, high, middle, low, ref rest @ ..] = handshake else { return None };
    let len = u32::from_be_bytes([0, high, middle, low]) as usize;
    let (body, after) = rest.split_at_checked(len)?;
    Some(((kind, body), after))
}

/// Reader of the records of one direction.
struct Reader {
    party: Party,
    opener: RecordOpener,
    records: Vec<Record>,
    messages: Vec<Message>,
    /// Bytes of an incomplete handshake message.
    gathered: Vec<u8>,
    /// Index of the record in which `gathered` begins.
    begun: usize,
    /// TLS 1.2: bytes that encryption adds to a record, if the suite determines them.
    overhead: Option<usize>,
}

impl Reader {
    fn new(party: Party, opener: RecordOpener, overhead: Option<usize>) -> Self {
        let (records, messages, gathered) = (Vec::new(), Vec::new(), Vec::new());
        Self { party, opener, records, messages, gathered, begun: 0, overhead }
    }

    fn read(mut self, recording: &Recording) -> Self {
        let direction = recording.from(self.party);
        let mut offset = 0;
        while self.records.len() < RECORDS
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
        let OpenedRecord { is_encrypted, content: opened } = self.opener.open(header, payload);
        let is_tls13 = self.opener.is_tls13();
        let content = match &opened {
            Some((kind, _)) => ContentType::of(*kind),
            None if is_tls13 => ContentType::Unknown,
            None => ContentType::of(header[0]),
        };
        let alert = match (&opened, content) {
            (Some((_, body)), ContentType::Alert) => body.first().copied().zip(body.get(1).copied()),
            _ => None,
        };
        let plaintext = match &opened {
            Some((_, body)) => Some(body.len()),
            // Without keys the size follows from the suite; in TLS 1.3 the padding is unknown.
            None if !is_tls13 => self.overhead.and_then(|overhead| payload.len().checked_sub(overhead)),
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
        match (content, opened) {
            (ContentType::Handshake, Some((_, body))) => self.handshake(&body, at),
            (ContentType::Handshake, None) => self.message(None, plaintext.unwrap_or(payload.len()), &[], at),
            _ => {}
        }
    }

    fn handshake(&mut self, bytes: &[u8], at: Instant) {
        if self.gathered.is_empty() {
            self.begun = self.records.len() - 1;
        }
        // A peer may announce a message of 16 MiB; the memory for it is not reserved.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_suites_with_aead_determine_the_size_of_a_plaintext() {
        for (suite, bytes) in [
            ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", Some(24)),
            ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", Some(16)),
            ("TLS_ECDHE_ECDSA_WITH_AES_128_CCM", Some(24)),
            ("TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", Some(16)),
            ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", None),
            ("TLS_RSA_WITH_3DES_EDE_CBC_SHA", None),
        ] {
            let code = suites::all().iter().find(|known| known.name == suite).expect("a suite").code;
            assert_eq!(overhead(code), bytes, "{suite}");
        }
    }
}

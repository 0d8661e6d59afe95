//! Parses a `ClientHello` from the first bytes of an untrusted client.
//!
//! Reports whether the bytes are TLS, whether the hello is complete, and what it offers. The TLS stack decides whether the
//! offer is acceptable. There are two steps of different cost: [`extent`] walks the record headers only,
//! [`ClientHello::read`] reads the fields too. [`ClientHello::read_message`] is for QUIC, which has no TLS records.

mod facts;
pub(crate) mod parts;
mod plaintext;
mod server_name;

use std::borrow::Cow;

use crate::ja4::{Transport, ja4};
use crate::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};

const RECORD_HEADER: usize = 5;
const HANDSHAKE_HEADER: usize = 4;
const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
// RFC 8446 section 5.1: "The length MUST NOT exceed 2^14 bytes."
const MAX_RECORD: usize = 1 << 14;

/// Completeness of the bytes received until now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Right so far; more bytes are needed.
    Incomplete,
    /// The [`ClientHello`] is complete; these are its fields.
    Complete(Box<ClientHello>),
}

/// Completeness of the bytes received until now, from the record headers only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Right so far; more bytes are needed.
    Incomplete,
    /// The hello is whole within the first `wire` bytes; they end where its last record ends.
    Complete {
        /// Bytes of whole records, headers included.
        wire: usize,
        /// Bytes of the handshake message, its header of 4 included.
        message: usize,
    },
}

/// Why the bytes are no `ClientHello`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// The first bytes belong to no TLS record.
    #[error("not TLS: the first bytes are no TLS record")]
    NotTls,
    /// The first bytes are an HTTP request or the HTTP/2 preface.
    #[error("plain HTTP on a TLS port; use https://")]
    PlainHttp,
    /// The hello, or the bytes that should hold it, exceed the limit.
    #[error("ClientHello is larger than the limit of {limit} bytes")]
    TooLarge {
        /// The limit that was given, in bytes on the wire.
        limit: usize,
    },
    /// TLS records without a `ClientHello`; the text names the fault.
    #[error("malformed ClientHello: {0}")]
    Malformed(&'static str),
}

/// Fields of a `ClientHello` in the client's order. Lists contain GREASE values (RFC 8701) if the client sent some.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientHello {
    /// The host name of the SNI extension: lower case, without a trailing dot. `None` also for an IP address, which
    /// RFC 6066 forbids and clients send all the same.
    pub server_name: Option<String>,
    /// Protocol names of ALPN (`application_layer_protocol_negotiation`, RFC 7301).
    pub alpn: Vec<Vec<u8>>,
    /// Versions offered; without the extension, the one in the hello's own field.
    pub versions: Vec<ProtocolVersion>,
    /// Cipher suites offered (`cipher_suites`).
    pub suites: Vec<CipherSuite>,
    /// Groups offered; empty when the extension `supported_groups` is missing.
    pub groups: Vec<NamedGroup>,
    /// Groups of the key shares; `None` without the extension. An empty list requests a `HelloRetryRequest`.
    pub key_shares: Option<Vec<NamedGroup>>,
    /// Signature schemes the client can verify; empty when the extension `signature_algorithms` is missing.
    pub signature_schemes: Vec<SignatureScheme>,
    /// Length of the session ID; TLS 1.3 clients fill it for middleboxes, so it shows resumption in TLS 1.2 only.
    pub session_id_len: usize,
    /// A TLS 1.2 session ticket is offered (the extension is there and not empty).
    pub has_ticket: bool,
    /// A TLS 1.3 pre-shared key is offered (`pre_shared_key`).
    pub has_psk: bool,
    /// The client sends early data (`early_data`).
    pub early_data: bool,
    /// JA4, after [`fingerprint`](Self::fingerprint).
    pub ja4: Option<Box<str>>,
}

impl ClientHello {
    /// Reads the hello at the start of `bytes`, the raw bytes from the wire: TLS records, of which the hello may span
    /// several. `limit` bounds the bytes on the wire, record headers included.
    ///
    /// About 1 us and a dozen small allocations once complete; before that, the cost of [`extent`].
    pub fn read(bytes: &[u8], limit: usize) -> Result<Progress, HelloError> {
        let Extent::Complete { wire, message } = extent(bytes, limit)? else {
            return Ok(Progress::Incomplete);
        };
        let message = join_records(&bytes[..wire], message);
        let hello = facts::read(&message[HANDSHAKE_HEADER..])?;
        Ok(Progress::Complete(Box::new(hello)))
    }

    /// Reads the hello at the start of `bytes`, a handshake message without TLS records, as CRYPTO frames of QUIC carry
    /// it (RFC 9001 section 4). `limit` bounds the message, its header of 4 bytes included; a longer one is refused
    /// before its bytes arrive. Bytes after the message are ignored.
    pub fn read_message(bytes: &[u8], limit: usize) -> Result<Progress, HelloError> {
        let mut header = [0; HANDSHAKE_HEADER];
        let seen = bytes.len().min(HANDSHAKE_HEADER);
        header[..seen].copy_from_slice(&bytes[..seen]);
        let length = message_length(header, seen)?;
        if length.is_some_and(|length| length > limit) {
            return Err(HelloError::TooLarge { limit });
        }
        let Some(message) = length.and_then(|length| bytes.get(..length)) else {
            return Ok(Progress::Incomplete);
        };
        let hello = facts::read(&message[HANDSHAKE_HEADER..])?;
        Ok(Progress::Complete(Box::new(hello)))
    }

    /// Computes JA4 of this hello, which was read over TCP from `bytes`.
    pub fn fingerprint(&mut self, bytes: &[u8]) {
        // No limit: the same bytes have already been read within one.
        if let Ok(Extent::Complete { wire, message }) = extent(bytes, usize::MAX) {
            self.fingerprint_message(&join_records(&bytes[..wire], message), Transport::Tcp);
        }
    }

    /// Computes JA4 of this hello, which was read from the handshake message at the start of `bytes`.
    pub fn fingerprint_message(&mut self, bytes: &[u8], transport: Transport) {
        // Too few bytes become a header of zeros, which is no `ClientHello`.
        let header = bytes.first_chunk().copied().unwrap_or_default();
        let message =
            message_length(header, bytes.len()).ok().flatten().and_then(|length| bytes.get(..length));
        let body = message.and_then(|message| message.get(HANDSHAKE_HEADER..)).unwrap_or_default();
        self.ja4 = ja4(self, body, transport).map(String::into_boxed_str);
    }

    /// Whether the client offers `version`.
    pub fn offers_version(&self, version: ProtocolVersion) -> bool {
        self.versions.contains(&version)
    }
}

/// Finds where the hello at the start of `bytes` ends, under `limit` bytes on the wire. A few ns per record; allocates
/// nothing. Fails as soon as the bytes seen rule a hello out: the first may do.
pub fn extent(bytes: &[u8], limit: usize) -> Result<Extent, HelloError> {
    let Some(&first) = bytes.first() else {
        return Ok(Extent::Incomplete);
    };
    if first != HANDSHAKE_RECORD {
        return plaintext::classify(bytes).map(|()| within(bytes, limit))?;
    }
    walk_records(bytes, limit)
}

/// `Incomplete`, unless the limit is used up.
fn within(bytes: &[u8], limit: usize) -> Result<Extent, HelloError> {
    // A hello that is incomplete at the limit can only become larger.
    if bytes.len() >= limit {
        return Err(HelloError::TooLarge { limit });
    }
    Ok(Extent::Incomplete)
}

fn walk_records(bytes: &[u8], limit: usize) -> Result<Extent, HelloError> {
    let mut position = 0;
    let mut payload = 0;
    let mut header = [0; HANDSHAKE_HEADER];
    loop {
        let rest = &bytes[position..];
        let Some(length) = record_length(rest)? else {
            return within(bytes, limit);
        };
        let end = rest.len().min(RECORD_HEADER + length);
        let fragment = &rest[RECORD_HEADER..end];
        // The header of the message may itself span several records.
        for (slot, byte) in header.iter_mut().skip(payload).zip(fragment) {
            *slot = *byte;
        }
        payload += fragment.len();
        let message = message_length(header, payload)?;
        if let Some(message) = message {
            // Records to come cost at least one header; refuse before they are read, not after.
            let before = payload - fragment.len();
            if position + RECORD_HEADER + message.saturating_sub(before) > limit {
                return Err(HelloError::TooLarge { limit });
            }
            if payload >= message && end == RECORD_HEADER + length {
                return complete(position + end, message, limit);
            }
        }
        if end < RECORD_HEADER + length {
            return within(bytes, limit);
        }
        position += end;
    }
}

fn complete(wire: usize, message: usize, limit: usize) -> Result<Extent, HelloError> {
    if wire > limit {
        return Err(HelloError::TooLarge { limit });
    }
    Ok(Extent::Complete { wire, message })
}

/// The length of the record that `bytes` start with, `None` while its header is not whole.
fn record_length(bytes: &[u8]) -> Result<Option<usize>, HelloError> {
    if bytes.first().is_some_and(|&kind| kind != HANDSHAKE_RECORD) {
        return Err(HelloError::Malformed("another record interrupts the handshake message"));
    }
    // RFC 8446 section 5.1: the minor version of a record must be ignored.
    if bytes.get(1).is_some_and(|&major| major != 3) {
        return Err(HelloError::NotTls);
    }
    let Some(&[high, low]) = bytes.get(3..RECORD_HEADER) else {
        return Ok(None);
    };
    match usize::from(u16::from_be_bytes([high, low])) {
        // RFC 8446 section 5.1: "Implementations MUST NOT send zero-length fragments of Handshake types".
        0 => Err(HelloError::Malformed("empty handshake record")),
        length if length > MAX_RECORD => Err(HelloError::Malformed("record longer than 16384 bytes")),
        length => Ok(Some(length)),
    }
}

/// The length of the handshake message, its header included, as soon as `seen` bytes of it cover the header.
fn message_length(header: [u8; HANDSHAKE_HEADER], seen: usize) -> Result<Option<usize>, HelloError> {
    if seen >= 1 && header[0] != CLIENT_HELLO {
        return Err(HelloError::Malformed("the first handshake message is not a ClientHello"));
    }
    if seen < HANDSHAKE_HEADER {
        return Ok(None);
    }
    let length = u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize;
    Ok(Some(HANDSHAKE_HEADER + length))
}

/// The handshake message of `length` bytes within whole records; copied only if it spans several.
fn join_records(mut records: &[u8], length: usize) -> Cow<'_, [u8]> {
    if let Some(message) = fragment(records).get(..length) {
        return Cow::Borrowed(message);
    }
    let mut message = Vec::with_capacity(records.len());
    while !records.is_empty() {
        let part = fragment(records);
        message.extend_from_slice(part);
        records = &records[RECORD_HEADER + part.len()..];
    }
    message.truncate(length);
    Cow::Owned(message)
}

/// Content of the first of some complete records.
fn fragment(records: &[u8]) -> &[u8] {
    let length = usize::from(u16::from_be_bytes([records[3], records[4]]));
    &records[RECORD_HEADER..RECORD_HEADER + length]
}

#[cfg(test)]
mod tests;

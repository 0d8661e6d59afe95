//! Reader of a server's unencrypted response to a hello: records, handshake messages, alerts.
//!
//! The reader parses and does not judge: whether a message is allowed or expected is decided by the caller.

mod messages;

pub use messages::{
    Exchanged, RETRY, ServerHello, SessionTicket, certificates, key_exchange, scts, session_ticket,
    sslv2_accepts, staple,
};

use crate::registry::ProtocolVersion;

const HEADER: usize = 5;

const SERVER_HELLO: u8 = 2;

/// A record's payload at most: TLS 1.2 lets a ciphertext be 2048 bytes longer than a plaintext.
const LONGEST_RECORD: usize = (1 << 14) + 2048;

/// Why bytes are no flight of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlightError {
    /// The first bytes belong to no TLS record.
    #[error("not TLS: the answer is no TLS record")]
    NotTls,
    /// A record or message is longer than the protocol, or the reader, allows.
    #[error("a {what} of {length} bytes, longer than {limit}")]
    TooLong {
        /// Record or handshake message.
        what: &'static str,
        /// The length that it announces.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// The message names the fault.
    #[error("malformed {0}")]
    Malformed(&'static str),
}

/// A part of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A handshake message: its kind and body.
    Handshake(u8, Vec<u8>),
    /// An alert: level and description. `None` where it is encrypted.
    Alert(Option<(u8, u8)>),
    /// `change_cipher_spec`.
    ChangeCipherSpec,
    /// A heartbeat (RFC 6520), as it came.
    Heartbeat(Vec<u8>),
    /// A record with application data, or in TLS 1.3 anything that is encrypted: how long it is.
    Data(usize),
}

/// Cuts a server's bytes into parts, however they come in pieces. Holds at most a record and a handshake message.
#[derive(Debug)]
pub struct Flight {
    bytes: Vec<u8>,
    message: Vec<u8>,
    longest_message: usize,
    is_begun: bool,
    is_encrypted: bool,
    is_tls13: bool,
}

impl Flight {
    /// Refuses handshake messages of more than `longest_message` bytes.
    pub fn new(longest_message: usize) -> Self {
        Self {
            bytes: Vec::new(),
            message: Vec::new(),
            longest_message,
            is_begun: false,
            is_encrypted: false,
            is_tls13: false,
        }
    }

    /// Adds bytes as they came; call [`next`](Self::next) until it has no more before adding others.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes that belong to no part yet.
    pub fn waiting(&self) -> usize {
        self.bytes.len() + self.message.len()
    }

    /// The next part; `None` if more bytes are needed. After an error there is nothing more to be had.
    #[expect(
        clippy::should_implement_trait,
        reason = "it ends when bytes are missing, and goes on afterwards"
    )]
    pub fn next(&mut self) -> Result<Option<Part>, FlightError> {
        loop {
            if let Some(part) = self.take_message()? {
                return Ok(Some(part));
            }
            let Some((kind, payload)) = self.take_record()? else { return Ok(None) };
            match kind {
                22 if !self.is_encrypted => self.message.extend(payload),
                _ => return self.other(kind, payload).map(Some),
            }
        }
    }

    fn take_message(&mut self) -> Result<Option<Part>, FlightError> {
        let Some(&[kind, a, b, c]) = self.message.first_chunk() else { return Ok(None) };
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        // By the announced length, before the bytes of the message are gathered.
        if length > self.longest_message {
            let what = "handshake message";
            return Err(FlightError::TooLong { what, length, limit: self.longest_message });
        }
        if self.message.len() < 4 + length {
            return Ok(None);
        }
        let rest = self.message.split_off(4 + length);
        let body = std::mem::replace(&mut self.message, rest).split_off(4);
        // The version decides whether `change_cipher_spec` begins encryption.
        if kind == SERVER_HELLO
            && ServerHello::read(&body).is_ok_and(|hello| hello.version == ProtocolVersion::TLS1_3)
        {
            self.is_tls13 = true;
        }
        Ok(Some(Part::Handshake(kind, body)))
    }

    fn take_record(&mut self) -> Result<Option<(u8, Vec<u8>)>, FlightError> {
        let Some(&[kind, major, _, high, low]) = self.bytes.first_chunk::<HEADER>() else {
            // A server of another protocol may send fewer bytes than a header, so wrong ones are reported at
            // once.
            let looks_right = matches!(self.bytes.first(), None | Some(20..=24))
                && self.bytes.get(1).is_none_or(|&major| major == 3);
            return if looks_right { Ok(None) } else { Err(self.wrong_record()) };
        };
        if !matches!(kind, 20..=24) || major != 3 {
            return Err(self.wrong_record());
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length > LONGEST_RECORD {
            return Err(FlightError::TooLong { what: "record", length, limit: LONGEST_RECORD });
        }
        if self.bytes.len() < HEADER + length {
            return Ok(None);
        }
        self.is_begun = true;
        // A copy of the rest for each record is cheap here, because a flight has few records.
        let rest = self.bytes.split_off(HEADER + length);
        let payload = std::mem::replace(&mut self.bytes, rest).split_off(HEADER);
        Ok(Some((kind, payload)))
    }

    fn wrong_record(&self) -> FlightError {
        if self.is_begun {
            FlightError::Malformed("record: unknown type or version")
        } else {
            FlightError::NotTls
        }
    }

    fn other(&mut self, kind: u8, payload: Vec<u8>) -> Result<Part, FlightError> {
        Ok(match kind {
            20 if payload == [1] => {
                // In TLS 1.3 it means nothing (RFC 8446 appendix D.4), and what is encrypted has a type of its own.
                self.is_encrypted = !self.is_tls13;
                Part::ChangeCipherSpec
            }
            20 => return Err(FlightError::Malformed("change_cipher_spec")),
            // An encrypted alert is longer than the two bytes of a plain one.
            21 if self.is_encrypted && payload.len() > 2 => Part::Alert(None),
            21 => match payload[..] {
                [level, description] => Part::Alert(Some((level, description))),
                _ => return Err(FlightError::Malformed("alert")),
            },
            24 => Part::Heartbeat(payload),
            _ => Part::Data(payload.len()),
        })
    }
}

/// An alert as text, by its registered name, or by its number.
pub fn alert_text(description: u8) -> String {
    alert_name(description).map_or_else(|| format!("alert {description}"), |name| format!("alert {name}"))
}

/// Registered name of an alert description (RFC 8446 section 6, and earlier versions); `None` if it is not listed here.
pub const fn alert_name(description: u8) -> Option<&'static str> {
    Some(match description {
        0 => "close_notify",
        10 => "unexpected_message",
        20 => "bad_record_mac",
        21 => "decryption_failed",
        22 => "record_overflow",
        30 => "decompression_failure",
        40 => "handshake_failure",
        42 => "bad_certificate",
        43 => "unsupported_certificate",
        44 => "certificate_revoked",
        45 => "certificate_expired",
        46 => "certificate_unknown",
        47 => "illegal_parameter",
        48 => "unknown_ca",
        49 => "access_denied",
        50 => "decode_error",
        51 => "decrypt_error",
        70 => "protocol_version",
        71 => "insufficient_security",
        80 => "internal_error",
        86 => "inappropriate_fallback",
        90 => "user_canceled",
        100 => "no_renegotiation",
        109 => "missing_extension",
        110 => "unsupported_extension",
        112 => "unrecognized_name",
        113 => "bad_certificate_status_response",
        115 => "unknown_psk_identity",
        116 => "certificate_required",
        120 => "no_application_protocol",
        121 => "ech_required",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;

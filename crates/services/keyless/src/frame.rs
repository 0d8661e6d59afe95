//! Frames of both directions: encoding and decoding without I/O.
//!
//! A frame has a header of eight bytes and a body. The header contains type, a zero byte, length of the body and number
//! of the operation. All integers are big-endian.

use std::time::Duration;

use brisk_keys::KeyId;
use brisk_secrets::buffer;
use brisk_wire::registry::SignatureScheme;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

mod response;

pub use response::{Response, put_result};

/// Version of this implementation.
pub const VERSION: u16 = 1;

/// Length of a frame header, in bytes.
pub const HEAD: usize = 8;

/// Maximum length of a body, in bytes. The longest result is an RSA signature with 8192 bits, 1024 bytes.
pub const LONGEST_BODY: usize = 2048;

/// Maximum length of a message to be signed: the remainder of the longest body.
pub const LONGEST_MESSAGE: usize = LONGEST_BODY - SIGN;

/// Maximum length of an error text, in bytes.
pub const LONGEST_TEXT: usize = 255;

/// Maximum length of the content of a `PING`, in bytes.
pub const LONGEST_PING: usize = 64;

/// Length of the fields before the message of `SIGN`: key number, scheme, remaining time.
const SIGN: usize = 4 + 2 + 4;
/// Length of the fields before the ciphertext of `DECRYPT`.
const DECRYPT: usize = 4 + 4;

mod kind {
    pub(super) const HELLO: u8 = 0x01;
    pub(super) const KEY: u8 = 0x02;
    pub(super) const SIGN: u8 = 0x03;
    pub(super) const DECRYPT: u8 = 0x04;
    pub(super) const CANCEL: u8 = 0x05;
    pub(super) const PING: u8 = 0x06;
    /// Set in types that servers send.
    pub(super) const RESPONSE: u8 = 0x80;
    pub(super) const RESULT: u8 = 0x83;
    pub(super) const DRAIN: u8 = 0x87;
    pub(super) const ERROR: u8 = 0xff;
    /// Set in types that an older receiver ignores.
    pub(super) const OPTIONAL: u8 = 0x40;
}

/// Reasons for which bytes are not a frame. The connection must be closed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The body exceeds [`LONGEST_BODY`].
    #[error("a frame of {0} bytes, where at most {LONGEST_BODY} are allowed")]
    TooLong(usize),
    /// The type is unknown and not optional.
    #[error("a frame of the unknown type {0:#04x}")]
    UnknownType(u8),
    /// The byte between type and length is not zero.
    #[error("a frame whose second byte is not zero")]
    Flags,
    /// The body does not match the type.
    #[error("a frame of the type {0:#04x} with a malformed body")]
    Malformed(u8),
}

/// First frame of each side: version and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Highest supported version, at present [`VERSION`]. The connection uses the lower of both.
    pub version: u16,
    /// Concurrent operations: requested by the client, granted by the server.
    pub operations: u16,
    /// Keys with a number at the same time: requested by the client, granted by the server.
    pub keys: u16,
}

/// A frame of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// First frame.
    Hello(Hello),
    /// Assigns a number on this connection to a key. A number can be reassigned.
    Key {
        /// Number below the granted limit of keys.
        number: u32,
        /// SHA-256 of the key's `SubjectPublicKeyInfo`.
        key: KeyId,
    },
    /// Requests a signature.
    Sign {
        /// Number of the operation, unused by operations in progress.
        operation: u32,
        /// Number of the key.
        key: u32,
        /// Signature scheme.
        scheme: SignatureScheme,
        /// Time that the client waits from now on.
        remaining: Duration,
        /// The complete message, never its digest.
        message: Bytes,
    },
    /// Requests the premaster secret of an RSA key exchange in TLS 1.2.
    Decrypt {
        /// Number of the operation, unused by operations in progress.
        operation: u32,
        /// Number of the key.
        key: u32,
        /// Time that the client waits from now on.
        remaining: Duration,
        /// The encrypted premaster secret.
        ciphertext: Bytes,
    },
    /// Cancels an operation. The server still sends a result or an error for it.
    Cancel {
        /// Number of the operation.
        operation: u32,
    },
    /// Requests a [`Pong`](Response::Pong) with the same bytes.
    Ping {
        /// Any number.
        number: u32,
        /// At most [`LONGEST_PING`] bytes.
        bytes: Bytes,
    },
}

/// A frame with an undecoded body.
struct Raw {
    kind: u8,
    number: u32,
    body: Bytes,
}

/// Removes the next frame from the front of `bytes`; `None` until it is complete.
fn split(bytes: &mut BytesMut) -> Result<Option<Raw>, FrameError> {
    let Some(&[kind, flags, high, low, ..]) = bytes.get(..HEAD) else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([high, low]));
    // Checked before the body arrives, so that a peer cannot make this side buffer more than one frame.
    if length > LONGEST_BODY {
        return Err(FrameError::TooLong(length));
    }
    if flags != 0 {
        return Err(FrameError::Flags);
    }
    if bytes.len() < HEAD + length {
        return Ok(None);
    }
    let mut frame = bytes.split_to(HEAD + length).freeze();
    frame.advance(4);
    let number = frame.get_u32();
    Ok(Some(Raw { kind, number, body: frame }))
}

fn put_head(out: &mut BytesMut, kind: u8, length: usize, number: u32) {
    // The results before this frame may be premaster secrets.
    buffer::reserve(out, HEAD + length);
    out.put_u8(kind);
    out.put_u8(0);
    // Callers have truncated the body to `LONGEST_BODY`.
    out.put_u16(length as u16);
    out.put_u32(number);
}

impl Hello {
    const LENGTH: usize = 6;

    /// Trailing bytes belong to later versions and are ignored.
    fn read(mut body: Bytes) -> Option<Self> {
        (body.len() >= Self::LENGTH).then(|| Self {
            version: body.get_u16(),
            operations: body.get_u16(),
            keys: body.get_u16(),
        })
    }

    fn write(self, out: &mut BytesMut, kind: u8) {
        put_head(out, kind, Self::LENGTH, 0);
        out.put_u16(self.version);
        out.put_u16(self.operations);
        out.put_u16(self.keys);
    }
}

impl Request {
    /// Removes the next frame from the front of `bytes`; `None` until it is complete. Unknown optional frames are
    /// skipped.
    ///
    /// # Errors
    ///
    /// [`FrameError`]; the connection must be closed.
    pub fn read(bytes: &mut BytesMut) -> Result<Option<Self>, FrameError> {
        while let Some(raw) = split(bytes)? {
            // Later versions can add frames with this bit, without a negotiation (docs/keyless-protocol.md,
            // Frames).
            if raw.kind & (kind::RESPONSE | kind::OPTIONAL) == kind::OPTIONAL {
                continue;
            }
            let (kind, malformed) = (raw.kind, FrameError::Malformed(raw.kind));
            if !(kind::HELLO..=kind::PING).contains(&kind) {
                return Err(FrameError::UnknownType(kind));
            }
            return Self::of(raw).map(Some).ok_or(malformed);
        }
        Ok(None)
    }

    fn of(Raw { kind, number, mut body }: Raw) -> Option<Self> {
        match kind {
            kind::HELLO => Hello::read(body).map(Self::Hello),
            kind::KEY => Some(Self::Key { number, key: KeyId(body.as_ref().try_into().ok()?) }),
            kind::SIGN if body.len() >= SIGN => Some(Self::Sign {
                operation: number,
                key: body.get_u32(),
                scheme: SignatureScheme(body.get_u16()),
                remaining: Duration::from_micros(body.get_u32().into()),
                message: body,
            }),
            kind::DECRYPT if body.len() >= DECRYPT => Some(Self::Decrypt {
                operation: number,
                key: body.get_u32(),
                remaining: Duration::from_micros(body.get_u32().into()),
                ciphertext: body,
            }),
            kind::CANCEL => body.is_empty().then_some(Self::Cancel { operation: number }),
            kind::PING => (body.len() <= LONGEST_PING).then_some(Self::Ping { number, bytes: body }),
            _ => None,
        }
    }

    /// Appends the frame to `out`. A message longer than [`LONGEST_MESSAGE`] or a ping longer than [`LONGEST_PING`] is
    /// truncated, and the server refuses it.
    pub fn write(&self, out: &mut BytesMut) {
        match self {
            Self::Hello(hello) => hello.write(out, kind::HELLO),
            Self::Key { number, key } => {
                put_head(out, kind::KEY, key.0.len(), *number);
                out.put_slice(&key.0);
            }
            Self::Sign { operation, key, scheme, remaining, message } => {
                let message = &message[..message.len().min(LONGEST_MESSAGE)];
                put_head(out, kind::SIGN, SIGN + message.len(), *operation);
                out.put_u32(*key);
                out.put_u16(scheme.0);
                // At most 71 minutes, far more than any handshake lasts.
                out.put_u32(u32::try_from(remaining.as_micros()).unwrap_or(u32::MAX));
                out.put_slice(message);
            }
            Self::Decrypt { operation, key, remaining, ciphertext } => {
                let ciphertext = &ciphertext[..ciphertext.len().min(LONGEST_MESSAGE)];
                put_head(out, kind::DECRYPT, DECRYPT + ciphertext.len(), *operation);
                out.put_u32(*key);
                out.put_u32(u32::try_from(remaining.as_micros()).unwrap_or(u32::MAX));
                out.put_slice(ciphertext);
            }
            Self::Cancel { operation } => put_head(out, kind::CANCEL, 0, *operation),
            Self::Ping { number, bytes } => put_ping(out, kind::PING, *number, bytes),
        }
    }
}

fn put_ping(out: &mut BytesMut, kind: u8, number: u32, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(LONGEST_PING)];
    put_head(out, kind, bytes.len(), number);
    out.put_slice(bytes);
}

#[cfg(test)]
mod tests;

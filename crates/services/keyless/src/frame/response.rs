//! Frames of the server.

use brisk_keys::KeyAlgorithm;
use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{
    FrameError, Hello, LONGEST_BODY, LONGEST_PING, LONGEST_TEXT, Raw, kind, put_head, put_ping, split,
};
use crate::code::ErrorCode;

const HELLO: u8 = kind::HELLO | kind::RESPONSE;
const KEY: u8 = kind::KEY | kind::RESPONSE;
const PONG: u8 = kind::PING | kind::RESPONSE;

/// A frame of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// First frame.
    Hello(Hello),
    /// State of a key that was assigned a number.
    Key {
        /// Number of the key.
        number: u32,
        /// Its algorithm, or the error that operations with it would currently get.
        state: Result<KeyAlgorithm, ErrorCode>,
    },
    /// Result of an operation.
    Result {
        /// Number of the operation.
        operation: u32,
        /// The signature in the encoding of TLS, or the decrypted premaster secret.
        result: Bytes,
    },
    /// Response to a [`Ping`](super::Request::Ping).
    Pong {
        /// Number of the ping.
        number: u32,
        /// Content of the ping.
        bytes: Bytes,
    },
    /// The server is draining: it finishes operations in progress and begins no others. The client closes the
    /// connection after the last result.
    Drain,
    /// An operation failed; or, with the code [`Protocol`](ErrorCode::Protocol) or
    /// [`UnknownClient`](ErrorCode::UnknownClient), the connection ends.
    Error {
        /// Number of the operation; `0` if the connection ends.
        operation: u32,
        /// Code of the error.
        code: ErrorCode,
        /// Explanation for logs.
        text: String,
    },
}

impl Response {
    /// Removes the next frame of a server from the front of `bytes`, like [`Request::read`](super::Request::read).
    pub fn read(bytes: &mut BytesMut) -> Result<Option<Self>, FrameError> {
        while let Some(raw) = split(bytes)? {
            let (kind, malformed) = (raw.kind, FrameError::Malformed(raw.kind));
            if !matches!(kind, HELLO | KEY | kind::RESULT | PONG | kind::DRAIN | kind::ERROR) {
                if kind & (kind::RESPONSE | kind::OPTIONAL) == kind::RESPONSE | kind::OPTIONAL {
                    continue;
                }
                return Err(FrameError::UnknownType(kind));
            }
            return Self::of(raw).map(Some).ok_or(malformed);
        }
        Ok(None)
    }

    fn of(Raw { kind, number, mut body }: Raw) -> Option<Self> {
        match kind {
            HELLO => Hello::read(body).map(Self::Hello),
            KEY => Some(Self::Key { number, state: read_state(&mut body)? }),
            kind::RESULT => Some(Self::Result { operation: number, result: body }),
            PONG => (body.len() <= LONGEST_PING).then_some(Self::Pong { number, bytes: body }),
            kind::DRAIN => Some(Self::Drain),
            kind::ERROR if (1..=1 + LONGEST_TEXT).contains(&body.len()) => Some(Self::Error {
                operation: number,
                code: body.get_u8().into(),
                text: String::from_utf8_lossy(&body).into_owned(),
            }),
            _ => None,
        }
    }

    /// Appends the frame to `out`. A text longer than [`LONGEST_TEXT`] is truncated, and so is a result longer than
    /// [`LONGEST_BODY`], which no key produces.
    pub fn write(&self, out: &mut BytesMut) {
        match self {
            Self::Hello(hello) => hello.write(out, HELLO),
            Self::Key { number, state } => {
                put_head(out, KEY, STATE, *number);
                write_state(out, *state);
            }
            Self::Result { operation, result } => put_result(out, *operation, result),
            Self::Pong { number, bytes } => put_ping(out, PONG, *number, bytes),
            Self::Drain => put_head(out, kind::DRAIN, 0, 0),
            Self::Error { operation, code, text } => {
                // Between characters: half of one would be replaced by a longer character at the receiver.
                let text = &text.as_bytes()[..text.floor_char_boundary(LONGEST_TEXT)];
                put_head(out, kind::ERROR, 1 + text.len(), *operation);
                out.put_u8(code.byte());
                out.put_slice(text);
            }
        }
    }
}

/// Appends a result frame like [`Response::write`], without a copy of `result` in a [`Response`].
pub fn put_result(out: &mut BytesMut, operation: u32, result: &[u8]) {
    let result = &result[..result.len().min(LONGEST_BODY)];
    put_head(out, kind::RESULT, result.len(), operation);
    out.put_slice(result);
}

/// Length of the state of a key: code, algorithm, bits.
const STATE: usize = 4;

fn read_state(body: &mut Bytes) -> Option<Result<KeyAlgorithm, ErrorCode>> {
    // Additional bytes belong to later versions, and are ignored.
    if body.len() < STATE {
        return None;
    }
    let (code, algorithm, bits) = (body.get_u8(), body.get_u8(), body.get_u16());
    Some(match (code, algorithm) {
        (0, 1) => Ok(KeyAlgorithm::Rsa { bits }),
        (0, 2) => Ok(KeyAlgorithm::EcdsaP256),
        (0, 3) => Ok(KeyAlgorithm::EcdsaP384),
        (0, 4) => Ok(KeyAlgorithm::Ed25519),
        (0, _) => return None,
        (code, _) => Err(code.into()),
    })
}

fn write_state(out: &mut BytesMut, state: Result<KeyAlgorithm, ErrorCode>) {
    let (code, algorithm, bits) = match state {
        Ok(KeyAlgorithm::Rsa { bits }) => (0, 1, bits),
        Ok(KeyAlgorithm::EcdsaP256) => (0, 2, 256),
        Ok(KeyAlgorithm::EcdsaP384) => (0, 3, 384),
        Ok(KeyAlgorithm::Ed25519) => (0, 4, 255),
        // ML-DSA has no number in version 1: its signatures exceed a frame.
        Ok(_) => (ErrorCode::Scheme.byte(), 0, 0),
        Err(code) => (code.byte(), 0, 0),
    };
    out.put_u8(code);
    out.put_u8(algorithm);
    out.put_u16(bits);
}

//! State of reading a message body.

use bytes::BytesMut;
use thiserror::Error;

use super::chunked::{Chunked, Part};

/// Syntax error in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MalformedBody {
    /// A chunk has an invalid size line, or no `\r\n` at its end (RFC 9112 section 7.1).
    #[error("its body has a malformed chunk")]
    Chunk,
    /// The chunk extensions together exceed 16 KiB.
    #[error("its body has too long chunk extensions")]
    Extensions,
    /// The trailer section has a syntax error or exceeds 16 KiB.
    #[error("its trailer section is malformed or too large")]
    Trailers,
}

/// Remaining body of a message, by the way its end is marked (RFC 9112 section 6.3).
#[derive(Debug)]
pub enum BodyReader {
    /// Remaining bytes; 0 without a body or after its end.
    Length(u64),
    /// Chunks, up to the last chunk and the trailers.
    Chunked(Chunked),
    /// All bytes up to the end of the connection.
    UntilClose,
}

impl BodyReader {
    /// Whether the body is read completely.
    pub fn is_ended(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunked) => chunked.is_ended(),
            Self::UntilClose => false,
        }
    }

    /// Remaining bytes, if known.
    pub fn left(&self) -> Option<u64> {
        match self {
            Self::Length(left) => Some(*left),
            Self::Chunked(chunked) => chunked.is_ended().then_some(0),
            Self::UntilClose => None,
        }
    }

    /// Takes the next part from the front of `input`; `None` if more bytes are needed.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Part>, MalformedBody> {
        match self {
            Self::Length(0) => Ok(Some(Part::End)),
            Self::Length(_) | Self::UntilClose if input.is_empty() => Ok(None),
            Self::Length(left) => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= length as u64;
                Ok(Some(Part::Data(input.split_to(length).freeze())))
            }
            Self::UntilClose => Ok(Some(Part::Data(input.split().freeze()))),
            Self::Chunked(chunked) => {
                let part = chunked.decode(input)?;
                if matches!(part, Some(Part::Data(_))) {
                    chunked.settle(input);
                }
                Ok(part)
            }
        }
    }

    /// Ends the body at the end of its connection. Returns whether the body is complete.
    pub fn close(&mut self) -> bool {
        // RFC 9112 section 8: only a body without a length is complete at the end of its connection.
        let complete = self.is_ended() || matches!(self, Self::UntilClose);
        *self = Self::Length(0);
        complete
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_body_ends_by_its_length_or_with_its_connection() {
        let mut input = BytesMut::from(&b"hello"[..]);
        let mut body = BodyReader::Length(3);
        assert_eq!(body.decode(&mut input), Ok(Some(Part::Data(Bytes::from("hel")))));
        assert!(body.is_ended() && body.close());
        assert_eq!(body.decode(&mut input), Ok(Some(Part::End)));
        let mut body = BodyReader::Length(3);
        assert_eq!(body.decode(&mut input), Ok(Some(Part::Data(Bytes::from("lo")))));
        assert_eq!(body.decode(&mut input), Ok(None));
        assert!(!body.close());
        let (mut body, mut input) = (BodyReader::UntilClose, BytesMut::from(&b"hello"[..]));
        assert_eq!(body.decode(&mut input), Ok(Some(Part::Data(Bytes::from("hello")))));
        assert!(!body.is_ended() && body.close() && body.is_ended());
    }
}

//! How the body of a message ends, and what is left of it.

use bytes::BytesMut;
use thiserror::Error;

use super::chunked::{Chunked, Part};

/// Why the bytes of a body are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MalformedBody {
    /// A chunk does not begin or end as it has to.
    #[error("its body has a malformed chunk")]
    Chunk,
    /// The chunk extensions together are longer than allowed.
    #[error("its body has too long chunk extensions")]
    Extensions,
    /// The trailer section breaks the grammar or is longer than allowed.
    #[error("its trailer section is malformed or too large")]
    Trailers,
}

/// What is left of a body.
#[derive(Debug)]
pub enum BodyReader {
    /// This many bytes; 0: there is no body, or all was read.
    Length(u64),
    /// Chunks, until the last one.
    Chunked(Chunked),
    /// All that comes before the end of the connection.
    UntilClose,
}

impl BodyReader {
    /// Whether all was read.
    pub fn is_ended(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunked) => chunked.is_ended(),
            Self::UntilClose => false,
        }
    }

    /// Bytes that are left, if that is known.
    pub fn left(&self) -> Option<u64> {
        match self {
            Self::Length(left) => Some(*left),
            Self::Chunked(chunked) => chunked.is_ended().then_some(0),
            Self::UntilClose => None,
        }
    }

    /// The next part, taken from the front of `input`; `None` if more bytes are needed.
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

    /// Ends the body with its connection. Returns whether that is how it has to end.
    pub fn close(&mut self) -> bool {
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

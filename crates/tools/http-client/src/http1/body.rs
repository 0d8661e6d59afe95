//! Framing of HTTP/1.1 response bodies (RFC 9112 section 6.3).

use crate::error::HttpError;

/// Longest line of a chunked body in bytes: a size with extensions, or a trailer.
const LINE: usize = 8 * 1024;

/// A response body that is being read.
#[derive(Debug, PartialEq, Eq)]
pub struct Body(Rest);

/// Bytes of a body in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Bytes that belong to the body with its framing. Bytes after them follow the end of the response.
    pub used: usize,
    /// Bytes of content among the `used` ones.
    pub content: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Rest {
    Length(u64),
    UntilClose,
    /// In the line with the size of a chunk: length of the line and value of the size until now.
    Size {
        seen: usize,
        size: u64,
        extension: bool,
    },
    /// Missing bytes of a chunk.
    Chunk(u64),
    /// In the line break after a chunk.
    ChunkEnd,
    /// In a trailer line: its length until now.
    Trailer {
        seen: usize,
    },
    Complete,
}

impl Body {
    /// No body.
    pub fn none() -> Self {
        Self(Rest::Complete)
    }

    /// A body of `length` bytes, as `Content-Length` states.
    pub fn of_length(length: u64) -> Self {
        Self(if length == 0 { Rest::Complete } else { Rest::Length(length) })
    }

    /// A body with `Transfer-Encoding: chunked` (RFC 9112 section 7.1).
    pub fn chunked() -> Self {
        Self(Rest::Size { seen: 0, size: 0, extension: false })
    }

    /// A body that ends with the connection.
    pub(crate) fn until_close() -> Self {
        Self(Rest::UntilClose)
    }

    /// Whether all bytes have been taken.
    pub fn is_complete(&self) -> bool {
        self.0 == Rest::Complete
    }

    /// Whether the end of the connection is the end of the body.
    pub fn ends_with_connection(&self) -> bool {
        self.0 == Rest::UntilClose
    }

    /// Takes received bytes, up to the end of the body. Wrong framing is [`HttpError::Protocol`].
    pub fn take(&mut self, bytes: &[u8]) -> Result<Taken, HttpError> {
        let mut taken = Taken { used: 0, content: 0 };
        while taken.used < bytes.len() {
            let rest = &bytes[taken.used..];
            taken.used += match &mut self.0 {
                Rest::Complete => break,
                Rest::UntilClose => {
                    taken.content += rest.len() as u64;
                    rest.len()
                }
                Rest::Length(left) | Rest::Chunk(left) => {
                    let used = (*left).min(rest.len() as u64);
                    *left -= used;
                    taken.content += used;
                    if *left == 0 {
                        self.0 =
                            if matches!(self.0, Rest::Chunk(_)) { Rest::ChunkEnd } else { Rest::Complete };
                    }
                    used as usize
                }
                // Byte by byte, since a line may be split between two reads at any place.
                Rest::Size { .. } | Rest::ChunkEnd | Rest::Trailer { .. } => {
                    self.0 = self.next(rest[0])?;
                    1
                }
            };
        }
        Ok(taken)
    }

    /// The [`Rest`] after one more byte of a line.
    fn next(&self, byte: u8) -> Result<Rest, HttpError> {
        Ok(match self.0 {
            // A chunk extension or a trailer without an end would otherwise keep the client busy.
            Rest::Size { seen, .. } | Rest::Trailer { seen } if seen > LINE => {
                return Err(wrong("a line of the chunked body is too long"));
            }
            // RFC 9112 section 7.1: a size has at least one digit, also before an extension.
            Rest::Size { seen: 0, .. } if !byte.is_ascii_hexdigit() => return Err(bad_size()),
            // RFC 9112 section 7.1: a chunk of size 0 is the last one; trailers follow.
            Rest::Size { size, .. } if byte == b'\n' => {
                if size == 0 {
                    Rest::Trailer { seen: 0 }
                } else {
                    Rest::Chunk(size)
                }
            }
            Rest::Size { seen, size, extension } => {
                // RFC 9112 section 7.1.1: unknown chunk extensions are ignored, and with them the white space
                // before.
                let extension = extension || matches!(byte, b';' | b' ' | b'\t' | b'\r');
                let size = if extension { size } else { longer(size, byte)? };
                Rest::Size { seen: seen + 1, size, extension }
            }
            // RFC 9112 section 2.2 permits a line break without the carriage return.
            Rest::ChunkEnd if byte == b'\r' => Rest::ChunkEnd,
            Rest::ChunkEnd if byte == b'\n' => Rest::Size { seen: 0, size: 0, extension: false },
            Rest::ChunkEnd => return Err(wrong("a chunk of the body is longer than its size")),
            Rest::Trailer { seen } if byte == b'\r' => Rest::Trailer { seen },
            Rest::Trailer { seen: 0 } if byte == b'\n' => Rest::Complete,
            Rest::Trailer { .. } if byte == b'\n' => Rest::Trailer { seen: 0 },
            Rest::Trailer { seen } => Rest::Trailer { seen: seen + 1 },
            Rest::Length(_) | Rest::UntilClose | Rest::Chunk(_) | Rest::Complete => {
                unreachable!("these are not read by the byte")
            }
        })
    }
}

/// Appends a hexadecimal digit to `size`.
fn longer(size: u64, digit: u8) -> Result<u64, HttpError> {
    let digit = char::from(digit).to_digit(16).ok_or_else(bad_size)?;
    // An overflow would end a chunk too early, and its content would be read as the next chunk.
    size.checked_mul(16).map(|size| size + u64::from(digit)).ok_or_else(bad_size)
}

fn bad_size() -> HttpError {
    wrong("a chunk of the body has a wrong size")
}

fn wrong(text: &str) -> HttpError {
    HttpError::protocol(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKED: &str =
        "5\r\nhello\r\n1a;name=value\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nTrailer: yes\r\n\r\n";

    #[test]
    fn a_chunked_body_is_read_however_it_is_cut() {
        for size in 1..CHUNKED.len() {
            let mut body = Body::chunked();
            let mut total = 0;
            for piece in CHUNKED.as_bytes().chunks(size) {
                assert!(!body.is_complete());
                total += body.take(piece).expect("a right body").content;
            }
            assert!(body.is_complete(), "in pieces of {size}");
            assert_eq!(total, 31);
        }
    }

    #[test]
    fn a_body_of_a_length_ends_there() {
        let mut body = Body::of_length(10);
        assert_eq!(body.take(b"1234567").expect("a part"), Taken { used: 7, content: 7 });
        assert!(!body.is_complete());
        assert_eq!(body.take(b"890x").expect("the rest"), Taken { used: 3, content: 3 });
        assert!(body.is_complete());
        assert_eq!(body.take(b"x").expect("bytes of another response"), Taken { used: 0, content: 0 });
        assert!(Body::of_length(0).is_complete());
    }

    #[test]
    fn a_wrong_chunk_is_an_error() {
        for text in ["x\r\n", "\r\n", ";x\r\n", " \r\n", "5\r\nhelloX", "11112222333344445\r\n"] {
            assert!(Body::chunked().take(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(Body::chunked().take(&[b'0'; 10_000]).is_err());
    }
}

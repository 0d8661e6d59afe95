//! Finds the end of an HTTP/1.1 response body (RFC 9112 section 6.3).

use crate::error::Failure;
use crate::result::Cause;

/// Maximum line in a chunked body: a size with extensions, or a trailer.
const LINE: usize = 8 * 1024;

/// State of reading a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Body(Rest);

#[derive(Debug, PartialEq, Eq)]
enum Rest {
    Length(u64),
    UntilClose,
    /// In the line with the size of a chunk: number of bytes and size so far.
    Size {
        seen: usize,
        size: u64,
        extension: bool,
    },
    /// Missing bytes of a chunk, including the line break after it.
    Chunk(u64),
    ChunkEnd,
    /// In a trailer: its bytes so far.
    Trailer {
        seen: usize,
    },
    Complete,
}

impl Body {
    pub(super) fn none() -> Self {
        Self(Rest::Complete)
    }

    pub(super) fn of_length(length: u64) -> Self {
        Self(if length == 0 { Rest::Complete } else { Rest::Length(length) })
    }

    pub(super) fn chunked() -> Self {
        Self(Rest::Size { seen: 0, size: 0, extension: false })
    }

    pub(super) fn until_close() -> Self {
        Self(Rest::UntilClose)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.0 == Rest::Complete
    }

    pub(super) fn ends_with_connection(&self) -> bool {
        self.0 == Rest::UntilClose
    }

    /// Consumes received bytes and returns the number of body bytes among them. Bytes after the end are an error.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Result<u64, Failure> {
        let mut total = 0;
        while !bytes.is_empty() {
            let used = match &mut self.0 {
                Rest::Complete => return Err(wrong("there is more than one response to one request")),
                Rest::UntilClose => {
                    total += bytes.len() as u64;
                    bytes.len()
                }
                Rest::Length(left) | Rest::Chunk(left) => {
                    let used = (*left).min(bytes.len() as u64);
                    *left -= used;
                    total += used;
                    if *left == 0 {
                        self.0 =
                            if matches!(self.0, Rest::Chunk(_)) { Rest::ChunkEnd } else { Rest::Complete };
                    }
                    used as usize
                }
                Rest::Size { .. } | Rest::ChunkEnd | Rest::Trailer { .. } => {
                    self.0 = self.next(bytes[0])?;
                    1
                }
            };
            bytes = &bytes[used..];
        }
        Ok(total)
    }

    /// The state after one more byte of a line.
    fn next(&self, byte: u8) -> Result<Rest, Failure> {
        Ok(match self.0 {
            Rest::Size { seen, .. } | Rest::Trailer { seen } if seen > LINE => {
                return Err(wrong("a line of its chunked body is too long"));
            }
            Rest::Size { seen: 0, .. } if byte == b'\n' || byte == b'\r' => return Err(bad_size()),
            Rest::Size { size, .. } if byte == b'\n' => {
                if size == 0 {
                    Rest::Trailer { seen: 0 }
                } else {
                    Rest::Chunk(size)
                }
            }
            Rest::Size { seen, size, extension } => {
                let extension = extension || matches!(byte, b';' | b' ' | b'\t' | b'\r');
                let size = if extension { size } else { longer(size, byte)? };
                Rest::Size { seen: seen + 1, size, extension }
            }
            Rest::ChunkEnd if byte == b'\r' => Rest::ChunkEnd,
            Rest::ChunkEnd if byte == b'\n' => Rest::Size { seen: 0, size: 0, extension: false },
            Rest::ChunkEnd => return Err(wrong("a chunk of its body is longer than it says")),
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
fn longer(size: u64, digit: u8) -> Result<u64, Failure> {
    let digit = char::from(digit).to_digit(16).ok_or_else(bad_size)?;
    size.checked_mul(16).map(|size| size + u64::from(digit)).ok_or_else(bad_size)
}

fn bad_size() -> Failure {
    wrong("a chunk of its body has a wrong size")
}

fn wrong(text: &str) -> Failure {
    Failure::new(Cause::Response, format!("the response is wrong: {text}"))
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
                total += body.take(piece).expect("a right body");
            }
            assert!(body.is_complete(), "in pieces of {size}");
            assert_eq!(total, 31);
        }
    }

    #[test]
    fn a_body_of_a_length_ends_there() {
        let mut body = Body::of_length(10);
        assert_eq!(body.take(b"1234567").expect("a part"), 7);
        assert!(!body.is_complete());
        assert_eq!(body.take(b"890").expect("the rest"), 3);
        assert!(body.is_complete());
        assert!(body.take(b"x").is_err());
        assert!(Body::of_length(0).is_complete());
    }

    #[test]
    fn a_wrong_chunk_is_an_error() {
        for text in ["x\r\n", "\r\n", "5\r\nhelloX", "11112222333344445\r\n"] {
            assert!(Body::chunked().take(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(Body::chunked().take(&[b'0'; 10_000]).is_err());
    }
}

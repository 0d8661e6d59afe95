//! Decoder of the chunked transfer coding (RFC 9112 section 7.1), with strict line ends.

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::LINES;
use super::body::MalformedBody;

/// Maximum total size of the chunk extensions of a body, in bytes. Servers rarely send any.
const EXTENSIONS: usize = 16 << 10;

/// Maximum size of a trailer section, in bytes.
const TRAILERS: usize = 16 << 10;

/// Length in bytes below which pieces of a body are copied into one: a piece that shares a read buffer holds all of it.
pub const SHORT: usize = 1 << 10;
/// Length in bytes of joined pieces from which no more are added.
pub const JOINED: usize = 16 << 10;

/// Maximum number of hexadecimal digits of a chunk size.
const DIGITS: usize = 16;

/// State of decoding a chunked body.
#[derive(Debug)]
pub struct Chunked {
    state: State,
    /// Remaining bytes permitted for chunk extensions.
    extensions: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the size of a chunk.
    Size,
    /// Within a chunk: remaining bytes.
    Data(u64),
    /// Before the `\r\n` at the end of a chunk.
    DataEnd,
    Trailers,
    Ended,
}

/// Part of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    /// Bytes of the body.
    Data(Bytes),
    /// Non-empty trailer section; the body ends with it.
    Trailers(HeaderMap),
    /// End of the body, without a trailer section.
    End,
}

impl Default for Chunked {
    /// State before the first chunk.
    fn default() -> Self {
        Self { state: State::Size, extensions: EXTENSIONS }
    }
}

impl Chunked {
    /// Whether the body is read completely, including trailers.
    pub fn is_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Takes the next part from the front of `input`; `None` if more bytes are needed. The data of short chunks that have
    /// arrived together is one part.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Part>, MalformedBody> {
        let part = self.decode_one(input)?;
        Ok(match part {
            Some(Part::Data(first)) if first.len() < SHORT => Some(Part::Data(self.join(first, input))),
            part => part,
        })
    }

    fn decode_one(&mut self, input: &mut BytesMut) -> Result<Option<Part>, MalformedBody> {
        loop {
            match self.state {
                State::Size => match self.size(input)? {
                    None => return Ok(None),
                    Some(0) => self.state = State::Trailers,
                    Some(size) => self.state = State::Data(size),
                },
                State::Data(left) => {
                    if input.is_empty() {
                        return Ok(None);
                    }
                    let length = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    let left = left - length as u64;
                    self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
                    return Ok(Some(Part::Data(input.split_to(length).freeze())));
                }
                State::DataEnd => match input[..] {
                    [b'\r', b'\n', ..] => {
                        input.advance(2);
                        self.state = State::Size;
                    }
                    [] | [b'\r'] => return Ok(None),
                    _ => return Err(MalformedBody::Chunk),
                },
                State::Trailers => return self.trailers(input),
                State::Ended => return Ok(Some(Part::End)),
            }
        }
    }

    /// Joins `first` with the short chunks that follow in `input`: a frame for each would cost a multiple of its bytes here
    /// and in each later step, and would hold the whole buffer.
    fn join(&mut self, first: Bytes, input: &mut BytesMut) -> Bytes {
        let Some(length) = self.next_short(input) else { return first };
        let mut joined = BytesMut::with_capacity(first.len() + length);
        joined.extend_from_slice(&first);
        drop(first);
        let mut next = Some(length);
        while let Some(length) = next {
            joined.extend_from_slice(&input[..length]);
            input.advance(length);
            self.state = State::DataEnd;
            next = if joined.len() < JOINED { self.next_short(input) } else { None };
        }
        joined.freeze()
    }

    /// Advances to the data of the next chunk, and returns its length if the chunk is short and all of its data has arrived. A
    /// fault is left to the next call of [`Self::decode`].
    fn next_short(&mut self, input: &mut BytesMut) -> Option<usize> {
        loop {
            match self.state {
                State::DataEnd if input.starts_with(b"\r\n") => {
                    input.advance(2);
                    self.state = State::Size;
                }
                State::Size => match self.size(input).ok()?? {
                    0 => self.state = State::Trailers,
                    size => self.state = State::Data(size),
                },
                State::Data(left) => {
                    let length = usize::try_from(left).ok()?;
                    return (length < SHORT && length <= input.len()).then_some(length);
                }
                State::DataEnd | State::Trailers | State::Ended => return None,
            }
        }
    }

    /// Takes the end of the chunk and of the body if `input` is exactly that, so that a response in one chunk ends together
    /// with its data. To be called after data.
    pub fn settle(&mut self, input: &mut BytesMut) {
        let is_end = match self.state {
            State::DataEnd => input[..] == *b"\r\n0\r\n\r\n",
            State::Trailers => input[..] == *b"\r\n",
            _ => false,
        };
        if is_end {
            input.clear();
            self.state = State::Ended;
        }
    }

    /// Takes the size line of a chunk, and ignores its extensions.
    fn size(&mut self, input: &mut BytesMut) -> Result<Option<u64>, MalformedBody> {
        // The window bounds the search: a size line without an end is refused before it fills the memory.
        let window = &input[..input.len().min(DIGITS + 2 + self.extensions)];
        let Some(end) = memchr::memchr(b'\n', window) else {
            if window.len() < input.len() {
                return Err(MalformedBody::Extensions);
            }
            // An invalid size is refused immediately, not at the end of its line.
            return match input.first() {
                Some(first) if !first.is_ascii_hexdigit() => Err(MalformedBody::Chunk),
                _ => Ok(None),
            };
        };
        let line = window[..end].strip_suffix(b"\r").ok_or(MalformedBody::Chunk)?;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (digits, rest) = line.split_at(digits);
        let space = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let extension = &rest[space..];
        // RFC 9112 section 2.2: a bare `\r` ends a line for some servers, which would then see another chunk.
        if digits.is_empty()
            || digits.len() > DIGITS
            || !(extension.is_empty() || extension.starts_with(b";"))
            || rest.contains(&b'\r')
        {
            return Err(MalformedBody::Chunk);
        }
        self.extensions = self.extensions.checked_sub(rest.len()).ok_or(MalformedBody::Extensions)?;
        let size = digits.iter().fold(0, |size, digit| size << 4 | value(*digit));
        input.advance(end + 1);
        Ok(Some(size))
    }

    /// Takes the trailer section, up to the empty line.
    fn trailers(&mut self, input: &mut BytesMut) -> Result<Option<Part>, MalformedBody> {
        if input.starts_with(b"\r\n") {
            input.advance(2);
            self.state = State::Ended;
            return Ok(Some(Part::End));
        }
        let section = &input[..input.len().min(TRAILERS)];
        let Some(end) = memchr::memmem::find(section, b"\r\n\r\n") else {
            return if section.len() < TRAILERS { Ok(None) } else { Err(MalformedBody::Trailers) };
        };
        let section = input.split_to(end + 4);
        self.state = State::Ended;
        // `httparse` accepts a bare line feed.
        if memchr::memchr_iter(b'\n', &section).any(|at| at == 0 || section[at - 1] != b'\r') {
            return Err(MalformedBody::Trailers);
        }
        read_trailers(&section).map(|trailers| Some(Part::Trailers(trailers)))
    }
}

fn value(digit: u8) -> u64 {
    u64::from(char::from(digit).to_digit(16).unwrap_or_default())
}

fn read_trailers(section: &[u8]) -> Result<HeaderMap, MalformedBody> {
    let mut lines = [httparse::EMPTY_HEADER; LINES];
    let lines = match httparse::parse_headers(section, &mut lines) {
        Ok(httparse::Status::Complete((length, lines))) if length == section.len() => lines,
        _ => return Err(MalformedBody::Trailers),
    };
    let mut trailers = HeaderMap::with_capacity(lines.len());
    for line in lines {
        let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| MalformedBody::Trailers)?;
        let value = HeaderValue::from_bytes(line.value).map_err(|_| MalformedBody::Trailers)?;
        trailers.append(name, value);
    }
    Ok(trailers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All data and the trailers of `bytes`, which come in pieces of `step`; what is left; or the error.
    fn decode(bytes: &[u8], step: usize) -> Result<(Vec<u8>, Option<HeaderMap>, usize), MalformedBody> {
        let (mut decoder, mut input, mut data) = (Chunked::default(), BytesMut::new(), Vec::new());
        for piece in bytes.chunks(step) {
            input.extend_from_slice(piece);
            while let Some(part) = decoder.decode(&mut input)? {
                match part {
                    Part::Data(piece) => data.extend_from_slice(&piece),
                    Part::Trailers(trailers) => return Ok((data, Some(trailers), input.len())),
                    Part::End => return Ok((data, None, input.len())),
                }
            }
        }
        assert!(!decoder.is_ended());
        Ok((data, None, usize::MAX))
    }

    fn all_steps(bytes: &[u8]) -> Result<(Vec<u8>, Option<HeaderMap>, usize), MalformedBody> {
        let whole = decode(bytes, bytes.len().max(1));
        for step in 1..bytes.len().min(40) {
            let (one, other) = (decode(bytes, step), whole.clone());
            // What comes after the body in the same read is left over.
            assert_eq!(
                one.map(|(data, trailers, _)| (data, trailers)),
                other.map(|(data, trailers, _)| (data, trailers))
            );
        }
        whole
    }

    #[test]
    fn chunks_are_joined_however_they_are_split_over_reads() {
        let (data, trailers, left) =
            all_steps(b"5\r\nhello\r\n1;a=b\r\n \r\n00D \t;x\r\nmany of these\r\n0\r\n\r\nHTTP")
                .expect("a body");
        assert_eq!((data.as_slice(), trailers, left), (&b"hello many of these"[..], None, 4));
    }

    #[test]
    fn trailers_end_a_body() {
        let (data, trailers, left) =
            all_steps(b"1\r\nx\r\n0\r\nA: 1\r\nb: 2\r\na:3\r\n\r\n").expect("a body");
        let trailers = trailers.expect("trailers");
        assert_eq!((data.as_slice(), left), (&b"x"[..], 0));
        assert_eq!(trailers.get_all("a").iter().collect::<Vec<_>>(), ["1", "3"]);
        assert_eq!(trailers["b"], "2");
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for (body, refused) in [
            (&b"5\nhello\r\n"[..], MalformedBody::Chunk),
            (b"\r\n", MalformedBody::Chunk),
            (b"g\r\n", MalformedBody::Chunk),
            (b"-1\r\n", MalformedBody::Chunk),
            (b"+1\r\nx", MalformedBody::Chunk),
            (b"0x1\r\nx", MalformedBody::Chunk),
            (b" 1\r\nx", MalformedBody::Chunk),
            (b"1 1\r\nx", MalformedBody::Chunk),
            (b"1\r\r\nx", MalformedBody::Chunk),
            (b"1;a\rb\r\nx", MalformedBody::Chunk),
            (b"11111111111111111\r\nx", MalformedBody::Chunk),
            (b"1\r\nxy\r\n", MalformedBody::Chunk),
            (b"1\r\nx\n0\r\n\r\n", MalformedBody::Chunk),
            (b"0\r\nno colon\r\n\r\n", MalformedBody::Trailers),
            (b"0\r\n a: b\r\n\r\n", MalformedBody::Trailers),
            (b"0\r\na: b\n\n\r\n\r\n", MalformedBody::Trailers),
            (b"0\r\na: b\nc: d\r\n\r\n", MalformedBody::Trailers),
        ] {
            assert_eq!(all_steps(body).map(|_| ()), Err(refused), "{}", body.escape_ascii());
        }
    }

    #[test]
    fn extensions_and_trailers_have_limits() {
        let extended = |length: usize| [b"1;".to_vec(), vec![b'a'; length], b"\r\nx\r\n".to_vec()].concat();
        assert!(decode(&extended(EXTENSIONS - 10), 4096).is_ok());
        assert_eq!(decode(&extended(EXTENSIONS + 10), 4096).map(|_| ()), Err(MalformedBody::Extensions));
        assert_eq!(decode(&extended(1000).repeat(17), 4096).map(|_| ()), Err(MalformedBody::Extensions));
        let trailing =
            |length: usize| [b"0\r\na: ".to_vec(), vec![b'a'; length], b"\r\n\r\n".to_vec()].concat();
        assert!(decode(&trailing(TRAILERS - 10), 4096).is_ok());
        assert_eq!(decode(&trailing(TRAILERS), 4096).map(|_| ()), Err(MalformedBody::Trailers));
        let many = [b"0\r\n".to_vec(), b"a: b\r\n".repeat(LINES + 1), b"\r\n".to_vec()].concat();
        assert_eq!(decode(&many, 4096).map(|_| ()), Err(MalformedBody::Trailers));
    }

    #[test]
    fn a_body_ends_with_its_last_data_if_its_end_has_come() {
        for (body, ended) in [
            (&b"5\r\nhello\r\n0\r\n\r\n"[..], true),
            (b"5\r\nhello\r\n0\r\n", false),
            (b"5\r\nhello\r\n0\r\n\r\nx", false),
            (b"5\r\nhello\r\n0\r\na: b\r\n\r\n", false),
            (b"5\r\nhello", false),
        ] {
            let (mut decoder, mut input) = (Chunked::default(), BytesMut::from(body));
            assert_eq!(decoder.decode(&mut input), Ok(Some(Part::Data(Bytes::from("hello")))));
            decoder.settle(&mut input);
            assert_eq!(decoder.is_ended(), ended, "{}", body.escape_ascii());
            assert!(!ended || input.is_empty());
        }
    }

    #[test]
    fn short_chunks_that_arrive_together_are_few_parts() {
        let long = [format!("{SHORT:x}\r\n").into_bytes(), vec![b'l'; SHORT], b"\r\n".to_vec()].concat();
        for (body, lengths) in [
            (b"1\r\nx\r\n".repeat(10_000), vec![10_000]),
            (b"1\r\nx\r\n".repeat(JOINED + 5), vec![JOINED, 5]),
            ([b"1\r\nx\r\n".repeat(3), long.clone(), b"2\r\nxy\r\n".repeat(2)].concat(), vec![3, SHORT, 4]),
            // The fault after the data is found when the data has been taken.
            ([b"1\r\nx\r\n".repeat(3), b"?".to_vec()].concat(), vec![3]),
            (b"3\r\nxyz\r\n3\r\nx".to_vec(), vec![3, 1]),
        ] {
            let (mut decoder, mut input, mut parts) =
                (Chunked::default(), BytesMut::from(&body[..]), Vec::new());
            while let Ok(Some(Part::Data(data))) = decoder.decode(&mut input) {
                parts.push(data.len());
            }
            assert_eq!(parts, lengths);
            assert_eq!(decoder.decode(&mut input).is_err(), body.ends_with(b"?"));
        }
    }

    #[test]
    fn a_body_of_short_chunks_ends_with_its_last_data() {
        let (mut decoder, mut input) =
            (Chunked::default(), BytesMut::from(&b"1\r\nx\r\n1\r\ny\r\n0\r\n\r\n"[..]));
        assert_eq!(decoder.decode(&mut input), Ok(Some(Part::Data(Bytes::from("xy")))));
        decoder.settle(&mut input);
        assert!(decoder.is_ended() && input.is_empty());
    }
}

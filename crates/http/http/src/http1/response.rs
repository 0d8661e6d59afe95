//! Parser of response heads, including the framing of the body.

mod cgi;

use std::mem::MaybeUninit;
use std::ops::Range;

use bytes::BytesMut;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use super::body::BodyReader;
use super::chunked::Chunked;
use super::shared_head::SharedHead;
use super::{HeadLimits, LINES, MalformedResponse, names, place};
use crate::message::HeaderList;
use crate::validate;

/// Response head, with its consequences for the body and the connection.
#[derive(Debug)]
pub struct ResponseHead {
    /// Status code.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderList,
    /// Body that follows.
    pub body: BodyReader,
    /// The server keeps the connection open after the body (RFC 9112 section 9.3).
    pub persists: bool,
}

/// Positions of a name and a value in the bytes of a head.
#[derive(Clone, Default)]
struct Line {
    name: Range<u32>,
    value: Range<u32>,
}

impl ResponseHead {
    /// Takes the head of a response to a request by `method` from the front of `input`; `None` if it is incomplete.
    ///
    /// # Errors
    ///
    /// [`MalformedResponse::HeadTooLarge`] above `limits`; the other errors for bytes that cannot become a head.
    pub fn take(
        input: &mut BytesMut,
        method: &Method,
        limits: HeadLimits,
    ) -> Result<Option<Self>, MalformedResponse> {
        let mut usual = [const { Line { name: 0..0, value: 0..0 } }; LINES];
        let mut more = Vec::new();
        let lines = usual.get_mut(..limits.lines).unwrap_or_else(|| {
            more.resize(limits.lines, Line::default());
            &mut more
        });
        let Some(start) = Start::parse(input, limits.size, lines)? else { return Ok(None) };
        let status = start.code.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.ok_or(MalformedResponse::Status)?;
        let head = input.split_to(start.length).freeze();
        let mut facts = Facts::new();
        let mut headers = facts.read(&SharedHead::new(head), &lines[..start.lines])?;
        let body = facts.body(status, &mut headers, method, start.is_old)?;
        let persists = !matches!(body, BodyReader::UntilClose) && facts.persists(start.is_old);
        Ok(Some(Self { status, headers, body, persists }))
    }
}

/// The start of a head, with the numbers of its bytes and headers.
struct Start {
    code: Option<u16>,
    is_old: bool,
    length: usize,
    lines: usize,
}

impl Start {
    /// Parses a head of at most `size` bytes, and writes the positions of its headers to `lines`; `None` if it is incomplete.
    fn parse(bytes: &[u8], size: usize, lines: &mut [Line]) -> Result<Option<Self>, MalformedResponse> {
        let mut usual = [const { MaybeUninit::uninit() }; LINES];
        let mut more = Vec::new();
        let parsed = usual.get_mut(..lines.len()).unwrap_or_else(|| {
            more.resize(lines.len(), MaybeUninit::uninit());
            &mut more
        });
        let mut response = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let length = match config.parse_response_with_uninit_headers(&mut response, bytes, parsed) {
            Ok(httparse::Status::Complete(length)) if length <= size => length,
            Ok(httparse::Status::Partial) if bytes.len() < size => return Ok(None),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(MalformedResponse::HeadTooLarge),
            Err(error) => return Err(MalformedResponse::Head(error)),
        };
        for (line, header) in lines.iter_mut().zip(&*response.headers) {
            *line = Line { name: place(header.name.as_bytes(), bytes), value: place(header.value, bytes) };
        }
        let lines = response.headers.len();
        Ok(Some(Self { code: response.code, is_old: response.version == Some(0), length, lines }))
    }
}

/// Headers that concern the message or its connection, recorded while the head is parsed.
#[derive(Debug)]
struct Facts {
    /// Value of all `Content-Length` lines; `None` without one, an error if they differ.
    length: Result<Option<u64>, MalformedResponse>,
    /// Whether `Content-Length` is repeated.
    is_repeated: bool,
    /// `None` without a transfer coding; otherwise whether `chunked` is the only one.
    is_chunked: Option<bool>,
    closes: bool,
    keeps: bool,
}

impl Facts {
    fn new() -> Self {
        Self { length: Ok(None), is_repeated: false, is_chunked: None, closes: false, keeps: false }
    }

    /// Parses the headers at `lines` of `head`.
    fn read(&mut self, head: &SharedHead, lines: &[Line]) -> Result<HeaderList, MalformedResponse> {
        let mut headers = HeaderList::with_capacity(lines.len());
        for Line { name, value } in lines {
            let name = names::parse(head.name(name.clone()));
            let name = name.map_err(|_| MalformedResponse::Head(httparse::Error::HeaderName))?;
            let value = head.value(value.clone());
            let value = value.map_err(|_| MalformedResponse::Head(httparse::Error::HeaderValue))?;
            if self.note(&name, &value) {
                headers.append(name, value);
            }
        }
        Ok(headers)
    }

    /// Records a header. Returns whether to keep it: an option of `Connection` that states only persistence is dropped.
    fn note(&mut self, name: &HeaderName, value: &HeaderValue) -> bool {
        match *name {
            header::CONTENT_LENGTH => {
                self.length = self.length.and_then(|length| self.with_length(length, value));
            }
            header::TRANSFER_ENCODING => {
                // A second line adds another coding, so `chunked` is then not the only one.
                self.is_chunked = Some(self.is_chunked.is_none() && validate::is_chunked(value));
            }
            header::CONNECTION => {
                let (mut names_others, is) =
                    (false, |option: &[u8], word: &str| option.eq_ignore_ascii_case(word.as_bytes()));
                for option in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    self.closes |= is(option, "close");
                    self.keeps |= is(option, "keep-alive");
                    names_others |= !is(option, "close") && !is(option, "keep-alive");
                }
                return names_others;
            }
            _ => {}
        }
        true
    }

    fn with_length(
        &mut self,
        mut length: Option<u64>,
        value: &HeaderValue,
    ) -> Result<Option<u64>, MalformedResponse> {
        // RFC 9112 section 6.3: a list of equal numbers is one length.
        for part in value.as_bytes().split(|byte| *byte == b',') {
            let digits = part.trim_ascii();
            let valid = digits.iter().all(u8::is_ascii_digit);
            let number = str::from_utf8(digits).ok().filter(|_| valid).and_then(|digits| digits.parse().ok());
            let number = number.ok_or(MalformedResponse::Length)?;
            if length.is_some_and(|length| length != number) {
                return Err(MalformedResponse::Length);
            }
            self.is_repeated |= length.is_some();
            length = Some(number);
        }
        Ok(length)
    }

    /// Whether the connection persists (RFC 9112 section 9.3).
    fn persists(&self, is_old: bool) -> bool {
        if is_old { self.keeps } else { !self.closes }
    }

    /// Framing of the body (RFC 9112 section 6.3). Of several equal lengths one line is kept.
    fn body(
        &self,
        status: StatusCode,
        headers: &mut HeaderList,
        method: &Method,
        is_old: bool,
    ) -> Result<BodyReader, MalformedResponse> {
        // RFC 9112 section 6.3, item 1
        let is_bodyless = status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            || *method == Method::HEAD;
        match self.is_chunked {
            Some(false) => Err(MalformedResponse::TransferCoding),
            Some(true) if is_old => Err(MalformedResponse::OldTransferCoding),
            _ if is_bodyless => Ok(BodyReader::Length(0)),
            Some(true) => Ok(BodyReader::Chunked(Chunked::default())),
            None => {
                // RFC 9112 section 6.3: a transfer coding overrides the length, so a wrong one matters only
                // here.
                let length = self.length?;
                if let Some(length) = length.filter(|_| self.is_repeated) {
                    headers.insert(header::CONTENT_LENGTH, length.into());
                }
                Ok(length.map_or(BodyReader::UntilClose, BodyReader::Length))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(bytes: &[u8], method: &Method) -> Result<Option<(ResponseHead, BytesMut)>, MalformedResponse> {
        let mut input = BytesMut::from(bytes);
        Ok(ResponseHead::take(&mut input, method, HeadLimits { size: 4096, lines: LINES })?
            .map(|head| (head, input)))
    }

    fn head(text: &str) -> ResponseHead {
        take(text.as_bytes(), &Method::GET).expect("a head").expect("all of it").0
    }

    fn refused(text: &str) -> MalformedResponse {
        take(text.as_bytes(), &Method::GET).expect_err("no head")
    }

    #[test]
    fn a_head_is_taken_once_all_of_it_has_come() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\nx-a:  2 \r\n\r\nhello";
        for length in 0..text.len() - 5 {
            assert!(take(&text[..length], &Method::GET).expect("no error").is_none(), "{length}");
        }
        let (head, rest) = take(text, &Method::GET).expect("a head").expect("all of it");
        assert_eq!((head.status, head.body.left(), head.persists), (StatusCode::OK, Some(5), true));
        assert_eq!(head.headers.get_all("x-a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(&rest[..], b"hello");
    }

    #[test]
    fn the_end_of_the_body_follows_from_the_head() {
        let left = |text: &str| head(text).body.left();
        assert_eq!(left("HTTP/1.1 200 OK\r\n\r\n"), None);
        assert_eq!(left("HTTP/1.1 200 OK\r\nContent-Length: 4, 4\r\n\r\n"), Some(4));
        let repeated = head("HTTP/1.1 200 OK\r\nContent-Length: 04\r\nContent-Length: 4\r\n\r\n");
        assert_eq!(repeated.body.left(), Some(4));
        assert_eq!(repeated.headers.get_all("content-length").collect::<Vec<_>>(), ["4"]);
        for status in ["103 Early", "204 None", "304 Same"] {
            assert_eq!(left(&format!("HTTP/1.1 {status}\r\nContent-Length: 4\r\n\r\n")), Some(0));
        }
        let both = head("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: Chunked\r\n\r\n");
        assert!(matches!(both.body, BodyReader::Chunked(_)));
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n";
        let (head, _) = take(text, &Method::HEAD).expect("a head").expect("all of it");
        assert!(head.body.is_ended());
    }

    #[test]
    fn a_connection_persists_as_the_version_and_the_options_say() {
        let persists = |text: &str| head(&format!("{text}Content-Length: 0\r\n\r\n")).persists;
        assert!(persists("HTTP/1.1 200 OK\r\n"));
        assert!(!persists("HTTP/1.1 200 OK\r\nConnection: Close\r\n"));
        assert!(!persists("HTTP/1.1 200 OK\r\nConnection: x-a\r\nConnection: b , close\r\n"));
        assert!(persists("HTTP/1.1 200 OK\r\nConnection: closed\r\n"));
        assert!(!persists("HTTP/1.0 200 OK\r\n"));
        assert!(persists("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n"));
        assert!(!head("HTTP/1.1 200 OK\r\n\r\n").persists);
    }

    #[test]
    fn a_head_that_means_two_things_is_refused() {
        for length in
            ["4\r\nContent-Length: 5", "4, 5", "", "+4", "-1", "4 4", "0x4", "18446744073709551616", "4,"]
        {
            let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            assert_eq!(refused(&text), MalformedResponse::Length, "{length}");
        }
        for coding in [
            "gzip",
            "chunked, chunked",
            "gzip, chunked",
            "identity",
            "xchunked",
            "chunked\r\nTransfer-Encoding: chunked",
        ] {
            let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n");
            assert_eq!(refused(&text), MalformedResponse::TransferCoding, "{coding}");
        }
        let old = "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(refused(old), MalformedResponse::OldTransferCoding);
    }

    #[test]
    fn what_is_no_head_is_refused_as_soon_as_it_shows() {
        for text in [
            "SSH-2.0-x\r\n",
            "HTTP/2.0 200 OK\r\n",
            "HTTP/1.1 20 OK\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length : 4\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n folded: 1\r\n",
            "HTTP/1.1 200 OK\r\nA: b\0\r\n",
            "HTTP/1.1 200 OK\r\n: b\r\n",
        ] {
            assert!(matches!(refused(text), MalformedResponse::Head(_)), "{text}");
        }
        assert_eq!(refused("HTTP/1.1 000 OK\r\n\r\n"), MalformedResponse::Status);
    }

    #[test]
    fn a_head_has_limits() {
        let long = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(4096));
        assert_eq!(refused(&long), MalformedResponse::HeadTooLarge);
        assert_eq!(refused(&format!("{long}\r\n\r\n")), MalformedResponse::HeadTooLarge);
        for limit in [1, LINES, 3 * LINES] {
            let many = |lines| format!("HTTP/1.1 200 OK\r\n{}\r\n", "a:b\r\n".repeat(lines));
            let take = |lines| {
                let limits = HeadLimits { size: 4096, lines: limit };
                ResponseHead::take(&mut many(lines).as_bytes().into(), &Method::GET, limits)
            };
            assert_eq!(take(limit).expect("no error").expect("a head").headers.len(), limit);
            assert_eq!(take(limit + 1).map(|_| ()), Err(MalformedResponse::HeadTooLarge));
        }
    }
}

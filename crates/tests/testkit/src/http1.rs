//! A strict HTTP/1.1 reader for tests, which reads a head byte by byte so that it consumes nothing beyond it.

use std::io::{self, Read};

/// A message head: its first line and its headers in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// Request line or status line.
    pub line: String,
    /// Names (in lower case) and values.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// Reads to the empty line. `None` if the stream ends before the first byte.
    pub fn read(stream: &mut impl Read) -> io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match stream.read(&mut byte) {
                Ok(1) => bytes.push(byte[0]),
                Ok(_) if bytes.is_empty() => return Ok(None),
                Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(Self::parse(&String::from_utf8_lossy(&bytes))))
    }

    fn parse(text: &str) -> Self {
        let mut lines = text.split("\r\n").filter(|line| !line.is_empty());
        let line = lines.next().unwrap_or_default().to_owned();
        let header = |line: &str| {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        Self { line, headers: lines.map(header).collect() }
    }

    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// All values of a header.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(own, _)| own == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Whether the body is chunked.
    pub fn is_chunked(&self) -> bool {
        self.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
    }

    /// The value of `Content-Length`.
    pub fn length(&self) -> Option<usize> {
        self.header("content-length").map(|length| length.parse().expect("a number as Content-Length"))
    }
}

/// A message with its whole body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// First line and headers.
    pub head: Head,
    /// The body without its framing.
    pub body: Vec<u8>,
    /// Trailers of a chunked body.
    pub trailers: Vec<(String, String)>,
}

impl Message {
    /// Reads a request. `None` if the stream ends before it.
    pub fn read_request(stream: &mut impl Read) -> io::Result<Option<Self>> {
        let Some(head) = Head::read(stream)? else { return Ok(None) };
        let length = head.length().unwrap_or(0);
        Self::read_body(stream, head, Some(length)).map(Some)
    }

    /// Reads a response to a method other than HEAD; interim responses count as responses.
    pub fn read_response(stream: &mut impl Read) -> io::Result<Self> {
        let head = Head::read(stream)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = status(&head);
        // RFC 9112 section 6.3: these responses have no body, even with a `Content-Length`.
        let length = if status < 200 || matches!(status, 204 | 304) { Some(0) } else { head.length() };
        Self::read_body(stream, head, length)
    }

    /// Reads the body after `head`: chunks with their trailers, or else `length` bytes, or all bytes to the end of the stream.
    pub fn read_body(stream: &mut impl Read, head: Head, length: Option<usize>) -> io::Result<Self> {
        let mut message = Self { head, ..Self::default() };
        match length {
            // RFC 9112 section 6.3: chunks have precedence over `Content-Length`.
            _ if message.head.is_chunked() => message.read_chunks(stream)?,
            Some(length) => {
                message.body.resize(length, 0);
                stream.read_exact(&mut message.body)?;
            }
            None => {
                stream.read_to_end(&mut message.body)?;
            }
        }
        Ok(message)
    }

    fn read_chunks(&mut self, stream: &mut impl Read) -> io::Result<()> {
        loop {
            let line = read_line(stream)?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(io::Error::other)?;
            if size == 0 {
                break;
            }
            let start = self.body.len();
            self.body.resize(start + size, 0);
            stream.read_exact(&mut self.body[start..])?;
            // Strict, unlike most clients: a server that miscounts must fail the test.
            assert_eq!(read_line(stream)?, "", "a chunk ends with its size");
        }
        loop {
            let line = read_line(stream)?;
            let Some((name, value)) = line.split_once(':') else { return Ok(()) };
            self.trailers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// The status code of a response.
    pub fn status(&self) -> u16 {
        status(&self.head)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }
}

fn status(head: &Head) -> u16 {
    let status = head.line.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("no status line: {:?}", head.line))
}

fn read_line(stream: &mut impl Read) -> io::Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        line.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&line[..line.len() - 2]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_and_trailers_are_read() {
        let mut stream = &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nSum: 5\r\n\r\nrest"[..];
        let message = Message::read_response(&mut stream).unwrap();
        assert_eq!((message.status(), message.text().as_str()), (200, "abcde"));
        assert_eq!(message.trailers, [("sum".to_owned(), "5".to_owned())]);
        assert_eq!(stream, b"rest");
    }

    #[test]
    fn a_length_ends_a_body_and_so_does_the_stream() {
        let mut stream = &b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabHTTP/1.1 404 Not\r\n\r\ncd"[..];
        assert_eq!(Message::read_response(&mut stream).unwrap().text(), "ab");
        assert_eq!(Message::read_response(&mut stream).unwrap().text(), "cd");
    }
}

//! One request over HTTP/1.1. The body is counted, never kept or decompressed.

use std::time::Instant;

use brisk_report::text::{printable, printable_value};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::answer::Answer;
use crate::error::{ProbeError, Step};
use crate::trace::Milestones;
use crate::url::Url;

/// Longest head of an answer, and longest line of a chunk.
const HEAD: usize = 64 * 1024;
const LINE: usize = 4096;

/// Header lines of an answer at most.
const HEADERS: usize = 200;

/// Answers 1xx before the final one.
const INTERIM: u32 = 32;

/// The bytes of the request.
pub(crate) fn request(url: &Url, agent: &str) -> Vec<u8> {
    format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: {agent}\r\nAccept: */*\r\n\r\n",
        url.path,
        url.authority()
    )
    .into_bytes()
}

/// How the end of a body is found (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Length(u64),
    Chunked,
    ToTheEnd,
    /// The length is no number.
    Unreadable,
}

/// Reads the answer, which is filled as it comes. Interim answers are passed over.
pub(crate) async fn answer(
    stream: &mut (impl AsyncRead + Unpin),
    milestones: &mut Milestones,
    found: &mut Answer,
) -> Result<(), ProbeError> {
    let mut buffer = Vec::new();
    let (head, body) = final_of(stream, &mut buffer, milestones).await?;
    milestones.reach(Step::Body);
    let is_last = head.is_last || body == Body::ToTheEnd;
    *found = Answer { is_last, head_at: Some(Instant::now()), ..head };
    if body == Body::Unreadable {
        let reason = "the answer has a content-length that is no number";
        return Err(ProbeError::Answer(reason.to_owned()));
    }
    let mut counter = Counter::new(body);
    loop {
        let used = counter.feed(&buffer);
        found.body_bytes = counter.bytes;
        let used = used?;
        buffer.drain(..used);
        if counter.is_done {
            break;
        }
        buffer.clear();
        if read(stream, &mut buffer).await? == 0 {
            if body == Body::ToTheEnd {
                break;
            }
            return Err(ProbeError::Answer(format!("the body ends after {} bytes", counter.bytes)));
        }
    }
    found.done_at = Some(Instant::now());
    Ok(())
}

async fn read(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> Result<usize, ProbeError> {
    buffer.reserve(16 * 1024);
    stream.read_buf(buffer).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            ProbeError::Answer("the server closed the connection without close_notify".to_owned())
        }
        _ => ProbeError::Answer(format!("the connection broke: {error}")),
    })
}

/// The status, the fields and the length of the first head that is not interim, of any stream, whatever it says of the body.
pub(crate) async fn final_head(stream: &mut (impl AsyncRead + Unpin)) -> Result<Answer, ProbeError> {
    let (mut buffer, mut milestones) = (Vec::new(), Milestones::default());
    final_of(stream, &mut buffer, &mut milestones).await.map(|(answer, _)| answer)
}

/// The same, with what is known of the body; `buffer` keeps the beginning of that.
async fn final_of(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    milestones: &mut Milestones,
) -> Result<(Answer, Body), ProbeError> {
    for interim in 0..INTERIM {
        let (answer, body) = head(stream, buffer, milestones).await?;
        // After 101 comes another protocol, and no other head (RFC 9110 section 15.2.2).
        if !(100..200).contains(&answer.status) || answer.status == 101 {
            return Ok((Answer { interim, ..answer }, body));
        }
    }
    Err(ProbeError::Answer("the server sends interim answers without an end".to_owned()))
}

async fn head(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    milestones: &mut Milestones,
) -> Result<(Answer, Body), ProbeError> {
    loop {
        if !buffer.is_empty() {
            milestones.first_byte.get_or_insert_with(Instant::now);
            if let Some((answer, body, len)) = parse(buffer)? {
                buffer.drain(..len);
                return Ok((answer, body));
            }
        }
        if buffer.len() > HEAD {
            return Err(ProbeError::Answer(format!("the head of the answer is longer than {HEAD} bytes")));
        }
        if read(stream, buffer).await? == 0 {
            return Err(ProbeError::Answer("the server closed the connection without an answer".to_owned()));
        }
    }
}

/// The head at the beginning of `bytes`, its body, and its length; `None` where it is not whole.
fn parse(bytes: &[u8]) -> Result<Option<(Answer, Body, usize)>, ProbeError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let wrong = |error: httparse::Error| ProbeError::Answer(format!("the answer is not HTTP/1.1: {error}"));
    let httparse::Status::Complete(len) = response.parse(bytes).map_err(wrong)? else { return Ok(None) };
    let mut answer = Answer { protocol: "http/1.1".to_owned(), head_bytes: len, ..Answer::default() };
    answer.status = response.code.unwrap_or_default();
    let mut body = None;
    answer.is_last = response.version == Some(0);
    for header in response.headers.iter() {
        let (name, value) = (header.name.to_ascii_lowercase(), String::from_utf8_lossy(header.value));
        match name.as_str() {
            "transfer-encoding" if value.to_ascii_lowercase().contains("chunked") => {
                body = Some(Body::Chunked);
            }
            "content-length" if body.is_none() => {
                body = Some(value.trim().parse().map_or(Body::Unreadable, Body::Length));
            }
            "connection" => answer.is_last |= value.to_ascii_lowercase().contains("close"),
            _ => {}
        }
        answer.headers.push((printable(&name), printable_value(&value)));
    }
    if matches!(answer.status, 100..200 | 204 | 304) {
        body = Some(Body::Length(0));
    }
    answer.is_last |= answer.status == 101;
    Ok(Some((answer, body.unwrap_or(Body::ToTheEnd), len)))
}

/// Counts a body.
#[derive(Debug)]
struct Counter {
    body: Body,
    bytes: u64,
    is_done: bool,
    chunk: Chunk,
}

#[derive(Debug)]
enum Chunk {
    /// Bytes of its line, or of a trailer's, that came already.
    Line(Vec<u8>),
    /// Bytes that are left of it with the line break behind it.
    Data(u64),
    Trailer(Vec<u8>),
}

impl Counter {
    fn new(body: Body) -> Self {
        Self { body, bytes: 0, is_done: body == Body::Length(0), chunk: Chunk::Line(Vec::new()) }
    }

    /// Counts `bytes`, and returns how many of them belong to the body.
    fn feed(&mut self, bytes: &[u8]) -> Result<usize, ProbeError> {
        match self.body {
            Body::ToTheEnd | Body::Unreadable => {
                self.bytes += bytes.len() as u64;
                Ok(bytes.len())
            }
            Body::Length(length) => {
                let used = (length - self.bytes).min(bytes.len() as u64);
                self.bytes += used;
                self.is_done = self.bytes == length;
                Ok(used as usize)
            }
            Body::Chunked => self.chunks(bytes),
        }
    }

    fn chunks(&mut self, bytes: &[u8]) -> Result<usize, ProbeError> {
        let mut used = 0;
        while used < bytes.len() && !self.is_done {
            if let Chunk::Data(left) = &mut self.chunk {
                let now = (*left).min((bytes.len() - used) as u64);
                self.bytes += now.min(left.saturating_sub(2));
                *left -= now;
                used += now as usize;
                if *left == 0 {
                    self.chunk = Chunk::Line(Vec::new());
                }
                continue;
            }
            let byte = bytes[used];
            used += 1;
            self.line_byte(byte)?;
        }
        Ok(used)
    }

    fn line_byte(&mut self, byte: u8) -> Result<(), ProbeError> {
        let (Chunk::Line(line) | Chunk::Trailer(line)) = &mut self.chunk else { return Ok(()) };
        if byte != b'\n' {
            line.push(byte);
            return if line.len() > LINE {
                Err(ProbeError::Answer("a line between chunks of the body is too long".to_owned()))
            } else {
                Ok(())
            };
        }
        let text = String::from_utf8_lossy(line).trim().to_owned();
        if matches!(self.chunk, Chunk::Trailer(_)) {
            self.is_done = text.is_empty();
            self.chunk = Chunk::Trailer(Vec::new());
            return Ok(());
        }
        let size = text.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16).ok().filter(|size| *size < 1 << 60);
        self.chunk = match size {
            None => return Err(ProbeError::Answer("a chunk of the body has no size".to_owned())),
            Some(0) => Chunk::Trailer(Vec::new()),
            Some(size) => Chunk::Data(size + 2),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(bytes: &[u8]) -> Result<Answer, ProbeError> {
        let mut found = Answer::default();
        answer(&mut &bytes[..], &mut Milestones::default(), &mut found).await.map(|()| found)
    }

    #[tokio::test]
    async fn the_head_of_an_answer_stays_if_its_body_breaks() {
        let (mut found, bytes) = (Answer::default(), b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello");
        let ended = answer(&mut &bytes[..], &mut Milestones::default(), &mut found).await;
        assert!(ended.is_err());
        assert_eq!((found.status, found.body_bytes, found.done_at), (200, 5, None));
        assert_eq!(found.headers, [("content-length".to_owned(), "9".to_owned())]);
    }

    #[tokio::test]
    async fn a_head_says_what_it_says_whatever_the_length_of_its_body() {
        for length in ["2, 2", "-1", "x", "99999999999999999999", ""] {
            let text = format!("HTTP/1.1 301 Moved\r\nContent-Length: {length}\r\nLocation: /a\r\n\r\n");
            let head = final_head(&mut text.as_bytes()).await.expect(length);
            assert_eq!((head.status, head.header("location")), (301, Some("/a")), "{length}");
            let mut found = Answer::default();
            let ended = answer(&mut text.as_bytes(), &mut Milestones::default(), &mut found).await;
            assert!(ended.is_err_and(|error| error.to_string().contains("content-length")), "{length}");
            assert_eq!(found.status, 301);
        }
        let text = b"HTTP/1.1 101 Switching\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";
        assert_eq!(final_head(&mut &text[..]).await.expect("a head").status, 101);
    }

    #[tokio::test]
    async fn bodies_of_all_kinds_are_counted() {
        for (text, body, is_last) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 5, false),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n1\r\n.\r\n0\r\nx: y\r\n\r\n",
                6,
                false,
            ),
            ("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello you", 9, true),
            ("HTTP/1.1 103 Early\r\nLink: a\r\n\r\nHTTP/1.1 204 None\r\n\r\n", 0, false),
            ("HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n\0\0\0", 0, true),
        ] {
            let answer = read_all(text.as_bytes()).await.expect(text);
            assert_eq!((answer.body_bytes, answer.is_last), (body, is_last), "{text}");
        }
    }

    #[tokio::test]
    async fn what_is_not_http_or_ends_too_early_is_an_error() {
        for text in [
            "",
            "SSH-2.0-x\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
        ] {
            assert!(matches!(read_all(text.as_bytes()).await, Err(ProbeError::Answer(_))), "{text}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(2 * HEAD));
        let error = read_all(endless.as_bytes()).await.expect_err("too long").to_string();
        assert!(error.contains("longer than"), "{error}");
    }
}

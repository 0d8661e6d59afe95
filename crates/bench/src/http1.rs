//! HTTP/1.1 client with one request at a time. Requests are encoded before the run; a response is parsed only to find
//! its end.

mod body;

use std::time::Instant;

use brisk_tls_client::{ClientFacts, SavedSession};
use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::connection::{Kind, Link, Opener};
use crate::error::Failure;
use crate::measure::Exchange;
use crate::result::Cause;
use crate::workload::{PerConnection, Place, Request};
use body::Body;

/// Size of the read buffer, and maximum length of a response head.
const BUFFER: usize = 32 * 1024;

/// Maximum number of headers in a response.
const HEADERS: usize = 100;

/// An HTTP/1.1 connection.
#[derive(Debug)]
pub(crate) struct Http1 {
    link: Link,
    buffer: Box<[u8]>,
    /// Requests that may still be sent.
    left: u64,
    /// Requests that have been answered.
    answered: u64,
    /// When the first request was sent as early data, if it was.
    sent_early: Option<Instant>,
    server_closes: bool,
}

/// Reasons for a request without response.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The server had closed the kept connection before the request, which can be repeated on another one.
    Idle,
    /// The request failed.
    Failed(Failure),
}

/// The parts of a response head that determine its body.
#[derive(Debug)]
struct Head {
    status: u16,
    body: Body,
    server_closes: bool,
    len: usize,
}

impl Http1 {
    /// Opens a connection of this kind for the given number of requests. With 0-RTT, `request` is sent in the first
    /// flight.
    pub(crate) async fn open(
        opener: &Opener,
        kind: &Kind,
        session: Option<SavedSession>,
        requests: PerConnection,
        request: &Request,
    ) -> Result<Self, Failure> {
        let left = requests.most();
        let early = kind.is_early().then(|| &request.http1(place(left))[..]);
        let link = opener.open(kind, session, early).await?;
        let sent_early = link.early_was_accepted().then(|| link.timeline.started());
        let buffer = vec![0; BUFFER].into_boxed_slice();
        Ok(Self { link, buffer, left, answered: 0, sent_early, server_closes: false })
    }

    /// The result of the handshake; `None` without TLS.
    pub(crate) fn facts(&self) -> Option<&ClientFacts> {
        self.link.facts()
    }

    /// Whether it may carry another request.
    pub(crate) fn is_open(&self) -> bool {
        self.left > 0 && !self.server_closes
    }

    /// Sends `request` and reads its response to the end.
    pub(crate) async fn exchange(&mut self, request: &Request) -> Result<Exchange, Broken> {
        let sent = match self.sent_early.take() {
            Some(sent) => sent,
            None => self.send(request.http1(place(self.left))).await?,
        };
        let (mut filled, first_byte) = self.wait(request).await?;
        let mut head = loop {
            match Head::parse(&self.buffer[..filled], request.method()).map_err(Broken::Failed)? {
                // RFC 9110 section 15.2: informational responses come before the final one.
                Some(head) if (100..200).contains(&head.status) && head.status != 101 => {
                    self.buffer.copy_within(head.len..filled, 0);
                    filled -= head.len;
                }
                Some(head) => break head,
                None => filled += self.read(filled).await?,
            }
        };
        let body = self.read_body(&mut head, filled).await?;
        let ended = Instant::now();
        self.left -= 1;
        self.answered += 1;
        self.server_closes = head.server_closes;
        self.link.account(ended);
        Ok(Exchange { status: head.status, body, sent, first_byte, ended })
    }

    /// Closes the connection gracefully.
    pub(crate) async fn close(self) {
        self.link.close().await;
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<Instant, Broken> {
        let sent = Instant::now();
        match self.link.stream.write_all(bytes).await {
            Ok(()) => Ok(sent),
            Err(_) if self.answered > 0 => Err(Broken::Idle),
            Err(error) => Err(Broken::Failed(Failure::io(&error, "sending the request"))),
        }
    }

    /// Waits for the first bytes of a response.
    async fn wait(&mut self, request: &Request) -> Result<(usize, Instant), Broken> {
        let read = self.link.stream.read(&mut self.buffer).await;
        match read {
            Ok(0) if self.answered > 0 => Err(Broken::Idle),
            Ok(0) => {
                let text = format!("the server closed the connection instead of answering {}", request.uri());
                Err(Broken::Failed(Failure::new(Cause::Closed, text)))
            }
            Ok(len) => Ok((len, Instant::now())),
            Err(error) => Err(Broken::Failed(Failure::io(&error, "waiting for the response"))),
        }
    }

    /// Reads more of a head that ends beyond `filled`.
    async fn read(&mut self, filled: usize) -> Result<usize, Broken> {
        let free = &mut self.buffer[filled..];
        if free.is_empty() {
            let text = format!("the head of the response is longer than {BUFFER} bytes");
            return Err(Broken::Failed(Failure::new(Cause::Response, text)));
        }
        match self.link.stream.read(free).await {
            Ok(0) => Err(cut()),
            Ok(len) => Ok(len),
            Err(error) => Err(Broken::Failed(Failure::io(&error, "sending the response"))),
        }
    }

    /// Reads the rest of the body and returns its length. `filled` bytes are in the buffer.
    async fn read_body(&mut self, head: &mut Head, filled: usize) -> Result<u64, Broken> {
        let mut bytes = head.len..filled;
        let mut total = 0;
        loop {
            let taken = head.body.take(&self.buffer[bytes]).map_err(Broken::Failed)?;
            total += taken;
            if head.body.is_complete() {
                return Ok(total);
            }
            let len = match self.link.stream.read(&mut self.buffer).await {
                Ok(0) if head.body.ends_with_connection() => return Ok(total),
                Ok(0) => return Err(cut()),
                Ok(len) => len,
                Err(error) => return Err(Broken::Failed(Failure::io(&error, "sending the response"))),
            };
            bytes = 0..len;
        }
    }
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Idle => Self::new(Cause::Closed, "the server closed the connection before any request"),
            Broken::Failed(failure) => failure,
        }
    }
}

fn cut() -> Broken {
    Broken::Failed(Failure::new(
        Cause::Response,
        "the server closed the connection in the middle of a response",
    ))
}

fn place(left: u64) -> Place {
    if left == 1 { Place::Last } else { Place::Earlier }
}

impl Head {
    /// Parses a head; `None` if it is incomplete.
    fn parse(bytes: &[u8], method: &Method) -> Result<Option<Self>, Failure> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let wrong = |text: String| Failure::new(Cause::Response, text);
        let parsed =
            response.parse(bytes).map_err(|error| wrong(format!("the response is not HTTP: {error}")))?;
        let httparse::Status::Complete(len) = parsed else { return Ok(None) };
        let status = response.code.expect("a complete head has a status");
        let has = |name: &str, token: &str| {
            let fields = response.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
            let mut tokens = fields.flat_map(|header| header.value.split(|byte| *byte == b','));
            tokens.any(|value| value.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
        };
        let body = if *method == Method::HEAD || matches!(status, 100..200 | 204 | 304) {
            Body::none()
        } else if has("transfer-encoding", "chunked") {
            Body::chunked()
        } else {
            let length =
                response.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
            let number = |value: &[u8]| std::str::from_utf8(value).ok()?.trim().parse().ok();
            match length.map(|header| number(header.value)) {
                Some(Some(length)) => Body::of_length(length),
                Some(None) => return Err(wrong("the response has a wrong Content-Length".to_owned())),
                None => Body::until_close(),
            }
        };
        let http10 = response.version == Some(0) && !has("connection", "keep-alive");
        let server_closes = http10 || has("connection", "close") || body.ends_with_connection();
        Ok(Some(Self { status, body, server_closes, len }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str, method: &Method) -> Head {
        Head::parse(text.as_bytes(), method).expect("HTTP").expect("a whole head")
    }

    #[test]
    fn a_head_says_where_the_response_ends() {
        let get = Method::GET;
        let length = head("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", &get);
        assert_eq!((length.status, length.server_closes, length.body), (200, false, Body::of_length(5)));
        let chunked = head("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", &get);
        assert_eq!(chunked.body, Body::chunked());
        let old = head("HTTP/1.0 200 OK\r\n\r\n", &get);
        assert!(old.server_closes && old.body.ends_with_connection());
        let close = head("HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n", &get);
        assert!(close.server_closes && close.body.is_complete());
        for (text, method) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Method::HEAD),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", get.clone()),
            ("HTTP/1.1 204 No Content\r\n\r\n", get.clone()),
        ] {
            assert!(head(text, &method).body.is_complete(), "{text}");
        }
    }

    #[test]
    fn a_malformed_head_is_reported() {
        assert!(Head::parse(b"HTTP/1.1 200 OK\r\nA: b", &Method::GET).expect("the start of one").is_none());
        for text in ["HTTQ/1.1 200\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n"] {
            let failure = Head::parse(text.as_bytes(), &Method::GET).expect_err(text);
            assert_eq!(failure.cause, Cause::Response);
        }
    }
}

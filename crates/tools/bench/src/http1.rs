//! HTTP/1.1, one request at a time. Requests are prepared before the run; responses are parsed only to find their end.

use std::io;
use std::ops::Range;
use std::time::Instant;

use brisk_http_client::http1::{Body, Head, parse_head};
use brisk_tls_client::{ClientFacts, SavedSession};
use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::connection::{Kind, Link, Opener};
use crate::error::Failure;
use crate::measure::Exchange;
use crate::result::Cause;
use crate::workload::{PerConnection, Position, Request};

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
pub(crate) enum ExchangeError {
    /// The server had closed the kept connection before the request, which can be repeated on another one.
    Idle,
    /// The request failed.
    Failed(Failure),
}

impl Http1 {
    /// Opens a connection of this [`Kind`] for the given number of requests. With 0-RTT, `request` is sent in the first
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

    /// Whether the connection may carry another request.
    pub(crate) fn is_open(&self) -> bool {
        self.left > 0 && !self.server_closes
    }

    /// Sends `request` and reads its response to the end.
    pub(crate) async fn exchange(&mut self, request: &Request) -> Result<Exchange, ExchangeError> {
        let sent = match self.sent_early.take() {
            Some(sent) => sent,
            None => self.send(request.http1(place(self.left))).await?,
        };
        let (mut filled, first_byte) = self.wait(request).await?;
        let (head, body) = loop {
            match parse(&self.buffer[..filled], request.method()).map_err(ExchangeError::Failed)? {
                // RFC 9110 section 15.2: informational responses come before the final one.
                Some((head, _)) if (100..200).contains(&head.status) && head.status != 101 => {
                    // One read may contain the interim head and the begin of the final one.
                    self.buffer.copy_within(head.len..filled, 0);
                    filled -= head.len;
                }
                Some(found) => break found,
                None => filled += self.read(filled).await?,
            }
        };
        let body = self.read_body(body, head.len..filled).await?;
        let ended = Instant::now();
        self.left -= 1;
        self.answered += 1;
        self.server_closes = head.is_last;
        self.link.exchanged(sent, first_byte);
        self.link.account(ended);
        Ok(Exchange { status: head.status, body, sent, first_byte, ended })
    }

    /// Closes the connection gracefully.
    pub(crate) async fn close(self) {
        self.link.close().await;
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<Instant, ExchangeError> {
        let sent = Instant::now();
        match self.link.stream.write_all(bytes).await {
            Ok(()) => Ok(sent),
            // The server may close a kept connection at any time, which a write may be the first to notice.
            Err(_) if self.answered > 0 => Err(ExchangeError::Idle),
            Err(error) => Err(ExchangeError::Failed(Failure::io(&error, "sending the request"))),
        }
    }

    /// Waits for the first bytes of a response.
    async fn wait(&mut self, request: &Request) -> Result<(usize, Instant), ExchangeError> {
        let read = self.link.stream.read(&mut self.buffer).await;
        match read {
            // RFC 9112 section 9.5: a server may close an idle connection at any time.
            Ok(0) if self.answered > 0 => Err(ExchangeError::Idle),
            Ok(0) => {
                let text = format!("the server closed the connection instead of answering {}", request.uri());
                Err(ExchangeError::Failed(Failure::new(Cause::Closed, text)))
            }
            Ok(len) => Ok((len, Instant::now())),
            // Also without `close_notify`, or by a reset.
            Err(error) if self.answered > 0 && is_end(&error) => Err(ExchangeError::Idle),
            Err(error) => Err(ExchangeError::Failed(Failure::io(&error, "waiting for the response"))),
        }
    }

    /// Reads more of a head that ends beyond `filled`.
    async fn read(&mut self, filled: usize) -> Result<usize, ExchangeError> {
        let free = &mut self.buffer[filled..];
        if free.is_empty() {
            let text = format!("the head of the response is longer than {BUFFER} bytes");
            return Err(ExchangeError::Failed(Failure::new(Cause::Response, text)));
        }
        match self.link.stream.read(free).await {
            Ok(0) => Err(cut()),
            Ok(len) => Ok(len),
            Err(error) => Err(ExchangeError::Failed(Failure::io(&error, "sending the response"))),
        }
    }

    /// Reads the rest of a body and returns the length of its content. `bytes` is the part of the body in the buffer.
    async fn read_body(&mut self, mut body: Body, mut bytes: Range<usize>) -> Result<u64, ExchangeError> {
        // The body is counted and not kept, so that the buffer is reused for each read.
        let mut total = 0;
        loop {
            let taken = body.take(&self.buffer[bytes.clone()]);
            let taken = taken.map_err(|error| wrong(&error.to_string()))?;
            total += taken.content;
            // Requests are not pipelined: further bytes would be read as the response to the next request.
            if taken.used < bytes.len() {
                return Err(wrong("there is more than one response to one request"));
            }
            if body.is_complete() {
                return Ok(total);
            }
            let len = match self.link.stream.read(&mut self.buffer).await {
                // RFC 9112 section 6.3: without a length, the end of the connection is the end of the body.
                Ok(0) if body.ends_with_connection() => return Ok(total),
                Ok(0) => return Err(cut()),
                Ok(len) => len,
                Err(error) => return Err(ExchangeError::Failed(Failure::io(&error, "sending the response"))),
            };
            bytes = 0..len;
        }
    }
}

impl From<ExchangeError> for Failure {
    fn from(broken: ExchangeError) -> Self {
        match broken {
            ExchangeError::Idle => {
                Self::new(Cause::Closed, "the server closed the connection before any request")
            }
            ExchangeError::Failed(failure) => failure,
        }
    }
}

/// Whether the connection has ended, as opposed to an error within it.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    let ends = [
        Kind::UnexpectedEof,
        Kind::ConnectionReset,
        Kind::ConnectionAborted,
        Kind::BrokenPipe,
        Kind::NotConnected,
    ];
    ends.contains(&error.kind())
}

fn wrong(text: &str) -> ExchangeError {
    ExchangeError::Failed(Failure::new(Cause::Response, format!("the response is wrong: {text}")))
}

fn cut() -> ExchangeError {
    ExchangeError::Failed(Failure::new(
        Cause::Response,
        "the server closed the connection in the middle of a response",
    ))
}

fn place(left: u64) -> Position {
    if left == 1 { Position::Last } else { Position::Earlier }
}

/// The head at the beginning of `bytes`, if it is complete.
fn parse(bytes: &[u8], method: &Method) -> Result<Option<(Head, Body)>, Failure> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let wrong = |text: String| Failure::new(Cause::Response, text);
    let head = parse_head(bytes, &mut headers, *method == Method::HEAD);
    let head = head.map_err(|error| wrong(format!("the response is not HTTP: {error}")))?;
    let Some(mut head) = head else { return Ok(None) };
    let body = head.body.take();
    let body = body.ok_or_else(|| wrong("the response has a wrong Content-Length".to_owned()))?;
    Ok(Some((head, body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_head_is_reported() {
        assert!(parse(b"HTTP/1.1 200 OK\r\nA: b", &Method::GET).expect("the start of one").is_none());
        for text in ["HTTQ/1.1 200\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n"] {
            let failure = parse(text.as_bytes(), &Method::GET).expect_err(text);
            assert_eq!(failure.cause, Cause::Response);
        }
    }
}

//! Client over HTTP/1.1, which records every outcome.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;

use brisk_testkit::client::{TlsClient, TlsStream};

use super::clients::Subject;
use super::outcome::{End, Fields, Outcome};
use super::request::{Content, Expressible, Request};

/// Client that keeps its connection where the server permits.
pub(super) struct Http1 {
    client: TlsClient,
    address: SocketAddr,
    connection: Option<BufReader<TlsStream>>,
}

impl Http1 {
    pub(super) fn new(client: &TlsClient, address: SocketAddr) -> Self {
        Self { client: client.clone().alpn(&["http/1.1"]), address, connection: None }
    }

    /// Sends a request; a kept connection that the server has closed before is replaced. Returns the case of the last attempt, too.
    pub(super) fn exchange(
        &mut self,
        request: &Request,
        case: impl Fn(usize) -> String,
        subject: &dyn Subject,
    ) -> (Outcome, String) {
        let is_kept = self.connection.is_some();
        let first = self.attempt(request, &case(0));
        if is_kept && first.is_nothing() && !subject.has_arrived(&case(0)) {
            return (self.attempt(request, &case(1)), case(1));
        }
        (first, case(0))
    }

    fn attempt(&mut self, request: &Request, case: &str) -> Outcome {
        let connect = || BufReader::new(self.client.connect(self.address).expect("a handshake"));
        let mut connection = self.connection.take().unwrap_or_else(connect);
        let mut outcome = Outcome::default();
        let end = talk(&mut connection, request, case, &mut outcome);
        outcome.end = end.map_or_else(|error| end_of(&error), |()| End::Whole);
        let connection_header = |(name, value): &(String, String)| {
            name == "connection" && value.to_ascii_lowercase().contains("close")
        };
        let persists = outcome.end == End::Whole
            && (200..400).contains(&outcome.status)
            && !outcome.headers.iter().any(connection_header)
            && request.expressible == Expressible::Everywhere
            && !matches!(request.content, Content::Raw(_))
            && request.version == "HTTP/1.1";
        self.connection = persists.then_some(connection);
        outcome
    }
}

/// End of an exchange by an error of the connection.
pub(super) fn end_of(error: &io::Error) -> End {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => End::Silent,
        io::ErrorKind::InvalidData => End::Invalid,
        _ => End::Closed,
    }
}

fn talk(
    connection: &mut BufReader<TlsStream>,
    request: &Request,
    case: &str,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let (mut head, body) = request.http1(case);
    let waits = request.waits();
    if !waits {
        head.extend_from_slice(&body);
    }
    // A server may respond and close before it has read the request.
    let _ = connection.get_mut().write_all(&head);
    let (mut status, mut headers) = read_head(connection)?;
    if waits && status == 100 {
        let _ = connection.get_mut().write_all(&body);
    }
    while (100..200).contains(&status) && status != 101 {
        if status != 100 {
            outcome.interims.push(status);
        }
        (status, headers) = read_head(connection)?;
    }
    (outcome.status, outcome.headers) = (status, headers);
    let has_body = request.method != "HEAD" && status != 101 && !matches!(status, 204 | 304);
    if has_body { read_body(connection, outcome) } else { Ok(()) }
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_owned())
}

fn read_line(connection: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    connection.read_until(b'\n', &mut line)?;
    let text = line.strip_suffix(b"\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(String::from_utf8_lossy(text).into_owned())
}

fn read_fields(connection: &mut impl BufRead) -> io::Result<Fields> {
    let mut fields = Vec::new();
    loop {
        let line = read_line(connection)?;
        if line.is_empty() {
            return Ok(fields);
        }
        let (name, value) = line.split_once(':').ok_or_else(|| invalid(&line))?;
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

fn read_head(connection: &mut impl BufRead) -> io::Result<(u16, Fields)> {
    let line = read_line(connection)?;
    let status = line.starts_with("HTTP/1.").then(|| line.split(' ').nth(1)).flatten();
    let status = status.and_then(|status| status.parse().ok()).filter(|status| *status >= 100);
    let (status, fields) = (status.ok_or_else(|| invalid(&line))?, read_fields(connection)?);
    // RFC 9112 section 6.1: an interim response has no transfer coding.
    if status < 200 && status != 101 && fields.iter().any(|(name, _)| name == "transfer-encoding") {
        return Err(invalid(&line));
    }
    Ok((status, fields))
}

fn read_body(connection: &mut impl BufRead, outcome: &mut Outcome) -> io::Result<()> {
    let header = |name: &str| {
        let line = outcome.headers.iter().find(|(own, _)| own == name);
        line.map(|(_, value)| value.clone())
    };
    let mut body = Vec::new();
    let end = if header("transfer-encoding").is_some() {
        read_chunks(connection, &mut body).map(|trailers| outcome.trailers = trailers)
    } else if let Some(length) = header("content-length") {
        let length: u64 = length.parse().map_err(|_| invalid(&length))?;
        connection.take(length).read_to_end(&mut body).and_then(|read| {
            if read as u64 == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        })
    } else {
        connection.read_to_end(&mut body).map(drop)
    };
    outcome.body = String::from_utf8_lossy(&body).into_owned();
    end
}

fn read_chunks(connection: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<Fields> {
    loop {
        let line = read_line(connection)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(digits, 16).map_err(|_| invalid(&line))?;
        if size == 0 {
            return read_fields(connection);
        }
        let read = connection.by_ref().take(size).read_to_end(body)?;
        if read as u64 != size || !read_line(connection)?.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

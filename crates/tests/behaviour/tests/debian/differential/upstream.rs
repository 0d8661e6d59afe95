//! Upstream that records requests and whose responses have the shape that a request names.

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use brisk_testkit::http1::Head;
use brisk_testkit::origin::Origin;

use super::clients::Subject;
use super::outcome::{Outcome, Seen};
use super::shapes::{SHAPES, Shape};

/// Header that names the shape of the response.
pub(super) const SHAPE: &str = "X-Shape";

type Record = Arc<Mutex<HashMap<String, Vec<Seen>>>>;

/// Running upstream.
pub(super) struct Upstream {
    pub(super) origin: Origin,
    record: Record,
}

impl Upstream {
    pub(super) fn start() -> Self {
        let record = Record::default();
        let own = Arc::clone(&record);
        Self { origin: Origin::raw(move |stream| serve(stream, &own)), record }
    }

    /// Cases of requests that were not taken.
    pub(super) fn left(&self) -> Vec<String> {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.keys().cloned().collect()
    }
}

impl Subject for Upstream {
    fn has_arrived(&self, case: &str) -> bool {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).contains_key(case)
    }

    /// Adds the requests that arrived.
    fn complete(&self, case: &str, outcome: &mut Outcome) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.seen = record.remove(case).unwrap_or_default();
    }
}

fn serve(stream: TcpStream, record: &Record) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(head) = Head::read(&mut reader)? {
        let expects = head.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue"));
        if expects && ["content-length", "transfer-encoding"].iter().any(|name| head.header(name).is_some()) {
            reader.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let (body, trailers) = read_content(&mut reader, &head)?;
        let case = head.header("x-case").unwrap_or_default().to_owned();
        let shape = SHAPES.iter().find(|shape| Some(shape.name) == head.header("x-shape"));
        let is_head = head.line.starts_with("HEAD ");
        let mut headers = head.headers;
        headers.sort();
        let line = head.line.trim_end_matches(" HTTP/1.1").to_owned();
        let seen = Seen { line, headers, body, trailers };
        record.lock().unwrap_or_else(PoisonError::into_inner).entry(case).or_default().push(seen);
        let shape = shape.unwrap_or(&PLAIN);
        if shape.closes {
            return write_last(reader.get_mut(), &shape.bytes(is_head));
        }
        reader.get_mut().write_all(&shape.bytes(is_head))?;
    }
    Ok(())
}

/// Sends the response and the end of the connection in one segment, so that no proxy reuses the connection.
fn write_last(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    rustix::net::sockopt::set_tcp_cork(&*stream, true)?;
    stream.write_all(bytes)?;
    stream.shutdown(Shutdown::Write)
}

const PLAIN: Shape = Shape {
    name: "",
    head: "200 OK|Content-Type: text/plain|Content-Length: 5",
    body: "hello",
    closes: false,
};

type Content = (String, Vec<(String, String)>);

fn read_content(reader: &mut impl Read, head: &Head) -> io::Result<Content> {
    let mut body = Vec::new();
    let mut trailers = Vec::new();
    if head.header("transfer-encoding").is_some() {
        loop {
            let line = read_line(reader)?;
            let digits = line.split(';').next().unwrap_or_default();
            let size = u64::from_str_radix(digits.trim(), 16).map_err(io::Error::other)?;
            if size == 0 {
                break;
            }
            reader.take(size).read_to_end(&mut body)?;
            read_line(reader)?;
        }
        while let Some((name, value)) = read_line(reader)?.split_once(':') {
            trailers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    } else if let Some(length) = head.header("content-length") {
        body.resize(length.parse().map_err(io::Error::other)?, 0);
        reader.read_exact(&mut body)?;
    }
    trailers.sort();
    Ok((String::from_utf8_lossy(&body).into_owned(), trailers))
}

fn read_line(reader: &mut impl Read) -> io::Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        reader.read_exact(&mut byte)?;
        line.push(byte[0]);
    }
    line.truncate(line.len() - 2);
    Ok(String::from_utf8_lossy(&line).into_owned())
}

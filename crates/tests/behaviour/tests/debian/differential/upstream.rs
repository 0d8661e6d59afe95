//! Upstream that records requests and whose responses have the shape that a request names.

use std::collections::HashMap;
use std::io::{self, BufReader, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};

use brisk_testkit::http1::{Head, Message};
use brisk_testkit::origin::{Origin, send_with_end};

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
        let length = head.length().unwrap_or(0);
        let message = Message::read_body(&mut reader, head, Some(length))?;
        let case = message.header("x-case").unwrap_or_default().to_owned();
        let shape = SHAPES.iter().find(|shape| Some(shape.name) == message.header("x-shape"));
        let is_head = message.head.line.starts_with("HEAD ");
        record.lock().unwrap_or_else(PoisonError::into_inner).entry(case).or_default().push(seen(message));
        let shape = shape.unwrap_or(&PLAIN);
        if shape.closes {
            return send_with_end(reader.get_mut(), &shape.bytes(is_head));
        }
        reader.get_mut().write_all(&shape.bytes(is_head))?;
    }
    Ok(())
}

fn seen(mut message: Message) -> Seen {
    let (start, version) = message.head.line.rsplit_once(' ').unwrap_or_default();
    let (method, target) = start.split_once(' ').unwrap_or_default();
    message.head.headers.sort();
    message.trailers.sort();
    Seen {
        method: method.to_owned(),
        target: target.to_owned(),
        version: version.to_owned(),
        body: message.text(),
        headers: message.head.headers,
        trailers: message.trailers,
    }
}

const PLAIN: Shape = Shape {
    name: "",
    head: "200 OK|Content-Type: text/plain|Content-Length: 5",
    body: "hello",
    closes: false,
};

//! Clients beside the visitors that load a gateway: silent, slow, leaving, and in great number.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use brisk_behaviour::site::NAME;
use brisk_testkit::client::{TlsClient, TlsStream};
use brisk_testkit::http1::Message;

use crate::fault::Failure;
use crate::shared::{DEADLINE, Outcome, Shared};
use crate::upstream::{ID, SLOW, body};

/// Numbers of clients.
const SILENT: usize = 300;
const SLOW_READERS: usize = 12;
const LEAVING: usize = 30;
const OVERLOAD: usize = 80;
const HANDSHAKING: usize = 6;

/// Length of the responses that clients read slowly, or leave, in bytes.
const LONG: usize = 4_000_000;

/// The gateway to load.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) index: usize,
    pub(crate) address: SocketAddr,
    pub(crate) root: &'a Path,
}

impl Target<'_> {
    fn client(self) -> TlsClient {
        TlsClient::new(self.root, NAME)
    }

    /// A new connection with a request for `path`, of which the response is unread.
    fn ask(self, shared: &Shared, path: &str) -> Option<TlsStream> {
        let mut stream = self.client().connect(self.address).ok()?;
        stream.tcp().set_read_timeout(Some(2 * DEADLINE)).ok()?;
        shared.sent(self.index);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n").ok()?;
        stream.flush().ok()?;
        Some(stream)
    }
}

/// Connections that send nothing, more than the gateway has descriptors.
pub(crate) fn silent(target: Target<'_>, time: Duration) {
    let held: Vec<_> = (0..SILENT).map_while(|_| TcpStream::connect(target.address).ok()).collect();
    thread::sleep(time);
    drop(held);
}

/// Clients that take a little of a long response at a time, and leave in the end.
pub(crate) fn slow_readers(shared: &Shared, target: Target<'_>, time: Duration) {
    together(SLOW_READERS, || {
        let path = format!("/body/{LONG}/{}", shared.id());
        let Some(mut stream) = target.ask(shared, &path) else { return };
        let (begun, mut buffer) = (Instant::now(), [0; 4_096]);
        while begun.elapsed() < time && stream.read(&mut buffer).is_ok_and(|length| length > 0) {
            thread::sleep(Duration::from_millis(20));
        }
    });
}

/// Clients that leave a response after its first bytes.
pub(crate) fn aborts(shared: &Shared, target: Target<'_>) {
    together(LEAVING, || {
        let path = format!("/body/{LONG}/{}", shared.id());
        if let Some(mut stream) = target.ask(shared, &path) {
            // An error means that the gateway has left first.
            let _ = stream.read_exact(&mut [0; 1_000]);
        }
    });
}

/// Full handshakes without requests.
pub(crate) fn handshakes(target: Target<'_>, time: Duration) {
    let begun = Instant::now();
    together(HANDSHAKING, || {
        while begun.elapsed() < time {
            let _ = target.client().connect(target.address);
        }
    });
}

/// More concurrent slow requests than upstream servers and queues take: each gets its response, or 503 with `Retry-After`.
pub(crate) fn overload(shared: &Shared, target: Target<'_>) {
    together(OVERLOAD, || {
        let (begun, id) = (Instant::now(), shared.id());
        let path = format!("/slow/300/{id}");
        let Some(mut stream) = target.ask(shared, &path) else { return };
        let outcome = match Message::read_response(&mut stream) {
            Ok(response) => {
                shared.answered(target.index);
                judged(&response, id)
            }
            // The queue of descriptors, or of connections, may close it.
            Err(_) => Outcome::Failed(Failure::Stale),
        };
        shared.note(begun, target.index, format!("overload {path}"), outcome);
    });
}

fn judged(response: &Message, id: u64) -> Outcome {
    match response.status() {
        200 if response.header(ID).is_some_and(|own| own == id.to_string())
            && response.body == body(id, SLOW) =>
        {
            Outcome::Right
        }
        200 => Outcome::Wrong("the response of another request".to_owned()),
        503 if response.header("retry-after").is_some() => Outcome::Failed(Failure::Unavailable),
        503 => Outcome::Wrong("503 without Retry-After".to_owned()),
        status => Outcome::Wrong(format!("status {status}")),
    }
}

fn together(count: usize, act: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(&act);
        }
    });
}

//! An upstream with behaviour that nginx does not have: it records requests, and its responses are scripted byte by
//! byte.

use std::fmt;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use crate::http1::Message;
use crate::process::wait_until;

/// A server with a thread per connection. Dropping it stops it; open connections live until their handler ends.
pub struct Origin {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    connections: AtomicUsize,
    requests: Mutex<Vec<Message>>,
}

impl Origin {
    /// Passes every connection to `handler`.
    pub fn raw(handler: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self::start(move |stream, _| handler(stream))
    }

    /// Gives the receiver of a connection a small buffer: the kernels of some machines keep up to 32 MiB, so that the sender
    /// never notices that nothing is read.
    pub fn receive_little(stream: &TcpStream) {
        rustix::net::sockopt::set_socket_recv_buffer_size(stream, 64 << 10).expect("a socket");
    }

    /// Reads requests with their bodies, records them, and lets `handler` write the responses. A connection ends when
    /// the client closes it or `handler` returns an error.
    pub fn answering(
        handler: impl Fn(&Message, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |mut stream, shared| {
            while let Some(request) = Message::read_request(&mut stream)? {
                shared.requests.lock().expect("no handler panics here").push(request.clone());
                handler(&request, &mut stream)?;
            }
            Ok(())
        })
    }

    /// Responds to every request with 200 and `body`.
    pub fn fixed(body: &'static str) -> Self {
        Self::answering(move |_, stream| write_response(stream, body.as_bytes()))
    }

    fn start(handler: impl Fn(TcpStream, &Shared) -> io::Result<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let shared = Arc::new(Shared::default());
        let (own, handler) = (Arc::clone(&shared), Arc::new(handler));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if own.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                // Before the thread starts: a client with a response must find its connection counted.
                own.connections.fetch_add(1, Ordering::SeqCst);
                let (own, handler) = (Arc::clone(&own), Arc::clone(&handler));
                // A failed write means that the client left, which is not an error here.
                thread::spawn(move || handler(stream, &own));
            }
        });
        Self { address, shared }
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as an upstream's URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Message> {
        self.shared.requests.lock().expect("no handler panics").clone()
    }

    /// Waits for a request and returns the last one.
    pub fn last_request(&self) -> Message {
        wait_until("a request at the origin", || self.requests().pop())
    }

    /// Number of connections accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread; an error means that it is not waiting.
        let _ = TcpStream::connect(self.address);
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").field("address", &self.address).finish_non_exhaustive()
    }
}

/// An [`Origin`] that receives requests at any time, and responds only while it is open. A drop opens it.
#[derive(Debug)]
pub struct GatedOrigin {
    origin: Origin,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
}

impl GatedOrigin {
    /// A closed one, which will respond to each request with 200 and `body`.
    pub fn new(body: &'static str) -> Self {
        let gate = Arc::<Gate>::default();
        let own = Arc::clone(&gate);
        let origin = Origin::answering(move |_, stream| {
            let is_open = own.is_open.lock().unwrap_or_else(PoisonError::into_inner);
            drop(own.changed.wait_while(is_open, |is_open| !*is_open));
            write_response(stream, body.as_bytes())
        });
        Self { origin, gate }
    }

    /// Lets the waiting requests and all later ones get their responses.
    pub fn open(&self) {
        self.set(true);
    }

    /// Lets later requests wait.
    pub fn close(&self) {
        self.set(false);
    }

    fn set(&self, is_open: bool) {
        *self.gate.is_open.lock().unwrap_or_else(PoisonError::into_inner) = is_open;
        self.gate.changed.notify_all();
    }
}

impl Deref for GatedOrigin {
    type Target = Origin;

    fn deref(&self) -> &Origin {
        &self.origin
    }
}

impl Drop for GatedOrigin {
    fn drop(&mut self) {
        self.open();
    }
}

/// Writes a response with status 200 and this body.
pub fn write_response(stream: &mut TcpStream, body: &[u8]) -> io::Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat())
}

/// Sends `bytes` and the end of the connection in one segment, so that no proxy reuses the connection.
pub fn send_with_end(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    // The kernel holds the bytes back until the end is added.
    rustix::net::sockopt::set_tcp_cork(&*stream, true)?;
    stream.write_all(bytes)?;
    stream.shutdown(Shutdown::Write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_to_a_closed_origin_gets_its_response_when_it_opens() {
        let origin = GatedOrigin::new("late");
        let mut stream = TcpStream::connect(origin.address()).unwrap();
        write!(stream, "GET / HTTP/1.1\r\n\r\n").unwrap();
        origin.last_request();
        stream.set_nonblocking(true).unwrap();
        assert_eq!(stream.peek(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        origin.open();
        stream.set_nonblocking(false).unwrap();
        assert_eq!(Message::read_response(&mut stream).unwrap().text(), "late");
    }

    #[test]
    fn requests_are_recorded_and_answered_on_one_connection() {
        let origin = Origin::fixed("hello");
        let mut stream = TcpStream::connect(origin.address()).unwrap();
        for body in ["one", "three"] {
            write!(stream, "POST /{body} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
            assert_eq!(Message::read_response(&mut stream).unwrap().text(), "hello");
        }
        let bodies: Vec<_> = origin.requests().iter().map(Message::text).collect();
        assert_eq!(bodies, ["one", "three"]);
        assert_eq!(origin.connections(), 1);
    }
}

//! TCP relays controlled by a test, which distribute connections over servers in turn, and can delay them.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which a blocked relay looks whether it is still blocked.
const BLOCKED: Duration = Duration::from_millis(5);

/// A relay in front of servers. Dropping it stops accepting connections; open ones live until either side closes them.
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    targets: Vec<SocketAddr>,
    next: AtomicUsize,
    delay: AtomicU64,
    is_blocked: AtomicBool,
    stopped: AtomicBool,
}

impl Relay {
    /// Starts a relay that distributes connections over `targets` in turn.
    pub fn to(targets: &[SocketAddr]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let shared = Arc::new(Shared {
            targets: targets.to_vec(),
            next: AtomicUsize::new(0),
            delay: AtomicU64::new(0),
            is_blocked: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if own.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(client) = client else { continue };
                let turn = own.next.fetch_add(1, Ordering::SeqCst);
                // If the server is unreachable, the client's connection is closed.
                if let Ok(server) = TcpStream::connect(own.targets[turn % own.targets.len()]) {
                    let _ = own.join(client, server);
                }
            }
        });
        Self { address, shared }
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Delays data from the servers by `delay` from now on, also on open connections.
    pub fn set_delay(&self, delay: Duration) {
        self.shared.delay.store(delay.as_micros() as u64, Ordering::SeqCst);
    }

    /// Holds data from the servers back while `is_blocked`, also on open connections, as a network that loses all packets does.
    pub fn set_blocked(&self, is_blocked: bool) {
        self.shared.is_blocked.store(is_blocked, Ordering::SeqCst);
    }
}

impl Shared {
    fn join(self: &Arc<Self>, client: TcpStream, server: TcpStream) -> io::Result<()> {
        // Otherwise the kernel adds delays of its own to the one of the test.
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (answers, to_client) = (server.try_clone()?, client.try_clone()?);
        pass_on(client, server);
        // A queue between reading and writing: a pause before each write would add up, and limit the
        // throughput.
        let (queue, due) = mpsc::channel();
        let own = Arc::clone(self);
        thread::spawn(move || {
            read_pieces(answers, |piece| {
                let delay = Duration::from_micros(own.delay.load(Ordering::SeqCst));
                queue.send((Instant::now() + delay, piece.to_vec())).is_ok()
            });
        });
        let own = Arc::clone(self);
        thread::spawn(move || {
            let mut to_client = to_client;
            for (when, piece) in due {
                thread::sleep(when.saturating_duration_since(Instant::now()));
                while own.is_blocked.load(Ordering::SeqCst) {
                    thread::sleep(BLOCKED);
                }
                if to_client.write_all(&piece).is_err() {
                    break;
                }
            }
            end(&to_client, Shutdown::Both);
        });
        Ok(())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread; an error means that it is not waiting.
        let _ = TcpStream::connect(self.address);
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Forwards the bytes of `from` until its end, on a thread of its own.
pub fn pass_on(from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        read_pieces(from, |piece| to.write_all(piece).is_ok());
        end(&to, Shutdown::Write);
    });
}

fn read_pieces(mut from: TcpStream, mut take: impl FnMut(&[u8]) -> bool) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        if !take(&buffer[..len]) {
            return;
        }
    }
}

/// Shuts down `stream`. Errors are ignored: the peer has closed it already.
fn end(stream: &TcpStream, how: Shutdown) {
    let _ = stream.shutdown(how);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::{Origin, write_response};

    fn ask(relay: &Relay) -> String {
        let mut stream = TcpStream::connect(relay.address()).unwrap();
        write!(stream, "GET / HTTP/1.1\r\n\r\n").unwrap();
        crate::http1::Message::read_response(&mut stream).unwrap().text()
    }

    #[test]
    fn connections_go_to_the_servers_in_turn() {
        let origins = ["one", "two"]
            .map(|name| Origin::answering(move |_, stream| write_response(stream, name.as_bytes())));
        let relay = Relay::to(&[origins[0].address(), origins[1].address()]);
        let answers: Vec<_> = (0..3).map(|_| ask(&relay)).collect();
        assert_eq!(answers, ["one", "two", "one"]);
    }

    #[test]
    fn a_blocked_relay_holds_answers_back() {
        let origin = Origin::fixed("hello");
        let relay = Relay::to(&[origin.address()]);
        relay.set_blocked(true);
        let mut stream = TcpStream::connect(relay.address()).unwrap();
        write!(stream, "GET / HTTP/1.1\r\n\r\n").unwrap();
        origin.last_request();
        stream.set_nonblocking(true).unwrap();
        assert_eq!(stream.peek(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        stream.set_nonblocking(false).unwrap();
        relay.set_blocked(false);
        assert_eq!(crate::http1::Message::read_response(&mut stream).unwrap().text(), "hello");
    }

    #[test]
    fn answers_come_later() {
        let origin = Origin::fixed("hello");
        let relay = Relay::to(&[origin.address()]);
        relay.set_delay(Duration::from_millis(50));
        let started = Instant::now();
        assert_eq!(ask(&relay), "hello");
        assert!(started.elapsed() >= Duration::from_millis(50));
    }
}

//! A relay of datagrams between one client and a server, which loses, repeats and counts them, and can change the address
//! that the server sees.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Direction of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the server.
    Up,
    /// To the client.
    Down,
}

/// Treatment of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Sent once.
    Pass,
    /// Lost.
    Drop,
    /// Sent twice.
    Repeat,
    /// Sent once, from a new port at this address. Datagrams to the former port are lost from now on.
    Rebind(Ipv4Addr),
}

/// Decides about the datagram with this number in its direction, from 0 on.
type Rule = dyn Fn(Way, usize, &[u8]) -> Fate + Send + Sync;

/// Time after which a thread looks whether the relay was dropped.
const READ_TIMEOUT: Duration = Duration::from_millis(100);

/// A relay. Dropping it ends its threads.
pub struct DatagramRelay {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    front: UdpSocket,
    /// The socket that the server sees.
    back: Mutex<Arc<Back>>,
    client: Mutex<Option<SocketAddr>>,
    rule: Box<Rule>,
    counts: [Count; 2],
    is_stopped: AtomicBool,
}

/// A socket towards the server.
struct Back {
    socket: UdpSocket,
    /// Whether datagrams to this socket are lost.
    is_forgotten: AtomicBool,
}

/// Datagrams that arrived, and bytes that were sent on.
#[derive(Default)]
struct Count {
    datagrams: AtomicUsize,
    bytes: AtomicUsize,
}

impl DatagramRelay {
    /// Starts a relay to `server` that treats datagrams by `rule`.
    pub fn new(server: SocketAddr, rule: impl Fn(Way, usize, &[u8]) -> Fate + Send + Sync + 'static) -> Self {
        let front = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        front.set_read_timeout(Some(READ_TIMEOUT)).expect("a timeout");
        let address = front.local_addr().expect("a bound socket");
        let shared = Arc::new(Shared {
            front,
            back: Mutex::new(new_back(server, Ipv4Addr::LOCALHOST)),
            client: Mutex::new(None),
            rule: Box::new(rule),
            counts: Default::default(),
            is_stopped: AtomicBool::new(false),
        });
        shared.return_datagrams();
        let own = Arc::clone(&shared);
        thread::spawn(move || own.send_datagrams());
        Self { address, shared }
    }

    /// Starts a relay to `server` that passes all datagrams.
    pub fn to(server: SocketAddr) -> Self {
        Self::new(server, |_, _, _| Fate::Pass)
    }

    /// Address for the client.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends from a new port at `address` from now on, like a NAT that has forgotten the client. Datagrams to the former
    /// port still reach the client.
    pub fn rebind(&self, address: Ipv4Addr) {
        self.shared.rebind(address);
    }

    /// The same, but datagrams to the former port are lost.
    pub fn replace(&self, address: Ipv4Addr) {
        self.shared.replace(address);
    }

    /// Number of datagrams that arrived so far.
    pub fn datagrams(&self, way: Way) -> usize {
        self.shared.counts[way as usize].datagrams.load(Ordering::SeqCst)
    }

    /// Bytes that were sent on so far.
    pub fn bytes(&self, way: Way) -> usize {
        self.shared.counts[way as usize].bytes.load(Ordering::SeqCst)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn new_back(server: SocketAddr, address: Ipv4Addr) -> Arc<Back> {
    let socket = UdpSocket::bind((address, 0)).expect("a socket");
    socket.connect(server).expect("a server");
    socket.set_read_timeout(Some(READ_TIMEOUT)).expect("a timeout");
    Arc::new(Back { socket, is_forgotten: AtomicBool::new(false) })
}

impl Shared {
    fn back(&self) -> Arc<Back> {
        Arc::clone(&lock(&self.back))
    }

    fn rebind(self: &Arc<Self>, address: Ipv4Addr) {
        let server = self.back().socket.peer_addr().expect("a connected socket");
        *lock(&self.back) = new_back(server, address);
        self.return_datagrams();
    }

    fn replace(self: &Arc<Self>, address: Ipv4Addr) {
        // Before the new socket: no datagram to the old one may arrive after the change.
        self.back().is_forgotten.store(true, Ordering::SeqCst);
        self.rebind(address);
    }

    fn send_datagrams(self: &Arc<Self>) {
        let mut buffer = vec![0; 65_536];
        while !self.is_stopped.load(Ordering::SeqCst) {
            let Ok((length, from)) = self.front.recv_from(&mut buffer) else { continue };
            // With each datagram, because the client may move too.
            *lock(&self.client) = Some(from);
            // The socket is looked up after the rule, which may have replaced it.
            self.relay(Way::Up, &buffer[..length], |datagram| self.back().socket.send(datagram));
        }
    }

    /// Sends the datagrams for the present socket to the client, on a thread of its own.
    fn return_datagrams(self: &Arc<Self>) {
        let (own, back) = (Arc::clone(self), self.back());
        thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while !own.is_stopped.load(Ordering::SeqCst) && !back.is_forgotten.load(Ordering::SeqCst) {
                let Ok(length) = back.socket.recv(&mut buffer) else { continue };
                // Again, because the change may have happened during the wait.
                if back.is_forgotten.load(Ordering::SeqCst) {
                    break;
                }
                let Some(client) = *lock(&own.client) else { continue };
                own.relay(Way::Down, &buffer[..length], |datagram| own.front.send_to(datagram, client));
            }
        });
    }

    fn relay(self: &Arc<Self>, way: Way, datagram: &[u8], send: impl Fn(&[u8]) -> io::Result<usize>) {
        let count = &self.counts[way as usize];
        let number = count.datagrams.fetch_add(1, Ordering::SeqCst);
        let times = match (self.rule)(way, number, datagram) {
            Fate::Pass => 1,
            Fate::Drop => 0,
            Fate::Repeat => 2,
            Fate::Rebind(address) => {
                self.replace(address);
                1
            }
        };
        for _ in 0..times {
            // Before the receiver can look at the count.
            count.bytes.fetch_add(datagram.len(), Ordering::SeqCst);
            // An error is a loss, as on the way.
            drop(send(datagram));
        }
    }
}

impl Drop for DatagramRelay {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
    }
}

impl fmt::Debug for DatagramRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramRelay").field("address", &self.address).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that returns each datagram with the port of its sender in front.
    fn echo() -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 100];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let answer = [&from.port().to_be_bytes(), &buffer[..length]].concat();
                socket.send_to(&answer, from).unwrap();
            }
        });
        address
    }

    fn client(relay: &DatagramRelay) -> UdpSocket {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(relay.address()).unwrap();
        client.set_read_timeout(Some(crate::process::TIMEOUT)).unwrap();
        client
    }

    fn receive(client: &UdpSocket) -> Vec<u8> {
        let mut buffer = [0; 100];
        loop {
            match client.recv(&mut buffer) {
                // The process was stopped and continued (signal(7)).
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                received => return buffer[..received.unwrap()].to_vec(),
            }
        }
    }

    #[test]
    fn datagrams_are_lost_and_repeated_by_the_rule() {
        let relay = DatagramRelay::new(echo(), |way, number, _| match (way, number) {
            (Way::Up, 0) => Fate::Drop,
            (Way::Down, 0) => Fate::Repeat,
            _ => Fate::Pass,
        });
        let client = client(&relay);
        client.send(b"a").unwrap();
        client.send(b"bb").unwrap();
        assert_eq!([receive(&client), receive(&client)].map(|answer| answer[2..].to_vec()), [b"bb", b"bb"]);
        assert_eq!((relay.datagrams(Way::Up), relay.datagrams(Way::Down)), (2, 1));
        assert_eq!((relay.bytes(Way::Up), relay.bytes(Way::Down)), (2, 8));
    }

    #[test]
    fn the_server_sees_a_new_port_after_a_change() {
        let relay = DatagramRelay::to(echo());
        let client = client(&relay);
        client.send(b"a").unwrap();
        let before = receive(&client);
        relay.rebind(Ipv4Addr::new(127, 0, 0, 2));
        client.send(b"a").unwrap();
        assert_ne!(receive(&client), before);
    }
}

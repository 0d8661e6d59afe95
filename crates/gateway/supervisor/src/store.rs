//! The descriptor store: sockets that outlive the generations that have opened them.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;

/// Maximum number of descriptors that a generation can store: those of 1,024 workers with several listeners.
pub(crate) const MOST: usize = 8192;

/// Descriptors with their names, in the order in which the generation stored them, which is that of binding.
#[derive(Debug, Default)]
pub(crate) struct Store(Vec<(String, OwnedFd)>);

impl Store {
    /// Appends a descriptor, or closes it and returns `false` if there are [`MOST`] already.
    pub(crate) fn add(&mut self, name: &str, descriptor: OwnedFd) -> bool {
        let has_room = self.0.len() < MOST;
        if has_room {
            self.0.push((name.to_owned(), descriptor));
        }
        has_room
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Copies for a child process.
    pub(crate) fn copies(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        self.0.iter().map(|(name, descriptor)| Ok((name.clone(), descriptor.try_clone()?))).collect()
    }

    /// Whether a datagram socket is among the descriptors.
    pub(crate) fn has_datagrams(&self) -> bool {
        let is_datagram =
            |descriptor: &OwnedFd| socket_type(descriptor).is_ok_and(|kind| kind == SocketType::DGRAM);
        self.0.iter().any(|(_, descriptor)| is_datagram(descriptor))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn descriptors_keep_their_order_and_their_names() {
        let mut store = Store::default();
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert!(store.add("https", tcp.try_clone().expect("a copy").into()));
        assert!(!store.has_datagrams());
        assert!(store.add("http3", udp.into()));
        assert!(store.has_datagrams() && !store.is_empty());
        let copies = store.copies().expect("copies");
        assert_eq!(copies.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["https", "http3"]);
        assert_eq!(store.len(), 2);
    }
}

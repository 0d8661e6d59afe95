//! The descriptor store: sockets that outlive the generations that have opened them.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;

/// Maximum number of descriptors that a generation can store, whose names usually fit into [`LONGEST_NAMES`].
pub(crate) const MOST: usize = 2048;

/// Maximum length in bytes of all names with their separators. They are passed in one variable of the environment, for which the
/// kernel permits 128 KiB (`MAX_ARG_STRLEN`): without a limit, no further generation could be started. The rest is for the name of
/// the variable and for the descriptors that are not stored.
const LONGEST_NAMES: usize = 127 * 1024;

/// Descriptors with their names, in the order in which the generation stored them, which is that of binding.
#[derive(Debug, Default)]
pub(crate) struct Store {
    all: Vec<(String, OwnedFd)>,
    /// Length of the names with their separators in bytes.
    names: usize,
}

impl Store {
    /// Appends a descriptor, or closes it and returns `false` if [`MOST`] or [`LONGEST_NAMES`] would be exceeded.
    pub(crate) fn add(&mut self, name: &str, descriptor: OwnedFd) -> bool {
        let names = self.names + name.len() + 1;
        let has_room = self.all.len() < MOST && names <= LONGEST_NAMES;
        if has_room {
            self.names = names;
            self.all.push((name.to_owned(), descriptor));
        }
        has_room
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Copies for a child process.
    pub(crate) fn copies(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        self.all.iter().map(|(name, descriptor)| Ok((name.clone(), descriptor.try_clone()?))).collect()
    }

    /// Whether a datagram socket is among the descriptors.
    pub(crate) fn has_datagrams(&self) -> bool {
        let is_datagram =
            |descriptor: &OwnedFd| socket_type(descriptor).is_ok_and(|kind| kind == SocketType::DGRAM);
        self.all.iter().any(|(_, descriptor)| is_datagram(descriptor))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::{TcpListener, UdpSocket};
    use std::process::Command;

    use super::*;

    #[test]
    fn the_names_of_a_full_store_fit_into_the_environment_of_a_process() {
        let mut store = Store::default();
        let file = File::open("/dev/null").expect("a file");
        let (longest, rest) = ("a".repeat(255), LONGEST_NAMES % 256);
        let descriptor = || OwnedFd::from(file.try_clone().expect("a copy"));
        for _ in 0..LONGEST_NAMES / 256 {
            assert!(store.add(&longest, descriptor()));
        }
        assert!(!store.add(&"a".repeat(rest), descriptor()), "one byte more than the limit");
        let names: Vec<_> = store.all.iter().map(|(name, _)| name.as_str()).collect();
        let value = names.join(":") + ":state:reports:predecessor";
        let status = Command::new("true").env("LISTEN_FDNAMES", value).status();
        assert!(status.expect("a process").success());
    }

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

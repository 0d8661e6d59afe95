//! Sockets of the listeners: passed to the process, or bound by the server itself.
//!
//! All sockets are prepared before anything is served, so that no server starts with a part of its listeners.

mod binding;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd, RawFd};

use brisk_net::datagram::{self, Halves};
use brisk_net::listener::{self, FastOpenState, ListenerSettings};
use brisk_supervisor::inherited::{self, Passed};
use socket2::{Socket, Type};

use self::binding::{Conditions, bind, bind_listener};
use crate::ServerError;
use crate::settings::Listen;
use crate::stored::{Stored, StoredName};
use crate::succession::Succession;

/// The name of the admin listener.
const ADMIN: &str = "admin";

/// Sockets that were passed to the process and are not taken by a listener yet.
///
/// A listener takes the sockets with its address. If there are none, it takes sockets with its name
/// (`FileDescriptorName=` of systemd) and port; with port 0, any port. Of the sockets that an earlier process has bound
/// (`StoredName`), it takes those that were bound for the same address in the configuration. If there is one for each worker, with
/// one address, each worker gets its own, as without passed sockets: a listener without any binds one per worker with
/// `SO_REUSEPORT`. Otherwise every worker accepts from each of them through a copy of the descriptor: a free worker gets a
/// connection. A connection that is still in the backlog when the server ends waits for the next process with that socket.
///
/// Datagram sockets are taken by the same rule, but not copied: their order in the environment is the order in which
/// they were bound, which the kernel uses to distribute datagrams (`brisk_net::datagram`). Each belongs to one worker.
#[derive(Debug, Default)]
pub struct Sockets {
    passed: Vec<Inherited>,
    /// [`Succession`] of a generation of a supervisor.
    pub(crate) succession: Succession,
}

#[derive(Debug)]
struct Inherited {
    number: RawFd,
    name: String,
    /// The meaning of `name`, if an earlier process has stored the socket.
    stored: Option<StoredName>,
    socket: Socket,
    /// Kind and address of a TCP or UDP socket.
    bound: Option<(Kind, SocketAddr)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Stream,
    Datagram,
}

/// A need for passed sockets: the kind, name and address of a listener.
type Wanted<'a> = (Kind, &'a str, SocketAddr);

/// The sockets of a server.
#[derive(Debug)]
pub(crate) struct AllBound<L> {
    pub(crate) listeners: Vec<Bound<L>>,
    pub(crate) admin: Option<Bound<()>>,
    /// [`Bound::copies`] for the service manager; none without a store.
    pub(crate) stored: Stored,
}

/// The sockets of one listener.
#[derive(Debug)]
pub(crate) struct Bound<L> {
    pub(crate) kind: L,
    /// Address, with the port that the system chose for port `0`.
    pub(crate) address: SocketAddr,
    /// [`StoredName::configured`] of the stream sockets.
    pub(crate) configured: Option<SocketAddr>,
    /// [`StoredName::configured`] of the datagram sockets.
    pub(crate) datagrams_configured: Option<SocketAddr>,
    pub(crate) backlog: i32,
    /// Whether all workers accept from the same sockets.
    pub(crate) is_shared: bool,
    /// Sockets of each worker.
    pub(crate) sockets: Vec<Vec<TcpListener>>,
    /// Datagram sockets in the order of their group; none without QUIC.
    pub(crate) datagrams: Vec<UdpSocket>,
    /// The [`Halves`] of inherited datagram sockets, of which `datagrams` is one.
    pub(crate) halves: Option<Halves>,
}

impl Sockets {
    /// Takes the sockets that a supervisor passed by the protocol of systemd: `LISTEN_FDS`, `LISTEN_PID` and
    /// `LISTEN_FDNAMES`, see `sd_listen_fds(3)`. Returns none if `LISTEN_PID` is another process.
    pub fn inherited() -> Self {
        let mut succession = Succession::default();
        let passed = inherited::take().into_iter().filter_map(|passed| succession.take(passed));
        let mut passed: Vec<_> = passed.map(Inherited::from).collect();
        // The store of systemd does not keep the order of binding.
        passed.sort_by_key(Inherited::index);
        Self { passed, succession }
    }

    /// Binds the sockets of all listeners for `workers`, and the socket of the admin listener once. Passed sockets
    /// that no listener takes are closed with a warning. `stores` is the capacity of the service manager's descriptor store.
    pub(crate) fn bind_all<L: Copy>(
        mut self,
        listeners: &[Listen<L>],
        admin: Option<&ListenerSettings>,
        (workers, stores): (usize, usize),
    ) -> Result<AllBound<L>, ServerError> {
        let streams = listeners.iter().map(|own| (Kind::Stream, own.name, own.settings.address));
        let mut wanted: Vec<_> = streams.collect();
        let with_datagrams = listeners.iter().filter(|own| own.datagrams);
        wanted.extend(with_datagrams.map(|own| (Kind::Datagram, own.name, own.settings.address)));
        wanted.extend(admin.map(|settings| (Kind::Stream, ADMIN, settings.address)));
        let mut streams = self.take_for(&wanted);
        let beside: Vec<_> = self.passed.iter().filter_map(|own| own.bound).collect();
        let conditions = Conditions { workers, has_store: stores > 0, beside: &beside };
        let mut stored = Stored::new(stores);
        self.close(&mut stored);
        let mut datagrams = streams.split_off(listeners.len());
        let for_admin = datagrams.pop_if(|_| admin.is_some());
        let mut datagrams = datagrams.into_iter();
        let mut bound = Vec::with_capacity(listeners.len());
        for (listener, streams) in listeners.iter().zip(streams) {
            let datagrams = listener.datagrams.then(|| datagrams.next().unwrap_or_default());
            let new = bind_listener(listener, streams, datagrams, conditions)?;
            stored.add(listener.name, &new)?;
            bound.push(new);
        }
        let conditions = Conditions { workers: 1, ..conditions };
        let admin = admin.map(|settings| bind((), settings, for_admin.unwrap_or_default(), conditions));
        let admin = admin.transpose()?;
        if let Some(admin) = &admin {
            stored.add(ADMIN, admin)?;
        }
        warn_fast_open_off(listeners);
        if listeners.iter().any(|listener| listener.datagrams) {
            for limit in datagram::low_limits() {
                tracing::warn!("{limit}");
            }
        }
        Ok(AllBound { listeners: bound, admin, stored })
    }

    /// The passed sockets of each listener.
    fn take_for(&mut self, wanted: &[Wanted<'_>]) -> Vec<Vec<Inherited>> {
        // Addresses first: a socket with the address of one listener is not for another by its name.
        let of_address =
            |(kind, _, address): &Wanted<'_>| self.take_if(|own| own.bound == Some((*kind, *address)));
        let mut taken: Vec<_> = wanted.iter().map(of_address).collect();
        for (wanted, taken) in wanted.iter().zip(&mut taken).filter(|(_, taken)| taken.is_empty()) {
            let first = self.passed.iter().find(|own| own.is_called(wanted));
            // Two listeners with port 0 have the same configured address.
            let only = first.filter(|own| own.configured().is_some()).and_then(Inherited::address);
            let fits = |own: &Inherited| only.is_none() || own.address() == only;
            *taken = self.take_if(|own| own.is_called(wanted) && fits(own));
        }
        taken
    }

    fn take_if(&mut self, mut fits: impl FnMut(&Inherited) -> bool) -> Vec<Inherited> {
        self.passed.extract_if(.., |own| fits(own)).collect()
    }

    fn close(&mut self, stored: &mut Stored) {
        for socket in self.passed.drain(..) {
            stored.remove(&socket.name);
            tracing::warn!(
                descriptor = socket.number,
                name = socket.name,
                "inherited {socket} is closed: no listener of the configuration has that address, or its port and name"
            );
        }
    }
}

impl<L> Bound<L> {
    /// Copies of all stream sockets and of all datagram sockets, each in the order of binding.
    pub(crate) fn copies(&self) -> io::Result<(Vec<OwnedFd>, Vec<OwnedFd>)> {
        // All workers have copies of the same sockets if these are shared.
        let workers = if self.is_shared { 1 } else { self.sockets.len() };
        let streams = self.sockets.iter().take(workers).flatten().map(AsFd::as_fd);
        let datagrams: Vec<_> = match &self.halves {
            Some(halves) => halves.all(&self.datagrams).map(AsFd::as_fd).collect(),
            None => self.datagrams.iter().map(AsFd::as_fd).collect(),
        };
        let streams = streams.map(|socket| socket.try_clone_to_owned()).collect::<io::Result<_>>()?;
        let datagrams = datagrams.into_iter().map(|socket| socket.try_clone_to_owned());
        Ok((streams, datagrams.collect::<io::Result<_>>()?))
    }
}

impl Inherited {
    fn is_called(&self, (kind, name, wanted): &Wanted<'_>) -> bool {
        let fits = |address: SocketAddr| match self.configured() {
            Some(configured) => configured == *wanted,
            None => wanted.port() == 0 || wanted.port() == address.port(),
        };
        let own = self.stored.as_ref().map_or(&self.name, |stored| &stored.listener);
        own == name && self.bound.is_some_and(|(own, address)| own == *kind && fits(address))
    }

    /// [`StoredName::configured`]; `None` for a socket of an operator.
    fn configured(&self) -> Option<SocketAddr> {
        self.stored.as_ref().and_then(|stored| stored.configured)
    }

    /// [`StoredName::index`]; `None` for a socket that was not stored.
    fn index(&self) -> Option<usize> {
        self.stored.as_ref().map(|stored| stored.index)
    }

    fn address(&self) -> Option<SocketAddr> {
        self.bound.map(|(_, address)| address)
    }
}

impl From<Passed> for Inherited {
    fn from(Passed { number, name, descriptor }: Passed) -> Self {
        let socket = Socket::from(descriptor);
        let kind = match socket.r#type() {
            Ok(Type::STREAM) => Some(Kind::Stream),
            Ok(Type::DGRAM) => Some(Kind::Datagram),
            _ => None,
        };
        let address = socket.local_addr().ok().and_then(|address| address.as_socket());
        let stored = StoredName::read(&name);
        Self { number, name, stored, socket, bound: kind.zip(address) }
    }
}

impl fmt::Display for Inherited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bound {
            Some((Kind::Stream, address)) => write!(f, "socket {address}"),
            Some((Kind::Datagram, address)) => write!(f, "datagram socket {address}"),
            None => f.write_str("descriptor, which is no TCP or UDP socket,"),
        }
    }
}

fn warn_fast_open_off<L>(listeners: &[Listen<L>]) {
    let wanted = listeners.iter().any(|listener| listener.settings.fast_open.is_some());
    if let (true, FastOpenState::Off(found)) = (wanted, listener::fast_open_state()) {
        let turned_on = found | 2;
        tracing::warn!(
            "TCP Fast Open is off for servers in the kernel; `sysctl net.ipv4.tcp_fastopen={turned_on}` turns it on"
        );
    }
}

#[cfg(test)]
mod tests {
    use brisk_testkit::process::wait_until;

    use super::*;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    fn sockets_of(passed: Vec<Inherited>) -> Sockets {
        Sockets { passed, ..Sockets::default() }
    }

    /// A socket as if it had been passed to the process.
    fn passed(number: RawFd, name: &str) -> Inherited {
        let socket = listener::bind(&ListenerSettings::new(ANY)).expect("a socket");
        Passed { number, name: name.to_owned(), descriptor: socket.into() }.into()
    }

    /// A datagram socket of a group, as if it had been passed to the process.
    fn passed_datagrams(number: RawFd, name: &str, socket: UdpSocket) -> Inherited {
        Passed { number, name: name.to_owned(), descriptor: socket.into() }.into()
    }

    fn streams<'a>(wanted: &[(&'a str, SocketAddr)]) -> Vec<Wanted<'a>> {
        wanted.iter().map(|(name, address)| (Kind::Stream, *name, *address)).collect()
    }

    /// The descriptors of each listener.
    fn numbers(taken: &[Vec<Inherited>]) -> String {
        let numbers = |taken: &Vec<Inherited>| taken.iter().map(|own| own.number).collect::<Vec<_>>();
        format!("{:?}", taken.iter().map(numbers).collect::<Vec<_>>())
    }

    #[test]
    fn an_address_comes_before_a_name() {
        let (first, second) = (passed(3, "https"), passed(4, "https"));
        let other = |socket: &Inherited| {
            let port = socket.address().expect("TCP").port();
            SocketAddr::from(([192, 0, 2, 1], port))
        };
        let exact = first.address().expect("TCP");
        let wanted = [("https", other(&first)), ("https", exact), ("http", other(&second)), ("https", ANY)];
        let mut sockets = sockets_of(vec![first, second]);
        assert_eq!(numbers(&sockets.take_for(&streams(&wanted))), "[[], [3], [], [4]]");
        assert!(sockets.passed.is_empty());
    }

    #[test]
    fn a_stored_socket_is_for_the_address_in_the_configuration_only() {
        let [own, other] = ["https.1@127.0.0.1,0", "https.0@127.0.0.1,0"].map(|name| passed(3, name));
        let port = own.address().expect("TCP").port();
        let every = SocketAddr::from(([0, 0, 0, 0], port));
        let mut sockets = sockets_of(vec![own, other]);
        assert_eq!(numbers(&sockets.take_for(&streams(&[("https", every), ("http", ANY)]))), "[[], []]");
        let taken = sockets.take_for(&streams(&[("https", ANY), ("https", ANY)]));
        assert_eq!(numbers(&taken), "[[3], [3]]", "two listeners with one address in the configuration");
        let taken = taken.into_iter().flatten().map(|own| own.index());
        assert_eq!(taken.collect::<Vec<_>>(), [Some(1), Some(0)]);
    }

    #[test]
    fn a_listener_is_narrowed_and_widened_while_a_predecessor_serves_it() {
        let every = SocketAddr::from(([0, 0, 0, 0], 0));
        for (before, after) in [
            (every, vec![ANY]),
            (ANY, vec![every]),
            (every, vec![ANY, SocketAddr::from(([127, 0, 0, 2], 0))]),
        ] {
            let wanted = |addresses: &[SocketAddr]| {
                let listen = |address: &SocketAddr| Listen {
                    kind: (),
                    name: "https",
                    settings: ListenerSettings::new(*address),
                    datagrams: true,
                };
                addresses.iter().map(listen).collect::<Vec<_>>()
            };
            let first = Sockets::default().bind_all(&wanted(&[before]), None, (2, 64)).expect("sockets");
            let port = first.listeners[0].address.port();
            let before = SocketAddr::new(before.ip(), port);
            let after: Vec<_> = after.iter().map(|address| SocketAddr::new(address.ip(), port)).collect();
            let passed =
                all_copies(&first.listeners[0]).into_iter().enumerate().map(|(index, descriptor)| {
                    let name = StoredName { listener: "https".to_owned(), index, configured: Some(before) }
                        .to_text();
                    Passed { number: 3, name, descriptor }.into()
                });
            let next =
                sockets_of(passed.collect()).bind_all(&wanted(&after), None, (2, 64)).expect("sockets");
            let addresses: Vec<_> = next.listeners.iter().map(|bound| bound.address).collect();
            assert_eq!(addresses, after);
            for bound in &next.listeners {
                let own = |socket: &UdpSocket| socket.local_addr().expect("an address") == bound.address;
                assert!(bound.datagrams.iter().all(own));
            }
        }
    }

    #[test]
    fn a_name_is_not_enough_for_another_port() {
        let socket = passed(3, "admin");
        let port = socket.address().expect("TCP").port() ^ 1;
        let mut sockets = sockets_of(vec![socket]);
        let other = SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(numbers(&sockets.take_for(&streams(&[("admin", other)]))), "[[]]");
        assert_eq!(sockets.passed.len(), 1);
    }

    #[test]
    fn descriptors_that_are_no_ip_sockets_are_nobodys() {
        let (stream, _) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let (datagrams, _) = std::os::unix::net::UnixDatagram::pair().expect("a pair");
        let file = std::fs::File::open("/dev/null").expect("a file");
        for descriptor in [stream.into(), datagrams.into(), file.into()] {
            let own = Inherited::from(Passed { number: 3, name: "https".to_owned(), descriptor });
            assert_eq!(own.address(), None);
            let mut sockets = sockets_of(vec![own]);
            assert_eq!(numbers(&sockets.take_for(&streams(&[("https", ANY)]))), "[[]]");
        }
    }

    #[test]
    fn a_datagram_socket_is_not_a_stream_of_the_same_address() {
        let tcp = passed(3, "https");
        let address = tcp.address().expect("TCP");
        let udp = passed_datagrams(4, "https", UdpSocket::bind(address).expect("the same port"));
        let mut sockets = sockets_of(vec![udp, tcp]);
        let wanted = [(Kind::Stream, "https", address), (Kind::Datagram, "https", address)];
        assert_eq!(numbers(&sockets.take_for(&wanted)), "[[3], [4]]");
    }

    #[test]
    fn datagram_sockets_are_taken_in_their_order() {
        let (address, group) = datagram::bind_group(ANY, 3).expect("a group");
        let copies: Vec<_> = group.iter().map(|socket| socket.try_clone().expect("a copy")).collect();
        let inherited =
            group.into_iter().zip(3..).map(|(own, number)| passed_datagrams(number, "https", own));
        let settings = ListenerSettings::new(address);
        let listener = Listen { kind: (), name: "https", settings, datagrams: true };
        let sockets = sockets_of(inherited.collect());
        let bound = sockets.bind_all(&[listener], None, (3, 0)).expect("sockets").listeners.remove(0);
        assert_eq!((bound.address, bound.datagrams.len(), bound.sockets.len()), (address, 3, 3));
        // The copies of one socket share its queue.
        let client = UdpSocket::bind(ANY).expect("a client");
        for (own, adopted) in copies.iter().zip(&bound.datagrams) {
            let index = copies.iter().position(|other| std::ptr::eq(own, other)).expect("its place");
            client.send_to(&[0x40, index as u8, 0], address).expect("sent");
            let length = wait_until("a datagram", || adopted.recv(&mut [0; 8]).ok());
            assert_eq!(length, 3, "socket {index}");
            assert!(own.recv(&mut [0; 8]).is_err(), "the same queue");
        }
    }

    #[test]
    fn a_listener_has_datagram_sockets_on_its_own_port_if_it_wants_them() {
        let listen = |datagrams| {
            let listener =
                Listen { kind: (), name: "https", settings: ListenerSettings::new(ANY), datagrams };
            Sockets::default().bind_all(&[listener], None, (2, 0)).expect("sockets").listeners.remove(0)
        };
        assert!(listen(false).datagrams.is_empty());
        let bound = listen(true);
        assert_eq!(bound.datagrams.len(), 2);
        for socket in &bound.datagrams {
            assert_eq!(socket.local_addr().expect("an address"), bound.address);
        }
    }

    #[test]
    fn a_port_that_another_program_has_for_datagrams_is_an_error() {
        let other = UdpSocket::bind(ANY).expect("another program");
        let settings = ListenerSettings::new(other.local_addr().expect("an address"));
        let listener = Listen { kind: (), name: "https", settings, datagrams: true };
        let refused = Sockets::default().bind_all(&[listener], None, (1, 0));
        assert!(matches!(refused, Err(ServerError::Listen { .. })), "{refused:?}");
    }

    #[test]
    fn every_worker_has_a_copy_of_each_inherited_socket() {
        let three = Conditions { workers: 3, has_store: false, beside: &[] };
        let bound = bind((), &ListenerSettings::new(ANY), vec![passed(3, ""), passed(4, "")], three);
        let bound = bound.expect("sockets that listen");
        assert!(bound.is_shared && bound.sockets.len() == 3);
        for worker in &bound.sockets {
            let addresses: Vec<_> = worker.iter().map(|socket| socket.local_addr().expect("TCP")).collect();
            assert_eq!((addresses.len(), addresses[0]), (2, bound.address));
        }
        let own = bind((), &ListenerSettings::new(ANY), Vec::new(), three).expect("new sockets");
        assert!(!own.is_shared && own.sockets.iter().all(|worker| worker.len() == 1));
    }

    #[test]
    fn every_worker_has_its_own_inherited_socket_if_there_is_one_for_each() {
        let first = listener::bind(&ListenerSettings::new(ANY)).expect("a socket");
        let settings = ListenerSettings::new(first.local_addr().expect("an address"));
        let others = [listener::bind(&settings), listener::bind(&settings)]
            .map(|socket| socket.expect("the same port"));
        let all: Vec<_> = [first].into_iter().chain(others).collect();
        let inodes = |sockets: Vec<OwnedFd>| sockets.iter().map(inode).collect::<Vec<_>>();
        let before = inodes(all.iter().map(|socket| socket.try_clone().expect("a copy").into()).collect());
        let inherited = all
            .into_iter()
            .zip(3..)
            .map(|(socket, number)| Passed { number, name: String::new(), descriptor: socket.into() }.into());
        let three = Conditions { workers: 3, has_store: false, beside: &[] };
        let bound = bind((), &settings, inherited.collect(), three).expect("sockets that listen");
        assert!(!bound.is_shared && bound.sockets.iter().all(|worker| worker.len() == 1));
        assert_eq!(inodes(bound.copies().expect("copies").0), before, "in their order");
    }

    #[test]
    fn the_copies_of_a_first_process_are_two_halves_for_the_next() {
        let listen = |address| Listen {
            kind: (),
            name: "https",
            settings: ListenerSettings::new(address),
            datagrams: true,
        };
        let first = Sockets::default().bind_all(&[listen(ANY)], None, (2, 64)).expect("sockets");
        let bound = &first.listeners[0];
        let copies = all_copies(bound);
        assert_eq!((bound.datagrams.len(), copies.len()), (2, 2 + 4));
        let before: Vec<_> = copies.iter().map(inode).collect();
        let passed = copies
            .into_iter()
            .zip(3..)
            .map(|(descriptor, number)| Passed { number, name: "https".to_owned(), descriptor }.into());
        let next = sockets_of(passed.collect()).bind_all(&[listen(bound.address)], None, (2, 64));
        let next = next.expect("sockets").listeners.remove(0);
        assert!(!next.is_shared && next.halves.as_ref().is_some_and(|halves| halves.half().is_some()));
        let again: Vec<_> = all_copies(&next).iter().map(inode).collect();
        assert_eq!(again, before, "in the order of binding");
    }

    fn all_copies(bound: &Bound<()>) -> Vec<OwnedFd> {
        let (mut streams, datagrams) = bound.copies().expect("copies");
        streams.extend(datagrams);
        streams
    }

    fn inode(socket: &OwnedFd) -> u64 {
        rustix::fs::fstat(socket).expect("a socket").st_ino
    }
}

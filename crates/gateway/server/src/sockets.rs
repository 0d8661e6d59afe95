//! Sockets of the listeners: passed to the process, or bound by the server itself.
//!
//! All sockets are prepared before anything is served, so that no server starts with a part of its listeners.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd, RawFd};

use brisk_net::datagram::{self, Halves, LARGEST_GROUP};
use brisk_net::listener::{self, FastOpenState, ListenerSettings};
use brisk_supervisor::inherited::{self, Passed};
use socket2::{Socket, Type};

use crate::ServerError;
use crate::settings::Listen;
use crate::stored::Stored;
use crate::succession::Succession;

/// The name of the admin listener.
const ADMIN: &str = "admin";

/// Sockets that were passed to the process and are not taken by a listener yet.
///
/// A listener takes the sockets with its address. If there are none, it takes sockets with its name
/// (`FileDescriptorName=` of systemd) and port; with port 0, any port. If there is one for each worker, with one address, each
/// worker gets its own, as without passed sockets: a listener without any binds one per worker with `SO_REUSEPORT`.
/// Otherwise every worker accepts from each of them through a copy of the descriptor: a free worker gets a connection. A
/// connection that is still in the backlog when the server ends waits for the next process with that socket.
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
        let passed = passed.map(Inherited::from).collect();
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
        let mut stored = Stored::new(stores);
        self.close(&mut stored);
        let mut datagrams = streams.split_off(listeners.len());
        let for_admin = datagrams.pop_if(|_| admin.is_some());
        let mut datagrams = datagrams.into_iter();
        let mut bound = Vec::with_capacity(listeners.len());
        for (listener, streams) in listeners.iter().zip(streams) {
            let datagrams = listener.datagrams.then(|| datagrams.next().unwrap_or_default());
            let new = bind_listener(listener, streams, datagrams, (workers, stores > 0))?;
            stored.add(listener.name, &new)?;
            bound.push(new);
        }
        let admin = admin.map(|settings| bind((), settings, for_admin.unwrap_or_default(), 1));
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
            *taken = self.take_if(|own| own.is_called(wanted));
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
    /// Copies of all sockets, each kind in the order of binding.
    pub(crate) fn copies(&self) -> io::Result<Vec<OwnedFd>> {
        // All workers have copies of the same sockets if these are shared.
        let workers = if self.is_shared { 1 } else { self.sockets.len() };
        let streams = self.sockets.iter().take(workers).flatten().map(AsFd::as_fd);
        let datagrams: Vec<_> = match &self.halves {
            Some(halves) => halves.all(&self.datagrams).map(AsFd::as_fd).collect(),
            None => self.datagrams.iter().map(AsFd::as_fd).collect(),
        };
        streams.chain(datagrams).map(|socket| socket.try_clone_to_owned()).collect()
    }
}

impl Inherited {
    fn is_called(&self, (kind, name, wanted): &Wanted<'_>) -> bool {
        let fits = |port: u16| wanted.port() == 0 || wanted.port() == port;
        self.name == *name && self.bound.is_some_and(|(own, address)| own == *kind && fits(address.port()))
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
        Self { number, name, socket, bound: kind.zip(address) }
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

/// Attempts to find a port that is free for TCP and UDP, if the system chooses it.
const PORT_ATTEMPTS: usize = 16;

/// The sockets of a listener: streams, and datagrams if it has QUIC.
fn bind_listener<L: Copy>(
    Listen { kind, settings, .. }: &Listen<L>,
    streams: Vec<Inherited>,
    datagrams: Option<Vec<Inherited>>,
    (workers, has_store): (usize, bool),
) -> Result<Bound<L>, ServerError> {
    let Some(datagrams) = datagrams else { return bind(*kind, settings, streams, workers) };
    let is_any_port = settings.address.port() == 0 && streams.is_empty() && datagrams.is_empty();
    let mut bound = bind(*kind, settings, streams, workers)?;
    let mut group = bind_datagrams(bound.address, datagrams, (workers, has_store));
    for _ in 0..if is_any_port { PORT_ATTEMPTS } else { 0 } {
        if group.is_ok() {
            break;
        }
        // The port that the system chose for TCP is used by another program for UDP.
        bound = bind(*kind, settings, Vec::new(), workers)?;
        group = bind_datagrams(bound.address, Vec::new(), (workers, has_store));
    }
    (bound.datagrams, bound.halves) =
        group.map_err(|source| ServerError::Listen { address: bound.address, source })?;
    Ok(bound)
}

fn bind_datagrams(
    address: SocketAddr,
    inherited: Vec<Inherited>,
    (workers, has_store): (usize, bool),
) -> io::Result<(Vec<UdpSocket>, Option<Halves>)> {
    if inherited.is_empty() && has_store && 2 * workers <= LARGEST_GROUP {
        // The second half is for the next process, which starts while this one serves.
        let (own, halves) = datagram::bind_halves(address, workers)?;
        return Ok((own, Some(halves)));
    }
    if inherited.is_empty() {
        // One byte of a connection ID selects the socket: further workers have none, and serve TCP only.
        return Ok((datagram::bind_group(address, workers.min(LARGEST_GROUP))?.1, None));
    }
    if inherited.len() != workers && inherited.len() != 2 * workers {
        tracing::warn!(
            %address,
            "{} datagram sockets are inherited for {workers} workers: pass one or two for each worker, in the order \
             in which they were bound, or HTTP/3 uses fewer workers, or one worker for several sockets",
            inherited.len()
        );
    }
    datagram::adopt_group(inherited.into_iter().map(|own| own.socket).collect(), workers)
}

/// Listens on `inherited`, or on new sockets where there are none.
fn bind<L>(
    kind: L,
    settings: &ListenerSettings,
    inherited: Vec<Inherited>,
    workers: usize,
) -> Result<Bound<L>, ServerError> {
    let backlog = settings.backlog;
    let Some(address) = inherited.first().and_then(Inherited::address) else {
        let (address, sockets) = bind_new(settings, workers)?;
        return Ok(Bound {
            kind,
            address,
            backlog,
            is_shared: false,
            sockets,
            datagrams: Vec::new(),
            halves: None,
        });
    };
    let is_shared = inherited.len() != workers || inherited.iter().any(|own| own.address() != Some(address));
    let sockets = if is_shared { share(inherited, settings, workers) } else { divide(inherited, settings) };
    let sockets = sockets.map_err(|source| ServerError::Listen { address, source })?;
    Ok(Bound { kind, address, backlog, is_shared, sockets, datagrams: Vec::new(), halves: None })
}

/// One of the `inherited` sockets for each worker.
fn divide(inherited: Vec<Inherited>, settings: &ListenerSettings) -> io::Result<Vec<Vec<TcpListener>>> {
    inherited.into_iter().map(|own| Ok(vec![listener::adopt(own.socket, settings)?])).collect()
}

/// Copies of all `inherited` sockets for each worker.
fn share(
    inherited: Vec<Inherited>,
    settings: &ListenerSettings,
    workers: usize,
) -> io::Result<Vec<Vec<TcpListener>>> {
    let adopted = inherited.into_iter().map(|own| listener::adopt(own.socket, settings));
    let first = adopted.collect::<io::Result<Vec<_>>>()?;
    let copies = |_| first.iter().map(TcpListener::try_clone).collect::<io::Result<Vec<_>>>();
    let mut all = (1..workers).map(copies).collect::<io::Result<Vec<_>>>()?;
    all.push(first);
    Ok(all)
}

/// Sockets that share one address by `SO_REUSEPORT`, one for each worker. The first is bound without it, for a moment, so
/// that an address that another program serves is an error and not shared with it.
fn bind_new(
    settings: &ListenerSettings,
    workers: usize,
) -> Result<(SocketAddr, Vec<Vec<TcpListener>>), ServerError> {
    let alone = ListenerSettings { reuse_port: false, ..settings.clone() };
    let address = bind_one(&alone)?.0;
    let shared = ListenerSettings { address, reuse_port: true, ..settings.clone() };
    let sockets = (0..workers).map(|_| Ok(vec![bind_one(&shared)?.1]));
    Ok((address, sockets.collect::<Result<_, _>>()?))
}

fn bind_one(settings: &ListenerSettings) -> Result<(SocketAddr, TcpListener), ServerError> {
    let wrong = |source| ServerError::Listen { address: settings.address, source };
    let socket = listener::bind(settings).map_err(wrong)?;
    Ok((socket.local_addr().map_err(wrong)?, socket))
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
    use brisk_net::listener::bind;
    use brisk_testkit::process::wait_until;

    use super::*;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    fn sockets_of(passed: Vec<Inherited>) -> Sockets {
        Sockets { passed, ..Sockets::default() }
    }

    /// A socket as if it had been passed to the process.
    fn passed(number: RawFd, name: &str) -> Inherited {
        let socket = bind(&ListenerSettings::new(ANY)).expect("a socket");
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
        let bound = super::bind((), &ListenerSettings::new(ANY), vec![passed(3, ""), passed(4, "")], 3);
        let bound = bound.expect("sockets that listen");
        assert!(bound.is_shared && bound.sockets.len() == 3);
        for worker in &bound.sockets {
            let addresses: Vec<_> = worker.iter().map(|socket| socket.local_addr().expect("TCP")).collect();
            assert_eq!((addresses.len(), addresses[0]), (2, bound.address));
        }
        let own = super::bind((), &ListenerSettings::new(ANY), Vec::new(), 3).expect("new sockets");
        assert!(!own.is_shared && own.sockets.iter().all(|worker| worker.len() == 1));
    }
    #[test]
    fn every_worker_has_its_own_inherited_socket_if_there_is_one_for_each() {
        let first = bind(&ListenerSettings::new(ANY)).expect("a socket");
        let settings = ListenerSettings::new(first.local_addr().expect("an address"));
        let others = [bind(&settings), bind(&settings)].map(|socket| socket.expect("the same port"));
        let all: Vec<_> = [first].into_iter().chain(others).collect();
        let inodes = |sockets: Vec<OwnedFd>| sockets.iter().map(inode).collect::<Vec<_>>();
        let before = inodes(all.iter().map(|socket| socket.try_clone().expect("a copy").into()).collect());
        let inherited = all
            .into_iter()
            .zip(3..)
            .map(|(socket, number)| Passed { number, name: String::new(), descriptor: socket.into() }.into());
        let bound = super::bind((), &settings, inherited.collect(), 3).expect("sockets that listen");
        assert!(!bound.is_shared && bound.sockets.iter().all(|worker| worker.len() == 1));
        assert_eq!(inodes(bound.copies().expect("copies")), before, "in their order");
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
        let copies = bound.copies().expect("copies");
        assert_eq!((bound.datagrams.len(), copies.len()), (2, 2 + 4));
        let before: Vec<_> = copies.iter().map(inode).collect();
        let passed = copies
            .into_iter()
            .zip(3..)
            .map(|(descriptor, number)| Passed { number, name: "https".to_owned(), descriptor }.into());
        let next = sockets_of(passed.collect()).bind_all(&[listen(bound.address)], None, (2, 64));
        let next = next.expect("sockets").listeners.remove(0);
        assert!(!next.is_shared && next.halves.is_some());
        let again: Vec<_> = next.copies().expect("copies").iter().map(inode).collect();
        assert_eq!(again, before, "in the order of binding");
    }

    fn inode(socket: &OwnedFd) -> u64 {
        rustix::fs::fstat(socket).expect("a socket").st_ino
    }
}

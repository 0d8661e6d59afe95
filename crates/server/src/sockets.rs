//! Sockets of the listeners: passed to the process, or bound by the server itself.
//!
//! All sockets are prepared before anything is served, so that no server starts with a part of its listeners.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::RawFd;

use brisk_net::listener::{self, FastOpenState, ListenerSettings};
use socket2::{Socket, Type};

use crate::ServerError;
use crate::inherited::{self, Passed};
use crate::settings::Listen;

/// The name of the admin listener.
const ADMIN: &str = "admin";

/// Sockets that were passed to the process and are not taken by a listener yet.
///
/// A listener takes the sockets with its address. If there are none, it takes sockets with its name
/// (`FileDescriptorName=` of systemd) and port; with port 0, any port. Every worker accepts from each of them through
/// a copy of the descriptor: a free worker gets a connection, and a connection that is still in the backlog when the
/// server ends waits for the next process with that socket. A listener without passed sockets binds one per worker
/// with `SO_REUSEPORT`.
#[derive(Debug, Default)]
pub struct Sockets(Vec<Inherited>);

#[derive(Debug)]
struct Inherited {
    number: RawFd,
    name: String,
    socket: Socket,
    /// Address of a TCP socket.
    address: Option<SocketAddr>,
}

/// The sockets of a server.
#[derive(Debug)]
pub(crate) struct AllBound<L> {
    pub(crate) listeners: Vec<Bound<L>>,
    pub(crate) admin: Option<Bound<()>>,
}

/// The sockets of one listener.
#[derive(Debug)]
pub(crate) struct Bound<L> {
    pub(crate) kind: L,
    /// Address, with the port that the system chose for port 0.
    pub(crate) address: SocketAddr,
    pub(crate) backlog: i32,
    /// Whether workers accept from the same sockets, which others may hold too.
    pub(crate) is_inherited: bool,
    /// Sockets of each worker.
    pub(crate) sockets: Vec<Vec<TcpListener>>,
}

impl Sockets {
    /// Takes the sockets that a supervisor passed by the protocol of systemd: `LISTEN_FDS`, `LISTEN_PID` and
    /// `LISTEN_FDNAMES`, see `sd_listen_fds(3)`. Returns none if `LISTEN_PID` is another process.
    pub fn inherited() -> Self {
        Self(inherited::take().into_iter().map(Inherited::from).collect())
    }

    /// Binds the sockets of all listeners for `workers`, and the socket of the admin listener once. Passed sockets
    /// that no listener takes are closed with a warning.
    pub(crate) fn bind_all<L: Copy>(
        mut self,
        listeners: &[Listen<L>],
        admin: Option<&ListenerSettings>,
        workers: usize,
    ) -> Result<AllBound<L>, ServerError> {
        let mut wanted: Vec<_> = listeners.iter().map(|own| (own.name, own.settings.address)).collect();
        wanted.extend(admin.map(|settings| (ADMIN, settings.address)));
        let mut taken = self.take_for(&wanted).into_iter();
        self.close();
        let mut bound = Vec::with_capacity(listeners.len());
        for Listen { kind, settings, .. } in listeners {
            bound.push(bind(*kind, settings, taken.next().unwrap_or_default(), workers)?);
        }
        let admin = admin.map(|settings| bind((), settings, taken.next().unwrap_or_default(), 1));
        warn_fast_open_off(listeners);
        Ok(AllBound { listeners: bound, admin: admin.transpose()? })
    }

    /// The passed sockets of each listener, which is given by name and address.
    fn take_for(&mut self, wanted: &[(&str, SocketAddr)]) -> Vec<Vec<Inherited>> {
        // Addresses first: a socket with the address of one listener is not for another by its name.
        let of_address =
            |(_, address): &(&str, SocketAddr)| self.take_if(|own| own.address == Some(*address));
        let mut taken: Vec<_> = wanted.iter().map(of_address).collect();
        for ((name, address), taken) in wanted.iter().zip(&mut taken).filter(|(_, taken)| taken.is_empty()) {
            *taken = self.take_if(|own| own.is_called(name, address.port()));
        }
        taken
    }

    fn take_if(&mut self, mut fits: impl FnMut(&Inherited) -> bool) -> Vec<Inherited> {
        self.0.extract_if(.., |own| fits(own)).collect()
    }

    fn close(&mut self) {
        for socket in self.0.drain(..) {
            tracing::warn!(
                descriptor = socket.number,
                name = socket.name,
                "inherited {socket} is closed: no listener of the configuration has that address, or its port and name"
            );
        }
    }
}

impl Inherited {
    fn is_called(&self, name: &str, port: u16) -> bool {
        self.name == name && self.address.is_some_and(|address| port == 0 || port == address.port())
    }
}

impl From<Passed> for Inherited {
    fn from(Passed { number, name, descriptor }: Passed) -> Self {
        let socket = Socket::from(descriptor);
        let is_stream = socket.r#type().is_ok_and(|kind| kind == Type::STREAM);
        let address = socket.local_addr().ok().filter(|_| is_stream).and_then(|address| address.as_socket());
        Self { number, name, socket, address }
    }
}

impl fmt::Display for Inherited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "socket {address}"),
            None => f.write_str("descriptor, which is no TCP socket,"),
        }
    }
}

/// Listens on `inherited`, or on new sockets where there are none.
fn bind<L>(
    kind: L,
    settings: &ListenerSettings,
    inherited: Vec<Inherited>,
    workers: usize,
) -> Result<Bound<L>, ServerError> {
    let backlog = settings.backlog;
    let Some(address) = inherited.first().and_then(|socket| socket.address) else {
        let (address, sockets) = bind_new(settings, workers)?;
        return Ok(Bound { kind, address, backlog, is_inherited: false, sockets });
    };
    let sockets = share(inherited, settings, workers);
    let sockets = sockets.map_err(|source| ServerError::Listen { address, source })?;
    Ok(Bound { kind, address, backlog, is_inherited: true, sockets })
}

/// Copies of all of these sockets for each worker.
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

    use super::*;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    /// A socket as if it had been passed to the process.
    fn passed(number: RawFd, name: &str) -> Inherited {
        let socket = bind(&ListenerSettings::new(ANY)).expect("a socket");
        Passed { number, name: name.to_owned(), descriptor: socket.into() }.into()
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
            let port = socket.address.expect("TCP").port();
            SocketAddr::from(([192, 0, 2, 1], port))
        };
        let exact = first.address.expect("TCP");
        let wanted = [("https", other(&first)), ("https", exact), ("http", other(&second)), ("https", ANY)];
        let mut sockets = Sockets(vec![first, second]);
        assert_eq!(numbers(&sockets.take_for(&wanted)), "[[], [3], [], [4]]");
        assert!(sockets.0.is_empty());
    }

    #[test]
    fn a_name_is_not_enough_for_another_port() {
        let socket = passed(3, "admin");
        let port = socket.address.expect("TCP").port() ^ 1;
        let mut sockets = Sockets(vec![socket]);
        let other = SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(numbers(&sockets.take_for(&[("admin", other)])), "[[]]");
        assert_eq!(sockets.0.len(), 1);
    }

    #[test]
    fn descriptors_that_are_no_tcp_sockets_are_nobodys() {
        let (stream, _) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let file = std::fs::File::open("/dev/null").expect("a file");
        let udp = std::net::UdpSocket::bind(ANY).expect("a socket");
        let address = udp.local_addr().expect("an address");
        for descriptor in [stream.into(), file.into(), udp.into()] {
            let own = Inherited::from(Passed { number: 3, name: "https".to_owned(), descriptor });
            assert_eq!(own.address, None);
            let mut sockets = Sockets(vec![own]);
            assert_eq!(numbers(&sockets.take_for(&[("https", address), ("https", ANY)])), "[[], []]");
        }
    }

    #[test]
    fn every_worker_has_a_copy_of_each_inherited_socket() {
        let bound = super::bind((), &ListenerSettings::new(ANY), vec![passed(3, ""), passed(4, "")], 3);
        let bound = bound.expect("sockets that listen");
        assert!(bound.is_inherited && bound.sockets.len() == 3);
        for worker in &bound.sockets {
            let addresses: Vec<_> = worker.iter().map(|socket| socket.local_addr().expect("TCP")).collect();
            assert_eq!((addresses.len(), addresses[0]), (2, bound.address));
        }
        let own = super::bind((), &ListenerSettings::new(ANY), Vec::new(), 3).expect("new sockets");
        assert!(!own.is_inherited && own.sockets.iter().all(|worker| worker.len() == 1));
    }
}

//! Binding of the sockets of a listener, or adoption of passed ones.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use brisk_net::datagram::{self, Halves, LARGEST_GROUP};
use brisk_net::listener::{self, ListenerSettings};
use socket2::Socket;

use super::{Bound, Inherited, Kind};
use crate::ServerError;
use crate::settings::Listen;

/// The conditions under which a listener binds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions<'b> {
    pub(super) workers: usize,
    pub(super) has_store: bool,
    /// The passed sockets that no listener has taken. A predecessor may serve them until this process does.
    pub(super) beside: &'b [(Kind, SocketAddr)],
}

/// Attempts to find a port that is free for TCP and UDP, if the system chooses it.
const PORT_ATTEMPTS: usize = 16;

/// The sockets of a listener: streams, and datagrams if it has QUIC.
pub(super) fn bind_listener<L: Copy>(
    Listen { kind, settings, .. }: &Listen<L>,
    streams: Vec<Inherited>,
    datagrams: Option<Vec<Inherited>>,
    conditions: Conditions<'_>,
) -> Result<Bound<L>, ServerError> {
    let Some(datagrams) = datagrams else { return bind(*kind, settings, streams, conditions) };
    let datagrams_configured = configured(&datagrams, settings);
    let is_any_port = settings.address.port() == 0 && streams.is_empty() && datagrams.is_empty();
    let mut bound = bind(*kind, settings, streams, conditions)?;
    let mut group = bind_datagrams(bound.address, datagrams, conditions);
    for _ in 0..if is_any_port { PORT_ATTEMPTS } else { 0 } {
        if group.is_ok() {
            break;
        }
        // The port that the system chose for TCP is used by another program for UDP.
        bound = bind(*kind, settings, Vec::new(), conditions)?;
        group = bind_datagrams(bound.address, Vec::new(), conditions);
    }
    let (datagrams, halves) =
        group.map_err(|source| ServerError::Listen { address: bound.address, source })?;
    (bound.datagrams, bound.halves, bound.datagrams_configured) =
        (datagrams, Some(halves), datagrams_configured);
    Ok(bound)
}

/// [`StoredName::configured`] of the sockets of a listener: they stay those of an operator if they were.
fn configured(inherited: &[Inherited], settings: &ListenerSettings) -> Option<SocketAddr> {
    inherited.first().map_or(Some(settings.address), Inherited::configured)
}

impl Conditions<'_> {
    /// Whether a passed socket that no listener has taken prevents other sockets from having `address`, unless all permit it
    /// (`SO_REUSEPORT`), as when a listener for all addresses is replaced by one for a single address.
    fn is_beside(self, kind: Kind, address: SocketAddr) -> bool {
        let overlaps = |other: SocketAddr| {
            let is_any = address.ip().is_unspecified() || other.ip().is_unspecified();
            let is_same = address.ip() == other.ip() || is_any && address.is_ipv4() == other.is_ipv4();
            is_same && address.port() == other.port()
        };
        self.beside.iter().any(|(other, bound)| *other == kind && overlaps(*bound))
    }
}

fn bind_datagrams(
    address: SocketAddr,
    inherited: Vec<Inherited>,
    conditions: Conditions<'_>,
) -> io::Result<(Vec<UdpSocket>, Halves)> {
    let Conditions { workers, has_store, .. } = conditions;
    if inherited.is_empty() {
        // The second half is for the next process, which starts while this one serves.
        let wanted = if has_store && 2 * workers <= LARGEST_GROUP { 2 * workers } else { workers };
        // One byte of a connection ID selects the socket: further workers have none, and serve TCP only.
        let count = wanted.min(LARGEST_GROUP);
        let group = if conditions.is_beside(Kind::Datagram, address) {
            datagram::bind_beside(address, count)?
        } else {
            datagram::bind_group(address, count)?.1
        };
        return datagram::adopt_group(group.into_iter().map(Socket::from).collect(), workers);
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
pub(super) fn bind<L>(
    kind: L,
    settings: &ListenerSettings,
    inherited: Vec<Inherited>,
    conditions: Conditions<'_>,
) -> Result<Bound<L>, ServerError> {
    let (workers, configured) = (conditions.workers, configured(&inherited, settings));
    let (address, sockets, is_shared) = match inherited.first().and_then(Inherited::address) {
        None => {
            let (address, sockets) = bind_new(settings, conditions)?;
            (address, sockets, false)
        }
        Some(address) => {
            let is_other = |own: &Inherited| own.address() != Some(address);
            let is_shared = inherited.len() != workers || inherited.iter().any(is_other);
            let sockets =
                if is_shared { share(inherited, settings, workers) } else { divide(inherited, settings) };
            (address, sockets.map_err(|source| ServerError::Listen { address, source })?, is_shared)
        }
    };
    let backlog = settings.backlog;
    let (datagrams, halves, datagrams_configured) = (Vec::new(), None, None);
    Ok(Bound {
        kind,
        address,
        configured,
        datagrams_configured,
        backlog,
        is_shared,
        sockets,
        datagrams,
        halves,
    })
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
/// that an address that another program serves is an error and not shared with it; unless a predecessor serves it.
fn bind_new(
    settings: &ListenerSettings,
    conditions: Conditions<'_>,
) -> Result<(SocketAddr, Vec<Vec<TcpListener>>), ServerError> {
    let alone = ListenerSettings { reuse_port: false, ..settings.clone() };
    let is_beside = conditions.is_beside(Kind::Stream, settings.address);
    let address = if is_beside { settings.address } else { bind_one(&alone)?.0 };
    let shared = ListenerSettings { address, reuse_port: true, ..settings.clone() };
    let sockets = (0..conditions.workers).map(|_| Ok(vec![bind_one(&shared)?.1]));
    Ok((address, sockets.collect::<Result<_, _>>()?))
}

fn bind_one(settings: &ListenerSettings) -> Result<(SocketAddr, TcpListener), ServerError> {
    let wrong = |source| ServerError::Listen { address: settings.address, source };
    let socket = listener::bind(settings).map_err(wrong)?;
    Ok((socket.local_addr().map_err(wrong)?, socket))
}

//! Connecting to a [`Target`] by name or address.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout};

use crate::names::LastKnown;

/// Time without a packet after which the kernel probes an idle connection; further probes follow at [`PROBE_INTERVAL`].
const PROBE_AFTER: Duration = Duration::from_secs(30);

/// The pause between two probes of an idle connection.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// Time limits of [`connect`] and of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialLimits {
    /// Timeout for connecting, resolution included.
    pub connect: Duration,
    /// How long data or probes may stay unacknowledged before the kernel ends the connection (`TCP_USER_TIMEOUT`, RFC
    /// 5482). A peer that has closed its window for this long counts as dead too.
    pub unacknowledged: Duration,
}

/// A host and a port to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    host: Host,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Host {
    Address(IpAddr),
    Name(Box<str>),
}

/// Invalid text of a [`Target`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a host and a port, such as \"app.internal:8080\", \"127.0.0.1:8080\" or \"[::1]:8080\""
)]
pub struct TargetError(String);

/// A failed connection attempt. Source of the [`io::Error`] returned by [`connect`].
#[derive(Debug, thiserror::Error)]
#[error("cannot {attempt} {target}{}: {source}", Via((*address).filter(|via| target.address() != Some(*via))))]
struct DialError {
    attempt: &'static str,
    target: Target,
    address: Option<SocketAddr>,
    source: io::Error,
}

impl Target {
    /// A target from a host, which may be an address (IPv6 with or without brackets), and a port.
    pub fn new(host: &str, port: u16) -> Self {
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let host = match bare.parse() {
            Ok(address) => Host::Address(address),
            Err(_) => Host::Name(bare.into()),
        };
        Self { host, port }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address, if the host is one, so that nothing need be resolved.
    pub fn address(&self) -> Option<SocketAddr> {
        match self.host {
            Host::Address(ip) => Some(SocketAddr::new(ip, self.port)),
            Host::Name(_) => None,
        }
    }

    /// Error for a name without addresses.
    pub fn without_address(&self) -> io::Error {
        self.fail("resolve", None, io::Error::new(io::ErrorKind::NotFound, "no address has that name"))
    }

    fn fail(&self, attempt: &'static str, address: Option<SocketAddr>, source: io::Error) -> io::Error {
        let kind = source.kind();
        io::Error::new(kind, DialError { attempt, target: self.clone(), address, source })
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let wrong = || TargetError(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let target = Self::new(host, port);
        match &target.host {
            Host::Name(name) if name.is_empty() || name.contains([':', '/', '@', '[', ']', ' ']) => {
                Err(wrong())
            }
            // Without brackets the last group of the address could be taken for the port.
            Host::Address(IpAddr::V6(_)) if !host.starts_with('[') => Err(wrong()),
            _ => Ok(target),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(ip) => SocketAddr::new(*ip, self.port).fmt(formatter),
            Host::Name(name) => write!(formatter, "{name}:{}", self.port),
        }
    }
}

struct Via(Option<SocketAddr>);

impl fmt::Display for Via {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |address| write!(formatter, " at {address}"))
    }
}

/// Connects to `target` within the limits. The connection has `TCP_NODELAY`. The kernel detects a dead peer by probing
/// an idle connection after 30 seconds and every 10 seconds from then on.
///
/// The addresses of a name are tried in the resolver's order. Each may use an even share of the remaining time, so that
/// an unreachable one does not use up all of it. The error is that of the last attempt, and its text names target and
/// address.
pub async fn connect(target: &Target, limits: DialLimits) -> io::Result<TcpStream> {
    let deadline = Instant::now() + limits.connect;
    let addresses = resolve(target, deadline).await?;
    connect_resolved(target, &addresses, deadline, limits).await
}

/// Like [`connect`], to the first of `addresses` that accepts a connection. `target` is for error messages.
pub async fn connect_resolved(
    target: &Target,
    addresses: &[SocketAddr],
    deadline: Instant,
    limits: DialLimits,
) -> io::Result<TcpStream> {
    let mut last = None;
    for (address, share) in shares(addresses, deadline) {
        match connect_to(address, share).await {
            Ok(stream) => {
                notice_death(&stream, limits.unacknowledged)?;
                return Ok(stream);
            }
            Err(error) => last = Some(target.fail("connect to", Some(address), error)),
        }
    }
    Err(last.unwrap_or_else(|| target.without_address()))
}

/// Each of `addresses` with an even share of the time until `deadline`, computed when the attempt at it begins.
pub fn shares(addresses: &[SocketAddr], deadline: Instant) -> impl Iterator<Item = (SocketAddr, Duration)> {
    addresses.iter().enumerate().map(move |(index, address)| {
        let left = deadline.saturating_duration_since(Instant::now());
        (*address, left / (addresses.len() - index) as u32)
    })
}

/// The addresses of `target`, in the resolver's order; those of the last success while the resolver fails, for a day.
/// `TimedOut` after `deadline`.
pub async fn resolve(target: &Target, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    let name = match &target.host {
        Host::Address(ip) => return Ok(vec![SocketAddr::new(*ip, target.port)]),
        Host::Name(name) => name,
    };
    let owned = name.clone();
    // Port 0, so that targets with one name and several ports share the known addresses.
    let lookup = async move { Ok(lookup_host((&*owned, 0)).await?.collect()) };
    let found = LastKnown::of_process().resolve(name, deadline, lookup).await;
    let mut addresses = found.map_err(|error| target.fail("resolve", None, error))?;
    for address in &mut addresses {
        address.set_port(target.port);
    }
    Ok(addresses)
}

async fn connect_to(address: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let stream = timeout(limit, TcpStream::connect(address))
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    // Nagle's algorithm would hold the end of a request back until the server has acknowledged its beginning.
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn notice_death(stream: &TcpStream, unacknowledged: Duration) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_INTERVAL))?;
    // tcp(7): this option also ends a connection without responses to probes, in place
    // of the number of probes.
    socket.set_tcp_user_timeout(Some(unacknowledged))
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    const LIMIT: DialLimits =
        DialLimits { connect: Duration::from_mins(3), unacknowledged: Duration::from_secs(20) };

    #[test]
    fn targets_are_read_and_written_alike() {
        for text in ["app.internal:8080", "127.0.0.1:80", "[::1]:8080"] {
            assert_eq!(text.parse::<Target>().expect(text).to_string(), text);
        }
        assert_eq!(Target::new("[::1]", 1), Target::new("::1", 1));
        for text in ["", "app", ":80", "app:", "app:65536", "::1:80", "a/b:80", "u@h:80", "[::1:80", "a b:80"]
        {
            assert!(text.parse::<Target>().is_err(), "{text:?}");
        }
    }

    #[tokio::test]
    async fn a_name_is_resolved_and_the_next_address_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = listener.local_addr().expect("address").port();
        let stream = connect(&Target::new("localhost", port), LIMIT).await.expect("connect");
        assert!(stream.nodelay().expect("nodelay"));
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().expect("keepalive"));
        assert_eq!(socket.tcp_keepalive_time().expect("keepalive time"), PROBE_AFTER);
        assert_eq!(socket.tcp_user_timeout().expect("user timeout"), Some(LIMIT.unacknowledged));
    }

    #[tokio::test]
    async fn a_refused_connection_names_target_and_address() {
        // Bound and not listening: no other program gets the port.
        let socket = TcpSocket::new_v4().expect("socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("bind");
        let port = socket.local_addr().expect("address").port();
        let error = connect(&Target::new("127.0.0.1", port), LIMIT).await.expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let start = format!("cannot connect to 127.0.0.1:{port}: ");
        assert!(error.to_string().starts_with(&start), "{error}");
    }

    #[tokio::test]
    async fn the_time_limit_holds() {
        // A full accept queue drops further connections silently.
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("socket");
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("bind");
        socket.listen(0).expect("listen");
        let address = socket.local_addr().expect("address").as_socket().expect("IP");
        let target = Target::new("127.0.0.1", address.port());
        let mut held = Vec::new();
        let error = loop {
            let limits = DialLimits { connect: Duration::from_millis(50), ..LIMIT };
            match connect(&target, limits).await {
                Ok(stream) => held.push(stream),
                Err(error) => break error,
            }
            assert!(held.len() < 64, "the queue never fills");
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}

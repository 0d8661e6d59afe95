//! TCP connections to the target, from enough addresses that ports do not run out.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use brisk_net::{ConnectOptions, FastOpenConnect, connect_from};
use tokio::net::TcpStream;

use crate::error::Failure;

/// Source addresses of connections to a loopback address, used in turn: `127.0.1.2` to `127.0.1.250`. A port stays occupied
/// for a minute after its connection was closed (`TIME_WAIT`), so that one address supports about 470 new connections per
/// second.
const SOURCES: (u8, u8) = (2, 250);

/// Number of addresses that are tried before the lack of free ports is an error.
const ATTEMPTS: u8 = 8;

/// Makes connections to one address.
#[derive(Debug)]
pub(crate) struct Dialer {
    target: SocketAddr,
    fast_open: FastOpenConnect,
    /// The last byte of the next source address.
    next: Cell<u8>,
}

impl Dialer {
    /// `first` differs for each dialer of a run, so that they do not use the same source address at the same time.
    pub(crate) fn new(target: SocketAddr, fast_open: FastOpenConnect, first: usize) -> Self {
        let (low, high) = SOURCES;
        let span = usize::from(high - low) + 1;
        // 61 and the number of addresses are coprime, so the start values of dialers are distant from each other.
        Self { target, fast_open, next: Cell::new(low + (first * 61 % span) as u8) }
    }

    /// Whether the first flight may be sent with the `SYN`.
    pub(crate) fn opens_fast(&self) -> bool {
        self.fast_open == FastOpenConnect::On
    }

    /// The address of the target.
    pub(crate) fn target(&self) -> SocketAddr {
        self.target
    }

    /// A datagram socket that is connected with the target, from a port of its own.
    pub(crate) fn datagrams(&self) -> Result<UdpSocket, Failure> {
        let any = match self.target {
            SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        // Connected, so that the kernel reports refusals and delivers datagrams of the target alone.
        let connected = UdpSocket::bind((self.source().unwrap_or(any), 0)).and_then(|socket| {
            socket.connect(self.target)?;
            Ok(socket)
        });
        connected.map_err(|error| Failure::connect(&error, self.target))
    }

    /// Connects from the next source address. Has no timeout of its own.
    pub(crate) async fn connect(&self) -> Result<TcpStream, Failure> {
        let mut attempts = 1;
        loop {
            let options = ConnectOptions { source: self.source(), fast_open: self.fast_open };
            match connect_from(self.target, options).await {
                Ok(stream) => return Ok(stream),
                // The next source address may have free ports; without a choice of addresses, a repetition
                // would fail again.
                Err(error) if is_port_taken(&error) && options.source.is_some() && attempts < ATTEMPTS => {
                    attempts += 1;
                }
                Err(error) => return Err(Failure::connect(&error, self.target)),
            }
        }
    }

    /// Source address of the next connection. For targets other than IPv4 loopback the system chooses, because a
    /// machine has few other addresses.
    fn source(&self) -> Option<IpAddr> {
        // IPv6 has one loopback address only.
        if !matches!(self.target.ip(), IpAddr::V4(ip) if ip.is_loopback()) {
            return None;
        }
        let (low, high) = SOURCES;
        let last = self.next.get();
        self.next.set(if last == high { low } else { last + 1 });
        Some(Ipv4Addr::new(127, 0, 1, last).into())
    }
}

fn is_port_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tokio::net::TcpListener;

    use super::*;
    use crate::result::Cause;

    #[tokio::test]
    async fn connections_to_loopback_come_from_many_addresses() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let dialer = Dialer::new(listener.local_addr().expect("address"), FastOpenConnect::Off, 7);
        let mut sources = HashSet::new();
        for _ in 0..250 {
            let _stream = dialer.connect().await.expect("connect");
            sources.insert(listener.accept().await.expect("accept").1.ip());
        }
        assert_eq!(sources.len(), 249);
    }

    #[tokio::test]
    async fn a_closed_port_has_a_cause_of_its_own() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        drop(listener);
        let failure = Dialer::new(address, FastOpenConnect::Off, 0).connect().await.expect_err("refused");
        assert_eq!(failure.cause, Cause::Refused);
        assert!(failure.message.contains(&address.to_string()), "{failure}");
    }
}

//! Connecting from a chosen source address, for programs with more connections than one address has ports.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};

use crate::options;

/// Local options of an outgoing connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Source address; the system chooses the port. Default: the system chooses both.
    pub source: Option<IpAddr>,
    /// Whether to use TCP Fast Open. Default: no.
    pub fast_open: FastOpenConnect,
}

/// TCP Fast Open for the connecting side (RFC 7413).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FastOpenConnect {
    /// The handshake completes before connecting returns.
    #[default]
    Off,
    /// If the server has provided a cookie, connecting returns at once, and the first write sends the SYN with data.
    /// Errors of the target appear only then.
    On,
}

/// Connects to `address`, with `TCP_NODELAY`. Has no timeout.
///
/// If a source is given, its port is chosen when the socket connects, so that one port can serve connections to several
/// targets.
pub async fn connect_from(address: SocketAddr, options: ConnectOptions) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    if options.fast_open == FastOpenConnect::On {
        options::set_fast_open_connect(&socket)?;
    }
    if let Some(source) = options.source {
        options::set_bind_address_no_port(&socket)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    TcpSocket::from_std_stream(socket.into()).connect(address).await
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_connection_comes_from_the_address_asked_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        for source in ["127.0.0.2", "127.0.3.4"] {
            let source = source.parse().ok();
            let stream = connect_from(address, ConnectOptions { source, ..ConnectOptions::default() }).await;
            let stream = stream.expect("connect");
            assert!(stream.nodelay().expect("an option"));
            let (_, peer) = listener.accept().await.expect("accept");
            assert_eq!(Some(peer.ip()), source);
        }
    }

    #[tokio::test]
    async fn a_fast_open_connection_carries_data() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let options = ConnectOptions { source: None, fast_open: FastOpenConnect::On };
        for _ in 0..2 {
            let mut stream = connect_from(address, options).await.expect("connect");
            stream.write_all(b"hello").await.expect("write");
            let (mut accepted, _) = listener.accept().await.expect("accept");
            let mut received = [0; 5];
            accepted.read_exact(&mut received).await.expect("read");
            assert_eq!(&received, b"hello");
        }
    }

    #[tokio::test]
    async fn a_target_that_does_not_listen_refuses() {
        // Bound and not listening: no other program gets the port.
        let socket = TcpSocket::new_v4().expect("socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("bind");
        let address = socket.local_addr().expect("address");
        let error = connect_from(address, ConnectOptions::default()).await.expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}

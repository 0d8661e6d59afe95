//! Detects whether the peer has closed a connection, without reading from it.

use std::io;
use std::os::fd::AsRawFd;

use crate::options;

/// TCP states of `linux/tcp_states.h`.
const CLOSED: u8 = 7;
const CLOSE_WAIT: u8 = 8;

/// State of the peer's side, from `tcpi_state` of `TCP_INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The peer may still send.
    Open,
    /// The peer sends nothing more (FIN) and may still read.
    HalfClosed,
    /// The connection is closed: it was reset, or the peer did not acknowledge for too long.
    Gone,
}

impl Peer {
    /// Queries the kernel about `socket`, which must be a connected TCP socket. One system call, which reads no data,
    /// so an end behind unread data is detected too.
    pub fn of(socket: &impl AsRawFd) -> io::Result<Self> {
        Ok(match options::tcp_info(socket)?.tcpi_state {
            CLOSED => Self::Gone,
            CLOSE_WAIT => Self::HalfClosed,
            _ => Self::Open,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};

    use brisk_testkit::process::wait_until;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a listener");
        (client, listener.accept().expect("a connection").0)
    }

    fn becomes(server: &TcpStream, wanted: Peer) {
        wait_until(&format!("{wanted:?}"), || {
            (Peer::of(server).expect("a TCP socket") == wanted).then_some(())
        });
    }

    #[test]
    fn an_end_is_seen_behind_unread_data() {
        let (mut client, server) = pair();
        assert_eq!(Peer::of(&server).expect("a TCP socket"), Peer::Open);
        client.write_all(b"unread").expect("a connection");
        client.shutdown(Shutdown::Write).expect("a connection");
        becomes(&server, Peer::HalfClosed);
    }

    #[test]
    fn a_reset_is_the_end() {
        let (client, mut server) = pair();
        server.write_all(b"unread").expect("a connection");
        // Closing with unread data resets.
        while client.peek(&mut [0; 8]).expect("data") == 0 {}
        drop(client);
        becomes(&server, Peer::Gone);
    }
}

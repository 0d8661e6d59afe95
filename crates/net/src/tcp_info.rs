//! What the kernel knows about a connection's path: `TCP_INFO`, in the units of this program.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::options;

/// `TCPI_OPT_SYN_DATA` of `linux/tcp.h`.
const SYN_DATA: u8 = 32;

/// A snapshot of the kernel's view of one TCP connection. Costs one system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_variance: Duration,
    /// Least round-trip time seen; zero on kernels before 4.6.
    pub min_rtt: Duration,
    /// Congestion window, in segments.
    pub congestion_window: u32,
    /// Largest segment that is sent, in bytes.
    pub segment_size: u32,
    /// Bytes written by the program that were not yet sent once.
    pub unsent: u32,
    /// Segments sent and not yet acknowledged.
    pub unacknowledged: u32,
    /// Segments sent again since the connection was made.
    pub retransmits: u32,
    /// Bytes sent and acknowledged since the connection was made, without TCP and IP headers.
    pub bytes_acknowledged: u64,
    /// Bytes received since then.
    pub bytes_received: u64,
    /// Segments sent since then, those of the TCP handshake included.
    pub segments_sent: u32,
    /// Segments received since then.
    pub segments_received: u32,
    /// The SYN carried data, and the other side took it (TCP Fast Open).
    pub syn_data: bool,
}

impl TcpInfo {
    /// Asks the kernel about `socket`. Fails when it is not a TCP socket.
    pub fn of(socket: &impl AsRawFd) -> io::Result<Self> {
        let info = options::tcp_info(socket)?;
        Ok(Self {
            rtt: micros(info.tcpi_rtt),
            rtt_variance: micros(info.tcpi_rttvar),
            min_rtt: micros(info.tcpi_min_rtt),
            congestion_window: info.tcpi_snd_cwnd,
            segment_size: info.tcpi_snd_mss,
            unsent: info.tcpi_notsent_bytes,
            unacknowledged: info.tcpi_unacked,
            retransmits: info.tcpi_total_retrans,
            bytes_acknowledged: info.tcpi_bytes_acked,
            bytes_received: info.tcpi_bytes_received,
            segments_sent: info.tcpi_segs_out,
            segments_received: info.tcpi_segs_in,
            syn_data: info.tcpi_options & SYN_DATA != 0,
        })
    }
}

fn micros(value: u32) -> Duration {
    Duration::from_micros(u64::from(value))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn a_connected_socket_has_a_round_trip_time_and_a_window() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let stream = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let info = TcpInfo::of(&stream).expect("TCP_INFO");
        assert!(info.rtt > Duration::ZERO && info.rtt < Duration::from_secs(5), "{info:?}");
        assert!(info.congestion_window >= 1, "{info:?}");
        assert!(info.segment_size >= 500, "{info:?}");
        assert_eq!(info.unsent, 0);
    }

    #[test]
    fn bytes_and_segments_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let mut client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let (mut server, _) = listener.accept().expect("accept");
        server.write_all(&[0; 1000]).expect("write");
        client.read_exact(&mut [0; 1000]).expect("read");
        let info = TcpInfo::of(&client).expect("TCP_INFO");
        assert_eq!(info.bytes_received, 1000, "{info:?}");
        assert!(info.segments_sent >= 2 && info.segments_received >= 2, "{info:?}");
    }

    #[test]
    fn a_socket_of_another_kind_is_an_error() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
        assert!(TcpInfo::of(&socket).is_err());
    }
}

//! `TCP_INFO`: the kernel's facts about a connection.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::options;

/// `TCPI_OPT_SYN_DATA` of `linux/tcp.h`.
const SYN_DATA: u8 = 32;

/// A snapshot of the kernel's view of one TCP connection. Costs one system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time (`tcpi_rtt`).
    pub rtt: Duration,
    /// Minimum round-trip time of the connection; zero if the kernel does not report it.
    pub least_rtt: Duration,
    /// Bytes of data in a full sent segment.
    pub segment: u32,
    /// Bytes of data in the largest received segment, as estimated by the kernel.
    pub segment_received: u32,
    /// Retransmitted segments since the connection was made (`tcpi_total_retrans`).
    pub retransmissions: u32,
    /// Congestion window of the sending side, in segments.
    pub window: u32,
    /// Segments sent since the connection was made, including those of the TCP handshake.
    pub segments_sent: u32,
    /// Segments received since the connection was made.
    pub segments_received: u32,
    /// Latest rate at which the peer received data, in bytes per second.
    pub delivery_rate: u64,
    /// Whether the congestion window still doubles with each round trip, because nothing has been lost.
    pub is_in_slow_start: bool,
    /// Whether the SYN carried data that the peer acknowledged (TCP Fast Open, RFC 7413).
    pub syn_data: bool,
}

impl TcpInfo {
    /// Reads `TCP_INFO` of `socket`. Fails if it is not a TCP socket.
    pub fn of(socket: &impl AsRawFd) -> io::Result<Self> {
        let info = options::tcp_info(socket)?;
        Ok(Self {
            rtt: micros(info.tcpi_rtt),
            // `u32::MAX` is the kernel's value before the first sample.
            least_rtt: micros(if info.tcpi_min_rtt == u32::MAX { 0 } else { info.tcpi_min_rtt }),
            segment: info.tcpi_snd_mss,
            segment_received: info.tcpi_rcv_mss,
            retransmissions: info.tcpi_total_retrans,
            window: info.tcpi_snd_cwnd,
            segments_sent: info.tcpi_segs_out,
            segments_received: info.tcpi_segs_in,
            delivery_rate: info.tcpi_delivery_rate,
            is_in_slow_start: info.tcpi_snd_cwnd < info.tcpi_snd_ssthresh,
            syn_data: info.tcpi_options & SYN_DATA != 0,
        })
    }
}

/// Connections that the kernel has completed and that wait to be accepted, in proportion to the length of the queue (the backlog).
/// Costs one system call. Fails if `listener` is not a TCP socket; 0 if it does not listen.
pub fn accept_queue(listener: &impl AsRawFd) -> io::Result<f64> {
    // For a socket that listens, these two fields have another meaning (`tcp_get_info` of the kernel).
    let info = options::tcp_info(listener)?;
    let (waiting, length) = (f64::from(info.tcpi_unacked), f64::from(info.tcpi_sacked));
    Ok(if length > 0.0 { waiting / length } else { 0.0 })
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
    fn a_connected_socket_has_a_round_trip_time() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let stream = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let info = TcpInfo::of(&stream).expect("TCP_INFO");
        assert!(info.rtt > Duration::ZERO && info.rtt < Duration::from_mins(1), "{info:?}");
    }

    #[test]
    fn segments_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let mut client = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let (mut server, _) = listener.accept().expect("accept");
        server.write_all(&[0; 1000]).expect("write");
        client.read_exact(&mut [0; 1000]).expect("read");
        let info = TcpInfo::of(&client).expect("TCP_INFO");
        assert!(info.segments_sent >= 2 && info.segments_received >= 2, "{info:?}");
    }

    #[test]
    fn connections_wait_in_the_queue_until_they_are_accepted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        assert!(accept_queue(&listener).expect("TCP_INFO") < 1e-9);
        let stream = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        // The last packet of the handshake may arrive after `connect` has returned.
        while accept_queue(&listener).expect("TCP_INFO") < 1e-9 {
            std::thread::yield_now();
        }
        let (_accepted, peer) = listener.accept().expect("accept");
        assert_eq!(peer, stream.local_addr().expect("address"));
        assert!(accept_queue(&listener).expect("TCP_INFO") < 1e-9);
    }

    #[test]
    fn a_socket_of_another_kind_is_an_error() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
        assert!(TcpInfo::of(&socket).is_err());
    }
}

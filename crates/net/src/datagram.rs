//! Datagram sockets of QUIC: a group of sockets with one address, among which the kernel distributes datagrams by the first
//! byte of the connection ID.
//!
//! A client that changes its address or port keeps its connection ID, so its packets still reach the socket of the worker
//! that has the connection. The position of a socket in the group is the order of binding. The kernel moves the last socket
//! into the place of a closed one, so the sockets of a group are kept together until all connections have ended.

use std::fmt;
use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use socket2::{Domain, Protocol, Socket, Type};

use crate::options;

/// Wanted size of both kernel buffers of a socket, in bytes. The kernel caps it at `net.core.rmem_max` and
/// `net.core.wmem_max`. The usual default of 208 KiB loses packets at 1 Gbit/s.
pub const BUFFER: usize = 4 << 20;

/// Maximum number of sockets of a group: one byte distinguishes them.
pub const LARGEST_GROUP: usize = 256;

/// Position of the first byte of the connection ID in a packet with a short header (RFC 8999 section 5.2).
const ID_IN_SHORT: u32 = 1;
/// The same for a long header (RFC 8999 section 5.1): after the first byte, the version and the length of the ID.
const ID_IN_LONG: u32 = 6;
/// Bit of the first byte that marks a long header.
const LONG_HEADER: u32 = 0x80;

/// Binds the `count` sockets of a group, in order, and steers datagrams among them; returns their address, with the port
/// that the system chose for port 0. An IPv6 address receives IPv6 only. Fails if another socket has the address.
pub fn bind_group(address: SocketAddr, count: usize) -> io::Result<(SocketAddr, Vec<UdpSocket>)> {
    // The first bind is without `SO_REUSEPORT`, for a moment, so that the address of another program is an error.
    let address = bind(address, false)?.local_addr()?;
    let sockets = (0..count).map(|_| bind(address, true)).collect::<io::Result<Vec<_>>>()?;
    steer(&sockets)?;
    Ok((address, sockets))
}

/// Adopts the sockets of a group that another process has bound, in their order. They become non-blocking.
pub fn adopt_group(sockets: Vec<Socket>) -> io::Result<Vec<UdpSocket>> {
    let adopt = |socket: Socket| {
        socket.set_nonblocking(true)?;
        enlarge_buffers(&socket)?;
        Ok(socket.into())
    };
    let sockets = sockets.into_iter().map(adopt).collect::<io::Result<Vec<UdpSocket>>>()?;
    steer(&sockets)?;
    Ok(sockets)
}

fn bind(address: SocketAddr, reuse_port: bool) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_port(reuse_port)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    enlarge_buffers(&socket)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn enlarge_buffers(socket: &Socket) -> io::Result<()> {
    socket.set_recv_buffer_size(BUFFER)?;
    socket.set_send_buffer_size(BUFFER)
}

/// A limit of the kernel that is below [`BUFFER`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowLimit {
    /// Name of the setting.
    pub sysctl: &'static str,
    /// Value in bytes.
    pub value: usize,
}

impl fmt::Display for LowLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sysctl, value } = self;
        write!(
            f,
            "the kernel limits the buffers of datagram sockets to {value} bytes, so that HTTP/3 loses packets at high rates; \
             `sysctl {sysctl}={BUFFER}` permits the size that brisk uses"
        )
    }
}

/// The limits of the kernel that are too low for [`BUFFER`]. Empty where they cannot be read.
pub fn low_limits() -> Vec<LowLimit> {
    low_limits_in(Path::new("/proc/sys/net/core"))
}

fn low_limits_in(folder: &Path) -> Vec<LowLimit> {
    let limit = |(file, sysctl)| {
        let value = fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()?;
        (value < BUFFER).then_some(LowLimit { sysctl, value })
    };
    [("rmem_max", "net.core.rmem_max"), ("wmem_max", "net.core.wmem_max")]
        .into_iter()
        .filter_map(limit)
        .collect()
}

/// Attaches the program that selects a socket of the group to all of its sockets: index = first byte of the connection ID
/// modulo their number. Requires no privilege. A group of one needs no program.
fn steer(group: &[UdpSocket]) -> io::Result<()> {
    let [first, _, ..] = group else { return Ok(()) };
    let count = u32::try_from(group.len()).map_err(io::Error::other)?;
    options::attach_reuse_port_program(first, &mut program(count))
}

/// Classic BPF on the datagram after its UDP header. A datagram that is too short yields 0, as any failed load does.
fn program(count: u32) -> [libc::sock_filter; 7] {
    let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    [
        instruction(load, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, 2, LONG_HEADER),
        instruction(load, 0, 0, ID_IN_LONG),
        instruction(libc::BPF_JMP | libc::BPF_JA, 0, 0, 1),
        instruction(load, 0, 0, ID_IN_SHORT),
        instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, 0, 0, count),
        instruction(libc::BPF_RET | libc::BPF_A, 0, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
    const DATAGRAMS: usize = 4000;

    /// A datagram with a connection ID that begins with `first`, and `number` at its end.
    fn datagram(first: u8, number: usize) -> Vec<u8> {
        let mut bytes = match number % 3 {
            0 => vec![0xe0, 0, 0, 0, 1, 8, first],
            _ => vec![0x40 | (number % 64) as u8, first],
        };
        bytes.extend([0xa5; 20]);
        bytes.extend((number as u32).to_be_bytes());
        bytes
    }

    /// Sends each datagram from a new port, and returns how many arrived at the socket that its ID names.
    fn right(group: &[UdpSocket], address: SocketAddr) -> usize {
        let mut right = 0;
        for number in 0..DATAGRAMS {
            let first = (number * 167 % 256) as u8;
            let client = UdpSocket::bind(ANY).expect("a client");
            client.send_to(&datagram(first, number), address).expect("sent");
            // Loopback delivers within `send_to`.
            let expected = usize::from(first) % group.len();
            let mut buffer = [0; 64];
            for (index, socket) in group.iter().enumerate() {
                if let Ok(length) = socket.recv(&mut buffer) {
                    assert_eq!(buffer[length - 4..length], (number as u32).to_be_bytes());
                    right += usize::from(index == expected);
                }
            }
        }
        right
    }

    #[test]
    fn every_datagram_reaches_the_socket_that_its_id_names() {
        for count in [2, 5] {
            let (address, group) = bind_group(ANY, count).expect("a group");
            assert_eq!(right(&group, address), DATAGRAMS, "{count} sockets");
        }
    }

    #[test]
    fn without_the_program_most_datagrams_reach_other_sockets() {
        let address = bind(ANY, false).expect("an address").local_addr().expect("an address");
        let group: Vec<_> = (0..4).map(|_| bind(address, true).expect("a socket")).collect();
        let right = right(&group, address);
        assert!(right < DATAGRAMS / 2, "{right} of {DATAGRAMS}: the other test shows nothing");
    }

    #[test]
    fn sockets_that_are_handed_over_keep_their_places() {
        let (address, group) = bind_group(ANY, 3).expect("a group");
        let copies = group.iter().map(|socket| socket.try_clone().expect("a copy").into()).collect();
        let adopted = adopt_group(copies).expect("adopted");
        drop(group);
        assert_eq!(right(&adopted, address), DATAGRAMS);
    }

    #[test]
    fn the_address_of_another_socket_is_refused() {
        let (address, _group) = bind_group(ANY, 2).expect("a group");
        let error = bind_group(address, 2).expect_err("in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn limits_below_the_wanted_size_are_named_with_the_command_that_raises_them() {
        let folder = std::env::temp_dir().join(format!("brisk-limits-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("rmem_max"), "212992\n").expect("a file");
        fs::write(folder.join("wmem_max"), "4194304\n").expect("a file");
        let low = low_limits_in(&folder);
        assert_eq!(low, [LowLimit { sysctl: "net.core.rmem_max", value: 212_992 }]);
        assert!(low[0].to_string().contains("`sysctl net.core.rmem_max=4194304`"), "{}", low[0]);
        fs::remove_dir_all(&folder).expect("removed");
        assert_eq!(low_limits_in(&folder), []);
    }

    #[test]
    fn a_short_datagram_is_received_by_the_first_socket() {
        let (address, group) = bind_group(ANY, 2).expect("a group");
        let client = UdpSocket::bind(ANY).expect("a client");
        client.send_to(&[0xc0], address).expect("sent");
        assert_eq!(group[0].recv(&mut [0; 8]).expect("a datagram"), 1);
    }
}

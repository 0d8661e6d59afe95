//! Datagram sockets of QUIC: a group of sockets with one address, among which the kernel distributes datagrams by the first
//! byte of the connection ID.
//!
//! A client that changes its address or port keeps its connection ID, so its packets still reach the socket of the worker
//! that has the connection. The position of a socket in the group is the order of binding. The kernel moves the last socket
//! into the place of a closed one, so the sockets of a group are kept together until all connections have ended.

mod steering;

use std::fmt;
use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use socket2::{Domain, Protocol, Socket, Type};

use self::steering::Steering;

/// Wanted size of both kernel buffers of a socket, in bytes. The kernel caps it at `net.core.rmem_max` and
/// `net.core.wmem_max`. The usual default of 208 KiB loses packets at 1 Gbit/s.
pub const BUFFER: usize = 4 << 20;

/// Maximum number of sockets of a group, which the callers of [`bind_group`] observe: one byte distinguishes them.
pub const LARGEST_GROUP: usize = 256;

/// Binds the `count` sockets of a group, in order, and steers datagrams among them; returns their address, with the port
/// that the system chose for port 0. An IPv6 address receives IPv6 only. `AddrInUse` if another socket has the address.
pub fn bind_group(address: SocketAddr, count: usize) -> io::Result<(SocketAddr, Vec<UdpSocket>)> {
    // The first bind is without `SO_REUSEPORT`, for a moment, so that the address of another program is an error.
    let address = bind(address, false)?.local_addr()?;
    Ok((address, bind_beside(address, count)?))
}

/// As [`bind_group`], for an `address` with a port that sockets of a group of the same user may have too, among others: the
/// kernel prefers the group whose address is more specific.
pub fn bind_beside(address: SocketAddr, count: usize) -> io::Result<Vec<UdpSocket>> {
    let sockets = (0..count).map(|_| bind(address, true)).collect::<io::Result<Vec<_>>>()?;
    let Some(first) = sockets.first() else { return Ok(sockets) };
    Steering::alone(sockets.len()).attach(first)?;
    Ok(sockets)
}

/// Adopts the sockets of a group that this or another process has bound, in their order. They become non-blocking. An empty group
/// is an error.
///
/// Twice as many sockets as `workers` are two halves, one for each generation of processes: a process and its predecessor,
/// which still drains, then receive the packets of their own connections. Nothing changes for the predecessor until
/// [`Halves::take_over`], with any number of sockets.
pub fn adopt_group(sockets: Vec<Socket>, workers: usize) -> io::Result<(Vec<UdpSocket>, Halves)> {
    let adopt = |socket: Socket| {
        socket.set_nonblocking(true)?;
        enlarge_buffers(&socket)?;
        Ok(socket.into())
    };
    let mut sockets = sockets.into_iter().map(adopt).collect::<io::Result<Vec<UdpSocket>>>()?;
    let Some(first) = sockets.first() else { return Err(io::ErrorKind::InvalidInput.into()) };
    // The first socket is the memory of `store_half` for every process of the group,
    // whichever half it serves.
    let first = first.try_clone()?;
    if sockets.len() != 2 * workers || sockets.len() > LARGEST_GROUP {
        let steering = Steering::alone(sockets.len());
        return Ok((sockets, Halves { steering, first, rest: Vec::new() }));
    }
    let is_second = !stored_half(&first)?;
    let second = sockets.split_off(workers);
    let (own, rest) = if is_second { (second, sockets) } else { (sockets, second) };
    Ok((own, Halves { steering: Steering { own: workers, halves: 2, is_second }, first, rest }))
}

/// The halves of a group of sockets, of which one is for the connections of this process; or a group that is for this process
/// alone.
#[derive(Debug)]
pub struct Halves {
    steering: Steering,
    first: UdpSocket,
    /// The other half, which stays open so that the sockets keep their places. None without halves.
    rest: Vec<UdpSocket>,
}

impl Halves {
    /// Whether the sockets of this process are the second half; `None` if the group has no halves.
    pub fn half(&self) -> Option<bool> {
        (self.steering.halves == 2).then_some(self.steering.is_second)
    }

    /// The sockets of both halves in the order of binding, where `own` are those of this process.
    pub fn all<'s>(&'s self, own: &'s [UdpSocket]) -> impl Iterator<Item = &'s UdpSocket> {
        let (first, second) = if self.steering.is_second { (&*self.rest, own) } else { (own, &*self.rest) };
        first.iter().chain(second)
    }

    /// Directs the packets of new connections to the sockets of this process, and makes the next process use the other half.
    /// Without halves, all packets are distributed among the sockets of this process.
    ///
    /// To be called when the process is about to serve, and again after a successor has called it and ended without serving.
    pub fn take_over(&self) -> io::Result<()> {
        if let Some(is_second) = self.half() {
            store_half(&self.first, is_second)?;
        }
        // One socket suffices, because the program belongs to the group. The other half stays in the program,
        // so that the predecessor still gets the packets of its connections.
        self.steering.attach(&self.first)
    }
}

/// The half of the last process, as [`store_half`] wrote it. The memory is an option of the socket that has no effect on QUIC,
/// which has no multicast: every copy of a descriptor shares it, so that it survives the process.
fn stored_half(socket: &UdpSocket) -> io::Result<bool> {
    let is_usual = match socket.local_addr()? {
        SocketAddr::V4(_) => socket.multicast_loop_v4()?,
        SocketAddr::V6(_) => socket.multicast_loop_v6()?,
    };
    Ok(!is_usual)
}

fn store_half(socket: &UdpSocket, is_second: bool) -> io::Result<()> {
    match socket.local_addr()? {
        SocketAddr::V4(_) => socket.set_multicast_loop_v4(!is_second),
        SocketAddr::V6(_) => socket.set_multicast_loop_v6(!is_second),
    }
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
    /// Name of the setting, such as `net.core.rmem_max`.
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

#[cfg(test)]
mod tests {
    use brisk_testkit::process::wait_until;

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
            let expected = usize::from(first) % group.len();
            let (index, bytes) = received(group);
            assert!(bytes.ends_with(&(number as u32).to_be_bytes()));
            right += usize::from(index == expected);
        }
        right
    }

    /// Waits for a datagram. Returns the index of its socket, and its bytes. Loopback usually delivers within `send_to`; under
    /// load, a thread of the kernel does it later.
    fn received(group: &[UdpSocket]) -> (usize, Vec<u8>) {
        let mut buffer = [0; 64];
        wait_until("a datagram", || {
            group.iter().enumerate().find_map(|(index, socket)| {
                let length = socket.recv(&mut buffer).ok()?;
                Some((index, buffer[..length].to_vec()))
            })
        })
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
        let (adopted, halves) = adopt_group(copies(&group), 3).expect("adopted");
        assert_eq!(halves.half(), None);
        drop(group);
        assert_eq!(right(&adopted, address), DATAGRAMS);
    }

    fn copies(group: &[UdpSocket]) -> Vec<Socket> {
        group.iter().map(|socket| socket.try_clone().expect("a copy").into()).collect()
    }

    /// The socket that receives a datagram.
    fn receiver(group: &[UdpSocket], address: SocketAddr, bytes: &[u8]) -> usize {
        let client = UdpSocket::bind(ANY).expect("a client");
        client.send_to(bytes, address).expect("sent");
        received(group).0
    }

    #[test]
    fn processes_that_follow_each_other_use_different_halves_of_a_group() {
        let (address, group) = bind_group(ANY, 6).expect("a group");
        let (initial, handshake) = (|id| [0xc0, 0, 0, 0, 1, 8, id], |id| [0xe0, 0, 0, 0, 1, 8, id]);
        let mut before = None;
        for round in 0..4 {
            let (own, halves) = adopt_group(copies(&group), 3).expect("adopted");
            assert_eq!((own.len(), halves.half()), (3, Some(round % 2 == 0)), "not used by its predecessor");
            halves.take_over().expect("no privilege is needed");
            let half = if halves.half() == Some(true) { 3 } else { 0 };
            for id in 0..12_u8 {
                let (index, place) = (usize::from(id % 3), usize::from(id % 6));
                assert_eq!(
                    receiver(&group, address, &[0x40, id, 0]),
                    place,
                    "a connection of either process"
                );
                assert_eq!(receiver(&group, address, &handshake(id)), place, "an ID of either process");
                assert_eq!(receiver(&group, address, &initial(id)), half + index, "a new connection");
            }
            before = Some(halves);
        }
        drop(before);
    }

    #[test]
    fn a_process_takes_over_again_after_a_successor_that_did_not_serve() {
        let (address, group) = bind_group(ANY, 4).expect("a group");
        let (own, halves) = adopt_group(copies(&group), 2).expect("two halves");
        assert_eq!(halves.all(&own).count(), 4);
        halves.take_over().expect("no privilege is needed");
        let initial = [0xc0, 0, 0, 0, 1, 8, 0];
        let place = receiver(&group, address, &initial);
        assert_eq!(Some(place / 2 == 1), halves.half());
        let (_, successor) = adopt_group(copies(&group), 2).expect("adopted");
        successor.take_over().expect("no privilege is needed");
        assert_ne!(receiver(&group, address, &initial), place);
        halves.take_over().expect("no privilege is needed");
        assert_eq!(receiver(&group, address, &initial), place);
        // The next successor uses the half that is free.
        let (_, next) = adopt_group(copies(&group), 2).expect("adopted");
        assert_eq!(next.half(), successor.half());
    }

    #[test]
    fn a_successor_with_other_workers_changes_nothing_before_it_takes_over() {
        let (address, group) = bind_group(ANY, 4).expect("a group");
        let (_, halves) = adopt_group(copies(&group), 2).expect("two halves");
        halves.take_over().expect("no privilege is needed");
        let places =
            || (0..4_u8).map(|id| receiver(&group, address, &[0xc0, 0, 0, 0, 1, 8, id])).collect::<Vec<_>>();
        let before = places();
        assert_eq!(before, [2, 3, 2, 3]);
        let (own, alone) = adopt_group(copies(&group), 4).expect("adopted");
        assert_eq!((own.len(), alone.half()), (4, None));
        assert_eq!(places(), before);
        alone.take_over().expect("no privilege is needed");
        assert_eq!(places(), [0, 1, 2, 3]);
        halves.take_over().expect("no privilege is needed");
        assert_eq!(places(), before);
    }

    #[test]
    fn a_group_can_have_an_address_beside_the_one_for_all_addresses() {
        let (all, wide) = bind_group(SocketAddr::from(([0, 0, 0, 0], 0)), 2).expect("a group");
        let address = SocketAddr::new(ANY.ip(), all.port());
        assert_eq!(bind_group(address, 2).expect_err("in use").kind(), io::ErrorKind::AddrInUse);
        let narrow = bind_beside(address, 2).expect("another group");
        receiver(&narrow, address, &[0xc0, 0, 0, 0, 1, 8, 0]);
        drop((wide, narrow));
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
        assert_eq!(receiver(&group, address, &[0xc0]), 0);
    }
}
